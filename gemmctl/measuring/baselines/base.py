"""What a baseline is, and how one says that it cannot run a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gemmctl.planning.plan import Plan

# What fields of a group are called where a user reads of them.
CALLED = {"m": "M", "n": "N", "k": "K", "a": "the type of A", "c": "the type of C",
          "d": "the type of D"}  # fmt: skip


class Inapplicable(Exception):
    """A baseline cannot run a problem; the text says why."""


class Baseline(Protocol):
    """A library made ready to compute a session's products from its operands.

    Making one runs it once, so that it has picked its kernels; raises Inapplicable.
    """

    def queue(self) -> None:
        """Queue one run on the session's stream."""

    def deliver(self) -> None:
        """Queue what it takes to have the result in the session's D; no part of a run."""


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
        *most, last = differing
        raise Inapplicable(f"groups differ in {', '.join(most)}{' and ' if most else ''}{last}")
