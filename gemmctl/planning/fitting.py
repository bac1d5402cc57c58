"""What TMA can read, and which kernels can compute which groups."""

from __future__ import annotations

from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning.arrays import Flags, Ints

# TMA: strides are multiples of 16 bytes and below 2^40 (PTX ISA, tensor maps).
STRIDE_STEP = 16
STRIDE_END = 1 << 40
NEAR_BYTES = 1 << 24  # from row to row of B: 256 of them are within 32 bits of each other


def takes(kernel: Kernel, problem: Problem, groups: Ints) -> bool:
    """Whether a kernel for their types and layouts can compute these groups.

    One that writes D by columns only knows D = alpha A B in whole 16-byte words, and one that B may
    be unaligned of knows no gates.
    """
    columns = problem.columns
    if kernel.b_unaligned:
        return bool(copied_beside(problem)[groups].all())
    if not kernel.d_across:
        return True
    return bool((columns.whole_words & ~columns.more)[groups].all())


def copied_beside(problem: Problem) -> Flags:
    """Groups whose B warps of a kernel can copy while others multiply.

    Its rows come as they lie, not as a gate takes them, and those of a tile begin within 2^32 bytes
    of each other.
    """
    columns = problem.columns
    near = columns.ldb * columns.sizes["b"] < NEAR_BYTES
    found: Flags = near & (columns.gate == 0) & ~columns.across("a") & ~columns.across("b")
    return found
