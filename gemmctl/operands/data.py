"""Operands made from a seed: every element is a hash of its place, so any block can be made alone.

The fill kernel computes the same numbers on the GPU, and the checker makes them again from the
seed instead of reading them back, so that it never trusts what the device was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from gemmctl.errors import UsageError
from gemmctl.kernels.constants import (
    CLASS_LONE_LARGEST,
    CLASS_LONE_SUBNORMAL,
    CLASS_ONE_INFINITY,
    CLASS_ONE_LARGEST,
    CLASS_ONE_NAN,
    CLASS_SUBNORMALS,
    CLASS_TWO_INFINITIES,
    CLASS_ZEROS,
    MIX_CLASS,
    MIX_COLUMN,
    MIX_FIRST,
    MIX_SECOND,
    MIX_SPOT,
    QUANTILES,
    RECIPE_INT,
    RECIPE_NORMAL,
    RECIPE_SPECIAL_ROWS,
    RECIPE_SPECIAL_SPOTS,
    SPECIAL_CLASSES,
    SPOT_INFINITY,
    SPOT_LARGEST,
    SPOT_NAN,
    SPOT_SUBNORMAL,
    SPOT_ZERO,
)
from gemmctl.operands.dtypes import Bits, DType

Kind = Literal["normal", "int", "special"]
Words = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
Places = int | range | npt.NDArray[np.integer[Any]]  # an int n: the first n

KINDS: tuple[Kind, ...] = ("normal", "int", "special")
VERSION = 2  # of what a seed means; times taken on other data do not compare
MAX_SEED = (1 << 64) - 1
A, B, C, BIAS = range(4)  # what ``keys`` calls the operands

DEVIATION = 3.0**-0.5  # of normal data: that of uniform numbers from -1 to 1
GRID = 2.0**17  # normal 16-bit data are multiples of 1/GRID, so that float64 adds products exactly

# Hashed at a time: a block of words and its scratch stay in a core's L2 cache.
_CHUNK = 1 << 17

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class DataSpec:
    """Which operands to make.

    normal: bell-shaped with standard deviation 0.577, significands as random as the type holds;
    int: integers, as large as sums stay exact; special: normal with zeros of both signs,
    subnormals, the largest finite numbers, infinities and NaNs among them. Raises UsageError on a
    seed that is not in [0, 2^64).
    """

    kind: Kind
    seed: int
    version: int = field(default=VERSION, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"the seed is {self.seed}; it must be in 0..{MAX_SEED}")

    def recipe(self, operand: int) -> int:
        """How A, B, C or a bias is made."""
        if self.kind == "special":
            return RECIPE_SPECIAL_SPOTS if operand in (C, BIAS) else RECIPE_SPECIAL_ROWS
        return RECIPE_INT if self.kind == "int" else RECIPE_NORMAL


def keys(seed: int, operand: int, groups: npt.NDArray[np.integer[Any]]) -> Words:
    """The key of A, B, C or BIAS of each group, for ``Operand`` and the fill kernel."""
    key = _fmix32(np.array([(seed & 0xFFFFFFFF) ^ 0x243F6A88], np.uint32))
    key = _fmix32(key ^ np.uint32(seed >> 32))
    key = _fmix32(key ^ np.uint32(operand + 1))
    return _fmix32(key ^ groups.astype(np.uint32))


def integer_limits(
    k: npt.NDArray[np.int64],
    operand: DType,
    d: DType,
    alpha: npt.NDArray[np.float64],
    gated: Flags | bool = False,
) -> npt.NDArray[np.int64]:
    """The largest integer in A, B, C and bias of each group, for data of kind ``int``; at least 1.

    A sum of k products of integers up to n, and of two more such integers, C and bias, is exact in
    float32 in whatever order if k n^2 + 2 n <= 2^24: with (k + 1) n^2 <= 2^24 it is, but for the
    longest k, which leave n at 1. No type of operand has to round n. Where D is f16, n is so small
    that six standard deviations of alpha A B stay finite, with a gate their square.
    """
    limits = np.sqrt(np.floor(2.0**24 / (k + 1)))
    limits = np.minimum(limits, 2.0 ** (operand.mantissa_bits + 1))
    if d.largest < 2.0**24:
        deviations = np.sqrt(np.maximum(k, 1)) * np.maximum(np.abs(alpha), 2.0**-24) / 3
        largest = np.where(gated, np.sqrt(d.largest), d.largest)
        limits = np.minimum(limits, np.sqrt(largest / (6 * deviations)))
    return np.maximum(np.floor(limits), 1).astype(np.int64)


@dataclass(frozen=True)
class Operand:
    """One matrix of one group: how it is made, and of what type.

    ``rows`` and ``cols`` of its methods are those of A and C; rows are columns of B, and their
    elements along K. So whatever the layout, element (i, j) is the same. A row has ``length``
    elements; both numbers are below 2^32. ``limit`` is the largest of integer data.
    """

    recipe: int
    key: int
    limit: int
    length: int
    dtype: DType

    def bits(self, rows: Places, cols: Places) -> Bits:
        """The bits of the elements at ``rows`` x ``cols``, of shape (rows, cols)."""
        if self.recipe in (RECIPE_NORMAL, RECIPE_INT):
            return self._look_up(rows, cols, self._table(_bits))
        return self._special(rows, cols)

    def values(self, rows: Places, cols: Places) -> npt.NDArray[np.float32]:
        """The same elements as the numbers that their bits mean."""
        if self.recipe in (RECIPE_NORMAL, RECIPE_INT):
            return self._look_up(rows, cols, self._table(_numbers))
        return self.dtype.to_f32(self._special(rows, cols))

    def plain(self, rows: Places) -> Flags:
        """Which rows hold no special values."""
        row_words = _words(rows)
        if self.recipe in (RECIPE_NORMAL, RECIPE_INT):
            return np.ones(len(row_words), np.bool_)
        return _classes(_fmix32(row_words ^ np.uint32(self.key))) >= SPECIAL_CLASSES

    def _table(self, of: Callable[[DType, int], npt.NDArray[_Scalar]]) -> npt.NDArray[_Scalar]:
        """What a hash can become."""
        return of(self.dtype, self.limit if self.recipe == RECIPE_INT else 0)

    def _look_up(
        self, rows: Places, cols: Places, table: npt.NDArray[_Scalar]
    ) -> npt.NDArray[_Scalar]:
        row_keys = _fmix32(_words(rows) ^ np.uint32(self.key))
        col_words = _words(cols) * np.uint32(MIX_COLUMN)
        result = np.empty((len(row_keys), len(col_words)), table.dtype)
        step = _rows_at_once(len(col_words))
        hashes = np.empty((min(step, len(row_keys)), len(col_words)), np.uint32)
        scratch = np.empty_like(hashes)
        for first in range(0, len(row_keys), step):
            part = result[first : first + step]
            h, t = hashes[: len(part)], scratch[: len(part)]
            np.bitwise_xor(row_keys[first : first + step, None], col_words, out=h)
            _mix(h, t)
            h >>= 16
            if self.recipe == RECIPE_INT:
                h *= len(table)
                h >>= 16
            table.take(h, out=part, mode="clip")  # in range already; "raise" would copy ``part``
        return result

    def _special(self, rows: Places, cols: Places) -> Bits:
        """Normal elements, and special ones among them where their row's class has them."""
        row_keys = _fmix32(_words(rows) ^ np.uint32(self.key))
        col_words = _words(cols)
        result = self._look_up(rows, cols, quantiles(self.dtype))
        put = self._spots if self.recipe == RECIPE_SPECIAL_SPOTS else self._rows
        special = np.flatnonzero(_classes(row_keys) < SPECIAL_CLASSES)
        step = _rows_at_once(len(col_words))
        for first in range(0, len(special), step):
            some = special[first : first + step]
            part = result[some]
            put(part, row_keys[some], col_words)
            result[some] = part
        return result

    def _spots(self, part: Bits, row_keys: Words, cols: Words) -> None:
        """Put special values among the elements of rows, five of 32."""
        h, d = _fmix32(row_keys[:, None] ^ cols * np.uint32(MIX_COLUMN)), self.dtype
        signs = self._signs(h)
        specials = {
            SPOT_ZERO: 0,
            SPOT_NAN: d.nan,
            SPOT_INFINITY: d.infinity,
            SPOT_LARGEST: d.infinity - 1,
            SPOT_SUBNORMAL: self._subnormals(h),
        }
        for spot, special in specials.items():
            chosen = h & 31 == spot
            part[chosen] = (signs | np.asarray(special, np.uint32))[chosen]

    def _rows(self, part: Bits, row_keys: Words, cols: Words) -> None:
        """Give each row what its class has."""
        d, classes = self.dtype, _classes(row_keys)
        subnormal = classes == CLASS_SUBNORMALS
        signed = np.isin(classes, (CLASS_ZEROS, CLASS_LONE_SUBNORMAL, CLASS_LONE_LARGEST))
        signed |= subnormal
        h = _fmix32(row_keys[signed, None] ^ cols * np.uint32(MIX_COLUMN))
        smallest = np.where(subnormal[signed, None], self._subnormals(h), np.uint32(0))
        part[signed] = self._signs(h) | smallest
        at = _fmix32(row_keys ^ np.uint32(MIX_SPOT))
        places = at.astype(np.uint64) * np.uint64(self.length) >> np.uint64(32)
        top = np.uint32(1 << 8 * d.size - 1)
        signs = (at & np.uint32(1)) * top
        one = {
            CLASS_ONE_NAN: d.nan,
            CLASS_ONE_INFINITY: d.infinity,
            CLASS_ONE_LARGEST: d.infinity - 1,
            CLASS_LONE_SUBNORMAL: 1,
            CLASS_LONE_LARGEST: d.infinity - 1,
            CLASS_TWO_INFINITIES: d.infinity,
        }
        for cls, special in one.items():
            row, col = _hits(classes == cls, cols, places)
            part[row, col] = signs[row] | np.uint32(special)
        nexts = (places + np.uint64(1)) % np.uint64(max(1, self.length))
        row, col = _hits(classes == CLASS_TWO_INFINITIES, cols, nexts)
        part[row, col] = signs[row] ^ top | np.uint32(d.infinity)

    def _signs(self, h: Words) -> Words:
        """The sign bit of each element, from one bit of its hash."""
        return (h >> np.uint32(15) & np.uint32(1)) << np.uint32(8 * self.dtype.size - 1)

    def _subnormals(self, h: Words) -> Words:
        """A subnormal number for each element, from other bits of its hash."""
        mantissa = np.uint32((1 << self.dtype.mantissa_bits) - 1)
        return h >> np.uint32(5) & mantissa | np.uint32(1)


