"""The tile list of a launch: the entries that its kernel reads, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import (
    ACTIVATION_RELU,
    BIAS_M,
    BIAS_NONE,
    FINE_FROM,
    K_TILE,
    KIND_ACTIVATION,
    KIND_BIAS,
    KIND_BIAS_TYPE,
    KIND_C_TYPE,
    KIND_GATE,
    MAPS,
    NARROW_ROWS,
    RECORDS,
    REDUCED_ROWS,
    TILE_ADDED,
    TILE_ALONE,
    TILE_BACKWARD,
    TILE_BIAS_SCALED,
    TILE_BOXED,
    TILE_C_IN_SUMS,
    TILE_EIGHTS,
    TILE_FUSED,
    TILE_GATED,
    TILE_JOINED,
    TILE_JOINED_M,
    TILE_LOADED_BY_TWO,
    TILE_ONCE,
    TILE_PLUS,
    TILE_RELU,
    TILE_RESIDUES,
    TILE_SHUFFLED,
    TILE_WORDS,
    WIDTH_STEP,
)
from gemmctl.lists.problem import Problem
from gemmctl.planning.arrays import Flags, Ints, ceil_div, within
from gemmctl.planning.epilogue import (
    added,
    c_by_elements,
    c_by_residues,
    ends_plain,
    light,
    may_begin,
    may_box,
    may_join,
    may_scale,
    may_shuffle,
)
from gemmctl.planning.order import LONG_K, interleaved, places, runs
from gemmctl.planning.tiling import (
    Choice,
    Grid,
    begun,
    boxed,
    joined,
    joining_slices,
    loaded_by_two,
    scaled,
    seen,
    shuffled,
    staged,
)

TURNING_K = 4096  # from which turning about pays: 0.9% at 7168, for fewer bytes; nothing at 2048
AHEAD_BYTES = 40e6  # of the L2's 50 MB, for tiles of clusters that are ahead of others
ONCE_ROWS = 64  # rows of D up to which a B that is read once need not stay in the L2
# The same, and from which K on, of groups among others of the same K whose operands are read again
# (H100: 0.99 of the time, of lists of experts 0.96 to 1.005; where K differs up to 1.02).
ONCE_AMONG, AMONG_K = 192, 512
# Last slices of K that warpgroups which share a tile multiply by turns, where nothing is against it
# (docs/kernel.md has what each number of them took). So many stages stay in the ring until the
# second has had them, and no ring has fewer.
LAST_SLICES = 4
LAST_OF_SHORT = 2  # where K is less than two rings long, and the next tile waits for the ring
SHORT_SLICES = 4  # of K, which all are multiplied by turns in tiles of NARROW_ROWS
# Where a group has tiles of two heights: for sums of so many slices of K (of three or four such
# lists took 1.004 of the time, of 64 and more, which power limits, 1.000), in so many waves of
# tiles (in two 1.008: a CTA hardly meets a height's code twice), and if it saves such a share of
# the group's rows. They take 0.995 of the time then (H200, docs/kernel.md).
LOWER_K_TILES = range(6, TURNING_K // K_TILE)
LOWER_WAVES = 5
LOWER_SHARE = 0.01
# Share of a wave from which the last tiles of groups overlap those before them: with 90 CTAs and
# fewer no launch took longer for rows that are not there, with 120 up to 1.4 times as long (H200,
# docs/kernel.md).
FULL_WAVE = 0.7
BY_MAP = TILE_ADDED | TILE_BOXED | TILE_C_IN_SUMS  # flags of tiles that use C's tensor map

# One entry of the tile list, as the kernel reads it. There are three kinds of entries; Tile in
# cubin/src/records.cuh explains them.
TILE = np.dtype(
    [
        ("group", np.uint32),  # index into the launch's group arrays
        ("m0", np.uint32),  # first row of D
        ("n0", np.uint32),  # first column of x
        ("width", np.uint32),  # rows of D that are multiplied for
        ("k0", np.uint32),  # first slice of 64 along K
        ("k_tiles", np.uint32),  # slices along K; 0: nothing to multiply
        ("box", np.uint32),  # rows of A, and of C, that are loaded
        # Of a bias that joins the sums or comes with alpha, these four are columns from n0 on, or
        # along m rows from m0 on, its address there, and its type.
        ("slot", np.uint32),  # of this part, or of the first part to add up
        ("flag", np.uint32),  # which counts the parts of the same tile
        ("readers", np.uint32),  # entries that add up these parts
        ("row", np.uint32),  # of the parts, where the rows to add up begin
        ("c_stages", np.uint16),  # that C takes in the ring; 0: it comes otherwise, or not
        ("in_turn", np.uint16),  # of its last slices, that warpgroups which share it multiply so
        ("kinds", np.uint16),  # of what is behind alpha A B: KIND_BIAS and so on
        ("splits", np.uint16),  # parts that the sum over K is split into; 0: it is not
        ("flags", np.uint32),  # TILE_WORDS and so on
        ("alpha", np.float32),
        ("beta", np.float32),
    ]
)


@dataclass(frozen=True)
class Launch(Grid):
    """One launch of one kernel: groups that share element types and layouts, cut and in order."""

    choice: Choice
    shuffled: Flags  # groups whose rows of A come shuffled
    moved: int  # bytes of A, B and D, each counted once
    tiles: npt.NDArray[np.void]  # TILE records in the order they are handed out

    @property
    def stage_bytes(self) -> int:
        """Bytes of each."""
        return int(self.kernel.stage_bytes(self.boxes.max()))

    @property
    def ahead(self) -> int:
        """Tiles that a cluster may take before it is done with one.

        Where every K is short, as many as fill its ring, and beyond that as many as it has records
        for: but of so many waves of tiles the L2 has to hold all that they read and write, since a
        cluster that is as far ahead shares operands with those that are behind. It takes no more
        than the list still has for every cluster. Elsewhere only the next.
        """
        if self.k_tiles.max() * K_TILE >= LONG_K:
            return 1
        fill = 1 + ceil(self.stages / max(1.0, np.average(self.k_tiles, weights=self.whole)))
        held = int(AHEAD_BYTES * self.waves / self.moved)
        return min(RECORDS - 1, max(fill, held))

    @property
    def flags(self) -> int:
        """Split tiles."""
        return int(self.whole[self.parts > 1].sum())

    @property
    def residues(self) -> bool:
        """Whether some C comes by residues."""
        return bool((self.tiles["flags"] & TILE_RESIDUES).any())

    @property
    def maps_each(self) -> int:
        """Tensor maps that the kernel uses of a group: MAPS, or without C's where none is."""
        flags, in_ring = self.tiles["flags"], self.tiles["c_stages"] > 0
        whole = in_ring & (flags & TILE_RESIDUES == 0)
        return MAPS if (whole | (flags & BY_MAP > 0)).any() else MAPS - 1

    @property
    def padded_macs(self) -> int:
        """Multiply-adds the tensor cores do, padding included."""
        per_column = np.dot(self.tiles["width"].astype(np.int64), self.tiles["k_tiles"])
        return int(per_column) * self.kernel.columns_per_tile * K_TILE


