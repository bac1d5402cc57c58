"""What there is to do in a launch, as the cost model sees it: nothing here is a measured time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import BOX_ROWS, K_TILE, REDUCED_ROWS
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import ACTIVATIONS, Problem
from gemmctl.operands import dtypes
from gemmctl.planning.arrays import ALONE, Flags, Floats, Ints, ceil_div, each
from gemmctl.planning.epilogue import (
    added,
    c_by_elements,
    ends_plain,
    may_begin,
    may_box,
    may_join,
    may_scale,
    may_shuffle,
)
from gemmctl.planning.fitting import STRIDE_STEP
from gemmctl.planning.order import LONG_K, PANEL_ROWS, come_first
from gemmctl.planning.tiling import (
    Grid,
    begun,
    boxed,
    joined,
    loaded_by_two,
    scaled,
    seen,
    shuffled,
    staged,
)

WGMMA_ROWS = 64  # of B that one wgmma multiplies, and one warpgroup stores in one go
SHARED_BYTES = 128  # that an SM's shared memory hands out in a cycle
LINE_BYTES = 128  # of the L2, and of a row of a stage
SECTOR_BYTES = 32  # of a line, that the L2 hands out at one time
ENOUGH_STAGES = 12  # of an SM's rings: more hide no more latency (6, 8 and 9 chose worse)
# More than STACK tiles on top of each other make a launch of one wave longer where one warpgroup
# has an SM to itself, but not if a GPC's tiles make a square (order.py): that takes so many side by
# side, in groups that are all alike. (With 2, 4 and 5 for 3, mean regrets of 376 lists are 2.5, 2.5
# and 2.6, not 2.4.)
STACK, SIDE_BY_SIDE = 8, 3
CROWD = 64  # CTAs; where they all draw the same lines, these come later
TALL_ROWS = 128  # a box with a line of more of them opens more pages of the memory
L2_BYTES = 50e6  # what is larger comes from memory again each time it is needed again


@dataclass(frozen=True)
class Asked:
    """What groups ask for, however they are cut; one entry per group."""

    of_a: Ints  # bytes
    of_b: Floats
    crossing_a: Floats  # share of rows of A that do not begin on a line
    crossing_b: Floats
    within_a: Flags  # whether rows of A begin within sectors
    within_b: Flags
    read: Floats  # bytes that have to come from memory
    written: Floats
    finished: Flags  # whether D is more than alpha A B, or its rows no whole words
    may_begin: Flags  # whether C may be in the sums, of kernels that have that
    ends_plain: Flags  # whether nothing is behind them then that plain sums have not
    may_join: Flags  # whether a bias may join sums, of kernels that have that,
    may_scale: Flags  # or come with alpha; neither with a C behind the sums
    may_shuffle: Flags  # whether rows of A may come shuffled
    may_box: Flags  # whether D may leave by TMA, of kernels that have that
    steps: Mapping[str, Floats]  # what each value goes through, by the constant, and how often

    def of(self, some: slice) -> Asked:
        """What some of the groups ask for."""
        return self._each(lambda values: values[some])

    def repeated(self, times: int) -> Asked:
        """What all groups ask for, so many times one after another."""
        return self._each(lambda values: np.tile(values, times))

    def _each(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Asked:
        columns = {name: change(of) for name, of in vars(self).items() if name != "steps"}
        return Asked(**columns, steps={name: change(of) for name, of in self.steps.items()})


@dataclass(frozen=True)
class Work:
    """Launches as the model sees them: what does not depend on its constants.

    ``starts`` and what follows up to ``one_wave`` have an entry per launch, all else one per
    group, or a single one for all.
    """

    starts: Ints  # where the groups of each launch begin
    entries: Ints
    clusters: Ints  # CTAs or clusters that take entries
    sms: Ints  # of the GPU
    clustered: Flags  # whether it starts in clusters
    one_wave: Flags  # whether each has an entry at most, a whole tile, and the GPU for itself
    whole: Ints
    parts: Ints
    sums: Ints
    first: Flags  # whether its tiles come before all others
    k_tiles: Ints  # that a CTA multiplies of a whole tile
    sharing: Floats  # CTAs that share an SM, where there are most; beside others, on the average
    drawing: Floats  # CTAs over the SMs of the GPU: how many of an SM draw operands at one time
    stages: Ints  # of the ring, that hide latency
    last_wave: Floats  # share of a cluster's tiles that are in its last wave
    joint: bool | Flags  # whether CTAs of a cluster share them
    gathers: int | Ints  # sums of other CTAs that the first of a cluster adds to its own
    pingpong: Flags | bool
    late: Floats  # share of tiles that are drawn while the one before is at work, no sooner
    shared: Flags | bool  # whether two CTAs fit on an SM
    lone: Flags | bool  # whether one warpgroup has an SM to itself
    stacked: Flags  # the same, with tiles of a group on top of each other that make no square
    by_two: Flags  # whether two threads load
    computing: Floats  # warpgroups on an SM that have a tile to store where each CTA has one
    exchanged: bool  # whether operands are
    a_across: bool  # whether K lies across A
    b_across: bool  # and across B
    across: Floats  # share of the bytes of operands that K lies across, where CTAs share it
    lines: Flags  # whether D is written by columns, then, in whole lines
    shuffled: Flags  # the same, with rows of A that come shuffled
    boxed: Flags  # whether D leaves by TMA
    unboxed: Flags  # whether threads store what might, in other tiles or kernels
    unaligned: bool  # whether B is read where it lies, however that is
    multiply: Floats  # cycles of a K tile on the tensor cores,
    in_step: Floats  # and in a single wave, where a B that K lies across seems to be read twice
    slices: Ints  # K tiles of all CTAs together
    fed: Floats  # bytes that a CTA draws for a K tile
    fresh: Floats  # share of them that comes from memory
    crossed: Floats  # those of them that cross lines
    within: Floats  # those of rows that begin within sectors
    crowded: Floats  # and those that others draw, too, by how many over CROWD
    uneven: Floats  # the widest tile over the mean
    values: Floats  # of a tile that a warpgroup stores
    sum_values: Ints | int  # of an entry that adds up parts
    scaled: Flags  # whether a bias comes with alpha
    finished: Flags  # whether D is more than plain sums behind these, and what follows: of Asked
    read: Floats
    tall: Floats  # bytes of A by how many times TALL_ROWS more their boxes have
    again: Floats  # bytes that tiles read again
    written: Floats
    steps: Mapping[str, Floats]


def asked_of(problem: Problem, groups: Ints, kernel: Kernel, share: Floats | None = None) -> Asked:
    """What groups ask for, of any kernel of such types that exchanges operands as this does.

    ``share`` says how much of each group's columns it is about; without it, all.
    """
    if share is None:
        share = np.ones(len(groups))
    columns = seen(problem, kernel)
    m, n, k = columns.m[groups], columns.n[groups], columns.depth[groups]
    size, size_d = dtypes.BY_NAME[kernel.operand].size, dtypes.BY_NAME[kernel.output].size
    of_a, of_b = m * k * size, n * k * size
    starts_a, starts_b = _starts(columns.lda[groups], size), _starts(columns.ldb[groups], size)
    read = (of_a + of_b * np.where(of_b > L2_BYTES, -(-m // PANEL_ROWS), 1)) * share
    of_d: Floats = m * columns.d_columns[groups] * share
    words, more = problem.columns.whole_words[groups], columns.more[groups]
    by_l2 = added(problem, groups)
    halved = np.where(columns.gate[groups] != 0, 0.5, 1.0)  # values of D for each of x
    steps = {"value": np.ones(len(groups)), "stored_byte": halved * size_d, "element": ~words}
    steps["added"] = by_l2
    read = read + of_d * size_d * steps["added"]
    if (more & ~by_l2).any():
        beta = (columns.beta[groups] != 0) & ~by_l2
        by_elements = c_by_elements(problem, groups)
        size_c = columns.sizes["c"][groups]
        read = read + of_d * size_c * beta
        steps |= {
            "bias": columns.bias[groups] != 0,
            **{
                name: halved * (columns.activation[groups] == place)
                for place, name in enumerate(ACTIVATIONS[1:], 1)
            },
            "c2": beta & ~by_elements & (size_c == 2),
            "c4": beta & ~by_elements & (size_c == 4),
            "c_element": by_elements,
        }
    return Asked(
        of_a=of_a,
        of_b=of_b * share,
        crossing_a=1 - starts_a / LINE_BYTES,
        crossing_b=1 - starts_b / LINE_BYTES,
        within_a=starts_a < SECTOR_BYTES,
        within_b=starts_b < SECTOR_BYTES,
        read=read,
        written=of_d * size_d,
        finished=more | ~words,
        may_begin=may_begin(problem, groups),
        ends_plain=ends_plain(problem, groups),
        may_join=may_join(problem, groups),
        may_scale=may_scale(problem, groups),
        may_shuffle=may_shuffle(problem, groups, kernel),
        may_box=may_box(problem, groups),
        steps={name: share for name, share in steps.items() if share.any()},
    )


def _starts(leading: Ints, size: int) -> Ints:
    """Bytes of a line that rows of a matrix begin at multiples of; packed ones at 16 at least."""
    row_bytes = -(-leading * size // STRIDE_STEP) * STRIDE_STEP
    return np.gcd(row_bytes, LINE_BYTES)


def _off_lines(launches: Grid) -> Floats:
    """Share of tiles that do not begin on a line of an A that K lies across, of each group."""
    if not launches.kernel.a_across:
        return np.zeros(len(launches.groups))
    return 1 - np.gcd(launches.widths, BOX_ROWS) / BOX_ROWS


def work_of(launches: Grid, asked: Asked, starts: Ints = ALONE, beside: bool = False) -> Work:
    """What there is to do, of launches whose groups begin at ``starts``.

    Of a launch ``beside`` others it is not known which SMs have two of its CTAs.
    """
    kernel, sms = launches.kernel, launches.machine.sm_count
    entries = np.add.reduceat(launches.entries, starts)
    clusters = np.minimum(launches.room, entries)
    of = each(clusters, starts, launches.groups)
    high, wide = launches.high, launches.wide
    width = launches.rows / high

    def multiplied(rows_read: int) -> Floats:
        """Cycles of a K tile, if each wgmma reads so many rows of B."""
        # Narrow tiles wait for shared memory, which hands out all of B for few rows of A.
        cycles = np.maximum(width / 2, (rows_read + width) * 32 / SHARED_BYTES)
        found: Floats = kernel.rows // WGMMA_ROWS * (K_TILE // 16) * cycles
        return found

    multiply = multiplied(WGMMA_ROWS)
    held = kernel.rows // (1 if kernel.pingpong else kernel.consumers)
    size, size_d = dtypes.BY_NAME[kernel.operand].size, dtypes.BY_NAME[kernel.output].size
    # Of A in a stage, with those that are not there: without, choices are as good (docs/kernel.md).
    rows = launches.boxes
    in_ring = kernel.stages(np.maximum.reduceat(rows, starts))
    ctas = of * kernel.ctas
    drawing, on_sm = ctas / sms, ceil_div(ctas, sms)  # on the average of an SM, and at most
    of_a = rows / kernel.cluster
    readers = np.minimum(high, np.maximum(PANEL_ROWS / launches.widths, of / wide))
    boxes = BOX_ROWS if kernel.a_across else rows
    crossing_a = np.maximum(asked.crossing_a, _off_lines(launches))
    crossing = kernel.rows * asked.crossing_b + of_a * crossing_a
    within = kernel.rows * asked.within_b + of_a * asked.within_a
    slices = launches.whole * launches.k_tiles * kernel.cluster
    fed = kernel.b_bytes + of_a * (K_TILE * size)
    steps, finished, scales = _steps(launches, asked)
    in_runs = shuffled(launches, asked.may_shuffle)
    in_boxes = boxed(launches, asked.may_box, starts)
    whole = np.maximum.reduceat(launches.parts, starts) == 1
    return Work(
        starts=starts,
        entries=entries,
        clusters=clusters,
        sms=np.full_like(starts, sms),
        clustered=np.full(len(starts), kernel.ctas > 1),
        one_wave=(entries <= clusters) & whole & (not beside),
        whole=launches.whole,
        parts=launches.parts,
        sums=launches.sums,
        first=come_first(launches, starts),
        k_tiles=ceil_div(launches.k_tiles, kernel.k_parts),
        sharing=np.maximum(1.0, drawing) if beside else on_sm.astype(np.float64),
        drawing=drawing,
        stages=np.minimum(each(in_ring, starts, launches.groups), ENOUGH_STAGES // on_sm),
        last_wave=each(clusters / entries, starts, launches.groups),
        joint=kernel.cluster > 1,
        gathers=kernel.k_parts - 1,
        pingpong=kernel.pingpong,
        late=_late(launches, starts, entries, clusters),
        shared=kernel.ctas_per_sm > 1,
        lone=kernel.lone,
        stacked=_stacked(launches, starts),
        by_two=each(loaded_by_two(launches, starts), starts, launches.groups),
        computing=(1 if kernel.pingpong else kernel.consumers) * on_sm.astype(np.float64),
        exchanged=kernel.d_across,
        a_across=kernel.a_across,
        b_across=kernel.b_across,
        across=_across(kernel, asked),
        lines=kernel.d_across & (launches.widths * size_d % LINE_BYTES == 0),
        shuffled=in_runs,
        boxed=in_boxes,
        unboxed=asked.may_box & ~(in_boxes | in_runs),
        unaligned=kernel.b_unaligned,
        multiply=multiply,
        in_step=multiplied(2 * WGMMA_ROWS) if kernel.b_across else multiply,
        slices=slices,
        fed=fed,
        fresh=np.minimum(1.0, (asked.of_a + asked.of_b) / np.maximum(slices * fed, 1.0)),
        crossed=crossing * (K_TILE * size),
        within=within * (K_TILE * size),
        crowded=kernel.rows * (K_TILE * size) * readers / CROWD,
        uneven=np.maximum(launches.widths / width, 1.0),
        values=held * width,
        sum_values=REDUCED_ROWS * held,
        finished=finished,
        scaled=scales,
        read=asked.read,
        tall=np.maximum(boxes / TALL_ROWS - 1, 0.0) * asked.of_a,
        again=asked.of_a * (wide - 1) + asked.of_b * (high - 1),
        written=asked.written,
        steps=steps,
    )


def _stacked(launches: Grid, starts: Ints) -> Flags:
    """Groups of a lone warpgroup's tiles that a GPC does not have in a square (``STACK``)."""
    if not launches.kernel.lone:
        return np.zeros(len(launches.groups), bool)
    high, wide = launches.high, launches.wide
    unlike = np.zeros(len(starts), bool)  # launches of groups that differ
    for of in (high, wide):
        unlike |= np.maximum.reduceat(of, starts) > np.minimum.reduceat(of, starts)
    found: Flags = (high > STACK) & ((wide < SIDE_BY_SIDE) | each(unlike, starts, launches.groups))
    return found


