"""Gradients of the weights of dense layers, which differ in shape and share their tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from gemmctl.errors import UsageError
from gemmctl.generating import draws, passes
from gemmctl.generating.listing import Group, Made, check_count, extents
from gemmctl.generating.ranges import number, span
from gemmctl.lists.fields import MAX_GROUPS


@dataclass(frozen=True)
class Wgrad:
    """A group for each of ``weights``, ``NxK`` or ``NxK:COUNT``: dW[n, k] += dY^T X in place.

    ``tokens``, N or LOW:HIGH, are what is summed over; of a range each group draws its own.
    """

    weights: tuple[str, ...]
    tokens: str
    dtype: str
    seed: int
    name: str | None

    kind: ClassVar[str] = "wgrad"

    def made(self) -> tuple[Made, ...]:
        """One problem; raises UsageError for what is no shape or range."""
        written = [_weights(each) for each in self.weights]
        range_ = span("--tokens", self.tokens)
        name = self.name or f"wgrad-{'+'.join(self.weights)}-t{self.tokens}".replace(":", "_")
        total = sum(count for _, _, count in written)
        check_count(name, total)
        tokens = iter(draws.uniform(range_.low, range_.high, total, self.seed, "tokens"))
        types = passes.element_types("wgrad", self.dtype)
        groups: list[Group] = []
        for n, k, count in written:
            mine = [next(tokens) for _ in range(count)]
            groups += passes.groups("wgrad", mine, n, k, types)
        about = f"Gradients of weights, {passes.PASSES['wgrad']}: {extents(groups)}."
        return (Made(name, (about,), groups),)


def _weights(given: str) -> tuple[int, int, int]:
    """N, K and how many; raises UsageError for anything else."""
    found = re.fullmatch(r"(?P<n>[0-9]+)[xX](?P<k>[0-9]+)(?::(?P<count>[0-9]+))?", given)
    if not found:
        told = f"--weights: '{given}' is no shape of weights"
        raise UsageError(f"{told}; write NxK, or NxK:COUNT, such as 4096x7168:4")
    n, k = (number(f"--weights: {key} of {given}", found[key]) for key in ("n", "k"))
    return n, k, number(f"--weights: count of {given}", found["count"] or "1", 1, MAX_GROUPS)