def matrix(
    memory: npt.NDArray[np.uint8],
    offset: int,
    rows: int,
    cols: int,
    ld: int,
    dtype: DType,
    across: bool = False,
) -> Bits:
    """The operand stored at a byte offset of ``memory``, as bits of shape (rows, cols).

    Shares the memory; ``ld``, in elements, is from row to row or, ``across``, from one element of
    a row to the next.
    """
    if rows == 0 or cols == 0:
        return np.empty((rows, cols), dtype.storage)
    strides = (dtype.size, ld * dtype.size) if across else (ld * dtype.size, dtype.size)
    return np.ndarray((rows, cols), dtype.storage, memory.data, offset, strides)


@cache
def quantiles(dtype: DType) -> Bits:
    """Every element of normal data: as many numbers, equally likely, as 16 bits of a hash choose.

    They are the normal distribution's quantiles, rounded to the type; those of 16-bit types to a
    multiple of 1/GRID first, which leaves them all their bits from 2^-9 (bf16) or 2^-6 (f16) on.
    """
    bell = NormalDist(0, DEVIATION)
    half = [bell.inv_cdf((i + 0.5) / QUANTILES) for i in range(QUANTILES // 2, QUANTILES)]
    numbers = np.array([-x for x in reversed(half)] + half)
    if dtype.size == 2:
        numbers = np.rint(numbers * GRID) / GRID
    return dtype.from_float(numbers)


@cache
def _bits(dtype: DType, limit: int) -> Bits:
    """Every element that a hash can become: integers up to a limit; if it is 0, normal numbers."""
    if limit:
        limit = min(limit, 2 << dtype.mantissa_bits)  # up to which the type holds all integers
        return dtype.from_float(np.arange(-limit, limit + 1, dtype=np.float64))
    return quantiles(dtype)


@cache
def _numbers(dtype: DType, limit: int) -> npt.NDArray[np.float32]:
    """The numbers that those bits mean."""
    return dtype.to_f32(_bits(dtype, limit))


def _classes(row_keys: Words) -> Words:
    """What each row has of special values; SPECIAL_CLASSES and above is nothing."""
    return _fmix32(row_keys ^ np.uint32(MIX_CLASS)) & np.uint32(31)


def _rows_at_once(length: int) -> int:
    """Rows of so many elements that are hashed at a time."""
    return max(1, _CHUNK // max(1, length))


def _hits(
    chosen: Flags, cols: Words, places: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns at which some rows have their place, if it is among these columns."""
    rows = np.flatnonzero(chosen)
    row, col = np.nonzero(cols == places[rows, None])
    return rows[row], col


def _words(places: Places) -> Words:
    if isinstance(places, int):
        places = range(places)
    if isinstance(places, range):
        return np.arange(places.start, places.stop, places.step, dtype=np.uint32)
    return places.astype(np.uint32)


def _fmix32(words: Words) -> Words:
    """MurmurHash3's finaliser: every input bit flips every output bit with a chance near 1/2."""
    words = words.copy()
    _mix(words, np.empty_like(words))
    return words


def _mix(h: Words, scratch: Words) -> None:
    """Apply ``_fmix32`` in place."""
    for shift, factor in ((16, MIX_FIRST), (13, MIX_SECOND)):
        np.right_shift(h, shift, out=scratch)
        h ^= scratch
        h *= factor
    np.right_shift(h, 16, out=scratch)
    h ^= scratch
