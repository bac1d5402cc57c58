"""How long a launch takes, from how it is cut alone: what the plan chooses by."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmctl.kernels.constants import K_TILE, REDUCED_ROWS
from gemmctl.lists.problem import Problem
from gemmctl.operands import dtypes
from gemmctl.planning.queue import Queue
from gemmctl.planning.tiling import (
    PANEL_ROWS,
    Floats,
    Grid,
    Ints,
    Machine,
    come_first,
    handed_out,
    runs,
    within,
)

CLOCK_HZ = 1.75e9  # of a cycle below; an H200 at work runs at 1.4 to 1.9 GHz
WGMMA_FLOP = 4096  # dense 16-bit floating-point operations per cycle and SM
PLAYED = 8  # tiles for each cluster, up to which a list is played through
L2_BYTES = 50e6  # what is larger comes from memory again each time it is needed again


@dataclass(frozen=True)
class Constants:
    """What the model takes from measurements, in SM clock cycles; tools/fit_cost.py fits them."""

    feed_bytes: float = 51.3  # that one SM draws from L2 in a cycle
    memory_bytes: float = 20.5  # one SM's share of the memory bandwidth in a cycle
    reread: float = 0.258  # share of the memory's time that bytes which the L2 still holds take
    launch_latency: float = 13200.0  # of a launch that does nothing much, from a cold start
    cluster_latency: float = 3660.0  # more of a kernel that starts in clusters
    branch_latency: float = 6000.0  # until the next of several launches side by side has begun
    tile_latency: float = 1020.0  # until a tile's first load, not hidden behind the tile before
    epilogue_per_value: float = 0.0839  # of D
    pingpong_epilogue: float = 0.517  # share of it that shows where warpgroups take turns
    part_per_value: float = 1.53  # of a part of a split sum, added up
    c2_per_value: float = 0.06  # of a C of two bytes, added from the ring
    c4_per_value: float = 0.12  # of a C of four bytes
    exposed_feed: float = 0.0468  # share of the shorter of feeding and multiplying that shows
    exposed_memory: float = 0.0854  # the same of the SMs' work and the bytes from memory


FITTED = Constants()


def estimate(launch: Grid, problem: Problem, constants: Constants = FITTED) -> float:
    """Cycles a launch takes: the longer of its work on the SMs and its bytes from memory.

    Some of the shorter shows, too: it does not hide all the time, and what it does costs power.
    """
    entries = int(launch.entries.sum())
    clusters = min(launch.room, entries)
    busy = _makespan(launch, problem, clusters, constants)
    memory = float(_bytes(launch, problem, constants).sum())
    return float(_together(launch, busy, memory, constants))


def all_together(
    launches: Sequence[Grid], queue: Queue, problem: Problem, constants: Constants = FITTED
) -> float:
    """Cycles from the start of a run's first launch to the end of its last.

    A stream takes the sum of its launches. Several take as long as the longest of them, or as all
    work takes when it is spread over all SMs, or as it takes to start one after the other and end
    like the mean of them, whichever is longest.
    """
    if not launches:
        return 0.0
    alone = np.array([estimate(launch, problem, constants) for launch in launches])
    order, streams = np.transpose(queue)
    branches = np.bincount(streams, alone[order])
    share = np.array([min(1.0, launch.entries.sum() / launch.room) for launch in launches])
    spread = constants.launch_latency + ((alone - constants.launch_latency) * share).sum()
    begun = constants.branch_latency * (len(branches) - 1)
    return float(max(branches.max(), spread, begun + branches.mean()))


def at_least(
    launches: Grid, problem: Problem, starts: Ints, constants: Constants = FITTED
) -> Floats:
    """Cycles that each of some launches takes at least by ``estimate``, in a fraction of its time.

    The groups of a launch begin at ``starts`` and end with the next one's. Exact up to rounding
    for launches of equal entries, and for those that are too long to be played through and have
    nothing that comes first.
    """
    entries = np.add.reduceat(launches.entries, starts)
    clusters = np.minimum(launches.room, entries)
    of = clusters  # of each group's launch
    if len(starts) > 1:
        of = np.repeat(clusters, np.diff(starts, append=len(launches.groups)))
    parts, k_tiles, widths = launches.parts, launches.k_tiles, launches.rows / launches.high
    waits: Floats = np.where(parts > 1, 0.0, _waits(launches, problem, constants))
    multiply = _cycles(launches, of, widths, k_tiles / parts, waits, constants)
    total, longest, shortest = launches.whole * parts * multiply, multiply, multiply
    first = come_first(launches, starts)
    late = np.where(first, 0.0, multiply)
    if launches.sums.any():
        split = parts > 1
        adding = constants.part_per_value * parts.astype(np.float64)
        add_up = _cycles(launches, of, REDUCED_ROWS, 0, adding, constants)
        total += launches.sums * add_up
        longest = _cycles(launches, of, widths, -(-k_tiles // parts), 0, constants) + add_up
        longest = np.where(split, longest, multiply)
        shortest = _cycles(launches, of, widths, k_tiles // parts, 0, constants)
        shortest = np.where(split, np.minimum(shortest, add_up), multiply)
        late = np.where(split, add_up, late)
    mean = np.add.reduceat(total, starts) / clusters
    rounds = -(-entries // clusters) * np.minimum.reduceat(shortest, starts)
    played = np.maximum(np.maximum(mean, rounds), np.maximum.reduceat(longest, starts))
    first_ends = np.maximum.reduceat(np.where(first, longest, 0.0), starts)
    rest_ends = mean + np.maximum.reduceat(late, starts) / 2
    long_list = entries > PLAYED * clusters
    busy = np.where(long_list, np.maximum(first_ends, rest_ends), played)
    memory = np.add.reduceat(_bytes(launches, problem, constants), starts)
    return _together(launches, busy, memory, constants)


def copying(nbytes: int, machine: Machine, constants: Constants = FITTED) -> float:
    """Cycles that it takes to copy so many bytes, at the speed of the memory."""
    return 2 * nbytes / constants.memory_bytes / machine.sm_count


def _together(
    launch: Grid, busy: Floats | float, nbytes: Floats | float, constants: Constants
) -> Floats:
    """Cycles of a launch whose SMs are busy for so many, and that moves bytes meanwhile."""
    memory = nbytes / constants.memory_bytes / launch.machine.sm_count
    longer = np.maximum(busy, memory) + constants.exposed_memory * np.minimum(busy, memory)
    starting = constants.cluster_latency if launch.kernel.cluster > 1 else 0.0
    cycles: Floats = constants.launch_latency + starting + longer
    return cycles


def _makespan(launch: Grid, problem: Problem, clusters: int, constants: Constants) -> float:
    """Cycles until all is done, as every free CTA takes the next entry of the list.

    Short lists are played through. Of long ones what comes first is, which may end last; for the
    others the mean load plus half an entry is as good.
    """
    parts, whole, sums = _in_order(launch, problem, clusters, constants)
    free = [0.0] * clusters
    _play(free, parts)
    complete = max(free)
    if len(parts) + len(whole) + len(sums) <= PLAYED * clusters:
        _play(free, whole)
        _play(free, sums, complete)
        return max(free)
    first = int(launch.whole[come_first(launch) & (launch.parts == 1)].sum())
    _play(free, whole[:first])
    adding = float(sums.max(initial=0.0))
    longest = max(float(whole[first:].max(initial=0.0)), adding)
    mean = float(parts.sum() + whole.sum() + sums.sum()) / clusters
    return max(*free, complete + adding, mean + longest / 2)


def _play(free: list[float], entries: Floats, begin: float = 0.0) -> None:
    """Give entries to the CTAs that are ``free`` first, none before ``begin``; a heap of cycles."""
    for entry in entries.tolist():
        heapq.heapreplace(free, max(free[0], begin) + entry)


def _in_order(
    launch: Grid, problem: Problem, clusters: int, constants: Constants
) -> tuple[Floats, Floats, Floats]:
    """Cycles of all entries, in the order of the list: parts, whole tiles, what adds up parts."""
    of = handed_out(launch, problem)
    waits = _waits(launch, problem, constants)
    widths = launch.rows / launch.high
    whole = _cycles(launch, clusters, widths, launch.k_tiles, waits, constants)
    if not launch.slots:
        return np.empty(0), whole[of], np.empty(0)
    split = launch.parts[of] > 1
    counts = launch.parts[of[split]]
    of_parts, parts, part = np.repeat(of[split], counts), np.repeat(counts, counts), within(counts)
    k_tiles = launch.k_tiles[of_parts]
    k_tiles = k_tiles * (part + 1) // parts - k_tiles * part // parts
    multiply = _cycles(launch, clusters, widths[of_parts], k_tiles, 0, constants)
    adding = constants.part_per_value * launch.parts.astype(np.float64)
    add_up = _cycles(launch, clusters, REDUCED_ROWS, 0, adding, constants)
    order = runs(launch)
    return multiply, whole[of[~split]], np.repeat(add_up[order], launch.sums[order])


def _cycles(
    launch: Grid,
    clusters: Ints | int,
    width: Floats | int,
    k_tiles: Ints | Floats | int,
    more_per_value: Floats | float,
    constants: Constants,
) -> Floats:
    """Cycles that entries, which multiply K tiles or add up parts, keep a CTA (or cluster) busy.

    ``more_per_value`` is what each value of D takes besides its way from the sums to memory.
    A K tile takes the longer of its wgmma time and the time to draw its operands from L2; CTAs
    share both where several are on one SM.
    """
    kernel = launch.kernel
    sharing = np.maximum(1.0, clusters * kernel.cluster / launch.machine.sm_count)
    multiply = 2 * kernel.rows * width * K_TILE / WGMMA_FLOP
    feed = (kernel.rows + width / kernel.cluster) * K_TILE * 2 / constants.feed_bytes
    per_k_tile = np.maximum(multiply, feed) + constants.exposed_feed * np.minimum(multiply, feed)
    shown = constants.pingpong_epilogue if kernel.pingpong else 1.0
    per_value = shown * constants.epilogue_per_value + more_per_value
    epilogue = per_value * kernel.rows * width
    work = epilogue + k_tiles * per_k_tile
    cycles: Floats = constants.tile_latency + work * sharing
    return cycles


def _waits(launch: Grid, problem: Problem, constants: Constants) -> Floats:
    """Cycles that each value of D takes longer for a C in the ring, by group; 0 where beta is."""
    columns, groups, kernel = problem.columns, launch.groups, launch.kernel
    short = columns.size("c")[groups] == 2
    shown = constants.pingpong_epilogue if kernel.pingpong else 1.0
    waits = shown * np.where(short, constants.c2_per_value, constants.c4_per_value)
    found: Floats = np.where(columns.beta[groups] != 0, waits, 0.0)
    return found


def _bytes(launch: Grid, problem: Problem, constants: Constants) -> Floats:
    """Of each group: A, D and C once, and B once for every panel that streams it, unless it stays.

    What several tiles read again comes from the L2 and counts in part.
    """
    columns, groups, kernel = problem.columns, launch.groups, launch.kernel
    m, n, k = columns.m[groups], columns.n[groups], columns.depth[groups]
    size, size_d = dtypes.BY_NAME[kernel.operand].size, dtypes.BY_NAME[kernel.output].size
    of_a, of_b = m * k * size, n * k * size
    panels = np.where(of_b > L2_BYTES, -(-m // PANEL_ROWS), 1)
    written = m * n * size_d * np.where(columns.beta[groups] != 0, 2, 1)
    again = of_a * (launch.wide - 1) + of_b * (launch.high - 1)
    nbytes: Floats = of_a + of_b * panels + written + constants.reread * again
    return nbytes
