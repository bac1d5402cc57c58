"""Cut the groups of a launch into tiles: every way to do so that is worth considering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from gemmctl.kernels.constants import (
    ELEMENTS_WIDTH,
    FINE_FROM,
    FINE_STEP,
    FINE_TO,
    FUSED_FINER_TO,
    FUSED_NARROW,
    FUSED_STEP,
    K_TILE,
    REDUCED_ROWS,
    STAGED_FROM,
    STAGED_LOW_FROM,
    STAGED_ROWS,
    STAGED_SLICES,
    WIDTH_STEP,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Columns, Problem
from gemmctl.planning.arrays import ALONE, Flags, Floats, Ints, ceil_div, each
from gemmctl.planning.epilogue import (
    c_by_elements,
    ends_plain,
    fused,
    light,
    may_begin,
    may_join,
    may_scale,
)

MIN_SPLIT_K_TILES = 8  # slices of K that a part is worth its way through memory for
MOST_PARTS = 2  # of all sums, for each cluster: at most 35 MB on an H200, which the L2 holds
# Rows of A: the narrowest of the widest tiles worth considering, and where such leave SMs idle.
NARROWEST, NARROWER = 64, 32
# Groups beyond which every other width is enough: those of their tiles differ whatever the widest
# is, and 10,000 groups are planned in 90 ms, with all of them in 160.
MANY_GROUPS = 1024
PARTS = (1 / 8, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1)  # shares of the most that are worth considering
# Cycles that widths in finer steps cost a CTA at first, and with every tile: fits to 57 lists on an
# H200, when there was code for them up to 256 (96 tiles of 89 to 121 rows took 6% longer by them).
FINE_BEGIN, FINE_TILE = 1500, 200
# From which sums of pingpong kernels that begin with C have all widths. Below, more code costs more
# than fewer rows save: K of 768 takes 0.99 of the time with them, 2048 0.94 to 1.00, but 64 to 300
# 1.01 to 1.09.
BEGUN_K = 512
# One SM in so many has to have a tile where what is fused has finer widths: of a tile of more than
# NARROW_ROWS rows warpgroups multiply the end one after the other, and two tiles of 66 rows beside
# other launches (`ragged`) took 1.10 of the time that four took.
FUSED_FINER_SHARE = 4
# Runs of rows in a tile from which they are shuffled: lines of D of 128 bytes leave whole by way of
# shared memory (`bmm64`, with two runs, took 1.01 of the time on an H100, 1.03 to 1.06 on an H200).
SHUFFLED_RUNS = 3
# TMA stores what it may in launches of so many waves (one takes 1.06 to 1.08 of the time so, two
# 1.01 to 1.02, 2.9 0.92), and of groups with so many tiles: a map that a CTA uses for the first
# time is not there yet (12 of 1000x1000 with 24 tiles each took 1.05, 1024 with 32 1.04; H200).
BOXED_WAVES = 2.5
BOXED_TILES = 64
# Share of the SMs that clusters of more than two CTAs find, each of which has to lie in one GPC: on
# an H100 there is room for 30 of four and for 15 of eight. How many depends on the card.
CLUSTERED_SMS = Fraction(11, 12)
# Where two threads load a launch's stages by turns: up to so many rows of A in a tile, by the CTAs
# that share its K, and from so many slices of K on. B is read by several CTAs then, and comes
# sooner than one thread asks for it; elsewhere lists take up to 1.07 of the time (H200,
# docs/kernel.md).
BY_TWO_ROWS, BY_TWO_K_TILES = {1: 96, 2: 80}, 28
WGMMA_FLOP = 4096  # dense 16-bit floating-point operations per cycle and SM


@dataclass(frozen=True)
class Machine:
    """What the plan needs to know of the GPU."""

    sm_count: int
    given: int = 0  # SMs that a launch may take; 0: all

    def giving(self, sms: int) -> Machine:
        """The same GPU, of which a launch may take so many SMs; 0: all."""
        return replace(self, given=sms)


H200 = Machine(sm_count=132)


def machine_of(sm_count: int | None) -> Machine:
    """A GPU of so many SMs; what has none is planned for as an H200."""
    return H200 if sm_count is None else Machine(sm_count)


@dataclass(frozen=True, order=True)
class Choice:
    """How a launch is cut: which kernel, the widest tile, and into how many parts K is split.

    So many parts has the longest sum over K; shorter ones have fewer in proportion, and those that
    are no longer than such a part stay whole. ``sms`` is how many SMs the launch may take, where it
    leaves some to another one (apart.py); 0: all.
    """

    kernel: str
    width: int
    splits: int = 1
    sms: int = 0

    def __str__(self) -> str:
        parts = f" k/{self.splits}" if self.splits > 1 else ""
        share = f" sm{self.sms}" if self.sms else ""
        return f"{self.kernel} w{self.width}{parts}{share}"

    @classmethod
    def parsed(cls, text: str) -> Choice:
        """The choice that says so of itself: ``128x256 w256 k/8``."""
        kernel, width, *more = text.split()
        splits = [int(one.removeprefix("k/")) for one in more if one.startswith("k/")]
        sms = [int(one.removeprefix("sm")) for one in more if one.startswith("sm")]
        return cls(kernel, int(width.removeprefix("w")), *(splits or [1]), *sms)


@dataclass(frozen=True)
class Grid:
    """How a kernel cuts groups into tiles, before any is written; one entry per group.

    A group whose last columns of tiles are cut otherwise has two entries, one after the other.
    """

    kernel: Kernel
    machine: Machine
    limit: int  # clusters (or single CTAs) that are started at most; 0: all that fit
    groups: Ints  # indices into problem.groups, in the order of the launch's arrays
    widths: Ints  # rows of A per tile
    last: Ints  # the same of the last tile of each column of tiles, which may be narrower
    few: Flags  # groups that have only the few widths of what is fused to a product
    loaded: Ints  # rows of A, and of C, that are loaded for a tile
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
    def clusters(self) -> int:
        """Clusters (or single CTAs) the launch starts: one per entry, or as many as it may."""
        return min(self.limit or self.room, int(self.entries.sum()))

    @property
    def boxes(self) -> Ints:
        """Rows of A that a stage has room for, and that are loaded where all are there."""
        return _boxes(self.widths, self.kernel)

    @property
    def stages(self) -> int:
        """Stages that the kernel's ring is cut into, of a single launch."""
        return int(self.kernel.stages(self.boxes.max()))

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
    def waves(self) -> float:
        """Tiles that multiply over the clusters that work on them at once."""
        return int((self.whole * self.parts).sum()) / self.room

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

    Where D is alpha A B, and be it with a bias that joins the sums or comes with alpha, wide tiles
    have widths in finer steps. Where more than a bias and relu makes D there are fewer widths, but
    for sums that begin with C (of pingpong kernels, long ones), and only narrow ones where C comes
    element by element; there only the last row of tiles is narrower. Most kernels have as few
    behind a bias that neither joins the sums nor comes with alpha, and where rows of D are no whole
    words: all but those that are ``light_finer``. Parts of a sum have all widths: what is behind it
    comes where they are added up. Where K lies across A, the last row of tiles is always narrower:
    their boxes are longer anyway.

    The groups of a launch begin at ``starts`` and end with the next one's. ``splits`` are the parts
    of its longest sum over K; no part is shorter than it is worth. Both that and ``widest`` are the
    same for all launches, or there is one for each.

    Of a group with a single row of tiles no more rows are loaded than there are, though its tiles
    be wider: TMA fills the others with zeros, which takes its time (docs/kernel.md). What is
    multiplied instead is whatever is there, and no row of D depends on it but such as are not
    stored.
    """
    columns, widest = seen(problem, kernel), each(np.atleast_1d(widest), starts, groups)
    m, n, k = columns.m[groups], columns.n[groups], columns.depth[groups]
    wide, k_tiles = ceil_div(n, kernel.columns_per_tile), ceil_div(k, K_TILE)
    longest = np.maximum(1, np.maximum.reduceat(k_tiles, starts))
    in_proportion = (
        k_tiles * each(np.atleast_1d(splits), starts, groups) // each(longest, starts, groups)
    )
    parts = np.maximum(1, np.minimum(in_proportion, k_tiles // MIN_SPLIT_K_TILES))
    even = ceil_div(m, ceil_div(m, widest))
    widths = ceil_div(even, WIDTH_STEP) * WIDTH_STEP
    finer = ceil_div(even, FINE_STEP) * FINE_STEP
    fusing, biased = fused(problem, groups), columns.bias[groups] != 0
    with_c = c_behind = columns.beta[groups] != 0
    if kernel.begins and with_c.any():
        first = begun(kernel, parts, may_begin(problem, groups), ends_plain(problem, groups))
        c_behind = with_c & ~first
        if kernel.begins_finer:
            enough = (k >= BEGUN_K) | kernel.begins_plain
            fusing &= ~(first & light(problem, groups) & enough)
    if biased.any():
        joins = joined(kernel, parts, may_join(problem, groups) & ~with_c)
        scales = scaled(kernel, parts, may_scale(problem, groups) & ~c_behind)
        biased &= ~(joins | scales)
    bare = ~(with_c | biased | fusing)
    plain = bare & problem.columns.whole_words[groups] & (parts == 1)
    has_code = (finer > FINE_FROM) & (finer < FINE_TO) & kernel.finer
    finer = np.where(plain & has_code, finer, widths)
    tiles = ceil_div(m, finer) * wide
    saved = 2 * (widths - finer) * tiles * kernel.rows * k_tiles * K_TILE // WGMMA_FLOP
    worth = _worth_finer(finer, tiles, saved, _room(kernel, machine), starts)
    widths = np.where(each(worth, starts, groups), finer, widths)
    broken = ~problem.columns.whole_words[groups]
    few = (fusing | ((biased | broken) & (not kernel.light_finer))) & (parts == 1)
    some_few = bool(few.any())
    if some_few:
        most = np.maximum(FUSED_NARROW, widest // FUSED_STEP * FUSED_STEP)
        of_elements = np.minimum(most, ELEMENTS_WIDTH)
        limit = np.where(c_by_elements(problem, groups), of_elements, most)
        coarse = np.minimum(limit, _fusible(m))
        if kernel.fuses_finer:
            ctas = np.add.reduceat(ceil_div(m, widths) * wide * kernel.ctas, starts)
            worth = _alike(widths, starts) & (FUSED_FINER_SHARE * ctas >= machine.sm_count)
            has_code = (widths > FUSED_STEP) & (widths < FUSED_FINER_TO)
            coarse = np.where(each(worth, starts, groups) & has_code, widths, coarse)
        widths = np.where(few, coarse, widths)
    widths[k == 0] = REDUCED_ROWS  # what the kernel does where it only adds up, here nothing
    high = ceil_div(m, widths)
    last, left = widths, m - (high - 1) * widths
    if kernel.a_across:
        narrow = np.minimum(widths, ceil_div(left, WIDTH_STEP) * WIDTH_STEP)
        last = np.where(parts == 1, narrow, widths)
    if some_few:
        last = np.where(few, np.minimum(widths, _fusible(left)), last)
    boxes = _boxes(widths, kernel)
    loaded = np.where(high == 1, np.minimum(boxes, _boxes(m, kernel)), boxes)
    return Grid(
        kernel=kernel,
        machine=machine,
        limit=0,
        groups=groups,
        widths=widths,
        last=last,
        few=few,
        loaded=loaded,
        high=high,
        first=np.zeros_like(wide),
        wide=wide,
        k_tiles=k_tiles,
        parts=parts,
        sums=np.where(parts > 1, wide * ceil_div(m, REDUCED_ROWS), 0),
    )


def grid_of(
    problem: Problem, groups: Ints, kernel: Kernel, choice: Choice, machine: Machine
) -> Grid:
    """Cut groups as a choice says for this kernel, on as many SMs."""
    given = machine.giving(choice.sms)
    return grid(problem, groups, kernel, choice.width, given, choice.splits)


def _boxes(rows: Ints, kernel: Kernel) -> Ints:
    """Rows of A in boxes for so many."""
    return ceil_div(rows, kernel.box_step) * kernel.box_step


def _room(kernel: Kernel, machine: Machine) -> int:
    sms = machine.given or machine.sm_count
    share = CLUSTERED_SMS if kernel.ctas > 2 else 1
    return max(1, int(sms * kernel.ctas_per_sm * share) // kernel.ctas)


def considered(
    kernels: Sequence[Kernel], groups: int, machine: Machine, alone: bool
) -> Sequence[Kernel]:
    """The kernels that are worth considering for a launch of so many groups, or all there are.

    Where each CTA can have a tile for itself, or another launch fills the SMs, none is
    ``for_few_tiles``.
    """
    if alone and groups < machine.sm_count:
        return kernels
    return [kernel for kernel in kernels if not kernel.for_few_tiles] or kernels


def _worth_finer(widths: Ints, tiles: Ints, saved: Ints, room: int, starts: Ints) -> Flags:
    """For each launch, whether to take widths in finer steps, which save so many cycles."""
    of_each = np.add.reduceat(tiles, starts)
    clusters = np.minimum(of_each, room)
    gained = np.add.reduceat(saved, starts) - FINE_TILE * of_each
    found: Flags = _alike(widths, starts) | (gained > FINE_BEGIN * clusters)
    return found


def _alike(widths: Ints, starts: Ints) -> Flags:
    """For each launch, whether all its groups have the same width.

    Each width has its own code, which CTAs find in no cache when they first come to it, and not
    always later.
    """
    found: Flags = np.maximum.reduceat(widths, starts) == np.minimum.reduceat(widths, starts)
    return found


def seen(problem: Problem, kernel: Kernel) -> Columns:
    """The groups of a problem with every D by rows as a kernel multiplies them."""
    return problem.columns.exchanged if kernel.d_across else problem.columns


def begun(kernel: Kernel, parts: Ints, may: Flags, plain: Flags) -> Flags:
    """Groups with beta C in their sums, of those that ``may``, of a warpgroup that has them all.

    Some kernels have that for such only as then end like ``plain`` ones.
    """
    found: Flags = may & (parts == 1) & kernel.begins & (plain | (not kernel.begins_plain))
    return found


def joining_slices(planned: Grid) -> Ints:
    """Slices of K that both warpgroups have multiplied once C has come by the staging buffers."""
    last = STAGED_FROM + STAGED_SLICES
    return np.where(planned.widths > STAGED_ROWS, last, STAGED_LOW_FROM) + 2


def staged(planned: Grid, may: Flags) -> Flags:
    """Groups whose sums beta C joins on the way, of those that ``may`` begin with it.

    Behind it there is a slice of K at least that warpgroups multiply by turns.
    """
    long = planned.k_tiles > joining_slices(planned)
    found: Flags = may & (planned.parts == 1) & long & planned.kernel.stages_c
    return found


def joined(kernel: Kernel, parts: Ints, may: Flags) -> Flags:
    """Groups whose bias joins their sums, of those that ``may`` and have no C behind these."""
    found: Flags = may & (parts == 1) & kernel.joins
    return found


def scaled(kernel: Kernel, parts: Ints, may: Flags) -> Flags:
    """Groups whose bias comes with alpha, of those that ``may`` and have no C behind their sums."""
    found: Flags = may & (parts == 1) & kernel.scales_bias
    return found


def shuffled(planned: Grid, may: Flags) -> Flags:
    """Groups whose rows of A come shuffled, of those that ``may``: tiles of whole runs of them."""
    kernel, widths = planned.kernel, planned.widths
    fits = (widths % (kernel.run * kernel.cluster) == 0) & (widths >= SHUFFLED_RUNS * kernel.run)
    found: Flags = may & fits & kernel.shuffles
    return found


def boxed(launches: Grid, may: Flags, starts: Ints = ALONE) -> Flags:
    """Groups whose D leaves by TMA, of those that ``may``: with tiles enough, as their launch."""
    many = np.add.reduceat(launches.entries, starts) >= BOXED_WAVES * launches.room
    large = (launches.whole >= BOXED_TILES) & (launches.parts == 1)
    fits = large & (launches.widths % WIDTH_STEP == 0)
    found: Flags = may & fits & each(many, starts, launches.groups) & launches.kernel.boxes
    return found


def loaded_by_two(launches: Grid, starts: Ints = ALONE) -> Flags:
    """For each launch, whether two threads load its stages by turns: if each tile has a CTA."""
    kernel = launches.kernel
    if kernel.loaders == 1:
        return np.zeros(len(starts), bool)
    low = launches.widths <= BY_TWO_ROWS[kernel.k_parts]
    fits = low & (launches.high > 1) & (launches.k_tiles >= BY_TWO_K_TILES)
    alone = np.add.reduceat(launches.entries, starts) <= launches.room
    found: Flags = np.logical_and.reduceat(fits, starts) & alone
    return found


def _fusible(rows: Ints) -> Ints:
    """The narrowest width for so many rows with code for more than a bias and relu."""
    wide = ceil_div(rows, FUSED_STEP) * FUSED_STEP
    return np.where(rows <= FUSED_NARROW, FUSED_NARROW, wide)


def widths(problem: Problem, groups: Ints, kernel: Kernel, machine: Machine, alone: bool) -> range:
    """Widths worth considering for groups: the kernel's own, and steps below it down to 64.

    Of a launch that is ``alone`` down to 32, if tiles of 64 rows would leave SMs idle.

    Where warpgroups take turns at tiles of an A that K lies across, a step is a whole box: between
    them 25 lists of such were cut 2% slower than in whole boxes (docs/kernel.md).
    """
    step = WIDTH_STEP if len(groups) <= MANY_GROUPS else 2 * WIDTH_STEP
    if kernel.pingpong:
        step = max(step, kernel.box_step)
    narrower = alone and _leaves_idle(problem, groups, kernel, machine)
    return range(kernel.max_width, (NARROWER if narrower else NARROWEST) - 1, -step)


def _leaves_idle(problem: Problem, groups: Ints, kernel: Kernel, machine: Machine) -> bool:
    """Whether tiles of NARROWEST rows are less than a wave; of groups that have elements."""
    room = _room(kernel, machine)
    if len(groups) >= room:  # each has a tile at least
        return False
    columns = seen(problem, kernel)
    wide = ceil_div(columns.n[groups], kernel.columns_per_tile)
    return int((ceil_div(columns.m[groups], NARROWEST) * wide).sum()) < room


def splits(whole: Grid, starts: Ints) -> list[Ints]:
    """For each launch, the numbers of parts that its longest sum is worth splitting into, or 1.

    The most are MOST_PARTS for each cluster, of all sums of the launch, or as stay long enough.
    Fewer are added up sooner. In kernels ``for_few_tiles`` there are none.
    """
    if whole.kernel.for_few_tiles:
        return []
    work = np.maximum(1, np.add.reduceat(whole.whole * whole.k_tiles, starts))
    longest = np.maximum.reduceat(whole.k_tiles, starts)
    fitting = longest * whole.room * MOST_PARTS // work
    most = np.minimum(fitting, longest // MIN_SPLIT_K_TILES)
    return [np.maximum(1, np.rint(most * share).astype(most.dtype)) for share in PARTS]


def choices(
    problem: Problem, groups: Ints, kernel: Kernel, machine: Machine, alone: bool
) -> list[Choice]:
    """Ways to cut a launch, which may be ``alone``, that are worth considering for one kernel."""
    found = []
    for width in widths(problem, groups, kernel, machine, alone):
        found.append(Choice(kernel.name, width))
        whole = grid(problem, groups, kernel, width, machine)
        several = {int(parts[0]) for parts in splits(whole, ALONE)} - {1}
        found += [Choice(kernel.name, width, parts) for parts in sorted(several)]
    return found


def few_parts(launch: Grid) -> bool:
    """Whether there are at most MOST_PARTS for each cluster: of all that ``splits`` finds."""
    return launch.slots <= MOST_PARTS * launch.room
