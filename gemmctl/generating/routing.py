"""Which experts tokens choose: weights of experts, and top-k draws without replacement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import BinaryIO

import numpy as np

from gemmctl.errors import UsageError
from gemmctl.generating import importing, source
from gemmctl.generating.draws import DECIMAL, Integers, below, normal, shuffled, words

KINDS = "uniform, zipf:S, lognormal:S, hot:H or counts:FILE"
MAX_SKEW = 20  # S; the second of zipf:20 has a millionth of the first
TOTAL = 2**32  # what an expert's weight is a share of: a word times a total fits 64 bits
HOT_SHARE = 9  # times the weight of all others have the hot experts together


@dataclass(frozen=True)
class Routing:
    """How likely experts are, or, of ``counts:FILE``, how many tokens chose each."""

    text: str  # as it is written
    kind: str
    amount: Decimal = Decimal(0)  # S or H
    counts: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, given: str) -> Routing:
        """A routing by weights from its text; raises UsageError for what is none."""
        kind, colon, amount = given.partition(":")
        if given == "uniform":
            return cls(given, kind)
        if kind in ("zipf", "lognormal") and re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,6})?", amount):
            if Decimal(amount) > MAX_SKEW:
                raise UsageError(f"--routing: {kind} goes up to {MAX_SKEW}, not {amount}")
            return cls(given, kind, Decimal(amount))
        if kind == "hot" and re.fullmatch(r"[1-9][0-9]{0,6}", amount):
            return cls(given, kind, Decimal(amount))
        if colon and kind in ("zipf", "lognormal", "hot"):
            example = "hot:16" if kind == "hot" else f"{kind}:1.2"
            raise UsageError(f"--routing: '{amount}' is no number for {kind}; write {example}")
        raise UsageError(f"--routing: '{given}' is no routing; write {KINDS}")

    def tokens_per_expert(self, experts: int, top_k: int, tokens: int, seed: int) -> Integers:
        """How many of the tokens each expert gets; each token chooses top_k different ones.

        A token chooses one expert after another, each with the probability of its weight among
        those that it has not chosen yet. Raises UsageError for hot:H with too many.
        """
        weights = np.array(self._weights(experts, seed), np.uint64)
        begins = np.cumsum(weights) - weights  # expert e has the points from begins[e] on
        left = np.full(tokens, weights.sum())
        chosen = np.empty((tokens, 0), np.int64)  # of each token, in ascending order
        for choice in range(top_k):
            point = below(left, words(tokens, seed, f"choice {choice}"))
            for taken in chosen.T:  # step over what is chosen already
                point += np.where(point >= begins[taken], weights[taken], np.uint64(0))
            expert = np.searchsorted(begins, point, side="right") - 1
            left -= weights[expert]
            chosen = np.sort(np.column_stack([chosen, expert]), axis=1)
        return np.bincount(chosen.ravel(), minlength=experts)

    def _weights(self, experts: int, seed: int) -> list[int]:
        """Whole weights of 1 or more, TOTAL at most in all."""
        shares = [Decimal(1)] * experts
        if self.kind == "zipf":
            logs = (DECIMAL.multiply(self.amount, DECIMAL.ln(rank + 1)) for rank in range(experts))
            by_rank = [DECIMAL.exp(DECIMAL.minus(log)) for log in logs]
            shares = _given(by_rank, shuffled(experts, seed, "rank"))
        elif self.kind == "lognormal":
            shares = [DECIMAL.exp(DECIMAL.multiply(self.amount, z))
                      for z in normal(experts, seed, "lognormal")]  # fmt: skip
        elif self.kind == "hot":
            hot = int(self.amount)
            if hot >= experts:
                told = f"--routing: {self.text} of {experts} leaves none that is not hot"
                raise UsageError(f"{told}; write hot:{max(experts // 8, 1)}")
            by_heat = [Decimal(HOT_SHARE * (experts - hot))] * hot + [Decimal(hot)] * (
                experts - hot
            )
            shares = _given(by_heat, shuffled(experts, seed, "rank"))
        whole = Decimal(0)
        for share in shares:
            whole = DECIMAL.add(whole, share)
        scale = DECIMAL.divide(Decimal(TOTAL - experts), whole)
        return [int(DECIMAL.multiply(share, scale)) + 1 for share in shares]


def _given(values: Sequence[Decimal], order: Integers) -> list[Decimal]:
    """Value i is given to order[i]."""
    found = list(values)
    for value, place in zip(values, order.tolist(), strict=True):
        found[place] = value
    return found


def parse(given: str, stdin: BinaryIO) -> Routing:
    """A routing from its text; of ``counts:FILE``, the FILE ``-`` is ``stdin``.

    Raises UsageError for what is none, and ListError for a file without tokens per expert.
    """
    kind, _, path = given.partition(":")
    if kind != "counts" or not path:
        return Routing.of(given)
    rows = importing.counts(source.read(path, stdin, source.TOKENS))
    if len(rows) > 1:
        raise UsageError(f"--routing: {path} has {len(rows)} rows of tokens; give it one")
    return Routing(given, kind, counts=tuple(rows[0]))
