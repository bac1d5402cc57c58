"""Compare elements of D one by one with what is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmctl.judging.expected import Expected
from gemmctl.judging.product import Indices, Product
from gemmctl.judging.rounding import Doubles, Flags, Singles, half_ulps, rounded
from gemmctl.judging.statistic import NO_ERRORS, Errors
from gemmctl.operands.dtypes import Bits


@dataclass(frozen=True)
class BadElement:
    """A wrong element of D: where it is, what it is, and what would have been right.

    tile: first row, first column, rows and columns of the tile that holds it; None if none does.
    """

    row: int
    col: int
    tile: tuple[int, int, int, int] | None
    expected: float
    got: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """What comparing some elements found; ``worst`` is the largest error over what is allowed."""

    count: int
    bad: int
    worst: float
    first: BadElement | None
    errors: Errors


def compare(product: Product, rows: Indices, cols: range, bits: Bits) -> Compared:
    """Compare the elements at ``rows`` x ``cols``, whose bits are given in that shape."""
    dtype = product.d
    expected = product.expected(rows, cols)
    right = expected.right
    with np.errstate(all="ignore"):
        got = dtype.to_f32(bits)
        low, high, good = judged(product, expected, got)
        error, half = np.abs(got - right), half_ulps(got, dtype)
        ratio = error / (expected.allowed + half)
        if expected.loose is not None:  # some are right, and not by how far off they are
            ratio[good & ~((low <= got) & (got <= high))] = 0.0
    first, wrong = None, good.size - int(np.count_nonzero(good))
    if wrong or not np.isfinite(ratio).all():
        # Infinite and NaN elements are as right as can be, or wrong without measure.
        endless = ~np.isfinite(ratio)
        ratio[endless] = np.where(good[endless], 0.0, np.inf)
    if wrong:
        i, j = np.argwhere(~good)[0].tolist()
        row, col = int(rows[i]), cols[j]
        numbers = (float(x[i, j]) for x in (right, got, low, high))
        first = BadElement(row, col, product.tile(row, col), *numbers)
    return Compared(
        count=good.size,
        bad=wrong,
        worst=float(ratio.max(initial=0)),
        first=first,
        errors=NO_ERRORS
        if product.exact or product.exact_sums or not product.varied
        else _errors(expected, good, error, half, product.plain(rows, cols)),
    )


def judged(product: Product, expected: Expected, got: Singles) -> tuple[Singles, Singles, Flags]:
    """The ends of the interval of each element of D, and whether it is right."""
    right, dtype = expected.right, product.d
    with np.errstate(all="ignore"):
        low = rounded(right - expected.allowed, dtype)
        high = rounded(right + expected.allowed, dtype)
        good = (low <= got) & (got <= high)
        if expected.loose is not None:
            free = ~np.isfinite(got) if product.group.linear else ~np.isfinite(got) | (got == 0)
            good |= expected.loose & free
        if product.extreme:
            good |= np.isnan(right) & np.isnan(got)
    return low, high, good


def _errors(
    expected: Expected, good: Flags, error: Doubles, half: Doubles, plain: Flags | None
) -> Errors:
    """The errors of those elements that leave the device a choice, and are right."""
    counted = good & (expected.allowed > 0) & np.isfinite(error) & np.isfinite(expected.spread)
    if plain is not None:  # a sum with one huge number in it errs as if all were
        counted &= plain
    count = int(np.count_nonzero(counted))
    if not count:
        return NO_ERRORS
    with np.errstate(all="ignore"):
        shares = error**2 / (expected.spread**2 + half**2 / 3)
    shares[~counted] = 0
    return Errors(count, float(shares.sum()))