def cut(problem: Problem, planned: Grid, choice: Choice) -> Launch:
    """Write the tile list of groups as they are planned to be cut.

    Where all K are alike and long, every other wave of tiles takes K backward: it begins with what
    the wave before it, which moved along K in step, ended with and left in the L2.
    """
    groups, kernel = planned.groups, planned.kernel
    columns = seen(problem, kernel)
    alpha, beta = columns.alpha[groups], columns.beta[groups]
    of_group = np.zeros(len(groups), TILE)
    of_group["group"] = np.arange(len(groups))
    of_group["box"], of_group["k_tiles"] = planned.loaded, planned.k_tiles
    of_group["width"] = planned.widths
    of_group["alpha"], of_group["beta"] = alpha, beta
    moved = int(columns.product_bytes[np.unique(groups)].sum())
    gated, on_top = columns.gate[groups] != 0, added(problem, groups)
    may = may_begin(problem, groups)
    on_the_way = staged(planned, may)
    begins = begun(kernel, planned.parts, may, ends_plain(problem, groups))
    first = begins | on_the_way
    nothing_behind = (beta == 0) | first
    join = joined(kernel, planned.parts, may_join(problem, groups) & nothing_behind)
    scale = scaled(kernel, planned.parts, may_scale(problem, groups) & nothing_behind)
    biased = (columns.bias[groups] != BIAS_NONE) & ~(join | scale)  # behind the sums
    lightly = light(problem, groups) & nothing_behind
    mixed = shuffled(planned, may_shuffle(problem, groups, kernel))
    in_boxes = boxed(planned, may_box(problem, groups))
    by_tma = on_top | in_boxes
    relu = lightly & (columns.activation[groups] == ACTIVATION_RELU)
    of_group["flags"] = (
        (problem.columns.whole_words[groups] & ~by_tma) * TILE_WORDS
        + on_top * TILE_ADDED
        + in_boxes * TILE_BOXED
        + (~lightly & ~on_top) * TILE_FUSED
        + relu * TILE_RELU
        + (~on_top & (biased | ~nothing_behind)) * TILE_PLUS
        + join * TILE_JOINED
        + (join & (columns.bias[groups] == BIAS_M)) * TILE_JOINED_M
        + scale * TILE_BIAS_SCALED
        + first * TILE_C_IN_SUMS
        + gated * TILE_GATED
        + (gated & (columns.n[groups] % 16 == 0)) * TILE_EIGHTS
        + c_by_residues(problem, groups) * TILE_RESIDUES
        + _once(planned, problem) * TILE_ONCE
        + mixed * TILE_SHUFFLED
        + loaded_by_two(planned) * TILE_LOADED_BY_TWO
    )
    of_group["kinds"] = (
        biased * columns.bias[groups] << KIND_BIAS
        | columns.bias_type[groups] << KIND_BIAS_TYPE
        | ~lightly * columns.activation[groups] << KIND_ACTIVATION
        | columns.gate[groups] << KIND_GATE
        | columns.c[groups] << KIND_C_TYPE
    )
    elsewhere = on_top | on_the_way | c_by_elements(problem, groups)
    in_ring = (beta != 0) & ~elsewhere & (planned.k_tiles > 0)
    of_group["c_stages"] = np.where(in_ring, kernel.rows // 64 * columns.sizes["c"][groups] // 2, 0)
    of_group["in_turn"] = _in_turn(planned, problem, of_group["c_stages"], on_the_way)
    in_runs = runs(planned)
    tiles = np.repeat(np.take(of_group, in_runs), planned.whole[in_runs])
    tiles["m0"], tiles["n0"] = places(planned, in_runs)
    last = tiles["m0"] + tiles["width"] >= columns.m[groups][tiles["group"]]
    tiles["width"] = np.where(last, planned.last[tiles["group"]], tiles["width"])
    if not planned.slots and FULL_WAVE <= planned.waves <= 1 and not kernel.b_unaligned:
        _full_at_end(tiles, planned, problem, last)
    last_cta = tiles["n0"] + (kernel.columns_per_tile - kernel.rows)  # where its columns begin
    alone = last_cta >= columns.n[groups][tiles["group"]]
    tiles["flags"] |= alone * np.uint32(TILE_ALONE)
    # The last tile of a group may be narrow where the others are not.
    narrow = (tiles["width"] <= NARROW_ROWS) & (tiles["in_turn"] < tiles["k_tiles"])
    tiles["in_turn"][narrow] = 0
    able = ~(planned.few | on_top | mixed)
    if (lower := _lower(planned, columns.m[groups], able)).any():
        _lower_last(tiles, planned, lower)
    if (among := interleaved(planned, problem, in_runs)) is not None:
        tiles = np.take(tiles, among)
    depth = columns.depth[groups]
    if depth.min() == depth.max() >= TURNING_K:
        every_other = np.arange(len(tiles)) // planned.clusters % 2 == 1
        tiles["flags"][every_other] |= TILE_BACKWARD
    if planned.slots:
        tiles = _split(tiles, planned.parts[tiles["group"]], columns.m[groups][tiles["group"]])
    return Launch(**vars(planned), choice=choice, shuffled=mixed, moved=moved, tiles=tiles)


def _full_at_end(tiles: npt.NDArray[np.void], planned: Grid, problem: Problem, last: Flags) -> None:
    """Move tiles at the ends of groups back to where all their rows of A and of B are there.

    Boxes with rows that are not there make such a launch up to a third slower (docs/kernel.md).
    What a neighbour has, too, is computed twice and stored twice, the same bits whoever comes
    first; so C is not read, which may lie in D's place. ``last`` are the last tiles along m.
    """
    kernel, groups, of = planned.kernel, planned.groups, tiles["group"]
    columns = seen(problem, kernel)
    m, n = columns.m[groups], columns.n[groups]
    without_c = columns.beta[groups] == 0
    if not (kernel.a_across or kernel.d_across):
        # A bias along m may be copied in whole words.
        movable = without_c & (columns.bias[groups] != BIAS_M) & (planned.high > 1)
        moved = last & movable[of]
        tiles["width"] = np.where(moved, planned.widths[of], tiles["width"])
        tiles["m0"] = np.where(moved, m[of] - tiles["width"], tiles["m0"])
    wide = n >= kernel.columns_per_tile
    # In whole words of B, too, where K lies across it, and of D by rows, whatever its type.
    by_element = kernel.d_across and not kernel.b_across
    in_words = (problem.columns.whole_words[groups] & (n % 8 == 0)) | by_element
    furthest = np.where(without_c & wide & in_words, n - kernel.columns_per_tile, n)
    tiles["n0"] = np.minimum(tiles["n0"], furthest[of])


def _lower(planned: Grid, m: Ints, able: Flags) -> Ints:
    """Of each group's rows of tiles, how many are WIDTH_STEP rows lower than the others.

    As many as it has rows too few: 22 tiles of 192 are 128 rows more than 4096, so that eight of
    them have 176. Where warpgroups take turns, of groups that are ``able`` to. Where tiles are
    shared, to fetch another height's code takes what it saves.
    """
    kernel, widths, k_tiles = planned.kernel, planned.widths, planned.k_tiles
    if not kernel.pingpong or kernel.a_across or planned.waves < LOWER_WAVES:
        return np.zeros_like(m)
    padding = planned.high * widths - m
    has_code = (widths % WIDTH_STEP == 0) | (widths - WIDTH_STEP > FINE_FROM)
    some_k = (k_tiles >= LOWER_K_TILES.start) & (k_tiles < LOWER_K_TILES.stop)
    worth = some_k & (padding >= LOWER_SHARE * m)
    return np.where(able & has_code & worth & (planned.parts == 1), padding // WIDTH_STEP, 0)


def _lower_last(tiles: npt.NDArray[np.void], planned: Grid, lower: Ints) -> None:
    """Make the last rows of tiles of each group lower, so many."""
    of = tiles["group"]
    row = tiles["m0"] // planned.widths[of]
    beyond = row - (planned.high - lower)[of]
    tiles["m0"] -= (np.maximum(beyond, 0) * WIDTH_STEP).astype(np.uint32)
    tiles["width"] -= ((beyond >= 0) * WIDTH_STEP).astype(np.uint32)


def _split(tiles: npt.NDArray[np.void], splits: Ints, m: Ints) -> npt.NDArray[np.void]:
    """Split the sum of each tile into so many parts; ``m`` has the rows of its group.

    The entries that add up the parts come last. So a CTA that waits for parts waits for entries
    that others were given before, and cannot wait for itself.
    """
    split = splits > 1
    chosen, splits = tiles[split], splits[split]
    rows = np.minimum(chosen["width"], m[split] - chosen["m0"])
    readers = ceil_div(rows, REDUCED_ROWS)
    chosen["splits"], chosen["readers"] = splits, readers
    chosen["flag"] = np.arange(len(chosen))
    chosen["slot"] = np.cumsum(splits) - splits
    chosen["c_stages"] = 0  # what adds up the parts reads C itself

    parts, part, of = np.repeat(chosen, splits), within(splits), np.repeat(splits, splits)
    parts["flags"] &= ~np.uint32(TILE_FUSED | TILE_PLUS)  # nothing is behind a part,
    parts["alpha"] = 1  # nor is it multiplied
    k_tiles = parts["k_tiles"].astype(np.int64)
    begin, end = k_tiles * part // of, k_tiles * (part + 1) // of
    parts["k0"], parts["k_tiles"] = begin, end - begin
    parts["slot"] = np.arange(len(parts))

    sums = np.repeat(chosen, readers)
    sums["row"] = within(readers) * REDUCED_ROWS
    sums["m0"] += sums["row"]
    sums["width"], sums["k_tiles"], sums["in_turn"] = REDUCED_ROWS, 0, 0
    return np.concatenate([parts, tiles[~split], sums], dtype=TILE)


def _once(planned: Grid, problem: Problem) -> Flags:
    """Groups of few rows of D, which read every element of B for one tile.

    Where K is long that is most of what a list reads, and drives out of the L2 what is read again
    (measured: 4 to 9% of `skew16k`, 1% of `decode256`; but 2% slower where K is below LONG_K, and,
    of lists with nothing that is read again, 2 to 3% with 100 to 154 rows, which multiply as long
    as they read). With operands exchanged it is what the kernel calls A; in clusters, all CTAs of
    which read it, the L2 is not told.
    """
    kernel, columns = planned.kernel, seen(problem, planned.kernel)
    if kernel.d_across and kernel.cluster > 1:
        return np.zeros(len(planned.groups), bool)
    rows, tiles = (columns.n, planned.wide) if kernel.d_across else (columns.m, planned.high)
    k_tiles, most, least_k = planned.k_tiles, ONCE_ROWS, LONG_K
    if not kernel.d_across and k_tiles.min() == k_tiles.max() and tiles.max() > 1:
        most, least_k = ONCE_AMONG, AMONG_K
    once: Flags = (rows[planned.groups] <= most) & (tiles == 1)
    return once & (k_tiles * K_TILE >= least_k)


def _in_turn(planned: Grid, problem: Problem, c_stages: Ints, on_the_way: Flags) -> Ints:
    """Last slices of K that warpgroups which share a tile multiply by turns, of each group.

    The first one stores while the other multiplies. Fewer where another tile follows, whose loads
    wait for the ring: most where K is not much longer than that, where C is in it, and where rows
    of D are no whole words. What takes long behind the sums is hidden by as many as there are. A C
    that joins the sums on the way has done so by then.

    Of narrow tiles, which wait for memory, none, but for all of a short K.
    """
    kernel, groups, k_tiles = planned.kernel, planned.groups, planned.k_tiles
    if not kernel.takes_turns:
        return np.zeros_like(k_tiles)
    columns, stages = problem.columns, planned.stages
    lightly, broken = light(problem, groups), ~columns.whole_words[groups]
    brief = lightly & (columns.bias[groups] == BIAS_NONE) & ~broken
    slices = LAST_SLICES - c_stages.astype(np.int64) // 2
    if planned.waves > 1:
        slices -= lightly.astype(np.int64) + broken
        short = lightly & (k_tiles < 2 * stages)
        slices = np.where(short, np.minimum(slices, LAST_OF_SHORT), slices)
    narrow = planned.widths <= NARROW_ROWS
    slices = np.where(narrow, 0, np.maximum(slices, 1))
    fits = np.where(brief, SHORT_SLICES, stages)
    all_of_it = (narrow | ~brief) & (k_tiles <= fits)
    found = np.where(all_of_it, k_tiles, np.minimum(slices, k_tiles))
    left = k_tiles - joining_slices(planned)
    return np.where(on_the_way, np.minimum(found, left), found)
