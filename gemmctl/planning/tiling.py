"""Cut the groups of one launch into the entries of its tile list, and put them in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import (
    ACTIVATION_RELU,
    ELEMENTS_WIDTH,
    FINE_FROM,
    FINE_STEP,
    FINE_TO,
    FUSED_NARROW,
    FUSED_STEP,
    K_TILE,
    RECORDS,
    REDUCED_ROWS,
    RESIDUES,
    TILE_ADDED,
    TILE_BACKWARD,
    TILE_BIAS,
    TILE_C_FIRST,
    TILE_EIGHTS,
    TILE_FUSED,
    TILE_GATED,
    TILE_ONCE,
    TILE_RELU,
    TILE_RESIDUES,
    TILE_WORDS,
    TYPE_F32,
    WIDTH_STEP,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Columns, Problem

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)

# TMA: strides are multiples of 16 bytes and below 2^40 (PTX ISA, tensor maps).
STRIDE_STEP = 16
STRIDE_END = 1 << 40
NEAR_BYTES = 1 << 24  # from row to row of B: 256 of them are within 32 bits of each other

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
        ("slot", np.uint32),  # of this part, or of the first part to add up
        ("flag", np.uint32),  # which counts the parts of the same tile
        ("readers", np.uint32),  # entries that add up these parts
        ("row", np.uint32),  # of the parts, where the rows to add up begin
        ("c_stages", np.uint32),  # that C takes in the ring; 0: it comes otherwise, or not
        ("splits", np.uint32),  # parts that the sum over K is split into; 0: it is not
        ("flags", np.uint32),  # TILE_WORDS and so on
        ("alpha", np.float32),
        ("beta", np.float32),
    ]
)

# From which the L2 adds to D: it does so at two thirds of the rate that memory allows, which
# shorter sums would wait for. 128 of 1536x2048 with K 512: 1280 us, not 1120; 32 of that size with
# K of about 1030: 336 instead of 403.
ADDED_K = 960
# From which it does beside tiles that read C, spread among them, for so much of all such D
# (docs/kernel.md): the two wait for different things.
MIXED_K = 384
ADDED_SHARE = 0.4
TURNING_K = 4096  # from which turning about pays: 0.9% at 7168, for fewer bytes; nothing at 2048
MIN_SPLIT_K_TILES = 8  # slices of K that a part is worth its way through memory for
MOST_PARTS = 2  # of all sums, for each cluster: at most 35 MB on an H200, which the L2 holds
NARROWEST = 64  # rows of A: the narrowest of the widest tiles worth considering
HALVINGS = 3  # of the number of parts that are worth considering
LONG_SHARE = 8  # of a cluster's time, by the part of it that a tile takes which has to come first
# Cycles that widths in finer steps cost a CTA at first, and with every tile: fits to 57 lists on an
# H200, when there was code for them up to 256 (96 tiles of 89 to 121 rows took 6% longer by them).
FINE_BEGIN, FINE_TILE = 1500, 200
WGMMA_FLOP = 4096  # dense 16-bit floating-point operations per cycle and SM
FEW_ROWS = 600  # rows of A below which B's bytes take longer than its multiplications
ADDED_LEAST = 0.1  # of a list, that has to be added, or not to be, for them to be spread
MANY_UNTIL = 0.8  # of a list that spreads tiles of few rows among those of many, the latter's end
ONCE_ROWS = 64  # rows of D up to which a B that is read once need not stay in the L2
LONG_K = 1024  # a tile of at least this K is worth scheduling; shorter ones are latency-bound
PANEL_ROWS = 2048  # rows of A that stay live while B streams past: all tiles at work are a square
ALONE = np.zeros(1, np.int64)  # where the groups of a single launch begin


@dataclass(frozen=True)
class Machine:
    """What the plan needs to know of the GPU."""

    sm_count: int


H200 = Machine(sm_count=132)


def machine_of(sm_count: int | None) -> Machine:
    """A GPU of so many SMs; what has none is planned for as an H200."""
    return H200 if sm_count is None else Machine(sm_count)


@dataclass(frozen=True, order=True)
class Choice:
    """How a launch is cut: which kernel, the widest tile, and into how many parts K is split.

    So many parts has the longest sum over K; shorter ones have fewer in proportion, and those that
    are no longer than such a part stay whole.
    """

    kernel: str
    width: int
    splits: int = 1

    def __str__(self) -> str:
        parts = f" k/{self.splits}" if self.splits > 1 else ""
        return f"{self.kernel} w{self.width}{parts}"

    @classmethod
    def parsed(cls, text: str) -> Choice:
        """The choice that says so of itself: ``128x256 w256 k/8``."""
        kernel, width, *parts = text.split()
        splits = int(parts[0].removeprefix("k/")) if parts else 1
        return cls(kernel, int(width.removeprefix("w")), splits)


@dataclass(frozen=True)
class Grid:
    """How a kernel cuts groups into tiles, before any is written; one entry per group.

    A group whose last columns of tiles are cut otherwise has two entries, one after the other.
    """

    kernel: Kernel
    machine: Machine
    groups: Ints  # indices into problem.groups, in the order of the launch's arrays
    widths: Ints  # rows of A per tile
    last: Ints  # the same of the last tile of each column of tiles, which may be narrower
    high: Ints  # tiles on top of each other
    first: Ints  # of its columns of tiles, counted from the group's first
    wide: Ints  # tiles side by side
    k_tiles: Ints  # slices along K of a whole tile
    parts: Ints  # that each tile's sum over K is split into; 1: it is not
    sums: Ints  # entries that add up parts

    @property
    def room(self) -> int:
        """Clusters (or single CTAs) that the GPU runs at one time: a wave of tiles."""
        return _room(self.kernel, self.machine)

    @property
    def boxes(self) -> Ints:
        """Rows of A that are loaded for a tile: as many boxes as its width takes."""
        step = self.kernel.box_step
        return _ceil(self.widths, step) * step

    @property
    def rows(self) -> Ints:
        """Rows of A that tiles on top of each other multiply, padding included."""
        return (self.high - 1) * self.widths + self.last

    @property
    def share(self) -> Floats:
        """Of the group's columns of tiles, those of each entry."""
        found: Floats = self.wide / np.bincount(self.groups, self.wide)[self.groups]
        return found

    @property
    def whole(self) -> Ints:
        """Tiles, each counted once, however its sum is split."""
        return self.high * self.wide

    @property
    def entries(self) -> Ints:
        """Entries of the tile list."""
        return self.whole * self.parts + self.sums

    @property
    def slots(self) -> int:
        """Parts of split tiles, each of which needs room for a tile of float32 sums."""
        return int((self.whole * self.parts)[self.parts > 1].sum())

    @property
    def workspace_bytes(self) -> int:
        """Memory for the parts."""
        return self.slots * self.kernel.columns_per_tile * self.kernel.max_width * 4


