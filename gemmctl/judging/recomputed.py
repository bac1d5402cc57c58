"""Which parts of a large D that is not linear in A and B deserve to be compared element by element.

Freivalds' test needs sums of D's elements to be sums of products; behind an activation or a gate
they are not. So all of x is computed again, in float32, and what activation and gate make of it is
compared with D. It takes a multiplication as large as the device's, but leaves nothing out: where a
device and the processor have errors as statistic.py knows them, D is within SUSPICION deviations.
Of short sums that is hardly less than they may err by at worst, so these are computed as exactly as
where elements are compared, and their own intervals are asked.

It is a filter as Freivalds' test is: what it doubts is compared with the interval.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gemmctl.judging import statistic
from gemmctl.judging.interval import judged
from gemmctl.judging.product import Indices, Product, ranges
from gemmctl.judging.rounding import Doubles, Flags, Singles
from gemmctl.operands.dtypes import Bits

BLOCK_COLUMNS = 512  # of D
SUSPICION = 6.0  # deviations; 2 in 10^9 of what is right
# Of a K of 16, 20% of errors of 1.2 times what is allowed would pass, of 32 2%, of 64 0.04% of 1.1.
SHORT_K = 128

_CHUNK = 1 << 20  # operand elements that one thread holds at a time


class Rough(Product):
    """A product whose sums are float32's; norms of rows stand for sums of magnitudes."""

    def sums(self, rows: Indices, cols: range) -> tuple[Doubles, Doubles]:
        """A B there about, and the most that |A||B| can be (Cauchy and Schwarz)."""
        if self.exact_sums or not self.multiplies:
            return super().sums(rows, cols)
        total = np.zeros((len(rows), len(cols)))
        a_squares, b_squares = np.zeros(len(rows)), np.zeros(len(cols))
        for ks in ranges(0, self.group.k, max(1, _CHUNK // (len(rows) + len(cols)))):
            a, b = self.a.values(rows, ks), self.b.values(cols, ks)
            total += a @ b.T
            a_squares += _squares(a)
            b_squares += _squares(b)
        return total, np.sqrt(a_squares)[:, None] * np.sqrt(b_squares)


def rough(product: Product, growth: float) -> Rough:
    """A product computed in float32, with ``growth`` of |A||B| allowed besides its own errors."""
    own = 0.0 if product.exact_sums else SUSPICION * statistic.drift(product.group.k, "cpu")
    return Rough(**vars(replace(product, growth=growth + own, likely=math.inf)))


def _squares(values: Singles) -> Doubles:
    """The sum of each row's squares; infinities and NaNs have no part in it."""
    finite = np.where(np.isfinite(values), values, 0)
    squares: Doubles = np.einsum("ij,ij->i", finite, finite, dtype=np.float64)
    return squares


class Recomputed:
    """A large group's D, computed again where it is asked for, in float32 if K is not short."""

    def __init__(self, product: Product) -> None:
        short = product.group.k <= SHORT_K
        self._product = product if short else rough(product, SUSPICION * product.drift)
        self.blocks = list(ranges(0, product.group.d_columns, BLOCK_COLUMNS))

    def suspects(self, rows: Indices, bits: Bits) -> Flags:
        """The rows of each block of columns that may be wrong, of shape (rows, blocks).

        ``bits`` are those of whole rows of D.
        """
        doubted = np.empty((len(rows), len(self.blocks)), np.bool_)
        for block, cols in enumerate(self.blocks):
            got = self._product.d.to_f32(bits[:, cols.start : cols.stop])
            *_, good = judged(self._product, self._product.expected(rows, cols), got)
            doubted[:, block] = ~good.all(axis=1)
        return doubted
