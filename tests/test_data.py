"""Operands from a seed: the numbers that the fill kernel has to make as well."""

from __future__ import annotations

import hashlib
from statistics import NormalDist

import numpy as np
import pytest

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
    RECIPE_INT,
    RECIPE_NORMAL,
    RECIPE_SPECIAL_ROWS,
    RECIPE_SPECIAL_SPOTS,
    SPECIAL_CLASSES,
)
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec, Operand

MASK = 0xFFFFFFFF
TYPES = list(dtypes.BY_NAME.values())
RECIPES = (RECIPE_NORMAL, RECIPE_INT, RECIPE_SPECIAL_ROWS, RECIPE_SPECIAL_SPOTS)
every_type = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


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


def hash_of(key: int, row: int, col: int) -> int:
    return mix(mix(key ^ row) ^ (col * 0x9E3779B1 & MASK))


def made(recipe: int = RECIPE_NORMAL, dtype=dtypes.BF16, length=100, limit=100, key=0xDEADBEEF):
    return Operand(recipe, key, limit, length, dtype)


def special_bits(operand: Operand, row: int, col: int) -> int | None:
    """The bits of an element that is special; None where it is a normal number."""
    d, top = operand.dtype, 1 << 8 * operand.dtype.size - 1
    h, row_key = hash_of(operand.key, row, col), mix(operand.key ^ row)
    sign = (h >> 15 & 1) * top
    subnormal = sign | h >> 5 & (1 << d.mantissa_bits) - 1 | 1
    kind = mix(row_key ^ 0x5851F42D) & 31
    if kind >= SPECIAL_CLASSES:
        return None
    if operand.recipe == RECIPE_SPECIAL_SPOTS:
        spots = (sign, sign | d.nan, sign | d.infinity, sign | d.infinity - 1, subnormal)
        return spots[h & 31] if h & 31 < len(spots) else None
    at = mix(row_key ^ 0x14057B7E)
    place, one = at * operand.length >> 32, (at & 1) * top
    here, next_to_it = col == place, col == (place + 1) % operand.length
    if kind == CLASS_ZEROS:
        return sign
    if kind == CLASS_SUBNORMALS:
        return subnormal
    if kind == CLASS_LONE_SUBNORMAL:
        return one | 1 if here else sign
    if kind == CLASS_LONE_LARGEST:
        return one | d.infinity - 1 if here else sign
    if kind == CLASS_TWO_INFINITIES and next_to_it:
        return one ^ top | d.infinity
    at_place = {
        CLASS_ONE_NAN: d.nan, CLASS_ONE_INFINITY: d.infinity, CLASS_TWO_INFINITIES: d.infinity,
        CLASS_ONE_LARGEST: d.infinity - 1,
    }  # fmt: skip
    return one | at_place[kind] if here else None


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


@every_type
def test_normal_elements_are_quantiles_that_a_hash_chooses(dtype):
    operand = made(dtype=dtype)
    rows, cols = np.array([0, 1, 77, 2**32 - 1]), np.array([0, 1, 2, 65537, 2**32 - 1])
    bell = NormalDist(0, 3**-0.5)
    chosen = [[hash_of(operand.key, i, j) >> 16 for j in cols.tolist()] for i in rows.tolist()]
    exact = np.array([[bell.inv_cdf((q + 0.5) / 65536) for q in row] for row in chosen])
    if dtype.size == 2:
        exact = np.rint(exact * 2**17) / 2**17
    bits = operand.bits(rows, cols)
    assert bits.dtype == dtype.storage
    assert np.array_equal(bits, dtype.from_float(exact))


@every_type
def test_normal_data_stay_as_they_were_written_down(dtype):
    told = {
        "bf16": "a6c926e4fb9b661a",
        "f16": "33c73f20d08a8270",
        "f32": "771b9a6135213ec0",
    }  # another hash is other data, and another data.VERSION
    assert hashlib.sha256(data.quantiles(dtype).tobytes()).hexdigest()[:16] == told[dtype.name]


@every_type
def test_integers_are_spread_from_minus_to_plus_their_limit(dtype):
    operand = made(RECIPE_INT, dtype, limit=100)
    rows, cols = np.array([0, 1, 77]), np.array([0, 1, 2, 65537])
    exact = [
        [((hash_of(operand.key, i, j) >> 16) * 201 >> 16) - 100 for j in cols.tolist()]
        for i in rows.tolist()
    ]
    assert np.array_equal(operand.values(rows, cols), exact)


