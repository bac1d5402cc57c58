"""Which kernel a launch runs on and how it is cut: by the cost model, of all that is worth it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import cost, tiling
from gemmctl.planning.tiling import Choice, Floats, Ints, Machine

SLACK = 1e-9  # share of a bound by which it may lie above the cost, since both are rounded


def choose(
    problem: Problem,
    launches: Sequence[Ints],
    kernels: Sequence[Kernel],
    machine: Machine,
    split: bool = True,
) -> list[Choice]:
    """The fastest way to cut each of some launches, which are given by their groups.

    Sums are split only if ``split``. What the cost is at least is found for all launches at once,
    and the cost itself only where it could be the least.
    """
    groups, sizes = np.concatenate(launches), [len(launch) for launch in launches]
    starts = np.cumsum([0, *sizes[:-1]])
    asked = cost.asked_of(problem, groups, kernels[0])
    ways: list[tuple[Kernel, int, Ints]] = []
    bounds: list[Floats] = []
    for kernel in kernels:
        for width in tiling.widths(kernel):
            whole = tiling.grid(problem, groups, kernel, width, machine)
            ways.append((kernel, width, np.ones_like(starts)))
            bounds.append(cost.at_least(whole, asked, starts))
            for splits in tiling.splits(whole, starts) if split else ():
                if splits.max() > 1:
                    parted = tiling.grid(problem, groups, kernel, width, machine, splits, starts)
                    ways.append((kernel, width, splits))
                    bounds.append(cost.at_least(parted, asked, starts))
    return [
        _least(problem, own, ways, i, bound, machine)
        for i, (own, bound) in enumerate(zip(launches, np.transpose(bounds), strict=True))
    ]


def _least(
    problem: Problem,
    groups: Ints,
    ways: Sequence[tuple[Kernel, int, Ints]],
    launch: int,
    bounds: Floats,
    machine: Machine,
) -> Choice:
    """The way of least cost to cut one launch, of equal ones the first.

    ``bounds`` say what each costs at least.
    """
    least, best = np.inf, 0
    asked = cost.asked_of(problem, groups, ways[0][0])
    seen = set()
    for index in np.argsort(bounds, kind="stable").tolist():
        kernel, width, splits = ways[index]
        if bounds[index] * (1 - SLACK) > least:
            break
        planned = tiling.grid(problem, groups, kernel, width, machine, splits[launch])
        same = kernel, planned.widths.tobytes(), planned.parts.tobytes()
        if same in seen:  # another width, or no split, that is the same cut
            continue
        seen.add(same)
        exact = cost.exact(planned)
        found = bounds[index] if exact else cost.estimate(planned, problem, asked=asked)
        if (found, index) < (least, best):
            least, best = found, index
    kernel, width, splits = ways[best]
    return Choice(kernel.name, width, int(splits[launch]))
