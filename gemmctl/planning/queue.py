"""The order in which a run's launches are queued, and which of them go side by side."""

from __future__ import annotations

from collections.abc import Sequence

from gemmctl.planning.tiling import Grid

Queue = tuple[tuple[int, int], ...]  # each launch by its index, with the stream that it goes to


def in_turn(launches: int, streams: int = 1) -> Queue:
    """So many launches in their order, dealt out to so many streams."""
    return tuple((i, i % streams) for i in range(launches))


def side_by_side(launches: Sequence[Grid]) -> Queue:
    """Every launch on a stream of its own, but those that split sums first and all on one.

    Two launches that split sums could hold all SMs between them and wait for ever. Each cluster's
    first two entries are given by its own number, not drawn. So an entry that adds up parts can
    wait for a part of a cluster that has no SM yet; if the clusters of both that have one all wait
    so, none ever leaves. Of a single such launch, with any others beside it, every cluster gets an
    SM in the end: what does not split sums waits for nothing outside its cluster, and leaves.

    They come first since all their clusters start at one time (they are cooperative): what has
    SMs already would keep all of them waiting (`epilogue` 40 us, with the split launch last 51;
    H200, 21 November 2026).
    """
    splitting = [i for i, launch in enumerate(launches) if launch.slots]
    whole = [i for i, launch in enumerate(launches) if not launch.slots]
    first = 1 if splitting else 0
    return (*((i, 0) for i in splitting), *((i, s) for s, i in enumerate(whole, first)))
