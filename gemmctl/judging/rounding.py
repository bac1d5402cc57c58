"""What rounding to an element type does to numbers."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from gemmctl.operands.dtypes import DType

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

UNIT = 2.0**-24  # largest relative error of one rounding to float32
SMALLEST = 2.0**-149  # float32's smallest number: no rounding to it loses more
OVERFLOW = 2.0**128  # what float32 cannot hold


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


def is_single(values: Doubles) -> Flags:
    """Where a value is a float32 number."""
    single: Flags = values.astype(np.float32) == values
    return single
