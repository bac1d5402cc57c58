"""The hash that shows any change of D."""

from __future__ import annotations

import numpy as np
import pytest

from gemmctl.device.cpu import CpuDevice
from gemmctl.kernels.constants import HASH_FIRST, HASH_PLACE, HASH_SECOND
from gemmctl.operands import digest as digests
from gemmctl.operands.digest import digest
from judged import NORMAL, plan_of

MASK = (1 << 64) - 1


def formula(rows: list[bytes]) -> int:
    """The sum over all 8-byte words, in Python's own integers."""
    total = 0
    for row, content in enumerate(rows):
        padded = content + bytes(-len(content) % 8)
        for i in range(len(padded) // 8):
            word = int.from_bytes(padded[8 * i : 8 * i + 8], "little")
            h = word ^ ((row << 32) + i) * HASH_PLACE & MASK
            h = (h ^ h >> 33) * HASH_FIRST & MASK
            h = (h ^ h >> 33) * HASH_SECOND & MASK
            total += h ^ h >> 33
    return total & MASK


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (5, 7), (9, 33)])
def test_a_digest_follows_the_formula(shape: tuple[int, int], dtype: type) -> None:
    bits = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, shape, dtype)
    assert digest(bits) == formula([row.tobytes() for row in bits])


def test_a_matrix_larger_than_a_chunk_has_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 16, (100, 40), np.uint16)
    whole = digest(bits)
    monkeypatch.setattr(digests, "_CHUNK", 64)
    assert digest(bits) == whole


def test_every_single_change_shows() -> None:
    bits = np.zeros((6, 10), np.uint16)
    seen = {digest(bits)}
    for row in range(6):
        for col in range(10):
            bits[row, col] = 1
            seen.add(digest(bits))
            bits[row, col] = 0
    assert len(seen) == 61


def test_elements_that_change_places_show() -> None:
    bits = np.arange(60, dtype=np.uint16).reshape(6, 10)
    assert digest(bits[::-1]) != digest(bits) != digest(bits[:, ::-1])


def test_the_cpu_device_gives_a_digest_of_every_d_and_none_of_its_padding() -> None:
    made = plan_of("m: 9, n: 8, k: 16, ldd: 12", "m: 0, n: 8, k: 8", "m: 9, n: 8, k: 16")
    with CpuDevice().open(made, NORMAL) as session:
        session.run()
        first, empty, last = session.digests().tolist()
        arena = session.read(0, made.layout.size)
        padding = int(made.layout.d[0]) + 8 * 2
        arena[padding] ^= 1
        assert session.digests().tolist() == [first, empty, last]
        arena[padding - 1] ^= 1
        changed, *others = session.digests().tolist()
    assert empty == 0 and others == [empty, last] and changed != first
