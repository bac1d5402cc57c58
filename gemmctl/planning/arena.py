"""Where operands lie: one arena for all of a problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmctl.lists.problem import Problem
from gemmctl.planning.arrays import Ints

POISON = 0xFF  # of which every byte of D is made before a run: NaN in every type
FENCE = 256  # bytes of POISON kept before and after every D, to show writes outside it
ALIGNMENT = 256  # bytes: offsets count from such boundaries (TMA itself needs 16)


@dataclass(frozen=True)
class Layout:
    """Byte offsets of every operand in one arena, one entry per group of the problem.

    The region [d_begin, d_end) holds every D with FENCE bytes before the first and after each.
    In place, C is D. Of the others those with beta 0 share one C that is never to be read. Behind
    everything a plan has room for the copies of operands that it packs.
    """

    a: Ints
    b: Ints
    c: Ints
    d: Ints
    bias: Ints
    d_begin: int
    d_end: int
    size: int


def lay_out(problem: Problem) -> tuple[Layout, int]:
    """Place every operand in one arena; also the bytes that a run has to move."""
    columns = problem.columns
    m, n = columns.m, columns.n
    size = columns.sizes
    has_c, apart = columns.beta != 0, ~columns.inplace
    biases = columns.bias_length * columns.sizes["bias_type"]
    runs = {
        name: np.where(columns.across(name), across, along)
        for name, along, across in (
            ("a", m, columns.k),
            ("b", n, columns.k),
            ("c", m, n),
            ("d", m, columns.d_columns),
        )
    }
    lds = {"a": columns.lda, "b": columns.ldb, "c": columns.ldc, "d": columns.ldd}
    spans = {name: runs[name] * lds[name] * size[name] for name in "abcd"}

    def place(lengths: Ints, offsets: Ints, start: int, gap: int = 0) -> tuple[Ints, int]:
        padded = (offsets + lengths + gap + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        ends = start + np.cumsum(padded)
        return ends - padded + offsets, int(ends[-1]) if len(ends) else start

    own_c = has_c & apart
    unread = int(spans["c"][~has_c & apart].max(initial=0))
    a, end = place(spans["a"], columns.a_offset * size["a"], 0)
    b, end = place(spans["b"], columns.b_offset * size["b"], end)
    c, end = place(spans["c"] * own_c, columns.c_offset * size["c"] * own_c, end)
    (shared,), end = place(np.array([unread]), np.array([0]), end)
    bias, end = place(biases, np.zeros_like(biases), end)
    d_begin = end
    d, end = place(spans["d"], columns.d_offset * size["d"], d_begin + FENCE, gap=FENCE)
    useful = columns.product_bytes + m * n * has_c * size["c"] + biases
    c = np.where(columns.inplace, d, np.where(has_c, c, shared))
    layout = Layout(a, b, c, d, bias, d_begin, end, end)
    return layout, int(useful[(m > 0) & (n > 0)].sum())
