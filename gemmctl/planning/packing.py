"""Copies of operands that TMA cannot read where they lie, made before the launches of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import K_TILE
from gemmctl.kernels.cubins import OPERAND_BYTES
from gemmctl.lists.fields import MAX_EXTENT
from gemmctl.lists.problem import Problem
from gemmctl.operands.dtypes import Bits
from gemmctl.planning.arena import ALIGNMENT
from gemmctl.planning.arrays import Flags, Ints, Number
from gemmctl.planning.fitting import STRIDE_END, STRIDE_STEP, copied_beside

BLOCK_BYTES = K_TILE * OPERAND_BYTES  # that are woven: those of a row in a stage
# What it costs to leave a B where it is, in bytes that could be copied meanwhile: so many, and one
# for each of so many operations (H200: 16 lists, docs/kernel.md).
LEFT_BYTES = 12_000_000
LEFT_FLOP = 2300


@dataclass(frozen=True)
class Packing:
    """Where launches read A and B, and what is copied before they do.

    A copy is of the lines of an operand: its rows or, where they lie across memory, its columns
    (of B the other way about). The lines of a copy begin on 16-byte boundaries, one right behind
    the 16-byte words of another.

    Beside an unaligned B that stays where it is A is ``woven``: its lines are whole blocks of 128
    bytes, filled up with zeros, and word 8 i + j of the 32 words of 4 bytes in a block has become
    word 4 j + i, since thread i of four multiplies it (cubin/src/held.cuh).
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
    woven: Flags  # these come first
    to: Ints  # byte offset in the arena
    end: int  # of the arena with the copies in it

    @property
    def words(self) -> Ints:
        """16-byte words that a line of each copy takes."""
        return words(self.line_bytes, self.woven)

    @property
    def bytes(self) -> int:
        """Bytes that are copied: each is read once and written once."""
        return int((self.line_bytes * self.lines).sum())


