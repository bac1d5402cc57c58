"""The order in which a launch hands out its tiles."""

from __future__ import annotations

import numpy as np

from gemmctl.kernels.constants import K_TILE
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning.arrays import ALONE, Flags, Floats, Ints, ceil_div, each, within
from gemmctl.planning.epilogue import added
from gemmctl.planning.tiling import Grid, seen

LONG_K = 1024  # a tile of at least this K is worth scheduling; shorter ones are latency-bound
LONG_SHARE = 8  # of a cluster's time, by the part of it that a tile takes which has to come first
PANEL_ROWS = 2048  # rows of A that stay live while B streams past: all tiles at work are a square
GPC_SMS = 16  # SMs of a GPC, whose loads of the same bytes at one time are one to the L2, or 18
# Share of what a GPC's tiles draw up to which other panels pay: 96 lists took 0.974 of the time so,
# 57 others, with shares of more, 1.005 and up to 1.14 (H200, docs/kernel.md).
LESS_DRAWN = 0.8
FEW_ROWS = 600  # rows of A below which B's bytes take longer than its multiplications
# Up to which groups are spread among others where K is STEADY_K and more, in STEADY_WAVES of tiles
# and more. With those up to FEW_ROWS 20 lists took 1.02 there, up to 1.05; but with K of 768 and
# 1536 0.96 and 0.975, in two waves 0.92 (H100; docs/kernel.md).
FEWER_ROWS = 128
STEADY_K, STEADY_WAVES = 2048, 3
# Where the tallest group has fewer, all wait for memory: 12 lists took 1.007 of the time if spread
# there, 19 with a taller one 0.982, down to 0.94 (H200; docs/kernel.md).
MANY_ROWS = 240
ADDED_LEAST = 0.1  # of a list, that has to be added, or not to be, for them to be spread
MANY_UNTIL = 0.8  # of a list that spreads tiles of few rows among those of many, the latter's end


def handed_out(planned: Grid, problem: Problem) -> Ints:
    """The group of every whole tile, in the order in which tiles are handed out."""
    in_runs = runs(planned)
    of = np.repeat(in_runs, planned.whole[in_runs])
    among = interleaved(planned, problem, in_runs)
    return of if among is None else of[among]


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


def interleaved(planned: Grid, problem: Problem, in_runs: Ints) -> Ints | None:
    """The tiles in another order than groups follow each other, which is ``in_runs``, if that pays.

    Tiles that the L2 adds to D are spread evenly among those that read C, each class in its own
    order, where there are enough of both. Else, where K is the same, groups of few rows among those
    of many: the ones wait for memory, the others for the tensor cores. Where K is long, only those
    of so few that nothing of B is read again, and only if some group has MANY_ROWS.
    """
    if (by_l2 := added(problem, planned.groups)).any():
        of_l2 = np.repeat(by_l2[in_runs], planned.whole[in_runs])
        if ADDED_LEAST <= of_l2.mean() <= 1 - ADDED_LEAST:
            return _among(of_l2, 1.0)
    m, k_tiles = seen(problem, planned.kernel).m[planned.groups], planned.k_tiles
    if k_tiles.min() < k_tiles.max():
        return None
    steady = k_tiles.min() * K_TILE >= STEADY_K and planned.waves >= STEADY_WAVES
    small = m <= FEWER_ROWS if steady else m < FEW_ROWS
    if m.max() < MANY_ROWS or small.all() or not small.any():
        return None
    return _among(np.repeat(small, planned.whole), MANY_UNTIL)


def _among(some: Flags, until: float) -> Ints:
    """Tiles in the order in which ``some`` are spread evenly, the others ``until`` so far."""
    rank = np.where(some, np.cumsum(some), np.cumsum(~some)) - 0.5
    count = int(some.sum())
    place = np.where(some, rank / count, rank / (len(some) - count) * until)
    return np.argsort(place, kind="stable")


def places(planned: Grid, in_runs: Ints) -> tuple[Ints, Ints]:
    """First row and column of every whole tile, group after group as in ``in_runs``.

    Tiles of a group go in panels of some rows, each panel along all of B and the next one back, so
    that the tiles at work at one time form a square and read the least: of several waves in panels
    of about PANEL_ROWS rows, of one as ``_panels_in_step`` says.
    """
    high, wide, widths = (of[in_runs] for of in (planned.high, planned.wide, planned.widths))
    full = -(-PANEL_ROWS // widths)  # rows of tiles in a panel
    in_step = planned.waves <= 1 and planned.kernel.cluster == 1 and not planned.slots
    if in_step and len(some := np.flatnonzero(high > 1)) > 0:
        full[some] = _panels_in_step(
            full[some], high[some], wide[some], widths[some], planned.kernel
        )
    panels = ceil_div(high, full)
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


def _panels_in_step(full: Ints, high: Ints, wide: Ints, widths: Ints, kernel: Kernel) -> Ints:
    """Rows of tiles in a panel of each group, elsewhere ``full``, where all are at work at once.

    CTAs without a cluster fill one GPC after the other and stay in step, so that what counts is how
    many rows of A and of B the tiles of a GPC draw together: those of the panel that draws most, or
    of the last, lower one. (What a cluster multicasts is not joined with other loads.)
    """
    together = GPC_SMS // kernel.ctas  # tiles that a GPC has
    high, across, widths = (of[:, None] for of in (high, wide, widths))
    all_wide = together / across * widths + across * kernel.rows  # where it has several panels

    def drawn(tall: Ints) -> Floats:
        part = tall * widths + np.minimum(across, -(-together // tall)) * kernel.rows
        found: Floats = np.where(tall * across < together, all_wide, part)
        return found

    def most(rows: Ints) -> Floats:
        rows = np.minimum(rows, high)
        return np.maximum(drawn(rows), drawn(high - (ceil_div(high, rows) - 1) * rows))

    rows = np.arange(high.max(), 0, -1)  # of as good panels the highest
    drawn_so = most(rows)
    least = np.argmin(drawn_so, axis=1)
    pays = drawn_so.min(axis=1) <= LESS_DRAWN * most(full[:, None])[:, 0]
    return np.where(pays, rows[least], full)
