"""What the kernels make of an activation, redone in numpy with the numbers in their source."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from gemmctl.judging.expected import ARGUMENT_ERROR, VALUE_ERROR
from gemmctl.operands.activations import activate
from sources import text

Floats = npt.NDArray[np.float32]
F32 = np.float32
# What the PTX ISA says of ex2.approx and rcp.approx: relative errors.
EXP2_ERROR, RECIPROCAL_ERROR = 2.0**-22, 2.0**-23
SMALLEST = 2.0**-126  # normal float32; .ftz makes 0 of what is below
LARGE = np.logspace(1, 38, 50_000)
ARGUMENTS = np.concatenate([np.linspace(-16, 16, 400_001), LARGE, -LARGE]).astype(F32)


def numbers(pattern: str) -> list[F32]:
    """The literals in the one place of activation.cuh that a pattern finds, in their order."""
    (place,) = re.findall(pattern, text("epilogue/activation.cuh"), re.S)
    return [F32(found) for found in re.findall(r"(-?[\d.]+(?:e[-+]\d+)?)f\b", place)]


def fma(x: Floats, y: Floats, z: F32) -> Floats:
    """x y + z, rounded once, but for what float64 rounds."""
    exact: Floats = (x.astype(np.float64) * np.float64(y) + np.float64(z)).astype(F32)
    return exact


def exponent(activation: str, x: Floats) -> Floats:
    """The power of 2 in the share of x that an activation is."""
    if activation == "silu":
        (factor,) = numbers(r"ptx::exp2\(sums\[[^;]*;")
        return x * factor
    found = numbers(rf"float {activation}\(float x\) {{(.*?)\n}}\n")
    if activation == "gelu":
        most, *factors = found
    else:
        cubic, most, linear = found
        factors = [cubic, linear]
    square = np.minimum(x * x, most)
    sum_ = np.full_like(x, factors[0])
    for factor in factors[1:]:
        sum_ = fma(sum_, square, factor)
    return x * sum_


def flushed(x: npt.NDArray[np.float64]) -> Floats:
    """Rounded to float32, and 0 where that is subnormal."""
    return np.where(x < SMALLEST, 0, x).astype(F32)


def made(activation: str, x: Floats, first: int = 0, second: int = 0) -> Floats:
    """What the kernel makes of x, with errors of two signs."""
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.exp2(exponent(activation, x).astype(np.float64))
        divisor = F32(1) + flushed(power * (1 + first * EXP2_ERROR))
    share = flushed(1 / divisor.astype(np.float64) * (1 + second * RECIPROCAL_ERROR))
    return np.maximum(x, np.finfo(F32).min) * share


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_the_kernel_promises_less_error_than_verify_allows(activation: str) -> None:
    right = activate(activation, ARGUMENTS.astype(np.float64))
    allowed = VALUE_ERROR * np.abs(right) + ARGUMENT_ERROR * np.abs(ARGUMENTS.astype(np.float64))
    for first, second in product((-1, 1), repeat=2):
        got = made(activation, ARGUMENTS, first, second)
        assert (np.abs(got - right) <= 0.8 * allowed).all()


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_of_what_is_no_number_the_kernel_makes_what_it_tends_to(activation: str) -> None:
    x = np.array([-np.inf, np.inf, np.nan, np.finfo(F32).min], F32)
    np.testing.assert_array_equal(made(activation, x), np.array([0, np.inf, np.nan, 0], F32))