@pytest.mark.parametrize("recipe", [RECIPE_SPECIAL_ROWS, RECIPE_SPECIAL_SPOTS])
@every_type
def test_special_elements_follow_the_formula(dtype, recipe):
    length = 5
    operand, normal = made(recipe, dtype, length), made(dtype=dtype, length=length)
    rows, cols = range(400), range(length)
    expected = normal.bits(rows, cols).copy()
    for row in rows:
        for col in cols:
            special = special_bits(operand, row, col)
            if special is not None:
                expected[row, col] = special
    assert np.array_equal(operand.bits(rows, cols), expected)


@every_type
def test_special_rows_hold_everything_that_is_special(dtype):
    values = made(RECIPE_SPECIAL_ROWS, dtype, 64).values(400, 64)
    bits = made(RECIPE_SPECIAL_ROWS, dtype, 64).bits(400, 64)
    assert np.isnan(values).any() and {np.inf, -np.inf} <= set(values.ravel().tolist())
    assert {dtype.largest, -dtype.largest} <= set(values.ravel().tolist())
    assert {0, 1 << 8 * dtype.size - 1} <= set(bits.ravel().tolist())  # zeros of both signs
    smallest_normal = dtype.to_f32(np.array([1 << dtype.mantissa_bits], dtype.storage))[0]
    assert ((np.abs(values) < smallest_normal) & (values != 0)).any()


@every_recipe
def test_plain_rows_are_those_without_anything_special(recipe):
    operand, normal = made(recipe, length=700), made(length=700)
    if recipe == RECIPE_INT:
        assert operand.plain(400).all()
        return
    same = (operand.bits(400, 700) == normal.bits(400, 700)).all(axis=1)
    assert np.array_equal(operand.plain(400), same)
    assert 0.6 < operand.plain(4000).mean() <= 1


def test_a_row_of_one_element_has_its_special_value_there():
    operand = made(RECIPE_SPECIAL_ROWS, length=1)
    assert np.isnan(operand.values(300, 1)).any() and np.isinf(operand.values(300, 1)).any()


@every_recipe
@every_type
def test_a_block_is_a_cut_of_the_whole(dtype, recipe):
    operand = made(recipe, dtype, 700)
    rows, cols = np.array([299, 0, 17]), range(100, 600)
    assert np.array_equal(operand.bits(rows, cols), operand.bits(300, 700)[rows, 100:600])


def test_blocks_larger_than_a_chunk_are_seamless():
    operand = made(dtype=dtypes.F16)
    whole = operand.bits(9, data._CHUNK // 4 + 1)
    for row in range(9):
        assert np.array_equal(operand.bits(range(row, row + 1), whole.shape[1])[0], whole[row])


def test_an_empty_block_has_its_shape():
    assert made().bits(0, 5).shape == (0, 5)
    assert made().bits(5, 0).shape == (5, 0)


@every_recipe
@every_type
def test_values_are_what_the_bits_mean(dtype, recipe):
    operand = made(recipe, dtype)
    meant = dtype.to_f32(operand.bits(50, 60))
    assert np.array_equal(operand.values(50, 60), meant, equal_nan=True)


@pytest.mark.parametrize("dtype", [dtypes.BF16, dtypes.F16], ids=["bf16", "f16"])
def test_normal_16_bit_data_are_small_multiples_of_2_to_the_minus_17(dtype):
    possible = dtype.to_f32(data.quantiles(dtype)).astype(np.float64) * 2**17
    assert np.array_equal(possible, np.rint(possible))
    assert np.abs(possible).max() <= 2.5 * 2**17


@every_type
def test_normal_data_have_all_the_bits_of_their_type(dtype):
    bits = made(dtype=dtype, length=1000).bits(1000, 1000).ravel()
    for place in range(dtype.mantissa_bits):
        assert (bits >> place & 1).mean() == pytest.approx(0.5, abs=0.1), place


def test_significands_are_as_random_as_those_of_random_normal_numbers():
    ours = made(length=1000).bits(1000, 1000).ravel()
    numbers = np.random.default_rng(0).normal(0, 3**-0.5, 1_000_000)
    others = dtypes.BF16.from_float(numbers)

    def ones(bits):  # of the significand, the leading one among them
        return 1 + np.bitwise_count(bits & 0x7F).mean()

    assert ones(ours) == pytest.approx(ones(others), abs=0.015)


def test_normal_data_are_bell_shaped():
    found = made(dtype=dtypes.F32, length=1000).values(1000, 1000)
    assert abs(found.mean()) < 0.003
    assert found.std() == pytest.approx(3**-0.5, abs=0.002)
    assert np.mean(np.abs(found) < found.std()) == pytest.approx(0.6827, abs=0.002)
    assert np.mean(np.abs(found) < 2 * found.std()) == pytest.approx(0.9545, abs=0.002)


def test_integer_data_are_spread_evenly():
    found = made(RECIPE_INT, limit=2, length=1000).values(1000, 1000)
    numbers, counts = np.unique(found, return_counts=True)
    assert numbers.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts / found.size - 0.2).max() < 0.003


