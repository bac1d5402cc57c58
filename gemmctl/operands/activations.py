"""What an activation makes of each element, computed in the precision of what it is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.floating[Any]]


def _none(x: Values) -> Values:
    return x


def _relu(x: Values) -> Values:
    return np.maximum(x, 0)


def _gelu(x: Values) -> Values:
    # erfc keeps the bits that 1 + erf loses on the negative side. numpy has neither, and scipy,
    # which has, is larger than all of gemmctl's dependencies but numpy.
    tails = np.fromiter(map(math.erfc, (x / -math.sqrt(2)).ravel().tolist()), x.dtype, x.size)
    return _times(x, tails.reshape(x.shape) / 2)


def _gelu_tanh(x: Values) -> Values:
    # (1 + tanh u) / 2 is 1 / (1 + exp(-2 u)), which keeps its bits on the negative side.
    return _times(x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _silu(x: Values) -> Values:
    return _times(x, _sigmoid(x))


def _sigmoid(x: Values) -> Values:
    result: Values = 1 / (1 + np.exp(-x))
    return result


def _times(x: Values, share: Values) -> Values:
    """x times a share of it that falls faster than x grows: 0 where x is -infinity."""
    return np.where(x == -np.inf, 0, x * share).astype(x.dtype, copy=False)


# In the order of their codes.
FUNCTIONS: dict[str, Callable[[Values], Values]] = {
    "none": _none,
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}


def activate(name: str, x: Values) -> Values:
    """The activation of that name of float32 or float64 values of any shape; NaN stays NaN."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[name](x)
