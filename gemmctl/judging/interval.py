"""Compare elements of D one by one with what is right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gemmctl.judging.product import Doubles, Expected, Flags, Indices, Product, Singles
from gemmctl.judging.statistic import NO_ERRORS, Errors
from gemmctl.operands.dtypes import Bits, DType


@dataclass(frozen=True)
class BadElement:
    """A wrong element of D: where it is, what it is, and what would have been right.

    tile: first row, first column and rows of the tile that holds it; None if no tile does.
    """

    row: int
    col: int
    tile: tuple[int, int, int] | None
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
        if product.exact:
            low = high = rounded(right, dtype)
        else:
            low = rounded(right - expected.allowed, dtype)
            high = rounded(right + expected.allowed, dtype)
        good = (low <= got) & (got <= high)
        if expected.loose is not None:
            good |= expected.loose & ~np.isfinite(got)
        if product.extreme:
            good |= np.isnan(right) & np.isnan(got)
        error, half = np.abs(got - right), half_ulps(got, dtype)
        ratio = error / (expected.allowed + half)
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
        if product.exact
        else _errors(expected, good, error, half, product.plain(rows, cols)),
    )


def _errors(
    expected: Expected, good: Flags, error: Doubles, half: Doubles, plain: Flags | None
) -> Errors:
    """The errors of those elements that leave the device a choice, and are right."""
    counted = good & (expected.allowed > 0) & np.isfinite(error)
    if plain is not None:  # a sum with one huge number in it errs as if all were
        counted &= plain
    count = int(np.count_nonzero(counted))
    if not count:
        return NO_ERRORS
    with np.errstate(all="ignore"):
        shares = error**2 / (expected.spread**2 + half**2 / 3)
    shares[~counted] = 0
    return Errors(count, float(shares.sum()))


def rounded(values: Doubles, dtype: DType) -> Singles:
    """Values as an element type has them."""
    return dtype.to_f32(dtype.from_float(values))


def half_ulps(values: Singles, dtype: DType) -> Doubles:
    """Half of the distance from each value to the next larger one in magnitude."""
    binades = (values.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    half_at_one, smallest = _half_steps(dtype)
    return np.maximum(binades * half_at_one, smallest)


@cache
def _half_steps(dtype: DType) -> tuple[np.float64, np.float64]:
    """Half the distance of neighbours at 1, and at 0."""
    one = dtype.from_float(np.ones(1))
    next_to_one = dtype.to_f32(one + one.dtype.type(1))[0]
    smallest = dtype.to_f32(np.ones(1, dtype.storage))[0]
    return (np.float64(next_to_one) - 1) / 2, np.float64(smallest) / 2
