"""What is right for a D that another library computes, with the roundings that are its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from gemmctl.judging.expected import Expected, activated, gated, stored
from gemmctl.judging.product import Indices, Product
from gemmctl.judging.rounding import UNIT, half_ulps

# How a library does more than alpha A B. copied: C is copied to D, where it adds to it; fused: bias
# and activation are part of the product's kernel; unfused: activation, gate and what of bias and C
# the product does not add are kernels of their own, and D's type is what is between two of them.
# "": there is no more, or it is nothing special.
Manner = Literal["", "copied", "fused", "unfused"]

# Relative error of tanh.approx.f32, which a fused gelu may be made with: at most 1.113e-5 over all
# inputs, measured on sm_75 (Juffa, "Hardware-accelerated tanh() on Turing", NVIDIA's developer
# forum, 2021). Neither that nor what cublasLt uses was measured on Hopper.
TANH_ERROR = 2.0**-16


def expected_in(manner: Manner, product: Product, rows: Indices, cols: range) -> Expected:
    """What is right for the elements of D at ``rows`` x ``cols``."""
    if manner == "unfused":
        return _unfused(product, rows, cols)
    right = product.expected(rows, cols)
    if manner == "fused" and product.group.activation == "gelu_tanh":  # x (1 + tanh(...)) / 2
        x = product.linear(rows, cols)
        error = TANH_ERROR / 2 * (np.abs(x.right) + x.allowed)
        right = replace(right, allowed=right.allowed + error)
    return right


def _unfused(product: Product, rows: Indices, cols: range) -> Expected:
    group, dtype = product.group, product.d
    xs = [_biased(product, rows, taken) for taken in product.factors(cols)]
    if group.linear:
        return xs[0]
    first, *others = (stored(x, dtype) for x in xs)
    y = activated(first, group.activation)
    for x in others:
        y = gated(stored(y, dtype), x)
    return y


def _biased(product: Product, rows: Indices, cols: range) -> Expected:
    """What is right for x where the bias is added to an x that is in D's type already."""
    group = product.group
    if group.bias == "none":
        return _summed(product, rows, cols)
    unbiased = replace(product, group=replace(group, bias="none"))
    x = stored(_summed(unbiased, rows, cols), product.d)
    _, bias = product.addends(rows, cols)
    right = x.right + bias
    return replace(x, right=right, allowed=x.allowed + UNIT * (np.abs(right) + x.allowed))


def _summed(product: Product, rows: Indices, cols: range) -> Expected:
    """What is right for alpha A B + beta C, of which A B may be in D's type (agreement.py)."""
    x = product.linear(rows, cols)
    if product.group.beta == 0 or product.d.size > 2:
        return x
    c, _ = product.addends(rows, cols)
    half = half_ulps((np.abs(x.right) + np.abs(c)).astype(np.float32), product.d)
    return replace(x, allowed=x.allowed + np.where(np.isfinite(half), half, 0))
