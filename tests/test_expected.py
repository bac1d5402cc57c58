"""What activations and gates make of an interval: all that a right device may give, little more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.judging.expected import (
    ARGUMENT_ERROR,
    MINIMA,
    VALUE_ERROR,
    Expected,
    activated,
    gated,
    stored,
)
from gemmctl.judging.rounding import UNIT, half_ulps
from gemmctl.lists.problem import ACTIVATIONS
from gemmctl.operands import dtypes
from gemmctl.operands.activations import activate

numbers = st.floats(-40, 40) | st.floats(-1, 1)
radii = st.floats(0, 3) | st.just(0.0)


def told(right: float, allowed: float, *, loose: bool | None = None) -> Expected:
    flags = None if loose is None else np.array([loose])
    return Expected(np.array([right]), np.array([allowed]), np.array([allowed / 3]), flags)


def of(name: str, x: float) -> float:
    return float(activate(name, np.array([x], np.float64))[0])


@given(numbers, radii, st.floats(-1, 1), st.sampled_from(ACTIVATIONS))
def test_an_activation_of_whatever_is_in_the_interval_is_in_its_image(
    right: float, allowed: float, share: float, name: str
) -> None:
    y = activated(told(right, allowed), name)
    value = of(name, right + share * allowed)
    assert abs(value - y.right[0]) <= y.allowed[0] * (1 + 1e-12)


@given(numbers, radii, st.sampled_from(ACTIVATIONS))
def test_an_image_is_no_wider_than_the_steepest_slope_and_the_devices_error(
    right: float, allowed: float, name: str
) -> None:
    y = activated(told(right, allowed), name)
    error = VALUE_ERROR * abs(y.right[0]) + ARGUMENT_ERROR * abs(right) if name in MINIMA else 0
    assert y.allowed[0] <= 1.13 * allowed + error + 1e-12


@pytest.mark.parametrize("name", MINIMA)
def test_a_minimum_is_where_neighbours_are_larger(name: str) -> None:
    place, minimum = MINIMA[name]
    assert of(name, place) == pytest.approx(minimum, rel=1e-14)
    assert min(of(name, place - 1e-4), of(name, place + 1e-4)) > minimum
    # An interval whose ends are equal holds lower values.
    y = activated(told(place, 0.5), name)
    assert y.right[0] - y.allowed[0] <= minimum


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_integer_sum_leaves_no_choice_but_that_of_the_function(name: str) -> None:
    y = activated(told(3.0, 0.0), name)
    error = 0.0 if name in ("none", "relu") else VALUE_ERROR * of(name, 3) + ARGUMENT_ERROR * 3
    assert y.allowed[0] == y.spread[0] == error


@pytest.mark.parametrize("name", MINIMA)
def test_a_gate_may_multiply_what_a_subnormal_activation_was_rounded_by(name: str) -> None:
    x, factor = np.float32(5.007e-40), np.finfo(np.float32).min
    expected = gated(activated(told(float(x), 0.0), name), told(float(factor), 0.0))
    of_a_device = activate(name, np.array([x])) * factor
    assert abs(of_a_device[0] - expected.right[0]) <= expected.allowed[0]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("end", [-math.inf, math.inf, math.nan])
def test_limits_leave_no_choice(name: str, end: float) -> None:
    y = activated(told(end, 0.0, loose=False), name)
    assert y.allowed[0] == 0
    assert np.array_equal(y.right, [of(name, end)], equal_nan=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("loose", [True, False])
def test_what_may_be_infinite_may_be_so_behind_an_activation(name: str, loose: bool) -> None:
    y = activated(told(3.0, 0.1, loose=loose), name)
    assert y.loose is not None and y.loose.tolist() == [loose]


@given(numbers, radii, st.floats(-1, 1), numbers, radii, st.floats(-1, 1))
def test_a_product_of_whatever_is_in_two_intervals_is_in_theirs(
    y: float, near_y: float, share_y: float, x: float, near_x: float, share_x: float
) -> None:
    product = gated(told(y, near_y), told(x, near_x))
    value = np.float32(y + share_y * near_y) * np.float32(x + share_x * near_x)
    slack = 2 * UNIT * (abs(y) + near_y) * (abs(x) + near_x) + 1e-40  # of float32 factors
    assert abs(float(value) - product.right[0]) <= product.allowed[0] + slack
    most = abs(y) * near_x + abs(x) * near_y + near_x * near_y
    assert product.allowed[0] <= most + 4 * UNIT * (abs(y) + near_y) * (abs(x) + near_x) + 1e-40


@pytest.mark.parametrize(
    ("y", "x", "right", "loose"),
    [
        ((2.0, 0.1), (math.inf, 0.0), math.inf, False),
        ((0.0, 0.0), (math.inf, 0.0), math.nan, False),
        ((1e-9, 1e-7), (math.inf, 0.0), math.inf, True),  # which may be 0, and 0 times infinity NaN
        ((math.inf, 0.0), (-1e-9, 1e-7), -math.inf, True),
        ((2.0, 0.1), (5e38, 0.0), 1e39, True),  # a factor that float32 cannot hold
        ((2.0, 0.1), (math.nan, 0.0), math.nan, False),
    ],
)
def test_a_gate_of_infinities_is_what_ieee_says_where_that_is_sure(
    y: tuple[float, float], x: tuple[float, float], right: float, loose: bool
) -> None:
    product = gated(told(*y, loose=False), told(*x, loose=False))
    assert np.array_equal(product.right, [right], equal_nan=True)
    assert product.loose is not None and bool(product.loose[0]) == loose
    assert (product.allowed[0] == 0) == (not math.isfinite(right))


@pytest.mark.parametrize("dtype", dtypes.BY_NAME.values(), ids=lambda dtype: dtype.name)
def test_half_a_place_is_half_of_the_way_to_the_next_number(dtype: dtypes.DType) -> None:
    random = np.random.default_rng(1).integers(0, dtype.infinity - 1, 5000)
    ends = [0, 1, (1 << dtype.mantissa_bits) - 1, 1 << dtype.mantissa_bits, dtype.infinity - 2]
    bits = np.append(random, ends).astype(dtype.storage)
    values, following = dtype.to_f32(bits), dtype.to_f32(bits + dtype.storage.type(1))
    step = following.astype(np.float64) - values
    assert np.array_equal(half_ulps(values, dtype), step / 2)
    assert np.array_equal(half_ulps(-values, dtype), step / 2)


@pytest.mark.parametrize("dtype", dtypes.BY_NAME.values(), ids=lambda dtype: dtype.name)
def test_what_is_stored_in_between_may_be_off_by_half_a_place(dtype: dtypes.DType) -> None:
    values = np.random.default_rng(1).normal(0, 3, 1000)
    x = stored(Expected(values, np.zeros(1000), np.zeros(1000)), dtype)
    off = np.abs(dtype.to_f32(dtype.from_float(values)) - values)
    assert (off <= x.allowed).all() and off.max() > 0.4 * x.allowed.max()


@pytest.mark.parametrize("end", [-math.inf, math.inf, math.nan])
def test_limits_that_are_stored_in_between_leave_no_choice(end: float) -> None:
    x = stored(told(end, 0.0), dtypes.BF16)
    assert (x.allowed[0], x.spread[0]) == (0, 0)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("x", [-2.0, 0.5, 3.0])
def test_a_deviation_goes_through_an_activation_as_its_slope_says(name: str, x: float) -> None:
    y = activated(told(x, 1e-3), name)
    slope = abs(of(name, x + 1e-3) - of(name, x - 1e-3)) / 2e-3
    assert y.spread[0] == pytest.approx(slope * 1e-3 / 3, rel=0.05)


@pytest.mark.parametrize(
    ("y", "x"),
    [
        ((2.0, 0.1), (3.0, 0.0)),
        ((3.0, 0.0), (2.0, 0.1)),
        ((1 + 2.0**-23, 0.0), (1 + 2.0**-23, 0.0)),  # two numbers whose product is rounded
    ],
)
def test_a_product_leaves_a_choice_unless_it_is_a_float32_of_two_numbers_that_leave_none(
    y: tuple[float, float], x: tuple[float, float]
) -> None:
    least = y[1] * x[0] + x[1] * y[0]
    assert gated(told(*y), told(*x)).allowed[0] > least
    assert gated(told(2.0, 0.0), told(3.0, 0.0)).allowed[0] == 0


@pytest.mark.parametrize("which", [(True, False), (False, True)])
def test_a_product_may_be_infinite_where_either_factor_may(which: tuple[bool, bool]) -> None:
    y, x = (told(2.0, 0.1, loose=loose) for loose in which)
    product = gated(y, x)
    assert product.loose is not None and product.loose[0]
