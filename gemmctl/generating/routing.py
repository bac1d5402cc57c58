"""Which experts tokens choose: weights of experts, and top-k draws without replacement."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import BinaryIO

import numpy as np

from gemmctl.errors import UsageError
from gemmctl.generating import importing, source
from gemmctl.generating.draws import DECIMAL, Integers, below, normal, shuffled, words
from gemmctl.generating.ranges import number

SKEWED = ("zipf", "lognormal")  # those with an S: shares are exp(S x), x an expert's own
KINDS = "uniform, zipf:S, lognormal:S, hot:H or counts:FILE"
MAX_SKEW = 20  # S; the second of zipf:20 has a millionth of the first
TOTAL = 2**32  # what an expert's weight is a share of: a word times a total fits 64 bits
HOT_SHARE = 9  # times the weight of all others have the hot experts together
# Weights are whole, and each is up to 1 too large. Where those left to the last choice of a token
# are this large on the average, no more than one token in a thousand goes astray by that.
LEAST_MEAN = 1000


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
        if kind in SKEWED and re.fullmatch(r"[0-9]*\.?[0-9]*", amount) and amount not in ("", "."):
            if Decimal(amount) > MAX_SKEW:
                raise UsageError(f"--routing: {kind} goes up to {MAX_SKEW}, not {amount}")
            if not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,6})?", amount):
                told = f"--routing: write S of {kind} as 1.2, not '{amount}'"
                raise UsageError(f"{told}; at most 6 digits stand behind the point")
            return cls(given, kind, Decimal(amount))
        if kind == "hot" and re.fullmatch(r"[0-9]+", amount):
            return cls(given, kind, Decimal(number("--routing: H of hot", amount, 1)))
        if colon and kind in (*SKEWED, "hot"):
            example = "hot:16" if kind == "hot" else f"{kind}:1.2"
            raise UsageError(f"--routing: '{amount}' is no number for {kind}; write {example}")
        raise UsageError(f"--routing: '{given}' is no routing; write {KINDS}")

    def tokens_per_expert(self, experts: int, top_k: int, tokens: int, seed: int) -> Integers:
        """How many of the tokens each expert gets; each token chooses top_k different ones.

        A token chooses one expert after another, each with the probability of its weight among
        those that it has not chosen yet. Raises UsageError for hot:H with too many, and for an S
        that whole weights cannot hold.
        """
        whole = self._weights(experts, seed)
        if self.kind in SKEWED and not _hold(whole, top_k):
            raise UsageError(self._too_uneven(experts, top_k, seed))
        weights = np.array(whole, np.uint64)
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
        if self.kind in SKEWED:
            return _skewed(self._logs(experts, seed), self.amount)
        if self.kind == "uniform":
            return _whole([Decimal(1)] * experts)
        hot = int(self.amount)
        if hot >= experts:
            told = f"--routing: {self.text} of {experts} leaves none that is not hot"
            mend = f"hot:{max(experts // 8, 1)}" if experts > 1 else "uniform"
            raise UsageError(f"{told}; write {mend}")
        by_heat = [Decimal(HOT_SHARE * (experts - hot))] * hot + [Decimal(hot)] * (experts - hot)
        return _whole(_given(by_heat, shuffled(experts, seed, "rank")))

    def _logs(self, experts: int, seed: int) -> list[Decimal]:
        """What S multiplies: shares of experts are to one another as the exponentials of that."""
        if self.kind == "lognormal":
            return normal(experts, seed, "lognormal")
        by_rank = [DECIMAL.minus(DECIMAL.ln(rank + 1)) for rank in range(experts)]
        return _given(by_rank, shuffled(experts, seed, "rank"))

    def _too_uneven(self, experts: int, top_k: int, seed: int) -> str:
        """What to say of an S that is too large, and the largest that is not, in tenths."""
        logs = self._logs(experts, seed)

        def fails(tenths: int) -> bool:
            return not _hold(_skewed(logs, Decimal(tenths) / 10), top_k)

        least = bisect_left(range(10 * MAX_SKEW), True, key=fails)
        return (
            f"--routing: {self.text} is too uneven for {top_k} of {experts}: once the likeliest "
            "are taken, weights of 32 bits do not tell the others apart; here "
            f"{self.kind} goes up to {Decimal(least - 1) / 10}"
        )


def _skewed(logs: Sequence[Decimal], skew: Decimal) -> list[int]:
    """Whole weights whose logarithms are ``logs`` times the skew."""
    return _whole([DECIMAL.exp(DECIMAL.multiply(skew, log)) for log in logs])


def _whole(shares: Sequence[Decimal]) -> list[int]:
    """Shares as whole weights of 1 or more, TOTAL at most in all."""
    whole = Decimal(0)
    for share in shares:
        whole = DECIMAL.add(whole, share)
    scale = DECIMAL.divide(Decimal(TOTAL - len(shares)), whole)
    return [int(DECIMAL.multiply(share, scale)) + 1 for share in shares]


def _hold(weights: Sequence[int], top_k: int) -> bool:
    """Whether whole weights tell apart what is left to a token's last choice.

    That is least where it has chosen the likeliest before; of one there is nothing to choose.
    """
    left = sorted(weights)[: len(weights) - top_k + 1]
    return len(left) == 1 or sum(left) >= LEAST_MEAN * len(left)


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
