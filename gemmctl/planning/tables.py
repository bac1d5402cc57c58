"""Turn a plan and base addresses into the arrays that a device reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import (
    STAGED_BOX,
    TILE_ADDED,
    TILE_BIAS_SCALED,
    TILE_BOXED,
    TILE_C_IN_SUMS,
    TILE_JOINED,
    TILE_JOINED_M,
    TYPE_F32,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.lists.problem import Columns, Problem
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import tiling
from gemmctl.planning.arrays import Flags, Ints
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiles import Launch

# One operand to generate: `rows` times `cols` elements, of which neighbours in a row lie `col_step`
# elements apart and those in a column `row_step`.
FILL = np.dtype(
    [
        ("ptr", np.uint64),
        ("row_step", np.uint64),
        ("col_step", np.uint64),
        ("rows", np.uint32),
        ("cols", np.uint32),
        ("key", np.uint32),
        ("type", np.uint32),  # DType.code
        ("recipe", np.uint32),  # data.NORMAL and so on
        ("limit", np.uint32),  # the largest of integer data
    ]
)


# One operand to copy, each line to whole 16-byte words. Words have numbers that run on over all
# operands, for CTAs to take equal shares; those of this one are [first, end).
PACK = np.dtype(
    [
        ("source", np.uint64),
        ("pitch_bytes", np.uint64),  # from one line of the source to the next
        ("line_bytes", np.uint64),
        ("to", np.uint64),
        ("first", np.uint64),
        ("end", np.uint64),
        ("woven", np.uint64),  # whether lines are woven, and filled up with zeros to whole blocks
    ]
)


# One D to hash: `rows` runs of `row_bytes`, `pitch_bytes` apart; `group` is where its hash goes.
HASHED = np.dtype(
    [
        ("ptr", np.uint64),
        ("pitch_bytes", np.uint64),
        ("row_bytes", np.uint64),
        ("rows", np.uint32),
        ("group", np.uint32),
    ]
)


@dataclass(frozen=True)
class Tables:
    """One launch's arrays: one entry per group (structure of arrays), and the tile list."""

    ptr_a: npt.NDArray[np.uint64]
    ptr_b: npt.NDArray[np.uint64]
    ptr_c: npt.NDArray[np.uint64]
    ptr_d: npt.NDArray[np.uint64]
    ld_a: npt.NDArray[np.uint64]
    ld_b: npt.NDArray[np.uint64]
    ld_c: npt.NDArray[np.uint64]
    ld_d: npt.NDArray[np.uint64]
    m: npt.NDArray[np.uint32]
    n: npt.NDArray[np.uint32]
    k: npt.NDArray[np.uint32]  # 0 where alpha is 0
    box: npt.NDArray[np.uint32]  # of A: its rows, by WIDTH_STEP from 0, and WIDTHS more if shuffled
    type_c: npt.NDArray[np.uint32]  # DType.code of C
    ptr_bias: npt.NDArray[np.uint64]  # 0: there is none
    gate: npt.NDArray[np.uint32]  # its place in GATES
    c_box: npt.NDArray[np.uint32]  # of C; WIDTHS: of a D that TMA adds to, and 1 more: stores
    tiles: npt.NDArray[np.void]
    # What kernels read of their tiles (TILE's kinds), and the CPU of a tile's group.
    type_bias: npt.NDArray[np.uint32]  # the bias's DType.code
    bias_along: npt.NDArray[np.uint32]  # its place in BIASES
    activation: npt.NDArray[np.uint32]  # its place in ACTIVATIONS


