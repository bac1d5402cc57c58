"""Groups of few rows on SMs of their own, beside those of many rows.

The ones wait for memory, the others for the tensor cores. In one launch a cluster computes now the
one and now the other, in stages as long as wide tiles need. Where a list has both and nothing
between, as a GPU with a hot expert has, two launches side by side take 0.90 to 1.00 of the time
(docs/kernel.md): one of the groups of many rows, which leaves some SMs alone, and one of the
others, in short stages.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import cost, tiling
from gemmctl.planning.arrays import Ints
from gemmctl.planning.queue import side_by_side
from gemmctl.planning.tiling import Choice, Grid, Machine

KERNEL = "128x256-c2"  # of both: what the model would choose took 1 to 4% longer on most lists
FEW_ROWS = 128  # of D, that groups of few have at most
MANY_ROWS = 512  # that the others have at least: with rows in between it took 0.96 to 1.03
LEAST_K = 2560  # of all groups; behind sums of 2048 and less it took 0.99 to 1.03
LEAST_S = 100e-6  # that the launch takes by the model: shorter ones have not been measured
# Of the SMs, for few rows that have only these, and for such as take longer than many: of an H200
# 48 to 64 of 132 are the fastest then, of an H100, whose memory gives less, 28 to 52.
SHARE, LONGER_SHARE = 0.3, 0.4


def sides(problem: Problem, groups: Ints) -> list[Ints]:
    """The groups of many rows and those of few; none where there are not both, or some between."""
    m = problem.columns.m[groups]
    few, many = m <= FEW_ROWS, m >= MANY_ROWS
    both = few.any() and many.any() and (few | many).all()
    return [groups[many], groups[few]] if both else []


def sharing(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Kernels that keep to some SMs: two CTAs of one are spread over all before any has both."""
    return [kernel for kernel in kernels if kernel.ctas_per_sm == 1]


def ways(
    problem: Problem, groups: Ints, kernels: Sequence[Kernel], machine: Machine
) -> list[tuple[Choice, Choice]]:
    """Ways to cut a launch in two, many rows first; none where that is not worth considering.

    Groups of few rows have the SMs that the others leave or, once these are done, theirs, too. That
    is for those whose list is long then: every CTA that comes late has two tiles of its own to do,
    though others be free.
    """
    able = [kernel for kernel in kernels if kernel.name == KERNEL]
    alone, longer = (2 * round(share * machine.sm_count / 2) for share in (SHARE, LONGER_SHARE))
    k = problem.columns.depth[groups]
    long = k.min() == k.max() >= LEAST_K
    if not able or not alone or not long or not sides(problem, groups):
        return []
    return [
        (
            Choice(KERNEL, able[0].max_width, sms=machine.sm_count - left),
            Choice(KERNEL, FEW_ROWS, sms=own),
        )
        for left, own in ((alone, alone), (longer, 0))
    ]


def choose_apart(
    problem: Problem, groups: Ints, kernels: Sequence[Kernel], machine: Machine, whole: Grid
) -> list[tuple[Choice, Grid]]:
    """The fastest of these ways, if it is faster than the ``whole``, by the cost model.

    That is estimated as these are: as launches beside others.
    """
    best = list[tuple[Choice, Grid]]()
    if not (able := ways(problem, groups, kernels, machine)):
        return best
    if (least := cost.estimate(whole, problem, beside=True)) < LEAST_S * cost.CLOCK_HZ:
        return best
    (kernel,) = (kernel for kernel in kernels if kernel.name == KERNEL)
    parted = sides(problem, groups)
    for way in able:
        cuts = [
            tiling.grid_of(problem, some, kernel, choice, machine)
            for some, choice in zip(parted, way, strict=True)
        ]
        if (cycles := cost.apart(cuts, side_by_side(cuts), problem)) < least:
            best, least = list(zip(way, cuts, strict=True)), cycles
    return best