@dataclass(frozen=True)
class Launch(Grid):
    """One launch of one kernel: groups that share element types and layouts, cut and in order."""

    choice: Choice
    tiles: npt.NDArray[np.void]  # TILE records in the order they are handed out

    @property
    def stages(self) -> int:
        """Stages that the kernel's ring is cut into."""
        return int(self.kernel.stages(self.boxes.max()))

    @property
    def stage_bytes(self) -> int:
        """Bytes of each."""
        return int(self.kernel.stage_bytes(self.boxes.max()))

    @property
    def clusters(self) -> int:
        """Clusters (or single CTAs) the launch starts: all that fit, or one per tile."""
        return min(self.room, len(self.tiles))

    @property
    def ahead(self) -> int:
        """Tiles that a cluster may take before it is done with one.

        Where every K is short, as many as it has records for, so that it never waits for the next
        one; it takes no more than the list still has for every cluster. Elsewhere only the next:
        clusters that take their tiles in step find more of them in the L2.
        """
        return RECORDS - 1 if self.k_tiles.max() * K_TILE < LONG_K else 1

    @property
    def waves(self) -> float:
        """Tiles that multiply over the clusters that work on them at once."""
        return int((self.whole * self.parts).sum()) / self.room

    @property
    def flags(self) -> int:
        """Split tiles."""
        return int(self.whole[self.parts > 1].sum())

    @property
    def residues(self) -> bool:
        """Whether some C comes by residues."""
        return bool((self.tiles["flags"] & TILE_RESIDUES).any())

    @property
    def padded_macs(self) -> int:
        """Multiply-adds the tensor cores do, padding included."""
        per_k = self.rows * self.wide * self.k_tiles
        return int(per_k.sum()) * self.kernel.columns_per_tile * K_TILE