def _across(kernel: Kernel, asked: Asked) -> Floats:
    """Share of the bytes of operands that K lies across, of CTAs that share K."""
    if kernel.k_parts == 1:
        return np.zeros(len(asked.of_a))
    across = asked.of_a * kernel.a_across + asked.of_b * kernel.b_across
    found: Floats = across / np.maximum(asked.of_a + asked.of_b, 1)
    return found


def _steps(launches: Grid, asked: Asked) -> tuple[Mapping[str, Floats], Flags, Flags]:
    """What each value goes through; whether D is finished behind sums, and a bias comes with alpha.

    C may be in the sum already: what joins it on the way does so while the other warpgroup
    multiplies, and costs nothing. Nor does a bias that joins it, or comes with alpha: with the
    former D is as finished as without one. A C of 32 bits keeps stages of the ring from the other
    warpgroup that multiplies meanwhile.
    """
    kernel, parts, steps = launches.kernel, launches.parts, dict(asked.steps)
    finished, first = asked.finished, np.zeros(len(parts), bool)
    scales = first
    if "c2" in steps:
        first = begun(kernel, parts, asked.may_begin, asked.ends_plain)
        in_sums = first | staged(launches, asked.may_begin)
        steps |= {"c2": steps["c2"] * ~in_sums, "begun": first.astype(float)}
    if "bias" in steps:
        c_behind = np.any([steps[c] for c in ("c2", "c4", "c_element") if c in steps], axis=0)
        joins = joined(kernel, parts, asked.may_join & ~c_behind)
        scales = scaled(kernel, parts, asked.may_scale & ~c_behind)
        steps["bias"] = steps["bias"] * ~(joins | scales)
        else_plain = np.asarray(steps.get("element", 0.0) + steps.get("relu", 0.0)) == 0
        finished = finished & ~(joins & else_plain & ~first)
    if "c4" in steps and kernel.pingpong:
        steps["c4_beside"] = steps.pop("c4")
    return steps, finished, scales


def _late(launches: Grid, starts: Ints, entries: Ints, clusters: Ints) -> Floats:
    """For each group, the share of its launch's tiles that are drawn one at a time.

    Those are all where some K is long, else the last two of every cluster.
    """
    longest = np.maximum.reduceat(launches.k_tiles, starts)
    at_end = np.minimum(1.0, 2 * clusters / entries)
    return each(np.where(longest * K_TILE < LONG_K, at_end, 1.0), starts, launches.groups)
