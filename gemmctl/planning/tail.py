"""The end of a launch: its last tiles, cut narrower where clusters would wait for each other.

Equal tiles take whole waves: 5.2 waves take as long as six. With the last 0.2 of a wave in tiles of
half the rows they take five and a half. Where that is not to be had, fewer clusters, which then
have six tiles each, are done as soon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np
import numpy.typing as npt

from gemmctl.lists.problem import Problem
from gemmctl.planning import cost, order, playing, tiling
from gemmctl.planning.arrays import Floats, Ints, Number
from gemmctl.planning.tiling import Grid
from gemmctl.planning.work import Asked, asked_of, work_of

STEP = 32  # rows by which the widths that are tried differ
TRIED = 2  # of them, those that promise most
IDLE = 0.02  # share of a launch's time that clusters wait at its end, from which it is worth a try
GAIN = 0.005  # of a launch's time, for which another width's code is worth fetching
WAVES = 2  # of tiles at a launch's end that may be cut narrower
# Rounds of tiles up to which clusters share them evenly, of fewer slices of K than SLICES, and of
# so many or more; the share of the widest tile that all have to have; and slices up to which CTAs
# that share K do, each. 293 lists take 0.990 of the time by it, but 100 of 512x512x32 in seven
# rounds 1.08, those of which the last tiles are narrower up to 1.06, and 10x6144x16384 in 96 CTAs,
# which draw less from memory than 132, 1.04 (H200, docs/kernel.md).
ROUNDS, SLICES, ROUNDS_OF_LONG = 4, 8, 8
ALIKE = 3 / 4
SHARED_SLICES = 64


def evened(
    planned: Grid, problem: Problem, asked: Asked | None = None, below: float = inf
) -> tuple[Grid, float]:
    """A launch with its last tiles as narrow as is fastest, and the cycles that it then takes.

    That is the launch as it was where nothing is gained: where it has less than a wave, splits
    sums, or consists of tiles that wait for latency more than for each other (measured: nothing at
    K = 256, 1% slower at 96), and where it is too long to be played through; and where it would not
    come ``below`` so many cycles if its end were perfectly even. ``asked`` is what
    ``asked_of`` says of it.
    """
    asked = asked or asked_of(problem, planned.groups, planned.kernel)
    work = work_of(planned, asked)
    times = cost.times_of(work, cost.FITTED)
    taken = cost.taken(planned, problem, asked, work, times)
    playable = planned.room < planned.entries.sum() <= playing.PLAYED * planned.room
    if planned.slots or not playable or order.mostly_short(planned):
        return planned, taken
    mean = np.array([(times.whole * planned.whole).sum() / planned.room])
    if cost.together(work, times, mean, cost.FITTED)[0] > min((1 - IDLE) * taken, below):
        return planned, taken
    best, least = planned, (1 - GAIN) * taken
    for other in _candidates(planned, problem, times.whole, asked):
        if (cycles := cost.estimate(other, problem)) < least:
            best, least = other, cycles
    return best, taken if best is planned else least


def _candidates(planned: Grid, problem: Problem, cycles: Floats, asked: Asked) -> Iterator[Grid]:
    """The launch with some of its last tiles narrower: what would be fastest if all were equal."""
    widths = np.arange(int(planned.widths.max()) - STEP, tiling.NARROWEST - 1, -STEP)
    if not len(widths):
        return
    groups, kernel, machine = planned.groups, planned.kernel, planned.machine
    starts = len(groups) * np.arange(len(widths))
    narrow = tiling.grid(
        problem, np.tile(groups, len(widths)), kernel, widths, machine, starts=starts
    )
    times = cost.times_of(work_of(narrow, asked.repeated(len(widths)), starts), cost.FITTED)
    tiles = np.add.reduceat(narrow.whole, starts)
    mean = np.average(cycles, weights=planned.whole)
    more = tiles / planned.whole.sum()
    share = np.add.reduceat(times.whole * narrow.whole, starts) / tiles / mean
    found = [
        (*_soonest(int(planned.whole.sum()), planned.room, float(more[i]), float(share[i])), i)
        for i in np.nonzero((more > 1) & (share < 1))[0]
    ]
    for _, count, i in sorted(found, key=lambda one: one[0])[:TRIED]:
        one = tiling.grid(problem, groups, kernel, int(widths[i]), machine)
        yield joined(planned, one, _last_columns(planned, one, problem, count))


def _soonest(tiles: int, room: int, more: float, share: float) -> tuple[float, int]:
    """When equal tiles end, in units of one's time, and how many of the last ones to cut for that.

    ``more`` narrow tiles stand for one, and each takes a ``share`` of its time.
    """
    counts = np.arange(1, min(tiles, WAVES * room) + 1)
    full, rest = np.divmod(tiles - counts, room)  # waves, and clusters that have one tile more
    needed = np.ceil(counts * more - 1e-9)
    after = np.arange(1, 2 / share + 2) * share
    ends = np.sort(np.concatenate([after, after + 1]))  # behind the last full wave
    done = (room - rest)[:, None] * np.floor((ends + 1e-9) / share)
    done += rest[:, None] * np.floor(np.maximum(ends - 1 + 1e-9, 0) / share)
    late = (done < needed[:, None]) | ((rest > 0)[:, None] & (ends < 1))
    whole = full + ends[np.argmin(late, axis=1)]
    best = int(whole.argmin())
    return float(whole[best]), int(counts[best])


def _last_columns(planned: Grid, narrow: Grid, problem: Problem, count: int) -> Ints:
    """Columns of tiles of each group, as many as it takes for the last tiles of the list."""
    last = np.bincount(order.handed_out(planned, problem)[-count:], minlength=len(planned.wide))
    return np.where(narrow.widths < planned.widths, -(-last // planned.high), 0)


def joined(planned: Grid, narrow: Grid, taken: Ints) -> Grid:
    """A launch with the last columns of tiles of each group, so many, as in another cut."""
    kept, here = planned.wide - taken, np.arange(len(taken))
    which = np.concatenate([here[kept > 0], len(here) + here[taken > 0]])
    which = which[np.argsort(which % len(here), kind="stable")]

    def both(one: npt.NDArray[Number], other: npt.NDArray[Number]) -> npt.NDArray[Number]:
        return np.take(np.concatenate([one, other]), which)

    return replace(
        planned,
        groups=both(planned.groups, narrow.groups),
        widths=both(planned.widths, narrow.widths),
        last=both(planned.last, narrow.last),
        few=both(planned.few, narrow.few),
        loaded=both(planned.loaded, narrow.loaded),
        high=both(planned.high, narrow.high),
        first=both(np.zeros_like(kept), kept),
        wide=both(kept, taken),
        k_tiles=both(planned.k_tiles, narrow.k_tiles),
        parts=both(planned.parts, narrow.parts),
        sums=both(planned.sums, narrow.sums),
    )


def in_rounds(planned: Grid) -> Grid:
    """A launch with as few clusters as need no more rounds of tiles, where these are alike.

    SMs that would have a tile less than others stay idle instead. That is the launch as it was
    where tiles are not alike, or in so many rounds that one late cluster keeps all others waiting.
    """
    entries, longest = int(planned.entries.sum()), int(planned.k_tiles.max())
    rounds, parts = -(-entries // planned.room), planned.kernel.k_parts
    alike = longest == planned.k_tiles.min() and not (planned.slots or planned.first.any())
    alike = alike and planned.widths.min() >= ALIKE * planned.widths.max()
    few = rounds <= (ROUNDS if longest < SLICES else ROUNDS_OF_LONG)
    waiting = parts > 1 and longest > SHARED_SLICES * parts
    even = alike and few and not waiting
    return replace(planned, limit=-(-entries // rounds)) if even else planned
