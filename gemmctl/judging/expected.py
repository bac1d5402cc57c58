"""What is right for some elements, and what activations and gates make of it.

Everything is a number and a radius around it. An activation maps an interval to that between its
values at the ends, and at its minimum if that lies inside; a gate multiplies two intervals. Both
add what a device may err by when it computes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gemmctl.judging.rounding import OVERFLOW, SMALLEST, UNIT, Doubles, Flags, half_ulps, is_single
from gemmctl.operands.activations import activate
from gemmctl.operands.dtypes import DType

# What a device may err by where it computes a gelu, gelu_tanh or silu of x in float32: so much of
# the value, for exponentials and divisions that are good to 16 units in the last place, and so much
# of x, for tails that are the difference of numbers near 1; and SMALLEST, as every rounding to a
# subnormal may. What the kernel promises is in docs/kernel.md; numpy's float32 functions take up a
# quarter of it.
VALUE_ERROR = 2.0**-20
ARGUMENT_ERROR = 2.0**-24

# Where an activation that falls and then rises is least, and how much that is.
MINIMA = {
    "gelu": (-0.7517915246935645, -0.16997120747990369),
    "gelu_tanh": (-0.7524614220710162, -0.17004075057125412),
    "silu": (-1.2784645427610738, -0.2784645427610738),
}


@dataclass(frozen=True, eq=False)
class Expected:
    """What is right for a block of elements; all arrays have the block's shape.

    right: the number itself. allowed: how far from it a device may be; 0 where it is not finite.
    spread: the deviation from it that the arithmetic explains; both before D is rounded. loose:
    where a device may have an infinity or NaN, and where that goes through an activation a 0, too;
    None: nowhere.
    """

    right: Doubles
    allowed: Doubles
    spread: Doubles
    loose: Flags | None = None

    def at(self, *place: npt.NDArray[np.intp]) -> Expected:
        """The same of some elements."""
        loose = None if self.loose is None else self.loose[place]
        return Expected(self.right[place], self.allowed[place], self.spread[place], loose)


def activated(x: Expected, activation: str) -> Expected:
    """What is right for an activation of x."""
    if activation == "none":
        return x
    with np.errstate(all="ignore"):
        right, low, high = (
            activate(activation, values).astype(np.float64, copy=False)
            for values in (x.right, x.right - x.allowed, x.right + x.allowed)
        )
        least, most = np.minimum(low, high), np.maximum(low, high)
        error = np.zeros_like(right)
        if activation in MINIMA:
            place, minimum = MINIMA[activation]
            least = np.where(np.abs(x.right - place) <= x.allowed, minimum, least)
            error = VALUE_ERROR * np.abs(right) + ARGUMENT_ERROR * np.abs(x.right) + SMALLEST
        image = np.maximum(most - right, right - least)
        slope = np.divide(image, x.allowed, out=np.ones_like(image), where=x.allowed > 0)
        allowed = image + error
        allowed[~np.isfinite(x.right)] = 0
        return Expected(right, allowed, slope * x.spread + error, x.loose)


def gated(y: Expected, x: Expected) -> Expected:
    """What is right for y times x; their errors may well have the same cause."""
    with np.errstate(all="ignore"):
        right = y.right * x.right
        size_y, size_x = np.abs(y.right), np.abs(x.right)
        largest = (size_y + y.allowed) * (size_x + x.allowed)
        allowed = size_y * x.allowed + (size_x + x.allowed) * y.allowed + UNIT * largest + SMALLEST
        spread = size_y * x.spread + size_x * y.spread + UNIT * np.abs(right) + SMALLEST
        # A product of two numbers that leave no choice, if float32 holds it, leaves none.
        allowed[(x.allowed == 0) & (y.allowed == 0) & is_single(right)] = 0
        allowed[np.isnan(allowed)] = np.inf
        allowed[~np.isfinite(right)] = 0
        if x.loose is None or y.loose is None:
            return Expected(right, allowed, spread)
        # Infinity times what may be 0 may be NaN; what exceeds float32 may be infinity.
        loose = x.loose | y.loose
        for of, size, other, others in ((y, size_y, x, size_x), (x, size_x, y, size_y)):
            loose |= np.isinf(size) & (others <= other.allowed) & (other.allowed > 0)
            loose |= np.isfinite(size) & (size + of.allowed >= OVERFLOW)
        return Expected(right, allowed, spread, loose)


def stored(x: Expected, dtype: DType) -> Expected:
    """What is right for x where a chain of calls rounds it to a type between two of them."""
    with np.errstate(all="ignore"):
        half = half_ulps((np.abs(x.right) + x.allowed).astype(np.float32), dtype)
        half[~np.isfinite(x.right)] = 0
        return replace(x, allowed=x.allowed + half, spread=np.hypot(x.spread, half))
