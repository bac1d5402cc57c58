"""When launches that run side by side end: which SMs each of them finds, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmctl.planning.arrays import Floats
from gemmctl.planning.queue import Queue

OWN_ENTRIES = 2  # of the list, that each CTA or cluster is given by its number, not drawn


@dataclass(frozen=True)
class Stay:
    """How long the CTAs of a launch keep their SMs where all find one at once, in cycles."""

    alone: float  # what the launch takes with nothing beside it
    leaves: Floats  # each of them, the last one first
    even: float  # all of them, if they shared the work evenly
    rounds: float  # entries of the list for each CTA or cluster
    halves: bool  # whether two of them fit on an SM

    def left(self, starts: Floats) -> Floats:
        """When each of them leaves, if they find room at these times, in ascending order.

        What has a second entry for each has them paired so that all take about as long. CTAs that
        come late have their own entries to do all the same; the others are drawn by whoever is
        free.
        """
        paired = min(max(self.rounds - 1, 0.0), 1.0)
        own = self.leaves + paired * (self.even - self.leaves)
        soonest: Floats = starts + own * min(1.0, OWN_ENTRIES / self.rounds)
        if self.rounds <= 1:
            return soonest
        left: Floats = np.maximum(soonest, _level(soonest, (starts + self.even).sum()))
        return left


def ends(stays: Sequence[Stay], queue: Queue, sms: int, begin: float) -> Floats:
    """When each launch ends; those that are the first of their streams ``begin`` at one time.

    CTAs go to SMs in the order of the queue, those that have no room when one is free. Where two
    fit on an SM, every empty SM gets one before any gets a second; others wait until both left.
    """
    free = np.zeros((2, sms))  # when each SM is left by its last CTA, and when by the one before
    ready, found = dict[int, float](), np.zeros(len(stays))
    for launch, stream in queue:
        stay = stays[launch]
        room = np.maximum(free if stay.halves else free[0], ready.get(stream, begin)).ravel()
        taken = np.argsort(room, kind="stable")[: len(stay.leaves)]
        starts = room[taken]
        left = stay.left(starts)
        if stay.halves:
            free.reshape(-1)[taken] = left
            free = np.sort(free, axis=0)[::-1].copy()
        else:
            free[:, taken] = left
        found[launch] = ready[stream] = max(left.max(), starts[0] + stay.leaves[0])
    return found


def _level(soonest: Floats, total: float) -> float:
    """The time up to which all have to stay that leave before, for all times to sum to a total."""
    ordered = np.sort(soonest)
    behind = ordered[::-1].cumsum()[::-1] - ordered
    levels = (total - behind) / np.arange(1, len(ordered) + 1)
    high = np.append(levels[:-1] <= ordered[1:], True)
    return float(levels[high.argmax()])
