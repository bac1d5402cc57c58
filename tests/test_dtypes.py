from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.operands.dtypes import BF16, BY_NAME, F16, F32, DType

ORACLE: dict[str, npt.DTypeLike] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
}
every_type = pytest.mark.parametrize("dtype", BY_NAME.values(), ids=BY_NAME)
sixteen_bit = pytest.mark.parametrize("dtype", [BF16, F16], ids=["bf16", "f16"])


def all_bits(dtype: DType) -> npt.NDArray[Any]:
    """Every bit pattern of a 16-bit type; a million random ones of float32."""
    if dtype.size == 2:
        return np.arange(1 << 16, dtype=np.uint16)
    return np.random.default_rng(1).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)


def finite(dtype: DType) -> npt.NDArray[np.float64]:
    """All finite values of a 16-bit type in increasing order, -0 left out."""
    values = dtype.to_f32(all_bits(dtype))
    return np.unique(values[np.isfinite(values)].astype(np.float64))


def one(dtype: DType, value: float) -> int:
    return int(dtype.from_float(np.array([value], np.float64))[0])


@every_type
def test_every_bit_pattern_has_the_value_ml_dtypes_gives_it(dtype: DType) -> None:
    bits = all_bits(dtype)
    expected = bits.view(ORACLE[dtype.name]).astype(np.float32)
    np.testing.assert_array_equal(dtype.to_f32(bits), expected)


@every_type
@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_a_value_of_the_type_comes_back_with_its_own_bits(dtype: DType, wide: Any) -> None:
    bits = all_bits(dtype)
    values = dtype.to_f32(bits)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(dtype.from_float(values[number].astype(wide)), bits[number])


@sixteen_bit
def test_float32_rounds_as_ml_dtypes_does(dtype: DType) -> None:
    values = F32.to_f32(all_bits(F32))
    values = np.append(values[~np.isnan(values)], np.array([0.0, -0.0, 65520.0], np.float32))
    with np.errstate(over="ignore"):
        expected = values.astype(ORACLE[dtype.name]).view(np.uint16)
    np.testing.assert_array_equal(dtype.from_float(values), expected)


@sixteen_bit
def test_float64_ties_go_to_even_and_their_neighbours_to_the_nearest(dtype: DType) -> None:
    values = finite(dtype)
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2  # exact: one more bit than the type has
    even = np.where(dtype.from_float(low) % 2 == 0, low, high)
    for point, expected in (
        (middle, even),
        (np.nextafter(middle, -np.inf), low),
        (np.nextafter(middle, np.inf), high),
    ):
        np.testing.assert_array_equal(dtype.to_f32(dtype.from_float(point)), expected)


@given(st.floats(allow_nan=False, allow_infinity=False, width=64))
def test_float64_goes_to_the_nearest_bf16(value: float) -> None:
    got = float(BF16.to_f32(np.array([one(BF16, value)], np.uint16))[0])
    if np.isinf(got):
        assert abs(Fraction(value)) >= Fraction(2) ** 128 - Fraction(2) ** 119
        return
    values = finite(BF16)
    at = int(np.searchsorted(values, value))
    candidates = [Fraction(float(v)) for v in values[max(0, at - 1) : at + 1]]
    assert abs(Fraction(got) - Fraction(value)) == min(abs(c - Fraction(value)) for c in candidates)


def test_float64_is_rounded_once() -> None:
    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40  # float32 would drop the last term and make it a tie
    assert one(BF16, just_above_a_tie) == 0x3F81
    assert one(F16, 1 + 2.0**-11 + 2.0**-40) == 0x3C01


@pytest.mark.parametrize(
    ("dtype", "largest", "overflows", "infinity"),
    [
        (BF16, 2.0**128 - 2.0**120, 2.0**128 - 2.0**119, 0x7F80),
        (F16, 65504.0, 65520.0, 0x7C00),
        (F32, 2.0**128 - 2.0**104, 2.0**128 - 2.0**103, 0x7F800000),
    ],
    ids=BY_NAME,
)
def test_half_a_place_above_the_largest_value_overflows_to_infinity(
    dtype: DType, largest: float, overflows: float, infinity: int
) -> None:
    assert one(dtype, float(np.nextafter(overflows, 0))) == infinity - 1
    assert one(dtype, overflows) == infinity
    assert one(dtype, 1e300) == infinity
    assert one(dtype, -float("inf")) == infinity | 1 << (8 * dtype.size - 1)
    assert float(dtype.to_f32(np.array([infinity - 1], dtype.storage))[0]) == largest


@every_type
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001])
def test_nan_stays_nan(dtype: DType, bits: int) -> None:
    values = np.array([bits, 0x3F800000], np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):  # one of them is a signalling NaN
        double = values.astype(np.float64)
    for wide in (values, double):
        assert np.isnan(dtype.to_f32(dtype.from_float(wide))).tolist() == [True, False]


@pytest.mark.parametrize(("dtype", "nan"), [(BF16, 0x7FC0), (F16, 0x7E00), (F32, 0x7FC00000)])
def test_the_nan_of_a_type_is_quiet_and_has_no_payload(dtype: DType, nan: int) -> None:
    assert dtype.nan == nan


@every_type
def test_shape_and_storage_are_kept(dtype: DType) -> None:
    values = np.ones((6, 4), np.float32)[::2]
    bits = dtype.from_float(values)
    assert bits.shape == (3, 4)
    assert bits.dtype == dtype.storage
    assert dtype.storage.itemsize == dtype.size
    assert dtype.to_f32(bits).dtype == np.float32


@sixteen_bit
@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_converting_leaves_the_input_alone(dtype: DType, wide: Any) -> None:
    values = np.array([1.1, np.nan, -3e38], wide)
    before = values.copy()
    dtype.to_f32(dtype.from_float(values))
    np.testing.assert_array_equal(values, before)


def test_codes_are_those_of_the_kernels_and_the_driver() -> None:
    assert {name: t.code for name, t in BY_NAME.items()} == {"bf16": 0, "f16": 1, "f32": 2}
    driver = pytest.importorskip("cuda.bindings.driver").CUtensorMapDataType
    assert {name: t.tensormap_code for name, t in BY_NAME.items()} == {
        "bf16": int(driver.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
        "f16": int(driver.CU_TENSOR_MAP_DATA_TYPE_FLOAT16),
        "f32": int(driver.CU_TENSOR_MAP_DATA_TYPE_FLOAT32),
    }
