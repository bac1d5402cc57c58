"""Decide how a problem runs: kernel, tiles and their order, launches, where operands lie.

Everything here is pure: no device is asked, nothing is allocated, and the same problem, kernels
and machine always give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Literal

import numpy as np

from gemmctl.errors import ListError, ranged
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import LAYOUTS, Group, Problem
from gemmctl.operands import dtypes
from gemmctl.planning import apart, cost, tail, tiles, tiling
from gemmctl.planning.arena import Layout, lay_out
from gemmctl.planning.arrays import Ints
from gemmctl.planning.choosing import choose, choose_beside
from gemmctl.planning.exchange import exchanged, swapped
from gemmctl.planning.fitting import takes
from gemmctl.planning.packing import Packing, left_in_place, pack
from gemmctl.planning.queue import Queue, in_turn, side_by_side
from gemmctl.planning.refusals import Refusal, refusals
from gemmctl.planning.tiles import Launch
from gemmctl.planning.tiling import H200, Choice, Grid, Machine

USUAL = ["row", "col", "row"]  # layouts of A, B and D that a list need not name
STREAMS = 8  # that launches of single groups are spread over

# All groups that share element types and layouts in one launch, alone or together with the set-up
# of its tensor maps, and several such launches side by side; or one launch for each group, one
# after another or over STREAMS streams. All but a single launch of the first kind are CUDA graphs,
# so that the host does not set the pace.
Launching = Literal["grouped", "graph", "serial", "streams"]
TOGETHER: tuple[Launching, ...] = ("grouped", "graph")  # all such groups


@dataclass(frozen=True)
class Plan:
    """A problem made ready for a device."""

    problem: Problem
    exchanged: Problem  # the same with every D by rows: what launches compute
    launches: tuple[Launch, ...]
    layout: Layout
    packing: Packing  # what is copied before the launches, and where these read A and B
    flops: int  # 2 m n k, summed over groups; none where alpha is 0
    bytes: int  # D and bias once, A and B once where alpha is not 0, C once where beta is not 0
    launch: Launching = "grouped"
    tuned: bool = False  # cut as it measured fastest, not as the cost model finds
    plan_s: float = field(default=0.0, compare=False)  # of host time that making this plan took

    @cached_property
    def queue(self) -> Queue:
        """The order in which a GPU is given the launches, and the stream of each."""
        if self.launch in TOGETHER:
            return side_by_side(self.launches)
        return in_turn(len(self.launches), STREAMS if self.launch == "streams" else 1)

    @property
    def streams(self) -> int:
        """Streams that a GPU spreads the launches over: so many run side by side."""
        return len({stream for _, stream in self.queue})

    @property
    def apart(self) -> bool:
        """Whether the first launch leaves SMs to the second (apart.py)."""
        return bool(self.launches) and self.launches[0].machine.given > 0

    @property
    def tiles(self) -> int:
        """Entries of all tile lists."""
        return sum(len(launch.tiles) for launch in self.launches)

    @property
    def waves(self) -> float:
        """Waves of all launches."""
        return sum(launch.waves for launch in self.launches)

    @property
    def tile_efficiency(self) -> float:
        """Useful multiply-adds over those done with padding; 1 where there are none."""
        padded = sum(launch.padded_macs for launch in self.launches)
        return self.flops / 2 / padded if padded else 1.0

    @property
    def kernel(self) -> str:
        """The names of the kernels used, each once."""
        return "+".join(dict.fromkeys(launch.kernel.name for launch in self.launches)) or "none"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How each launch is cut."""
        return tuple(launch.choice for launch in self.launches)

    @property
    def ctas(self) -> tuple[int, ...]:
        """CTAs that each launch starts, on a GPU that has room for them."""
        return tuple(launch.clusters * launch.kernel.ctas for launch in self.launches)

    @cached_property
    def estimate_s(self) -> float:
        """Seconds that the cost model expects a run to take."""
        return self.cycles(cost.FITTED) / cost.CLOCK_HZ

    def cycles(self, constants: cost.Constants) -> float:
        """Cycles that packing and all launches take by a cost model with these constants."""
        launches = cost.all_together(self.launches, self.queue, self.exchanged, constants)
        if not self.packing.bytes:
            return launches
        return cost.copying(self.packing.bytes, self.launches[0].machine, constants) + launches

    @cached_property
    def operands(self) -> tuple[Ints, Ints]:
        """Where A and B of ``exchanged`` lie: byte offsets in the arena, one per group."""
        return swapped(self.problem, self.layout.a, self.layout.b)

    @cached_property
    def dtype(self) -> str:
        """Element types, as in ``bf16->f32``; several joined by commas.

        Behind them the layouts of A, B and D by their first letters where they are not row, col and
        row: ``bf16/rrr``.
        """
        kinds = {(g.a, g.d, g.a_layout, g.b_layout, g.d_layout): None for g in self.problem.groups}
        return ",".join(
            (a if a == d else f"{a}->{d}")
            + ("" if layouts == USUAL else f"/{''.join(layout[0] for layout in layouts)}")
            for a, d, *layouts in kinds
        )

    @cached_property
    def shape(self) -> str:
        """M x N x K of the groups, a range where they differ."""
        columns = self.problem.columns
        sizes = (columns.m, columns.n, columns.k)
        return "x".join(ranged(int(of.min()), int(of.max())) for of in sizes)


