"""A hash of a matrix that shows any change of it; the kernel hash_rows computes the same."""

from __future__ import annotations

import numpy as np

from gemmctl.kernels.constants import HASH_FIRST, HASH_PLACE, HASH_SECOND
from gemmctl.operands.dtypes import Bits

_CHUNK = 1 << 18  # words hashed at a time: they and their hashes stay in a core's L2 cache


def digest(bits: Bits) -> int:
    """The hash of a matrix's elements and their places, as a number below 2^64.

    A row is filled up with zeros to whole words of 8 bytes. The hash is the sum, modulo 2^64 and so
    in any order, of mix(word ^ (2^32 row + i) HASH_PLACE) over all words i of all rows. mix is the
    64-bit finaliser of MurmurHash3, a bijection: a change of one word always shows, of several but
    for one chance in 2^64.
    """
    rows, cols = bits.shape
    per_word = 8 // bits.itemsize
    words = -(-cols // per_word)
    total = 0
    step = max(1, _CHUNK // max(1, words))
    for first in range(0, rows, step):
        part = bits[first : first + step]
        filled = np.zeros((len(part), words * per_word), bits.dtype)
        filled[:, :cols] = part
        place = np.arange(first, first + len(part), dtype=np.uint64)[:, None] << np.uint64(32)
        h = (place + np.arange(words, dtype=np.uint64)) * np.uint64(HASH_PLACE)
        h ^= filled.view(np.uint64)
        for factor in (HASH_FIRST, HASH_SECOND):
            h ^= h >> np.uint64(33)
            h *= np.uint64(factor)
        h ^= h >> np.uint64(33)
        total += int(h.sum())
    return total % (1 << 64)
