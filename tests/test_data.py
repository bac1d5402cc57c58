"""Operands from a seed: the numbers that the fill kernel has to make as well."""

from __future__ import annotations

import numpy as np
import pytest

from gemmctl.errors import UsageError
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec

MASK = 0xFFFFFFFF
TYPES = list(dtypes.BY_NAME.values())


def mix(h: int) -> int:
    """fmix32 on one Python integer."""
    h ^= h >> 16
    h = h * 0x85EBCA6B & MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def key_of(seed: int, operand: int, group: int) -> int:
    key = mix((seed & MASK) ^ 0x243F6A88)
    key = mix(key ^ seed >> 32)
    key = mix(key ^ operand + 1)
    return mix(key ^ group)


def value_of(kind: str, key: int, row: int, col: int) -> float:
    """One element before it is rounded to its type."""
    h = mix(mix(key ^ row) ^ (col * 0x9E3779B1 & MASK))
    if kind == "int":
        return ((h >> 16) * 5 >> 16) - 2
    return (sum(h.to_bytes(4, "little")) - 510) / 256


def test_keys_follow_the_formula():
    seed = 0x0123456789ABCDEF
    for operand in (data.A, data.B, data.C):
        keys = data.keys(seed, operand, np.array([0, 1, 9999]))
        assert keys.dtype == np.uint32
        assert keys.tolist() == [key_of(seed, operand, group) for group in (0, 1, 9999)]


def test_keys_stay_as_they_were_written_down():
    keys = [int(data.keys(1, operand, np.array([2]))[0]) for operand in range(3)]
    assert keys == [0xCBAD0E9B, 0x13142889, 0x9EA07009]


def test_every_seed_operand_and_group_has_a_key_of_its_own():
    seeds = (0, 1, 1 << 32, (1 << 64) - 1)
    found = [data.keys(seed, operand, np.arange(100)) for seed in seeds for operand in range(3)]
    assert len(np.unique(found)) == len(seeds) * 3 * 100


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", data.KINDS)
def test_elements_follow_the_formula(kind, dtype):
    key = 0xDEADBEEF
    rows, cols = np.array([0, 1, 77, 2**32 - 1]), np.array([0, 1, 2, 65537, 2**32 - 1])
    exact = [[value_of(kind, key, i, j) for j in cols.tolist()] for i in rows.tolist()]
    bits = data.block(DataSpec(kind, 0), key, rows, cols, dtype)
    assert bits.dtype == dtype.storage
    assert np.array_equal(bits, dtype.from_float(np.array(exact, np.float64)))


@pytest.mark.parametrize("kind", data.KINDS)
def test_a_block_is_a_cut_of_the_whole(kind):
    spec = DataSpec(kind, 3)
    whole = data.block(spec, 42, 300, 700, dtypes.BF16)
    rows, cols = np.array([299, 0, 17]), range(100, 600)
    assert np.array_equal(data.block(spec, 42, rows, cols, dtypes.BF16), whole[rows, 100:600])


def test_blocks_larger_than_a_chunk_are_seamless():
    spec = DataSpec("normal", 0)
    whole = data.block(spec, 7, 9, data._CHUNK // 4 + 1, dtypes.F16)
    for row in range(9):
        one = data.block(spec, 7, range(row, row + 1), whole.shape[1], dtypes.F16)
        assert np.array_equal(one[0], whole[row])


def test_an_empty_block_has_its_shape():
    spec = DataSpec("normal", 0)
    assert data.block(spec, 7, 0, 5, dtypes.BF16).shape == (0, 5)
    assert data.block(spec, 7, 5, 0, dtypes.BF16).shape == (5, 0)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", data.KINDS)
def test_values_are_what_the_bits_mean(kind, dtype):
    spec = DataSpec(kind, 5)
    bits = data.block(spec, 1, 50, 60, dtype)
    assert np.array_equal(data.values(spec, 1, 50, 60, dtype), dtype.to_f32(bits))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", data.KINDS)
def test_every_possible_value_is_a_small_multiple_of_2_to_the_minus_8(kind, dtype):
    possible = dtype.to_f32(data._table(kind, dtype))
    assert np.array_equal(possible * 256, np.rint(possible * 256))
    assert np.abs(possible).max() <= 2


def test_normal_data_are_bell_shaped():
    found = data.values(DataSpec("normal", 0), 99, 1000, 1000, dtypes.F32)
    assert abs(found.mean()) < 0.003
    assert found.std() == pytest.approx(0.5774, abs=0.003)
    # A normal distribution has 68.3% within one standard deviation; a uniform one 57.7%.
    assert np.mean(np.abs(found) < found.std()) == pytest.approx(0.675, abs=0.01)


def test_integer_data_are_spread_evenly_over_minus_2_to_2():
    found = data.values(DataSpec("int", 0), 99, 1000, 1000, dtypes.BF16)
    numbers, counts = np.unique(found, return_counts=True)
    assert numbers.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts / found.size - 0.2).max() < 0.003


def test_neighbours_do_not_follow_each_other():
    found = data.values(DataSpec("normal", 0), 99, 500, 500, dtypes.F32)
    for one, other in (
        (found[1:], found[:-1]),
        (found[:, 1:], found[:, :-1]),
        (found[1:, 1:], found[:-1, :-1]),
    ):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.01


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_beyond_64_bits_is_refused(seed):
    with pytest.raises(UsageError, match="seed"):
        DataSpec("int", seed)