def make(
    problems: Iterable[Problem],
    kernels: Sequence[Kernel],
    machine: Machine = H200,
    launch: Launching = "grouped",
    chosen: Mapping[str, Sequence[Choice]] | None = None,
) -> list[Plan]:
    """Plan every problem.

    ``chosen`` says by problem name how to cut each of its launches, which have to be grouped; the
    cost model decides on the others. Raises ListError with every group that no kernel can run:
    its place, the reason and the nearest legal value; ValueError where there is not one choice for
    each launch.
    """
    problems, refused, checked = list(problems), dict[Refusal, None](), []
    for problem in problems:
        started = perf_counter()
        refused.update(dict.fromkeys(refusals(problem, kernels)))
        checked.append(perf_counter() - started)
    if refused:
        raise ListError(refused)
    chosen = chosen or {}
    return [
        _plan(problem, kernels, machine, launch, chosen.get(problem.name), check_s)
        for problem, check_s in zip(problems, checked, strict=True)
    ]


def _plan(
    problem: Problem,
    kernels: Sequence[Kernel],
    machine: Machine,
    launch: Launching,
    choices: Sequence[Choice] | None,
    check_s: float,
) -> Plan:
    started = perf_counter()
    work = exchanged(problem)
    launches: list[Launch] = []
    if choices is None and launch not in TOGETHER:
        for groups, fitting in alike(work, kernels):
            launches += _choose_each(work, groups, fitting, machine, split=launch == "serial")
    else:
        cuts = _cuts(work, kernels, machine, choices)
        launches += [tiles.cut(work, planned, choice) for choice, planned in cuts]
    columns = problem.columns
    m, n, k = columns.m, columns.n, columns.depth
    layout, moved = lay_out(problem)
    woven = np.zeros(len(problem.groups), bool)
    for cut in launches:
        woven[cut.groups] = cut.kernel.b_unaligned
    packing = pack(work, *swapped(problem, layout.a, layout.b), layout.size, woven)
    return Plan(
        problem=problem,
        exchanged=work,
        launches=tuple(launches),
        layout=replace(layout, size=packing.end),
        packing=packing,
        flops=2 * int((m * n).astype(object) @ k.astype(object)),
        bytes=moved,
        launch=launch,
        tuned=choices is not None,
        plan_s=check_s + perf_counter() - started,
    )