def grid(
    problem: Problem,
    groups: Ints,
    kernel: Kernel,
    widest: Ints | int,
    machine: Machine,
    splits: Ints | int = 1,
    starts: Ints = ALONE,
) -> Grid:
    """Cut groups into as few rows of tiles as ``widest`` allows, each as narrow as fits.

    Where D is alpha A B, wide tiles have widths in finer steps. Where more than a bias and relu
    makes D there are fewer widths, and only narrow ones where C comes element by element; there
    only the last row of tiles is narrower. Kernels whose warpgroups share tiles, or whose A K lies
    across, have as few behind a bias, and where rows of D are no whole words (consume.cuh). Where K
    lies across A, the last row of tiles is always narrower: their boxes are longer anyway.

    The groups of a launch begin at ``starts`` and end with the next one's. ``splits`` are the parts
    of its longest sum over K; no part is shorter than it is worth. Both that and ``widest`` are the
    same for all launches, or there is one for each.
    """
    columns, widest = seen(problem, kernel), each(np.atleast_1d(widest), starts, groups)
    m, n, k = columns.m[groups], columns.n[groups], columns.depth[groups]
    wide, k_tiles = _ceil(n, kernel.columns_per_tile), _ceil(k, K_TILE)
    longest = np.maximum(1, np.maximum.reduceat(k_tiles, starts))
    in_proportion = (
        k_tiles * each(np.atleast_1d(splits), starts, groups) // each(longest, starts, groups)
    )
    parts = np.maximum(1, np.minimum(in_proportion, k_tiles // MIN_SPLIT_K_TILES))
    even = _ceil(m, _ceil(m, widest))
    widths = _ceil(even, WIDTH_STEP) * WIDTH_STEP
    finer = _ceil(even, FINE_STEP) * FINE_STEP
    fusing, biased = fused(problem, groups), columns.bias[groups] != 0
    bare = (columns.beta[groups] == 0) & ~biased & ~fusing
    plain = bare & problem.columns.whole_words[groups] & (parts == 1)
    has_code = (finer > FINE_FROM) & (finer < FINE_TO) & kernel.finer
    finer = np.where(plain & has_code, finer, widths)
    tiles = _ceil(m, finer) * wide
    saved = 2 * (widths - finer) * tiles * kernel.rows * k_tiles * K_TILE // WGMMA_FLOP
    worth = _worth_finer(finer, tiles, saved, _room(kernel, machine), starts)
    widths = np.where(each(worth, starts, groups), finer, widths)
    broken = ~problem.columns.whole_words[groups]
    few = fusing | ((biased | broken) & (not kernel.light_finer))
    some_few = bool(few.any())
    if some_few:
        most = np.maximum(FUSED_NARROW, widest // FUSED_STEP * FUSED_STEP)
        of_elements = np.minimum(most, ELEMENTS_WIDTH)
        limit = np.where(c_by_elements(problem, groups), of_elements, most)
        widths = np.where(few, np.minimum(limit, _fusible(m)), widths)
    widths[k == 0] = REDUCED_ROWS  # what the kernel does where it only adds up, here nothing
    high = _ceil(m, widths)
    last, left = widths, m - (high - 1) * widths
    if kernel.a_across:
        narrow = np.minimum(widths, _ceil(left, WIDTH_STEP) * WIDTH_STEP)
        last = np.where(parts == 1, narrow, widths)
    if some_few:
        last = np.where(few, np.minimum(widths, _fusible(left)), last)
    return Grid(
        kernel=kernel,
        machine=machine,
        groups=groups,
        widths=widths,
        last=last,
        high=high,
        first=np.zeros_like(wide),
        wide=wide,
        k_tiles=k_tiles,
        parts=parts,
        sums=np.where(parts > 1, wide * _ceil(m, REDUCED_ROWS), 0),
    )


def _room(kernel: Kernel, machine: Machine) -> int:
    return machine.sm_count * kernel.ctas_per_sm // kernel.cluster


def _worth_finer(widths: Ints, tiles: Ints, saved: Ints, room: int, starts: Ints) -> Flags:
    """For each launch, whether to take widths in finer steps, which save so many cycles.

    Each width has its own code, which CTAs find in no cache when they first come to it, and not
    always later.
    """
    alike = np.maximum.reduceat(widths, starts) == np.minimum.reduceat(widths, starts)
    of_each = np.add.reduceat(tiles, starts)
    clusters = np.minimum(of_each, room)
    gained = np.add.reduceat(saved, starts) - FINE_TILE * of_each
    found: Flags = alike | (gained > FINE_BEGIN * clusters)
    return found


def seen(problem: Problem, kernel: Kernel) -> Columns:
    """The groups of a problem with every D by rows as a kernel multiplies them."""
    return problem.columns.exchanged if kernel.d_across else problem.columns


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
    near = columns.ldb * columns.size("b") < NEAR_BYTES
    found: Flags = near & (columns.gate == 0) & ~columns.across("a") & ~columns.across("b")
    return found


def fused(problem: Problem, groups: Ints) -> Flags:
    """Groups whose D is more than alpha A B, a bias and relu, which a CTA has to finish."""
    light = (problem.columns.beta[groups] == 0) & _light(problem, groups)
    found: Flags = ~light & ~added(problem, groups)
    return found


def _light(problem: Problem, groups: Ints) -> Flags:
    """Groups with nothing but a bias and relu behind alpha A B + beta C."""
    columns = problem.columns
    relu = columns.activation[groups] == ACTIVATION_RELU
    found: Flags = (relu | (columns.activation[groups] == 0)) & (columns.gate[groups] == 0)
    return found


def may_begin(problem: Problem, groups: Ints) -> Flags:
    """Groups whose sums may begin with beta C: it is of D's type, has 16 bits, and TMA brings it.

    alpha is 1: it would multiply C, too. Sums of a D of 32 bits end with C, since each step of a
    tensor core rounds by the largest of what it adds up.
    """
    columns = problem.columns
    scaled = (columns.beta[groups] != 0) & (columns.alpha[groups] == 1)
    alike = (columns.c[groups] == columns.d[groups]) & (columns.d[groups] != TYPE_F32)
    moved = ~c_by_elements(problem, groups) & ~_c_by_residues(problem, groups)
    found: Flags = scaled & alike & moved & (columns.depth[groups] > 0)
    return found


def begun(planned: Grid, may: Flags) -> Flags:
    """Groups whose sums begin with beta C, of those that ``may``."""
    found: Flags = may & (planned.parts == 1) & planned.kernel.begins
    return found


def added(problem: Problem, groups: Ints) -> Flags:
    """Groups of D = alpha A B + D that the L2 adds up, where D lies: of 32 bits.

    TMA adds whole 16-byte words: what it adds behind the end of a row turns NaN there into another.
    Long sums are added, and of those that are not so long the longest of the problem, for a share
    of all such D: the L2 adds them while other tiles read C.
    """
    columns = problem.columns
    near = columns.ldd * columns.size("d") < STRIDE_END
    plain = (columns.beta == 1) & columns.inplace & ~columns.follows & (columns.d == TYPE_F32)
    fit = plain & near & columns.whole_words & (columns.depth >= MIXED_K)
    if not fit.any():
        return np.take(fit, groups)
    by_depth = np.argsort(-columns.depth * fit, kind="stable")
    elements = columns.m * columns.n * plain
    some = np.empty_like(fit)
    some[by_depth] = np.cumsum(elements[by_depth]) <= ADDED_SHARE * elements.sum()
    found: Flags = fit & (some | (columns.depth >= ADDED_K))
    return np.take(found, groups)


def _fusible(rows: Ints) -> Ints:
    """The narrowest width for so many rows with code for more than a bias and relu."""
    wide = _ceil(rows, FUSED_STEP) * FUSED_STEP
    return np.where(rows <= FUSED_NARROW, FUSED_NARROW, wide)


def c_by_elements(problem: Problem, groups: Ints) -> Flags:
    """Groups whose C TMA cannot bring: in the order that a gate needs, or with rows too long."""
    columns = problem.columns
    row_bytes = columns.ldc[groups] * columns.size("c")[groups]
    far = row_bytes >= np.where(row_bytes % STRIDE_STEP == 0, STRIDE_END, STRIDE_END // RESIDUES)
    found: Flags = (columns.beta[groups] != 0) & (far | (columns.gate[groups] != 0))
    return found


def _c_by_residues(problem: Problem, groups: Ints) -> Flags:
    """Groups whose C has rows that TMA cannot step over, but over every eighth of them."""
    columns = problem.columns
    off = columns.ldc[groups] * columns.size("c")[groups] % STRIDE_STEP != 0
    found: Flags = (columns.beta[groups] != 0) & off & ~c_by_elements(problem, groups)
    return found


def _once(planned: Grid, problem: Problem) -> Flags:
    """Groups of few rows of D, which read every element of B for one tile.

    Where K is long that is most of what a list reads, and drives out of the L2 what is read again
    (measured: 4 to 9% of `skew16k`, 1% of `decode256`; but 2% slower where K is below LONG_K, and 2
    to 3% with 100 to 154 rows, which multiply as long as they read). With operands exchanged it is
    what the kernel calls A; in clusters, all CTAs of which read it, the L2 is not told.
    """
    kernel, columns = planned.kernel, seen(problem, planned.kernel)
    if kernel.d_across and kernel.cluster > 1:
        return np.zeros(len(planned.groups), bool)
    rows, tiles = (columns.n, planned.wide) if kernel.d_across else (columns.m, planned.high)
    once: Flags = (rows[planned.groups] <= ONCE_ROWS) & (tiles == 1)
    return once & (planned.k_tiles * K_TILE >= LONG_K)


def widths(kernel: Kernel) -> range:
    """Widths worth considering: the kernel's own and every 32 (or box) below, down to 64."""
    return range(kernel.max_width, NARROWEST - 1, -max(32, kernel.box_step))


def splits(whole: Grid, starts: Ints) -> list[Ints]:
    """For each launch, the numbers of parts that its longest sum is worth splitting into, or 1.

    The most are MOST_PARTS for each cluster, of all sums of the launch, or as stay long enough.
    Fewer are added up sooner.
    """
    work = np.maximum(1, np.add.reduceat(whole.whole * whole.k_tiles, starts))
    longest = np.maximum.reduceat(whole.k_tiles, starts)
    fitting = longest * whole.room * MOST_PARTS // work
    most = np.minimum(fitting, longest // MIN_SPLIT_K_TILES)
    return [np.maximum(1, most >> halved) for halved in range(HALVINGS, -1, -1)]


def come_first(planned: Grid, starts: Ints = ALONE) -> Flags:
    """Groups that come before all others of their launch, which they would end late.

    Their sums are split, or a tile takes more than an eighth of a cluster's share of all work and
    is not so short that it hides behind others' latency.
    """
    k_tiles = planned.k_tiles
    work = each(np.add.reduceat(planned.whole * k_tiles, starts), starts, planned.groups)
    long = (k_tiles * planned.room * LONG_SHARE > work) & (k_tiles * K_TILE >= LONG_K)
    found: Flags = (planned.parts > 1) | long
    return found


def choices(problem: Problem, groups: Ints, kernel: Kernel, machine: Machine) -> list[Choice]:
    """Ways to cut a launch that are worth considering for one kernel."""
    found = []
    for width in widths(kernel):
        found.append(Choice(kernel.name, width))
        whole = grid(problem, groups, kernel, width, machine)
        several = {int(parts[0]) for parts in splits(whole, ALONE)} - {1}
        found += [Choice(kernel.name, width, parts) for parts in sorted(several)]
    return found


def cut(problem: Problem, planned: Grid, choice: Choice) -> Launch:
    """Write the tile list of groups as they are planned to be cut.

    Where all K are long, every other wave of tiles takes K backward: it begins with what the wave
    before it, which moved along K in step, ended with and left in the L2.
    """
    groups, kernel = planned.groups, planned.kernel
    columns = seen(problem, kernel)
    alpha, beta = columns.alpha[groups], columns.beta[groups]
    of_group = np.zeros(len(groups), TILE)
    of_group["group"] = np.arange(len(groups))
    of_group["box"], of_group["k_tiles"] = planned.boxes, planned.k_tiles
    of_group["width"] = planned.widths
    of_group["alpha"], of_group["beta"] = alpha, beta
    gated, on_top = columns.gate[groups] != 0, added(problem, groups)
    first = begun(planned, may_begin(problem, groups))
    light = _light(problem, groups) & ((beta == 0) | first)
    relu = light & (columns.activation[groups] == ACTIVATION_RELU)
    of_group["flags"] = (
        (problem.columns.whole_words[groups] & ~on_top) * TILE_WORDS
        + on_top * TILE_ADDED
        + (~light & ~on_top) * TILE_FUSED
        + relu * TILE_RELU
        + (light & (columns.bias[groups] != 0)) * TILE_BIAS
        + first * TILE_C_FIRST
        + gated * TILE_GATED
        + (gated & (columns.n[groups] % 16 == 0)) * TILE_EIGHTS
        + _c_by_residues(problem, groups) * TILE_RESIDUES
        + _once(planned, problem) * TILE_ONCE
    )
    in_ring = (beta != 0) & ~on_top & ~c_by_elements(problem, groups) & (planned.k_tiles > 0)
    of_group["c_stages"] = np.where(in_ring, kernel.rows // 64 * columns.size("c")[groups] // 2, 0)
    in_runs = runs(planned)
    tiles = np.repeat(np.take(of_group, in_runs), planned.whole[in_runs])
    tiles["m0"], tiles["n0"] = _places(planned, in_runs)
    last = tiles["m0"] + tiles["width"] >= columns.m[groups][tiles["group"]]
    tiles["width"] = np.where(last, planned.last[tiles["group"]], tiles["width"])
    if (spread := _spread(planned, problem, in_runs)) is not None:
        tiles = np.take(tiles, spread)
    depth = columns.depth[groups]
    if depth.min() == depth.max() >= TURNING_K:
        every_other = np.arange(len(tiles)) // planned.room % 2 == 1
        tiles["flags"][every_other] |= TILE_BACKWARD
    if planned.slots:
        tiles = _split(tiles, planned.parts[tiles["group"]], columns.m[groups][tiles["group"]])
    return Launch(**vars(planned), choice=choice, tiles=tiles)


def _split(tiles: npt.NDArray[np.void], splits: Ints, m: Ints) -> npt.NDArray[np.void]:
    """Split the sum of each tile into so many parts; ``m`` has the rows of its group.

    The entries that add up the parts come last. So a CTA that waits for parts waits for entries
    that others were given before, and cannot wait for itself.
    """
    split = splits > 1
    chosen, splits = tiles[split], splits[split]
    rows = np.minimum(chosen["width"], m[split] - chosen["m0"])
    readers = _ceil(rows, REDUCED_ROWS)
    chosen["splits"], chosen["readers"] = splits, readers
    chosen["flag"] = np.arange(len(chosen))
    chosen["slot"] = np.cumsum(splits) - splits
    chosen["c_stages"] = 0  # what adds up the parts reads C itself

    parts, part, of = np.repeat(chosen, splits), within(splits), np.repeat(splits, splits)
    k_tiles = parts["k_tiles"].astype(np.int64)
    begin, end = k_tiles * part // of, k_tiles * (part + 1) // of
    parts["k0"], parts["k_tiles"] = begin, end - begin
    parts["slot"] = np.arange(len(parts))

    sums = np.repeat(chosen, readers)
    sums["row"] = within(readers) * REDUCED_ROWS
    sums["m0"] += sums["row"]
    sums["width"], sums["k_tiles"] = REDUCED_ROWS, 0
    return np.concatenate([parts, tiles[~split], sums], dtype=TILE)


def handed_out(planned: Grid, problem: Problem) -> Ints:
    """The group of every whole tile, in the order in which tiles are handed out."""
    in_runs = runs(planned)
    of = np.repeat(in_runs, planned.whole[in_runs])
    spread = _spread(planned, problem, in_runs)
    return of if spread is None else of[spread]


def runs(planned: Grid) -> Ints:
    """The order in which groups follow each other.

    Where K differs, long K first, so that the end is even; but short tiles hide behind each
    other's latency, and sorting them measured 5 to 11% slower. Among those, only what takes much
    of a cluster's time comes first.
    """
    k_tiles = planned.k_tiles
    order = -k_tiles * come_first(planned) if mostly_short(planned) else -k_tiles
    return np.argsort(order, kind="stable")


def mostly_short(planned: Grid) -> bool:
    """Whether tiles wait for latency more than for each other, since most have short sums."""
    tiles = planned.whole
    return int((planned.k_tiles * tiles).sum()) * K_TILE < LONG_K * int(tiles.sum())


def _spread(planned: Grid, problem: Problem, in_runs: Ints) -> Ints | None:
    """The tiles in another order than groups follow each other, which is ``in_runs``, if that pays.

    Tiles that the L2 adds to D are spread evenly among those that read C, each class in its own
    order, where there are enough of both. Else, where K is the same, groups of few rows among those
    of many: the ones wait for memory, the others for the tensor cores (measured: 2% at K = 768,
    nothing at K = 2048).
    """
    if (by_l2 := added(problem, planned.groups)).any():
        of_l2 = np.repeat(by_l2[in_runs], planned.whole[in_runs])
        if ADDED_LEAST <= of_l2.mean() <= 1 - ADDED_LEAST:
            return _among(of_l2, 1.0)
    small = seen(problem, planned.kernel).m[planned.groups] < FEW_ROWS
    if planned.k_tiles.min() < planned.k_tiles.max() or small.all() or not small.any():
        return None
    return _among(np.repeat(small, planned.whole), MANY_UNTIL)


def _among(some: Flags, until: float) -> Ints:
    """Tiles in the order in which ``some`` are spread evenly, the others ``until`` so far."""
    rank = np.where(some, np.cumsum(some), np.cumsum(~some)) - 0.5
    count = int(some.sum())
    place = np.where(some, rank / count, rank / (len(some) - count) * until)
    return np.argsort(place, kind="stable")


def _places(planned: Grid, in_runs: Ints) -> tuple[Ints, Ints]:
    """First row and column of every whole tile, group after group as in ``in_runs``.

    Tiles of a group go in panels of about PANEL_ROWS rows, each panel along all of B and the next
    one back, so that the tiles at work at one time form a square and read the least.
    """
    high, wide, widths = (of[in_runs] for of in (planned.high, planned.wide, planned.widths))
    full = -(-PANEL_ROWS // widths)  # rows of tiles in a panel
    panels = _ceil(high, full)
    of = np.repeat(np.arange(len(in_runs)), panels)  # group of each panel
    panel = within(panels)
    rows = np.minimum(full[of], high[of] - panel * full[of])
    above = panel * (full * widths)[of]
    across = wide[of]
    by = np.repeat(np.arange(len(of)), across)  # panel of each column of tiles
    column = within(across)
    along = np.where(panel[by] % 2 == 0, column, across[by] - 1 - column)
    along += planned.first[in_runs][of][by]
    tall = rows[by]
    m0 = np.repeat(above[by], tall) + within(tall) * np.repeat(widths[of][by], tall)
    return m0, np.repeat(along * planned.kernel.columns_per_tile, tall)


def within(counts: Ints) -> Ints:
    """0, 1, 2, ... anew for each of ``counts``."""
    ends = np.cumsum(counts)
    steps: Ints = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    return steps


def each(of_launches: npt.NDArray[Number], starts: Ints, groups: Ints) -> npt.NDArray[Number]:
    """For each group, what its launch has; of a single launch or one for all, one entry."""
    if len(of_launches) == 1:
        return of_launches
    return np.repeat(of_launches, np.append(starts[1:], len(groups)) - starts)


def _ceil(value: Ints, step: Ints | int) -> Ints:
    return (value + step - 1) // step
