"""How long a launch keeps the SMs busy: its entries played through, or what they take at least."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from gemmctl.lists.problem import Problem
from gemmctl.planning.arrays import Floats, Ints
from gemmctl.planning.order import come_first, handed_out, runs
from gemmctl.planning.tiling import Grid
from gemmctl.planning.work import Asked, Work

PLAYED = 24  # tiles for each cluster, up to which a list is played through


@dataclass(frozen=True)
class Times:
    """Cycles that entries of each group keep a CTA or cluster busy."""

    whole: Floats  # a tile that is not split
    end: Floats  # more of the last one, until it is stored
    part: Floats  # a part of a split tile
    wait: Floats  # behind the last part, until what adds up parts goes on
    add_up: Floats  # what adds up parts
    widest: Floats  # the widest tile that is not split, where they are not equal


@dataclass(frozen=True)
class Order:
    """The entries of a launch as they are handed out, each by its group."""

    parts: Ints
    whole: Ints
    sums: Ints
    first: int  # of ``whole``, that come before all others


def exact(launch: Grid, asked: Asked) -> bool:
    """Whether a launch takes, up to rounding, what it takes at least: without being played through.

    All its entries are equal, or they are too many to be played through and none comes first.
    """
    if launch.slots:
        return False
    if launch.entries.sum() > PLAYED * launch.room:
        return not come_first(launch).any()
    cut = (launch.rows, launch.high, launch.wide, launch.widths, launch.k_tiles)
    alike = (
        *cut,
        asked.crossing_a,
        asked.crossing_b,
        asked.finished,
        asked.may_begin,
        asked.ends_plain,
        asked.may_join,
        asked.may_scale,
        asked.may_shuffle,
    )
    return all((of == of[0]).all() for of in (*alike, *asked.steps.values()))


def mean_busy(work: Work, times: Times) -> Floats:
    """Cycles that the SMs would be busy with each launch if all were for as long."""
    split = work.parts > 1
    each: Floats = np.where(split, work.parts * times.part, times.whole)
    total = each * work.whole
    if split.any():
        total = total + work.sums * times.add_up
    mean: Floats = np.add.reduceat(total, work.starts) / work.clusters
    return mean


def least_busy(work: Work, times: Times) -> Floats:
    """Cycles that the SMs are busy with each launch at least; ``makespan`` finds how many."""
    split, mean = work.parts > 1, mean_busy(work, times)
    longest = shortest = times.whole
    late = np.where(work.first, 0.0, times.whole)
    if split.any():
        longest = np.where(split, times.part + times.wait + times.add_up, times.whole)
        shortest = np.where(split, np.minimum(times.part, times.add_up), times.whole)
        late = np.where(split, times.add_up, late)
    rounds = -(-work.entries // work.clusters)
    played = np.maximum(mean, rounds * np.minimum.reduceat(shortest, work.starts))
    played = np.maximum(played, np.maximum.reduceat(longest, work.starts))
    widest = np.maximum.reduceat(times.widest, work.starts)
    played = np.maximum(played, _unevenly(mean, widest, rounds))
    first_ends = np.maximum.reduceat(np.where(work.first, longest, 0.0), work.starts)
    rest_ends = mean + np.maximum.reduceat(late, work.starts) / 2
    long_list = work.entries > PLAYED * work.clusters
    return np.where(long_list, np.maximum(first_ends, rest_ends), played)


def order_of(launch: Grid, problem: Problem) -> Order:
    """The order in which a launch's entries are handed out."""
    of, split = handed_out(launch, problem), launch.parts > 1
    first = int(launch.whole[come_first(launch) & ~split].sum())
    if not launch.slots:
        return Order(of[:0], of, of[:0], first)
    in_parts, in_runs = of[split[of]], runs(launch)
    return Order(
        np.repeat(in_parts, launch.parts[in_parts]),
        of[~split[of]],
        np.repeat(in_runs, launch.sums[in_runs]),
        first,
    )


def makespan(times: Times, order: Order, clusters: int) -> float:
    """Cycles until all is done, as every free CTA takes the next entry of the list.

    Short lists are played through. Of long ones what comes first is, which may end last; for the
    others the mean load plus half an entry is as good.
    """
    parts, whole, sums = (
        of[by]
        for of, by in zip(
            (times.part, times.whole, times.add_up),
            (order.parts, order.whole, order.sums),
            strict=True,
        )
    )
    entries = len(parts) + len(whole) + len(sums)
    mean = (parts.sum() + whole.sum() + sums.sum()) / clusters
    free = [0.0] * clusters
    _play(free, parts)
    complete = max(free) + float(times.wait[order.parts].max(initial=0.0))
    if entries <= PLAYED * clusters:
        _play(free, whole)
        _play(free, sums, complete)
        return max(*free, float(_unevenly(mean, times.widest.max(), -(-entries // clusters))))
    _play(free, whole[: order.first])
    adding = float(sums.max(initial=0.0))
    longest = max(float(whole[order.first :].max(initial=0.0)), adding)
    return max(*free, complete + adding, float(mean) + longest / 2)


def _unevenly(mean: Floats, widest: Floats, rounds: Ints | int) -> Floats:
    """Cycles until tiles of unequal widths are done, some of which may begin last; 0 of none."""
    found: Floats = np.minimum(mean + widest / 2, rounds * widest)
    return np.where(widest > 0, found, 0.0)


def _play(free: list[float], entries: Floats, begin: float = 0.0) -> None:
    """Give entries to the CTAs that are ``free`` first, none before ``begin``; a heap of cycles."""
    for entry in entries.tolist():
        heapq.heapreplace(free, max(free[0], begin) + entry)
