"""The three products of a linear layer, Y[tokens, N] = X[tokens, K] W[N, K]^T, and their groups.

Matrices lie as a model has them: activations are rows of tokens, weights N rows of K.
"""

from __future__ import annotations

from collections.abc import Iterable

from gemmctl.generating import listing
from gemmctl.generating.listing import Group, Value

PASSES = {
    "forward": "forward",
    "dgrad": "dX = dY W",
    "wgrad": "dW += dY^T X, in place",
}
# Where operands do not lie as those of a layer do, A in rows and B in columns of K.
ACROSS: dict[str, dict[str, str]] = {
    "forward": {},
    "dgrad": {"b_layout": "row"},
    "wgrad": {"a_layout": "col", "b_layout": "row"},
}
SWIGLU: dict[str, Value] = {"activation": "silu", "gate": "halves"}  # gate beside up
INTO_F32 = "bf16:f32"  # of weight gradients, which are summed over micro-batches


def usual_type(pass_: str) -> str:
    """The element types of a pass, as --dtype has them, if none are given."""
    return INTO_F32 if pass_ == "wgrad" else "bf16"


def element_types(pass_: str, dtype: str) -> dict[str, Value]:
    """The types of a pass's groups from ``bf16`` or ``bf16:f32``.

    Raises UsageError for what no kernel multiplies in that pass.
    """
    return listing.element_types(dtype, **ACROSS[pass_])


def groups(
    pass_: str, tokens: Iterable[int], n: int, k: int, keys: dict[str, Value]
) -> list[Group]:
    """A group for each number of tokens, of a layer whose weights are n x k; all have ``keys``.

    forward: Y, tokens x n. dgrad: dX = dY W, tokens x k; W lies across. wgrad: dW += dY^T X,
    n x k, the sum goes over tokens; both lie across.
    """
    whole = keys | ACROSS[pass_]
    if pass_ == "forward":
        return [whole | {"m": m, "n": n, "k": k} for m in tokens]
    if pass_ == "dgrad":
        return [whole | {"m": m, "n": k, "k": n} for m in tokens]
    whole |= {"beta": 1, "inplace": True}
    return [whole | {"m": n, "n": k, "k": depth} for depth in tokens]
