"""Several are measured by turns, so that whatever drifts meanwhile is the same for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Contestant(Protocol):
    """One of those that take turns."""

    @property
    def least_s(self) -> float:
        """Seconds of wall time that a turn takes at least; 0 if that is not known."""

    @property
    def samples(self) -> Sequence[float]:
        """Seconds of a run, of each sample so far."""

    @property
    def done(self) -> bool:
        """Whether it needs no more turns."""

    def take_turn(self) -> None:
        """Take a sample, or some."""


def take_turns(
    everyone: Sequence[Contestant],
    most: float,
    spent_s: Callable[[], float],
    limit_s: float,
    turned: Callable[[Contestant], None],
    progress: Callable[[float], None],
) -> None:
    """Let one after another take a turn until all are done, or until the time would be up.

    Each has one sample at least and ``most`` of them at most; of the time there are ``limit_s``
    seconds, and ``spent_s`` says how many of them have passed. ``turned`` hears who took a turn,
    ``progress`` the share done.
    """
    spent = spent_s()
    while not all(one.done for one in everyone):
        late = spent + sum(one.least_s for one in everyone) > limit_s
        due = [one for one in everyone if len(one.samples) < (1 if late else most)]
        if not due:
            break
        for one in due:
            one.take_turn()
            turned(one)
        spent = spent_s()
        fewest = min(len(one.samples) for one in everyone)
        progress(min(1.0, max(fewest / most, spent / limit_s if limit_s else 1.0)))