def test_neighbours_do_not_follow_each_other():
    found = made(dtype=dtypes.F32, length=500).values(500, 500)
    for one, other in (
        (found[1:], found[:-1]),
        (found[:, 1:], found[:, :-1]),
        (found[1:, 1:], found[:-1, :-1]),
    ):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.01


# How large integers may be


def limits(k, operand="bf16", d="f32", alpha=1.0):
    types = dtypes.BY_NAME[operand], dtypes.BY_NAME[d]
    return data.integer_limits(np.atleast_1d(k), *types, np.full(np.size(k), alpha))


@pytest.mark.parametrize("operand", ["bf16", "f16"])
def test_integer_sums_stay_exact_in_float32(operand):
    k = np.unique(np.geomspace(1, 2**23, 2000).astype(np.int64))
    found = limits(k, operand)
    assert ((k + 1) * found**2 <= 2**24).all()
    largest = 256 if operand == "bf16" else 2048  # to which the type holds every integer
    # One more would be too many, in the sum or for the type.
    assert ((k + 1) * (found + 1) ** 2 > 2**24)[found < largest].all()
    assert found.max() == largest


def test_integers_are_1_at_least():
    assert limits(2**26).tolist() == [1]


def test_integer_results_do_not_overflow_f16():
    k = np.array([1, 64, 1024, 16384, 131072])
    for alpha in (1.0, -30.0, 0.0, 1e30):
        found = limits(k, "f16", "f16", alpha)
        deviation = abs(alpha) * np.sqrt(k) * found * (found + 1) / 3
        assert (6 * deviation < 65504 * (1 + 1 / found))[found > 1].all()
        assert (found <= limits(k, "f16", "f32", alpha)).all()


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_beyond_64_bits_is_refused(seed):
    with pytest.raises(UsageError, match="seed"):
        DataSpec("int", seed)


def test_every_kind_has_its_recipes_for_each_operand():
    told = {
        "normal": [RECIPE_NORMAL] * 4,
        "int": [RECIPE_INT] * 4,
        "special": [RECIPE_SPECIAL_ROWS] * 2 + [RECIPE_SPECIAL_SPOTS] * 2,
    }
    for kind in data.KINDS:
        spec = DataSpec(kind, 0)
        assert [spec.recipe(x) for x in (data.A, data.B, data.C, data.BIAS)] == told[kind]


@pytest.mark.parametrize("seed", [0, (1 << 64) - 1])
def test_the_first_and_the_last_seed_are_taken(seed):
    assert DataSpec("int", seed).seed == seed


def test_a_spec_says_which_version_of_the_data_it_means():
    assert DataSpec("normal", 1).version == data.VERSION


def test_integers_whose_sums_are_multiplied_stay_finite_in_f16() -> None:
    k, alpha = np.array([64, 4096]), np.array([1.0, 8.0])
    once = data.integer_limits(k, dtypes.F16, dtypes.F16, alpha)
    gated = data.integer_limits(k, dtypes.F16, dtypes.F16, alpha, np.ones(2, np.bool_))
    deviations = alpha * np.sqrt(k) * gated**2 / 3
    assert (gated < once).all()
    assert ((6 * deviations) ** 2 <= dtypes.F16.largest).all() or gated.min() == 1
