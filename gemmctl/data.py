"""Operands made from a seed: every element is a hash of its place, so any block can be made alone.

The fill kernel computes the same numbers on the GPU, and the checker makes them again from the
seed instead of reading them back, so that it never trusts what the device was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from gemmctl.dtypes import Bits, DType
from gemmctl.errors import UsageError
from gemmctl.kernels.constants import (
    INTEGERS,
    MIX_COLUMN,
    MIX_FIRST,
    MIX_SECOND,
    NORMAL_MEAN,
    NORMAL_UNIT,
)

Kind = Literal["normal", "int"]
Words = npt.NDArray[np.uint32]
Places = int | range | npt.NDArray[np.integer[Any]]  # an int n: the first n

KINDS: tuple[Kind, ...] = ("normal", "int")
A, B, C = 0, 1, 2  # what ``keys`` calls the operands

# Hashed at a time: a block of words and its scratch stay in a core's L2 cache.
_CHUNK = 1 << 17

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class DataSpec:
    """Which operands to make.

    normal: bell-shaped with standard deviation 0.577, as the sum of four uniform numbers;
    int: the integers -2 to 2. Raises UsageError on a seed that is not in [0, 2^64).
    """

    kind: Kind
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"the seed is {self.seed}; it must be in 0..{(1 << 64) - 1}")


def keys(seed: int, operand: int, groups: npt.NDArray[np.integer[Any]]) -> Words:
    """The key of one operand (A, B or C) of each group, for ``block`` and the fill kernel."""
    key = _fmix32(np.array([(seed & 0xFFFFFFFF) ^ 0x243F6A88], np.uint32))
    key = _fmix32(key ^ np.uint32(seed >> 32))
    key = _fmix32(key ^ np.uint32(operand + 1))
    return _fmix32(key ^ groups.astype(np.uint32))


def block(spec: DataSpec, key: int, rows: Places, cols: Places, dtype: DType) -> Bits:
    """The bits of an operand's elements at ``rows`` x ``cols``, of shape (rows, cols).

    Both count storage places: a row is one run of contiguous elements. Both are below 2^32.
    """
    return _look_up(spec.kind, key, rows, cols, _table(spec.kind, dtype))


def values(
    spec: DataSpec, key: int, rows: Places, cols: Places, dtype: DType
) -> npt.NDArray[np.float32]:
    """The same elements as ``block``, as the numbers that their bits mean.

    All are multiples of 2^-8 and at most 2 in magnitude, in every element type.
    """
    return _look_up(spec.kind, key, rows, cols, dtype.to_f32(_table(spec.kind, dtype)))


def matrix(
    memory: npt.NDArray[np.uint8], offset: int, rows: int, cols: int, ld: int, dtype: DType
) -> Bits:
    """The operand stored at a byte offset of ``memory``, as bits of shape (rows, cols).

    Shares the memory; ``ld`` is in elements.
    """
    if rows == 0 or cols == 0:
        return np.empty((rows, cols), dtype.storage)
    strides = (ld * dtype.size, dtype.size)
    return np.ndarray((rows, cols), dtype.storage, memory.data, offset, strides)


@cache
def _table(kind: Kind, dtype: DType) -> Bits:
    """Every element that a hash can become: its index is the sum of the hash's bytes, or 0 to 4."""
    if kind == "normal":
        return dtype.from_float((np.arange(2 * NORMAL_MEAN + 1) - NORMAL_MEAN) / NORMAL_UNIT)
    return dtype.from_float(np.arange(INTEGERS) - float(INTEGERS // 2))


def _look_up(
    kind: Kind, key: int, rows: Places, cols: Places, table: npt.NDArray[_Scalar]
) -> npt.NDArray[_Scalar]:
    row_keys = _fmix32(_words(rows) ^ np.uint32(key))[:, None]
    col_words = _words(cols) * np.uint32(MIX_COLUMN)
    result = np.empty((len(row_keys), len(col_words)), table.dtype)
    step = max(1, _CHUNK // max(1, len(col_words)))
    hashes = np.empty((min(step, len(row_keys)), len(col_words)), np.uint32)
    scratch = np.empty_like(hashes)
    for first in range(0, len(row_keys), step):
        part = result[first : first + step]
        h, t = hashes[: len(part)], scratch[: len(part)]
        np.bitwise_xor(row_keys[first : first + step], col_words, out=h)
        _mix(h, t)
        if kind == "normal":  # the sum of the four bytes, by two pairs
            np.right_shift(h, 8, out=t)
            t &= 0x00FF00FF
            h &= 0x00FF00FF
            h += t
            h *= 0x00010001
        else:
            h >>= 16
            h *= INTEGERS
        h >>= 16
        table.take(h, out=part, mode="clip")  # in range already; "raise" would copy ``part``
    return result


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
