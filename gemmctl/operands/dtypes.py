"""Element types: bits to float32 and back, sizes, and the codes that devices use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import TYPE_BF16, TYPE_F16, TYPE_F32

Bits = npt.NDArray[np.unsignedinteger[Any]]
Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


@dataclass(frozen=True)
class DType:
    """One element type.

    The tensor core adds ``accumulate_block`` products of such operands in one step, and the step
    errs by at most ``accumulate_unit`` of what it adds up.
    """

    name: str
    size: int  # bytes
    mantissa_bits: int  # stored, without the leading 1
    code: int  # what the kernels call it
    tensormap_code: int  # CUtensorMapDataType
    accumulate_block: int
    accumulate_unit: float

    @property
    def storage(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The unsigned numpy dtype that holds one element's bits."""
        return np.dtype(f"u{self.size}")

    @property
    def infinity(self) -> int:
        """The bits of +infinity; one less are those of the largest finite number (IEEE 754)."""
        return (1 << 8 * self.size - 1) - (1 << self.mantissa_bits)

    @property
    def nan(self) -> int:
        """The bits of a quiet NaN."""
        return self.infinity | 1 << self.mantissa_bits - 1

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(self.to_f32(np.array([self.infinity - 1], self.storage))[0])

    @property
    def smallest_normal(self) -> float:
        """The smallest number above 0 that is not subnormal."""
        return float(self.to_f32(np.array([1 << self.mantissa_bits], self.storage))[0])

    def to_f32(self, bits: Bits) -> npt.NDArray[np.float32]:
        """The values of ``bits`` (of ``storage``, any shape), exactly; may be a view of it."""
        raise NotImplementedError

    def from_float(self, values: Floats) -> Bits:
        """The bits of ``values`` (float32 or float64, any shape); may be a view of it.

        One rounding, to nearest with ties to even; what is too large becomes infinite.
        """
        raise NotImplementedError


class _BFloat16(DType):
    def to_f32(self, bits: Bits) -> npt.NDArray[np.float32]:
        wide = bits.astype(np.uint32)
        wide <<= np.uint32(16)
        return wide.view(np.float32)

    def from_float(self, values: Floats) -> Bits:
        single = _to_odd(values) if values.dtype == np.float64 else values
        bits = single.view(np.uint32)
        # Half of the last place kept, less one where that place is even: the carry rounds.
        rounded = bits >> np.uint32(16)
        rounded &= np.uint32(1)
        rounded += bits
        rounded += np.uint32(0x7FFF)
        rounded >>= np.uint32(16)
        result = rounded.astype(np.uint16)
        nan = np.isnan(single)
        if nan.any():
            quiet = bits >> np.uint32(16) | np.uint32(0x40)
            result = np.where(nan, quiet.astype(np.uint16), result)
        return result


class _Float16(DType):
    def to_f32(self, bits: Bits) -> npt.NDArray[np.float32]:
        return bits.view(np.float16).astype(np.float32)

    def from_float(self, values: Floats) -> Bits:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(np.float16).view(np.uint16)


class _Float32(DType):
    def to_f32(self, bits: Bits) -> npt.NDArray[np.float32]:
        return bits.view(np.float32)

    def from_float(self, values: Floats) -> Bits:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(np.float32, copy=False).view(np.uint32)


def _to_odd(values: Floats) -> npt.NDArray[np.float32]:
    """Round float64 to float32 so that a later rounding to fewer bits is the only one that counts.

    Inexact results are truncated and get an odd last bit (Boldo and Melquiond, "Emulation of FMA
    and correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = values.astype(np.float32)
    bits = single.view(np.uint32)
    back = single.astype(np.float64)
    bits -= np.abs(back) > np.abs(values)
    bits |= (back != values) & ~np.isnan(values)
    return single


# Hopper's 16-bit wgmma adds 16 products a step, truncating below 2^-23 of the largest.
BF16 = _BFloat16("bf16", 2, 7, TYPE_BF16, 9, 16, 2.0**-23)
F16 = _Float16("f16", 2, 10, TYPE_F16, 6, 16, 2.0**-23)
F32 = _Float32("f32", 4, 23, TYPE_F32, 7, 1, 2.0**-24)

BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in (BF16, F16, F32)}