def pack(problem: Problem, a: Ints, b: Ints, begin: int, unaligned: Flags) -> Packing:
    """Copy what TMA cannot read of A and B to the end of the arena, and weave what has to be.

    ``problem`` has every D by rows. Its operands lie at ``a`` and ``b``, and the arena ends at
    ``begin`` without copies: byte offsets. Groups with ``unaligned`` kernels have B left where it
    is, and A woven. Else an operand of a single line that begins on a 16-byte boundary is not
    copied, since nothing steps from it to another; only its leading dimension is a legal one.
    """
    lines, lengths = _stored(problem)
    sizes, lds, offsets = _sizes(problem), _lds(problem), _both(a, b)
    none = np.zeros_like(unaligned)
    woven, left = _both(unaligned, none) & _read(problem), _both(none, unaligned)
    wrong = ((_step_wrong(problem) | _begin_wrong(problem)) & ~left) | woven
    per_line = words(lengths * sizes, woven)
    stepped = (lines > 1) | _begin_wrong(problem)
    copied = np.append(np.flatnonzero(woven), np.flatnonzero(wrong & ~woven & stepped))
    taken = -(-(lines * per_line * STRIDE_STEP)[copied] // ALIGNMENT) * ALIGNMENT
    ends = begin + np.cumsum(taken)
    lies = offsets.copy()
    lies[copied] = ends - taken
    lies_a, lies_b = np.split(lies, 2)
    lda, ldb = np.split(np.where(wrong, per_line * STRIDE_STEP // sizes, lds), 2)
    return Packing(
        a=lies_a,
        b=lies_b,
        lda=lda,
        ldb=ldb,
        source=offsets[copied],
        pitch_bytes=(lds * sizes)[copied],
        line_bytes=(lengths * sizes)[copied],
        lines=lines[copied],
        woven=woven[copied],
        to=ends - taken,
        end=int(ends[-1]) if len(ends) else begin,
    )


def left_in_place(problem: Problem, groups: Ints) -> Flags:
    """Groups of a launch that are faster with a B that TMA cannot read left where it is, if any.

    To multiply it takes longer than what TMA reads, but it is not copied; A is in any case.
    """
    columns = problem.columns
    m, n, k = columns.m[groups], columns.n[groups], columns.depth[groups]
    off_a, off_b = (columns.off_words[operand][groups] for operand in "ab")
    may: Flags = off_b & copied_beside(problem)[groups] & (n > 1) & (k > 0)
    saved = (n - np.where(off_a, 0, m)) * k * columns.sizes["b"][groups] * may
    flop = 2 * m * n * k * may
    worth: Flags = may & (saved.sum() > LEFT_BYTES + flop.sum() / LEFT_FLOP)
    return worth


def words(line_bytes: npt.ArrayLike, woven: npt.ArrayLike) -> Ints:
    """16-byte words that a line of a copy takes."""
    step = np.where(woven, BLOCK_BYTES, STRIDE_STEP)
    found: Ints = -(-np.asarray(line_bytes) // step) * step // STRIDE_STEP
    return found


def weave(lines: Bits) -> Bits:
    """Lines of whole blocks as ``Packing`` says that they are woven, of elements of any size."""
    blocks = np.ascontiguousarray(lines).view(np.uint32).reshape(-1, 4, 8)
    return blocks.transpose(0, 2, 1).copy().view(lines.dtype).reshape(lines.shape)


def unweave(lines: Bits) -> Bits:
    """Lines as they were before they were woven."""
    blocks = np.ascontiguousarray(lines).view(np.uint32).reshape(-1, 8, 4)
    return blocks.transpose(0, 2, 1).copy().view(lines.dtype).reshape(lines.shape)


def remedies(problem: Problem) -> list[str]:
    """What to change in a list so that nothing of it is packed, as in ``k 1001 -> 1008``."""
    columns = problem.columns
    packed_a, packed_b = np.split(_stepped_wrong(problem), 2)
    begun_a, begun_b = np.split(_begin_wrong(problem), 2)
    along_k = ~columns.across("a") & ~columns.across("b")
    by_k = along_k & (columns.lda == columns.k) & (columns.ldb == columns.k)
    by_k &= packed_a | packed_b
    for index in np.flatnonzero(by_k).tolist():
        # What a list says of them would be too little for another k.
        by_k[index] = {"lda", "ldb"}.isdisjoint(problem.groups[index].marks)
    found: list[str] = []
    for name, values, legal, wanted in (
        ("k", columns.k, _legal_k(columns.k, columns.sizes["a"]), by_k),
        ("lda", columns.lda, _legal(columns.lda, columns.sizes["a"]), packed_a & ~by_k),
        ("ldb", columns.ldb, _legal(columns.ldb, columns.sizes["b"]), packed_b & ~by_k),
        ("a_offset", columns.a_offset, np.zeros_like(columns.a_offset), begun_a),
        ("b_offset", columns.b_offset, np.zeros_like(columns.b_offset), begun_b),
    ):
        pairs = np.stack([values, legal], axis=1)[wanted]
        found += [f"{name} {value} -> {better}" for value, better in np.unique(pairs, axis=0)]
    return found


def readable(problem: Problem) -> Flags:
    """Groups with a B that TMA can read where it is, so that only a kernel's own way has A copied.

    ``problem`` has every D by rows.
    """
    read, wrong = _read(problem), _stepped_wrong(problem) | _begin_wrong(problem)
    found: Flags = np.split(read & ~wrong, 2)[1]
    return found


def _stepped_wrong(problem: Problem) -> Flags:
    """Operands that TMA would have to step over as it cannot."""
    wrong: Flags = _step_wrong(problem) & (_stored(problem)[0] > 1)
    return wrong


def _step_wrong(problem: Problem) -> Flags:
    """Operands with strides that TMA cannot step; where nothing is multiplied nothing is read."""
    stride = _lds(problem) * _sizes(problem)
    wrong: Flags = _read(problem) & ((stride % STRIDE_STEP != 0) | (stride >= STRIDE_END))
    return wrong


def _begin_wrong(problem: Problem) -> Flags:
    """The same of operands that begin where TMA cannot."""
    columns = problem.columns
    begin = _both(columns.a_offset, columns.b_offset) * _sizes(problem)
    wrong: Flags = _read(problem) & (begin % STRIDE_STEP != 0)
    return wrong


def _read(problem: Problem) -> Flags:
    """Operands that are multiplied at all."""
    return np.tile(problem.columns.active & (problem.columns.depth > 0), 2)


def _stored(problem: Problem) -> tuple[Ints, Ints]:
    """Lines of operands that are each contiguous, and elements of one: of every A, then every B."""
    columns = problem.columns
    across = np.concatenate([columns.across("a"), columns.across("b")])
    extents, k = _both(columns.m, columns.n), np.tile(columns.k, 2)
    return np.where(across, k, extents), np.where(across, extents, k)


def _sizes(problem: Problem) -> Ints:
    return _both(problem.columns.sizes["a"], problem.columns.sizes["b"])


def _lds(problem: Problem) -> Ints:
    return _both(problem.columns.lda, problem.columns.ldb)


def _both(of_a: npt.NDArray[Number], of_b: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """What every A has, then what every B has."""
    return np.concatenate([of_a, of_b])


def _legal_k(values: Ints, sizes: Ints) -> Ints:
    """Lengths of lines that lie side by side that TMA can step."""
    elements = STRIDE_STEP // sizes
    legal: Ints = np.minimum(_legal(values, sizes), MAX_EXTENT // elements * elements)
    return legal


def _legal(values: Ints, sizes: Ints) -> Ints:
    """Leading dimensions that TMA can step."""
    strides = -(-values * sizes // STRIDE_STEP) * STRIDE_STEP
    legal: Ints = np.minimum(strides, STRIDE_END - STRIDE_STEP) // sizes
    return legal
