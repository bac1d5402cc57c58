"""What a baseline is, and how one says that it cannot run a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from gemmctl.device.base import repeat
from gemmctl.errors import DeviceFailed, listed
from gemmctl.judging.manner import Manner
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

Queue = Callable[[], None]

# What fields of a group are called where a user reads of them.
CALLED = {"m": "M", "n": "N", "k": "K", "a": "the type of A", "c": "the type of C",
          "d": "the type of D", "bias_type": "the type of the bias",
          **{f"{x}_layout": f"the layout of {x.upper()}" for x in "abd"}}  # fmt: skip
TRIAL = 3  # samples of each in a trial, forth and back


class Inapplicable(Exception):
    """A baseline cannot run a problem; the text says why."""


class NoGraph(Exception):
    """What a baseline queues cannot be a CUDA graph; the text says why."""


class Baseline(Protocol):
    """A library made ready to compute a session's products from its operands.

    Making one runs it once, so that it has picked its kernels; raises Inapplicable. ``manner`` says
    how it does what is more than alpha A B.
    """

    @property
    def manner(self) -> Manner:
        """As in manner.py."""

    def queue(self) -> None:
        """Queue one run on the session's stream, by the library's own calls."""

    def graph(self, runs: int) -> Queue:
        """What queues so many runs as one CUDA graph; raises NoGraph."""

    def poison(self) -> None:
        """Queue NaN over the last run's result, where that is not the session's D."""

    def deliver(self) -> None:
        """Queue a copy of the last run's result to the session's D; no part of a run."""


@dataclass(frozen=True)
class Calls:
    """A baseline whose calls need nothing but the session's stream, and write to its D."""

    session: CudaSession
    call: Queue
    manner: Manner = ""

    def queue(self) -> None:
        """Queue one run on the session's stream."""
        self.call()

    def graph(self, runs: int) -> Queue:
        """What queues so many runs as one CUDA graph; raises NoGraph."""
        device, cleanup = self.session.device, self.session.cleanup
        try:
            captured = device.capture(partial(repeat, self.call, runs), cleanup)
        except (DeviceFailed, Inapplicable) as error:
            raise NoGraph(str(error)) from None
        return partial(device.launch_graph, captured)

    def poison(self) -> None:
        """Nothing: the result is the session's D."""

    def deliver(self) -> None:
        """Nothing: the result is the session's D."""


def trial(session: CudaSession, queues: Sequence[Queue]) -> list[float]:
    """Medians, in seconds, of a few cold samples of each; taken forth and back.

    Whatever drifts meanwhile, such as a clock at the power limit, then favours none of them.
    """
    taken: list[list[float]] = [[] for _ in queues]
    order = range(len(queues))
    for i in (*order, *reversed(order)):
        samples = session.time(TRIAL, cold=True, queue=queues[i])
        taken[i] += [sample.seconds for sample in samples]
    return [float(np.median(samples)) for samples in taken]


def active(plan: Plan) -> list[int]:
    """The groups that have a D at all; raises Inapplicable if none has."""
    groups = [i for i, group in enumerate(plan.problem.groups) if group.m and group.n]
    if not groups:
        raise Inapplicable("there is nothing to compute")
    return groups


def require_same(plan: Plan, groups: Sequence[int], *keys: str) -> None:
    """Raise Inapplicable if groups differ in any of these fields."""
    found = [plan.problem.groups[i] for i in groups]
    differing = [
        CALLED.get(key, key) for key in keys if len({getattr(group, key) for group in found}) > 1
    ]
    if differing:
        raise Inapplicable(f"groups differ in {listed(differing)}")


def require_words(plan: Plan, groups: Sequence[int], who: str) -> None:
    """Raise Inapplicable if rows of A or B that ``who`` gathers beforehand do not begin on words.

    To gather them is to put them on 16-byte boundaries, which is what others need time for.
    """
    columns = plan.problem.columns
    if any(columns.off_words[of][groups].any() for of in "ab"):
        raise Inapplicable(
            f"operands are gathered for {who} before the time begins, which would put their rows "
            "on 16-byte boundaries"
        )


def require_none(
    plan: Plan, groups: Sequence[int], who: str, *keys: Literal["bias", "activation", "gate"]
) -> None:
    """Raise Inapplicable if a group has any of these, which a library does not know."""
    found = [plan.problem.groups[i] for i in groups]
    having = [key for key in keys if any(getattr(group, key) != "none" for group in found)]
    if having:
        raise Inapplicable(f"{who} knows no {listed(having)}")