def alike(problem: Problem, kernels: Sequence[Kernel]) -> Iterator[tuple[Ints, list[Kernel]]]:
    """The groups of each launch, which have elements and share types and layouts, and its kernels.

    Every D of the problem is by rows. In the order of the first groups of each sort, be they empty
    or not; groups with an unaligned B that is not copied are a sort of their own.
    """
    columns = problem.columns
    sorts = columns.a * len(dtypes.BY_NAME) + columns.d
    sorts = (sorts * len(LAYOUTS) + columns.a_layout) * len(LAYOUTS) + columns.b_layout
    for first in sorted(np.unique(sorts, return_index=True)[1].tolist()):
        groups = np.flatnonzero(columns.active & (sorts == sorts[first]))
        group = problem.groups[first]
        wanted = group.a, group.d, group.a_layout, group.b_layout
        fitting = [kernel for kernel in kernels if kernel.multiplies == wanted]
        unaligned = [kernel for kernel in fitting if kernel.b_unaligned]
        aligned = [kernel for kernel in fitting if not kernel.b_unaligned]
        if unaligned and aligned:
            left = left_in_place(problem, groups)
        else:
            left = np.full(len(groups), bool(unaligned))
        for some, able in ((groups[left], unaligned), (groups[~left], aligned)):
            if len(some):
                yield some, [one for one in able if takes(one, problem, some)]


def sorts(
    problem: Problem, kernels: Sequence[Kernel], launches: int | None = None
) -> list[tuple[Ints, list[Kernel]]]:
    """What ``alike`` says, or of so many ``launches``: if that is one more, few rows are apart."""
    found = list(alike(problem, kernels))
    if launches == 2 and len(found) == 1:
        ((groups, fitting),) = found
        return [(some, fitting) for some in apart.sides(problem, groups)]
    return found


def _cuts(
    problem: Problem,
    kernels: Sequence[Kernel],
    machine: Machine,
    choices: Sequence[Choice] | None,
) -> list[tuple[Choice, Grid]]:
    """How the launches of a problem are cut, by these choices or as the cost model finds.

    The end and the rounds of one that is alone are evened: of several, others would take what it
    leaves idle.
    """
    launches = sorts(problem, kernels, None if choices is None else len(choices))
    alone = len(launches) == 1
    if choices is not None:
        return [
            (choice, _as_chosen(problem, *launch, choice, machine, even=alone))
            for choice, launch in zip(choices, launches, strict=True)
        ]
    if alone:
        ((groups, fitting),) = launches
        (whole,) = choose(problem, [groups], fitting, machine, company="none")
        return apart.choose_apart(problem, groups, fitting, machine, whole[1]) or [whole]
    return choose_beside(problem, launches, machine)


def _choose_each(
    problem: Problem, groups: Ints, kernels: Sequence[Kernel], machine: Machine, split: bool
) -> list[Launch]:
    """A launch for every group; equal groups are decided and cut once.

    Sums are split only if ``split``: not where launches run side by side (``side_by_side`` says
    why). Each is cut as if they ran in turn, all the same.
    """
    firsts: dict[Group, int] = {}
    same = [firsts.setdefault(problem.groups[index], index) for index in groups.tolist()]
    alone = [np.array([index]) for index in firsts.values()]
    chosen = choose(problem, alone, kernels, machine, company="in turn", split=split)
    cut = {
        int(group[0]): tiles.cut(problem, planned, choice)
        for group, (choice, planned) in zip(alone, chosen, strict=True)
    }
    return [
        cut[first] if first == index else replace(cut[first], groups=np.array([index]))
        for first, index in zip(same, groups.tolist(), strict=True)
    ]


def _as_chosen(
    problem: Problem,
    groups: Ints,
    kernels: Sequence[Kernel],
    choice: Choice,
    machine: Machine,
    even: bool,
) -> Grid:
    """How a launch is cut by that choice; its end and its rounds evened if ``even``."""
    (kernel,) = (kernel for kernel in kernels if kernel.name == choice.kernel)
    planned = tiling.grid_of(problem, groups, kernel, choice, machine)
    return tail.in_rounds(tail.evened(planned, problem)[0]) if even else planned
