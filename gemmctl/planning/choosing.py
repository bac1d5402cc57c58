"""Which kernel a launch runs on and how it is cut: by the cost model, of all that is worth it.

Launches that run side by side are cut so that all of them together end soonest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import inf
from typing import Literal

import numpy as np

from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import cost, playing, tail, tiling
from gemmctl.planning.arrays import Floats, Ints
from gemmctl.planning.beside import Stay
from gemmctl.planning.queue import side_by_side
from gemmctl.planning.tiling import Choice, Grid, Machine
from gemmctl.planning.work import Asked, asked_of

SLACK = 1e-9  # share of a bound by which it may lie above the cost, since both are rounded
# Groups that are cut at one time. A call of numpy takes as long for a few groups cut in every width
# as for one; but arrays of many are better off in a processor's caches.
AT_ONCE = 8192
EVENED = 4  # ways to cut a launch whose ends are evened, to see whether another is the fastest then
# Of launches side by side, the ways to cut them that are tried but the fastest of each: so many of
# all launches, and so many of a launch with one kernel, or that split sums. By the model all there
# are find 0.6% more (32 problems); of two with one kernel, random-020-bias takes 20% longer (H200,
# 24 November 2026).
OTHERS = 8
OF_KERNEL = 3
OF_SPLIT = 1
GAIN = 0.005  # share of the time of all, for which one is cut otherwise than is fastest by itself
# Share of that time by which it is longer where CTAs wait for an SM: in which order launches begin
# is not known, and one that splits sums begins when all its CTAs have one (`odd` took 1.18 of the
# time with 134 CTAs for 132 SMs, by the model as long).
WAITING = 0.01

# What a launch is cut for: to run alone, before or behind others, or at the same time as others.
Company = Literal["none", "in turn", "beside"]


@dataclass(frozen=True)
class _Cut:
    """A launch that is cut in one way."""

    choice: Choice
    planned: Grid
    stay: Stay


@dataclass(frozen=True)
class _Launches:
    """Launches that are to be cut: their groups, one launch's after another's."""

    problem: Problem
    groups: Ints
    starts: Ints  # where the groups of each launch begin
    asked: Mapping[bool, Asked]  # by whether a kernel exchanges operands
    machine: Machine
    beside: bool  # whether others run at the same time

    def cut(self, kernel: Kernel, widths: Ints, splits: Ints) -> tuple[Grid, Ints]:
        """All of them for each of some widths, one width after another, and where each begins.

        ``splits`` has a row for each width, with an entry for each launch.
        """
        ways = len(widths)
        starts = (len(self.groups) * np.arange(ways)[:, None] + self.starts).ravel()
        groups, widest = np.tile(self.groups, ways), np.repeat(widths, len(self.starts))
        found = tiling.grid(
            self.problem, groups, kernel, widest, self.machine, splits.ravel(), starts
        )
        return found, starts

    def planned(self, groups: Ints, way: _Way, launch: int) -> Grid:
        """One of them, which has these groups, cut in one way."""
        splits = way.splits[launch]
        return tiling.grid(self.problem, groups, way.kernel, way.width, self.machine, splits)

    def cut_as(self, choice: Choice, planned: Grid) -> _Cut:
        """All of them as a single launch that is cut so."""
        asked = self.asked[planned.kernel.d_across]
        return _Cut(choice, planned, cost.stay(planned, self.problem, asked=asked))


@dataclass(frozen=True)
class _Way:
    """One way to cut launches; with an entry for each of them."""

    kernel: Kernel
    width: int
    splits: Ints
    bounds: Floats  # cycles that the launch takes at least

    def choice(self, launch: int) -> Choice:
        """What it is for one of them."""
        return Choice(self.kernel.name, self.width, int(self.splits[launch]))

    def comes_to(self, launch: int) -> tuple[Kernel, float]:
        """What ways that come to the same cut of it have in common, of whatever width or splits."""
        return self.kernel, float(self.bounds[launch])


def choose(
    problem: Problem,
    launches: Sequence[Ints],
    kernels: Sequence[Kernel],
    machine: Machine,
    company: Company,
    split: bool = True,
) -> list[tuple[Choice, Grid]]:
    """The fastest way to cut each of some launches by itself, which are given by their groups.

    Sums are split only if ``split``. A launch without ``company`` has its end and its rounds
    evened, and narrower tiles for SMs that it would leave idle: others would fill all of these.
    What the cost is at least is found for all launches and many ways at once, and the cost itself
    only where it could be the least.
    """
    everything, ways = _considered(problem, launches, kernels, machine, company, split)
    bounds = np.transpose([way.bounds for way in ways])
    limits = [*everything.starts.tolist(), len(everything.groups)]
    return [
        _least(everything, launch, slice(*ends_of), ways, bounds[launch], even=company == "none")
        for launch, ends_of in enumerate(pairwise(limits))
    ]


def choose_beside(
    problem: Problem, launches: Sequence[tuple[Ints, Sequence[Kernel]]], machine: Machine
) -> list[tuple[Choice, Grid]]:
    """How to cut launches that run side by side, which are given by their groups and kernels.

    Each as is fastest by itself, but where not all CTAs of these find an SM at once.
    """
    considered = [
        _considered(problem, [groups], kernels, machine, "beside", split=True)
        for groups, kernels in launches
    ]
    best = [_fastest(*one) for one in considered]
    if _waits(best, machine):
        few = OTHERS // len(launches)
        others = [_others(*one, own, few) for one, own in zip(considered, best, strict=True)]
        best = _soonest(best, others, machine)
    return [(one.choice, one.planned) for one in best]


def _soonest(best: list[_Cut], others: Sequence[Sequence[_Cut]], machine: Machine) -> list[_Cut]:
    """Launches cut so that all end soon: one or two after the other as gains most, from these."""
    least = _together(best, machine)
    while True:
        neighbours = list(_neighbours(best, others))
        cycles = [_together(one, machine) for one in neighbours]
        if min(cycles, default=inf) > (1 - GAIN) * least:
            return best
        least = min(cycles)
        best = neighbours[cycles.index(least)]


def _neighbours(best: Sequence[_Cut], others: Sequence[Sequence[_Cut]]) -> Iterator[list[_Cut]]:
    """The same launches with one of them, or two, cut otherwise."""
    for count in (1, 2):
        for which in combinations(range(len(best)), count):
            for cuts in product(*(others[launch] for launch in which)):
                changed = dict(zip(which, cuts, strict=True))
                yield [changed.get(launch, own) for launch, own in enumerate(best)]


def _together(launches: Sequence[_Cut], machine: Machine) -> float:
    queue = side_by_side([one.planned for one in launches])
    cycles = cost.side_by_side([one.stay for one in launches], queue, machine)
    return cycles * (1 + WAITING * _waits(launches, machine))


def _waits(launches: Sequence[_Cut], machine: Machine) -> bool:
    """Whether not all CTAs find an SM at once."""
    return sum(len(one.stay.leaves) for one in launches) > machine.sm_count


def _fastest(launch: _Launches, ways: Sequence[_Way]) -> _Cut:
    """A single launch as it is fastest by itself."""
    bounds = np.concatenate([way.bounds for way in ways])
    return launch.cut_as(*_least(launch, 0, slice(None), ways, bounds, even=False))


def _others(launch: _Launches, ways: Sequence[_Way], fastest: _Cut, few: int) -> list[_Cut]:
    """A single launch in the few ways that promise most by themselves behind the fastest.

    Sums are split only where those of the fastest are: what that would fill, others fill here.
    """
    able = [way for way in ways if way.splits[0] <= fastest.choice.splits]
    able.sort(key=lambda way: float(way.bounds[0]))
    firsts = dict[tuple[Kernel, float], _Way]()  # of those that come to the same
    for way in able:
        firsts.setdefault(way.comes_to(0), way)
    del firsts[next(way.comes_to(0) for way in able if way.choice(0) == fastest.choice)]
    found = list[_Cut]()
    used = Counter[Kernel | None]({fastest.planned.kernel: 1})
    for way in firsts.values():
        if len(found) == few:
            break
        split = way.splits[0] > 1
        sort, most = (None, OF_SPLIT) if split else (way.kernel, OF_KERNEL)
        if used[sort] < most:
            planned = launch.planned(launch.groups, way, 0)
            found.append(launch.cut_as(way.choice(0), planned))
            used[sort] += 1
    return found


def _considered(
    problem: Problem,
    launches: Sequence[Ints],
    kernels: Sequence[Kernel],
    machine: Machine,
    company: Company,
    split: bool,
) -> tuple[_Launches, list[_Way]]:
    """Launches, and all ways to cut them that are worth considering."""
    alone = company == "none"
    kernels = tiling.considered(kernels, sum(map(len, launches)), machine, alone)
    groups, ends = np.concatenate(launches), np.cumsum([len(launch) for launch in launches])
    one_of = {kernel.d_across: kernel for kernel in kernels}
    asked = {exchanged: asked_of(problem, groups, one) for exchanged, one in one_of.items()}
    starts, beside = np.append(0, ends[:-1]), company == "beside"
    everything = _Launches(problem, groups, starts, asked, machine, beside)
    at_once = max(1, AT_ONCE // len(groups))
    ways: list[_Way] = []
    for kernel in kernels:
        widths = np.array(tiling.widths(problem, groups, kernel, machine, alone))
        for some in np.split(widths, range(at_once, len(widths), at_once)):
            ways += _ways(everything, kernel, some, split)
    return everything, ways


def _ways(launches: _Launches, kernel: Kernel, widths: Ints, split: bool) -> Iterator[_Way]:
    """Those that are worth considering: of each width, first the one without splits."""
    splits = np.ones((len(widths), len(launches.starts)), np.int64)
    cut, starts = launches.cut(kernel, widths, splits)
    if split:
        several = [parts.reshape(splits.shape) for parts in tiling.splits(cut, starts)]
        every = np.stack([splits, *several], axis=1)
        worth = every.max(axis=2) > 1
        if worth.any():
            worth[:, 0] = True
            widths, splits = widths[np.nonzero(worth)[0]], every[worth]
            cut, starts = launches.cut(kernel, widths, splits)
    asked = launches.asked[kernel.d_across].repeated(len(widths))
    bounds = cost.at_least(cut, asked, starts, beside=launches.beside).reshape(splits.shape)
    for width, parts, bound in zip(widths.tolist(), splits, bounds, strict=True):
        yield _Way(kernel, width, parts, bound)


def _least(
    launches: _Launches,
    launch: int,
    groups: slice,
    ways: Sequence[_Way],
    bounds: Floats,
    even: bool,
) -> tuple[Choice, Grid]:
    """The way of least cost to cut one launch, of equal ones the first.

    ``bounds`` say what each costs at least. If ``even``, the ends of the first by that are evened,
    whatever they cost as they are, and that of another if it costs less; and its rounds.
    """
    least, best, cut, later = np.inf, 0, None, False
    seen = set[tuple[Kernel, float]]()
    own = launches.groups[groups]
    asked = {exchanged: of.of(groups) for exchanged, of in launches.asked.items()}
    for index in np.argsort(bounds, kind="stable").tolist():
        evens = even and len(seen) < EVENED
        if bounds[index] * (1 - SLACK) > least and not evens:
            break
        way = ways[index]
        if way.comes_to(launch) in seen:
            continue
        seen.add(way.comes_to(launch))
        planned, asks = launches.planned(own, way, launch), asked[way.kernel.d_across]
        if evens:
            planned, found = tail.evened(planned, launches.problem, asks, least)
        elif playing.exact(planned, asks):
            found = bounds[index]
        else:
            found = cost.estimate(planned, launches.problem, asked=asks, beside=launches.beside)
        if (found, index) < (least, best):
            least, best, cut, later = found, index, planned, even and not evens
    assert cut is not None  # there is a way at least
    way = ways[best]
    if later:
        cut, _ = tail.evened(cut, launches.problem, asked[way.kernel.d_across])
    return way.choice(launch), tail.in_rounds(cut) if even else cut