def build(launch: Launch, plan: Plan, base: int) -> Tables:
    """The arrays of one launch for operands that lie at ``base`` (an address in bytes)."""
    groups, layout, packing = launch.groups, plan.layout, plan.packing
    columns = tiling.seen(plan.exchanged, launch.kernel)
    a, b, lda, ldb = packing.a, packing.b, packing.lda, packing.ldb
    if launch.kernel.d_across:
        a, b, lda, ldb = b, a, ldb, lda

    added, stored = _flagged(launch, TILE_ADDED), _flagged(launch, TILE_BOXED)
    boxed = added | stored

    def address(offsets: Ints) -> npt.NDArray[np.uint64]:
        return offsets[groups].astype(np.uint64) + np.uint64(base)

    return Tables(
        ptr_a=address(a),
        ptr_b=address(b),
        ptr_c=np.where(boxed, address(layout.d), address(layout.c)),
        ptr_d=address(layout.d),
        ld_a=lda[groups].astype(np.uint64),
        ld_b=ldb[groups].astype(np.uint64),
        ld_c=np.where(boxed, columns.ldd[groups], columns.ldc[groups]).astype(np.uint64),
        ld_d=columns.ldd[groups].astype(np.uint64),
        m=columns.m[groups].astype(np.uint32),
        n=columns.n[groups].astype(np.uint32),
        k=columns.depth[groups].astype(np.uint32),
        box=(launch.loaded // WIDTH_STEP - 1 + WIDTHS * launch.shuffled).astype(np.uint32),
        type_c=np.where(boxed, TYPE_F32, columns.c[groups]).astype(np.uint32),
        ptr_bias=np.where(columns.bias[groups] == 0, np.uint64(0), address(layout.bias)),
        type_bias=columns.bias_type[groups].astype(np.uint32),
        bias_along=columns.bias[groups].astype(np.uint32),
        activation=columns.activation[groups].astype(np.uint32),
        gate=columns.gate[groups].astype(np.uint32),
        c_box=_c_boxes(launch, added, stored),
        tiles=_with_biases(launch.tiles, columns, groups, address(layout.bias)),
    )


def _flagged(launch: Launch, flag: int) -> Flags:
    """Groups with a tile that has that flag.

    Not what ``epilogue.added`` says of the groups: of equal ones it may say it of some only, and
    where each has a launch of its own, all have the tiles of the first.
    """
    found = np.zeros(len(launch.groups), bool)
    found[launch.tiles["group"][launch.tiles["flags"] & flag > 0]] = True
    return found


def _c_boxes(launch: Launch, added: Flags, stored: Flags) -> npt.NDArray[np.uint32]:
    """The box of C, or of a D that leaves in boxes, whose map has C's place."""
    found = (launch.loaded // WIDTH_STEP - 1).astype(np.uint32)
    if launch.kernel.stages_c:
        found[_flagged(launch, TILE_C_IN_SUMS)] = STAGED_BOX // WIDTH_STEP - 1
    found[added] = WIDTHS
    found[stored] = WIDTHS + 1
    return found


def _with_biases(
    tiles: npt.NDArray[np.void], columns: Columns, groups: Ints, biases: npt.NDArray[np.uint64]
) -> npt.NDArray[np.void]:
    """A tile list that says where biases are that join sums or come with alpha.

    ``biases`` has the address of each group's.
    """
    some = np.flatnonzero(tiles["flags"] & (TILE_JOINED | TILE_BIAS_SCALED))
    if not len(some):
        return tiles
    filled, biased = tiles.copy(), tiles[some]
    which = groups[biased["group"]]
    along_m = biased["flags"] & TILE_JOINED_M > 0
    begin = np.where(along_m, biased["m0"], biased["n0"])
    at = biases[biased["group"]] + begin * columns.sizes["bias_type"][which].astype(np.uint64)
    filled["slot"][some] = np.where(along_m, columns.m[which], columns.n[which]) - begin
    filled["flag"][some], filled["readers"][some] = at & 0xFFFFFFFF, at >> np.uint64(32)
    filled["row"][some] = columns.bias_type[which]
    return filled


def packs(plan: Plan, base: int) -> npt.NDArray[np.void]:
    """PACK records of all operands to copy, for an arena that lies at ``base``."""
    packing = plan.packing
    records = np.zeros(len(packing.to), PACK)
    records["source"] = packing.source.astype(np.uint64) + np.uint64(base)
    records["to"] = packing.to.astype(np.uint64) + np.uint64(base)
    records["pitch_bytes"], records["line_bytes"] = packing.pitch_bytes, packing.line_bytes
    records["woven"] = packing.woven
    words = packing.lines * packing.words
    records["end"] = np.cumsum(words)
    records["first"] = records["end"] - words.astype(np.uint64)
    return records


def fills(plan: Plan, base: int, spec: DataSpec) -> npt.NDArray[np.void]:
    """FILL records of all operands with elements: A and B where alpha, C where beta is not 0.

    A bias is a column: with special data, each of its numbers is of a row of its own.
    """
    columns, layout = plan.problem.columns, plan.layout
    everyone = np.arange(len(plan.problem.groups))
    limits = integer_limits(plan.problem)
    parts = []
    one = np.ones_like(everyone)
    m, n, k, multiplied = columns.m, columns.n, columns.k, columns.depth > 0
    for operand, type_, rows, cols, ld, across, offsets, wanted in (
        (data.A, columns.a, m, k, columns.lda, columns.across("a"), layout.a, multiplied),
        (data.B, columns.b, n, k, columns.ldb, columns.across("b"), layout.b, multiplied),
        (data.C, columns.c, m, n, columns.ldc, columns.across("c"), layout.c, columns.beta != 0),
        (
            data.BIAS,
            columns.bias_type,
            columns.bias_length,
            one,
            one,
            np.zeros_like(columns.inplace),
            layout.bias,
            columns.bias > 0,
        ),
    ):
        groups = everyone[wanted & columns.active]
        part = np.zeros(len(groups), FILL)
        part["ptr"] = offsets[groups].astype(np.uint64) + np.uint64(base)
        part["row_step"] = np.where(across, 1, ld)[groups]
        part["col_step"] = np.where(across, ld, 1)[groups]
        part["rows"] = rows[groups]
        part["cols"] = cols[groups]
        part["key"] = data.keys(spec.seed, operand, groups)
        part["type"] = type_[groups]
        part["recipe"] = spec.recipe(operand)
        part["limit"] = limits[groups]
        parts.append(part)
    return np.concatenate(parts)


def refills(records: npt.NDArray[np.void], plan: Plan, base: int) -> npt.NDArray[np.void]:
    """Those of ``fills`` that lie in D: every C in place, which a run writes over."""
    return records[records["ptr"] >= base + plan.layout.d_begin]


def hashed(plan: Plan, base: int) -> npt.NDArray[np.void]:
    """HASHED records of every D with elements, for operands that lie at ``base``."""
    columns = plan.exchanged.columns
    groups = np.flatnonzero(columns.active)
    size = columns.sizes["d"][groups]
    records = np.zeros(len(groups), HASHED)
    records["ptr"] = plan.layout.d[groups].astype(np.uint64) + np.uint64(base)
    records["pitch_bytes"] = columns.ldd[groups] * size
    records["row_bytes"] = columns.d_columns[groups] * size
    records["rows"] = columns.m[groups]
    records["group"] = groups
    return records


def integer_limits(problem: Problem) -> Ints:
    """The largest integer in the operands of each group, for data of kind ``int``."""
    columns = problem.columns
    limits = np.ones(len(problem.groups), np.int64)
    for a in dtypes.BY_NAME.values():
        for d in dtypes.BY_NAME.values():
            same = (columns.a == a.code) & (columns.d == d.code)
            k, alpha, gated = columns.k[same], columns.alpha[same], columns.gate[same] != 0
            limits[same] = data.integer_limits(k, a, d, alpha, gated)
    return limits
