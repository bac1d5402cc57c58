"""Which kernel a launch runs on and how it is cut: by the cost model, of all that is worth it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import cost, playing, tail, tiling
from gemmctl.planning.arrays import Floats, Ints
from gemmctl.planning.tiling import Choice, Grid, Machine
from gemmctl.planning.work import Asked, asked_of

SLACK = 1e-9  # share of a bound by which it may lie above the cost, since both are rounded
# Groups that are cut at one time. A call of numpy takes as long for a few groups cut in every width
# as for one; but arrays of many are better off in a processor's caches.
AT_ONCE = 8192
EVENED = 4  # ways to cut a launch whose ends are evened, to see whether another is the fastest then


@dataclass(frozen=True)
class _Launches:
    """Launches that are to be cut: their groups, one launch's after another's."""

    problem: Problem
    groups: Ints
    starts: Ints  # where the groups of each launch begin
    asked: Mapping[bool, Asked]  # by whether a kernel exchanges operands
    machine: Machine

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


@dataclass(frozen=True)
class _Way:
    """One way to cut launches; with an entry for each of them."""

    kernel: Kernel
    width: int
    splits: Ints
    bounds: Floats  # cycles that the launch takes at least


def choose(
    problem: Problem,
    launches: Sequence[Ints],
    kernels: Sequence[Kernel],
    machine: Machine,
    split: bool = True,
    even: bool = False,
) -> list[tuple[Choice, Grid]]:
    """The fastest way to cut each of some launches, which are given by their groups.

    Sums are split only if ``split``, and ends evened if ``even``. What the cost is at least is
    found for all launches and many ways at once, and the cost itself only where it could be the
    least.
    """
    groups, ends = np.concatenate(launches), np.cumsum([len(launch) for launch in launches])
    one_of = {kernel.d_across: kernel for kernel in kernels}
    asked = {exchanged: asked_of(problem, groups, one) for exchanged, one in one_of.items()}
    everything = _Launches(problem, groups, np.append(0, ends[:-1]), asked, machine)
    at_once = max(1, AT_ONCE // len(groups))
    ways: list[_Way] = []
    for kernel in kernels:
        widths = np.array(tiling.widths(kernel))
        for some in np.split(widths, range(at_once, len(widths), at_once)):
            ways += _ways(everything, kernel, some, split)
    bounds = np.transpose([way.bounds for way in ways])
    return [
        _least(everything, launch, slice(*ends_of), ways, bounds[launch], even)
        for launch, ends_of in enumerate(pairwise([0, *ends.tolist()]))
    ]


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
    bounds = cost.at_least(cut, asked, starts).reshape(splits.shape)
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
    whatever they cost as they are, and that of another if it costs less.
    """
    least, best, cut, later = np.inf, 0, None, False
    seen = set[tuple[Kernel, bytes, bytes]]()
    own = launches.groups[groups]
    asked = {exchanged: of.of(groups) for exchanged, of in launches.asked.items()}
    for index in np.argsort(bounds, kind="stable").tolist():
        evens = even and len(seen) < EVENED
        if bounds[index] * (1 - SLACK) > least and not evens:
            break
        way = ways[index]
        planned = tiling.grid(
            launches.problem, own, way.kernel, way.width, launches.machine, way.splits[launch]
        )
        asks = asked[way.kernel.d_across]
        same = way.kernel, planned.widths.tobytes(), planned.parts.tobytes()
        if same in seen:  # another width, or no split, that is the same cut
            continue
        seen.add(same)
        if evens:
            planned, found = tail.evened(planned, launches.problem, asks, least)
        elif playing.exact(planned, asks):
            found = bounds[index]
        else:
            found = cost.estimate(planned, launches.problem, asked=asks)
        if (found, index) < (least, best):
            least, best, cut, later = found, index, planned, even and not evens
    assert cut is not None  # there is a way at least
    way = ways[best]
    if later:
        cut, _ = tail.evened(cut, launches.problem, asked[way.kernel.d_across])
    return Choice(way.kernel.name, way.width, int(way.splits[launch])), cut
