"""Copies of operands that TMA cannot read where they lie, made before the launches of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmctl.lists.problem import Problem
from gemmctl.planning.arena import ALIGNMENT
from gemmctl.planning.tiling import STRIDE_END, STRIDE_STEP, Flags, Ints


@dataclass(frozen=True)
class Packing:
    """Where launches read A and B, and what is copied before they do.

    A copy is of the lines of an operand: its rows or, where they lie across memory, its columns
    (of B the other way about). The lines of a copy begin on 16-byte boundaries, one right behind
    the 16-byte words of another.
    """

    # One entry per group: byte offsets in the arena, and elements from one line to the next.
    a: Ints
    b: Ints
    lda: Ints
    ldb: Ints
    # One entry per copy.
    source: Ints  # byte offset in the arena
    pitch_bytes: Ints  # from one line of the source to the next
    line_bytes: Ints
    lines: Ints
    to: Ints  # byte offset in the arena
    end: int  # of the arena with the copies in it

    @property
    def words(self) -> Ints:
        """16-byte words that a line of each copy takes."""
        return -(-self.line_bytes // STRIDE_STEP)

    @property
    def bytes(self) -> int:
        """Bytes that are copied: each is read once and written once."""
        return int((self.line_bytes * self.lines).sum())


def pack(problem: Problem, a: Ints, b: Ints, begin: int) -> Packing:
    """Copy what TMA cannot read of A and B to the end of the arena.

    ``problem`` has every D by rows. Its operands lie at ``a`` and ``b``, and the arena ends at
    ``begin`` without copies: byte offsets. An operand of a single line is not copied, since
    nothing steps from it to another; only its leading dimension is a legal one.
    """
    columns = problem.columns
    lines, lengths = _stored(problem)
    sizes, lds, offsets = _both(columns.size("a"), columns.size("b")), _lds(problem), _both(a, b)
    wrong = _wrong(problem)
    words = -(-lengths * sizes // STRIDE_STEP)
    copied = np.flatnonzero(wrong & (lines > 1))
    taken = -(-(lines * words * STRIDE_STEP)[copied] // ALIGNMENT) * ALIGNMENT
    ends = begin + np.cumsum(taken)
    read = offsets.copy()
    read[copied] = ends - taken
    read_a, read_b = np.split(read, 2)
    lda, ldb = np.split(np.where(wrong, words * STRIDE_STEP // sizes, lds), 2)
    return Packing(
        a=read_a,
        b=read_b,
        lda=lda,
        ldb=ldb,
        source=offsets[copied],
        pitch_bytes=(lds * sizes)[copied],
        line_bytes=(lengths * sizes)[copied],
        lines=lines[copied],
        to=ends - taken,
        end=int(ends[-1]) if len(ends) else begin,
    )


def remedies(problem: Problem) -> list[str]:
    """What to change in a list so that nothing of it is packed, as in ``k 1001 -> 1008``."""
    columns = problem.columns
    lines, _ = _stored(problem)
    packed_a, packed_b = np.split(_wrong(problem) & (lines > 1), 2)
    along_k = ~columns.across("a") & ~columns.across("b")
    by_k = along_k & (columns.lda == columns.k) & (columns.ldb == columns.k)
    found: list[str] = []
    for name, values, size, wanted in (
        ("k", columns.k, columns.size("a"), by_k & (packed_a | packed_b)),
        ("lda", columns.lda, columns.size("a"), packed_a & ~by_k),
        ("ldb", columns.ldb, columns.size("b"), packed_b & ~by_k),
    ):
        pairs = np.stack([values, _legal(values, size)], axis=1)[wanted]
        found += [f"{name} {value} -> {legal}" for value, legal in np.unique(pairs, axis=0)]
    return found


def _wrong(problem: Problem) -> Flags:
    """Operands with strides that TMA cannot step; where nothing is multiplied nothing is read."""
    columns = problem.columns
    stride = _lds(problem) * _both(columns.size("a"), columns.size("b"))
    read = columns.active & (columns.depth > 0)
    wrong: Flags = np.tile(read, 2) & ((stride % STRIDE_STEP != 0) | (stride >= STRIDE_END))
    return wrong


def _stored(problem: Problem) -> tuple[Ints, Ints]:
    """Lines of operands that are each contiguous, and elements of one: of every A, then every B."""
    columns = problem.columns
    across = np.concatenate([columns.across("a"), columns.across("b")])
    extents, k = _both(columns.m, columns.n), np.tile(columns.k, 2)
    return np.where(across, k, extents), np.where(across, extents, k)


def _lds(problem: Problem) -> Ints:
    return _both(problem.columns.lda, problem.columns.ldb)


def _both(of_a: Ints, of_b: Ints) -> Ints:
    """What every A has, then what every B has."""
    return np.concatenate([of_a, of_b])


def _legal(values: Ints, sizes: Ints) -> Ints:
    """Leading dimensions (or extents of lines that lie side by side) that TMA can step."""
    strides = -(-values * sizes // STRIDE_STEP) * STRIDE_STEP
    legal: Ints = np.minimum(strides, STRIDE_END - STRIDE_STEP) // sizes
    return legal
