"""How long a launch takes, from how it is cut alone: what the plan chooses by."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from gemmctl.lists.problem import Problem
from gemmctl.planning import beside
from gemmctl.planning.arrays import ALONE, Floats, Ints, each
from gemmctl.planning.beside import Stay
from gemmctl.planning.playing import Times, exact, least_busy, makespan, mean_busy, order_of
from gemmctl.planning.queue import Queue
from gemmctl.planning.tiling import Grid, Machine
from gemmctl.planning.work import Asked, Work, asked_of, work_of

CLOCK_HZ = 1.98e9  # of a cycle below: an H200's highest
PLAIN = frozenset(("value", "stored_byte"))  # the steps of plain sums
COMPUTED = frozenset(("bias", "relu", "gelu", "gelu_tanh", "silu"))  # of a value's steps
LONG_SLICES = 32  # of K, from which clusters that exchange operands take less time in one wave
WAVE_POWER = 3.0  # of a mean of what a K tile waits for, that is nearly the longest of it


@dataclass(frozen=True)
class Constants:
    """What the model takes from measurements, in SM clock cycles; tools/fit_cost.py fits them.

    What is per value is per number that a warpgroup stores. Of two things that overlap, an
    ``exposed`` share of the shorter adds to the longer.
    """

    # A launch
    launch_latency: float = 957.0  # of one that does nothing much, from a cold start
    cluster_latency: float = 1990.0  # more of a kernel that starts in clusters
    branch_latency: float = 4000.0  # until all of several side by side begin, for each but one
    packing_latency: float = 11600.0  # of a launch that packs operands
    packing_bytes: float = 18.0  # that an SM reads or writes in a cycle meanwhile
    # Bytes
    memory_bytes: float = 21.9  # one SM's share of the memory bandwidth in a cycle
    stored_bytes: float = 16.8  # of D that one SM stores in a cycle if all do: 4.4 TB/s
    write: float = 0.775  # share of the memory's time that a byte of D takes
    reread: float = 0.321  # the same of bytes that the L2 still holds
    tall: float = 0.181  # more of a byte that comes in a box of twice TALL_ROWS rows
    feed_bytes: float = 56.8  # that one SM draws from L2 in a cycle
    drawn_bytes: float = 34.5  # the same, if all do
    crossed: float = 0.28  # more of rows that begin within a line, and so cross two
    within: float = 0.08  # more of rows that begin within a sector, and so cross five, if all draw
    crowded: float = 1.56  # more of rows of B that CROWD CTAs read at one time
    stage_latency: float = 1960.0  # until a stage of the ring is full, from when it is free
    joint_latency: float = 140.0  # more where it is free when both CTAs of a cluster are done
    # More of what comes from memory, in one cluster of five, which all wait for in a single wave
    slow_latency: float = 835.0
    # More in a single wave of what the L2 has already, where operands are exchanged
    exchanged_latency: float = 500.0
    unaligned: float = 760.0  # that a K tile takes whose B is copied word by word,
    beside_copies: float = 0.68  # and of multiplying it, the share that is more
    # A tile: what is not hidden behind the tile before
    tile_latency: float = 2020.0
    shared_latency: float = 2400.0  # where two CTAs share an SM
    lone_latency: float = 5000.0  # where one warpgroup has an SM to itself
    turn_latency: float = 5030.0  # where warpgroups take turns
    finished_latency: float = 3800.0  # likewise, of more than plain sums, or off words
    lined: float = 0.862  # share of that, and of the values' time, where D is written by columns
    shuffled: float = 0.82  # the same, if rows of A come shuffled
    boxed: float = 0.84  # the same where D leaves by TMA
    bias_latency: float = 2000.0  # of a bias that comes with alpha, over the tile's slices of K
    draw_latency: float = 2440.0  # more where no record but the next is asked for ahead
    # What each value takes on its way from the sums to memory
    value: float = 0.0141
    stored_byte: float = 0.0347
    element: float = 0.271  # more where rows of D are no whole words
    bias: float = 0.243
    relu: float = 0.075
    gelu: float = 1.18
    gelu_tanh: float = 0.55
    silu: float = 0.5
    one_of_two: float = 0.5  # share of these where two CTAs share an SM, and seldom both compute
    c2: float = 0.2  # a C of two bytes, added from the ring
    c4: float = 0.402  # of four bytes,
    c4_beside: float = 0.49  # and where the other warpgroup multiplies meanwhile
    begun: float = 0.1  # one that is in sums of which a warpgroup has all
    c_element: float = 1.5  # a C that comes element by element
    added: float = 0.195  # a sum that the L2 adds to D
    # Parts of a split sum
    part_value: float = 0.8  # that is written
    sum_latency: float = 1500.0  # of an entry that adds up parts,
    late_part: float = 0.8  # share of the memory's time that it waits for the last of them,
    latest_part: float = 9000.0  # and cycles, at most
    later_sum: float = 5000.0  # more where some CTA has a part before it
    sum_value: float = 0.6  # of each part that is added up
    # The same where CTAs of a cluster share K
    gather_latency: float = 700.0
    gather_value: float = 0.2
    gather_memory: float = 0.88  # share of the memory's time that their bytes take,
    gather_across: float = 0.94  # and of operands that K lies across
    gather_shown: float = 2.0  # tiles of a cluster, behind which storing hides in the ring's length
    # A launch of one wave that has the GPU to itself: each CTA or cluster has a tile at most. What
    # is above of a launch, a tile and its feeding does not count then, but this does
    wave_latency: float = 7500.0  # of all that is not below, from a cold start
    wave_across: float = 0.25  # more of the bytes that CTAs read which share K, if it lies across
    wave_value: float = 0.078  # of plain sums
    wave_multiply: float = 1.07  # share of a K tile's multiplying; 0: there is no such form
    wave_load: float = 185.0  # that a K tile takes who loads,
    wave_load_by_two: float = 165.0  # where two do,
    wave_load_across: float = 0.75  # share, of what K lies across and one multiplies by rows,
    wave_crossed: float = 0.021  # and for each byte of rows that begin within a line;
    wave_crossed_by_all: float = 0.04  # for each of them, too, what the L2 takes if all SMs draw
    wave_crowded: float = 0.08  # that a K tile takes for each byte that many CTAs draw,
    wave_crowded_exchanged: float = 0.04  # where operands are exchanged, or K lies across B
    wave_stage: float = 1800.0  # until a stage of the ring is full, from when it is free
    wave_slow: float = 1400.0  # more of what comes from memory where both CTAs of a cluster wait
    wave_known: float = 660.0  # more of what the L2 has already where operands are exchanged
    wave_long: float = 0.9  # share of all where clusters exchange operands, from LONG_SLICES on
    wave_gathered: float = 250.0  # more where CTAs of a cluster share K
    wave_exposed: float = 0.325  # of the K tiles' time and that of the bytes from memory
    # What overlaps
    exposed_feed: float = 0.182  # feeding and multiplying
    exposed_turn: float = 0.0163  # one warpgroup's epilogue and the other's multiplying,
    exposed_unboxed: float = 0.05  # that, where threads store what TMA might and it would hide
    exposed_memory: float = 0.215  # the SMs' work and the bytes from memory
    early_ends: float = 0.1  # share of the mean end of launches side by side, not of the last one


FITTED = Constants()


def estimate(
    launch: Grid,
    problem: Problem,
    constants: Constants = FITTED,
    asked: Asked | None = None,
    beside: bool = False,
) -> float:
    """Cycles a launch takes: the longer of its work on the SMs and its bytes from memory.

    Some of the shorter shows, too: it does not hide all the time, and what it does costs power.
    ``asked`` is what ``asked_of`` says of the launch, where that is known; ``beside``: whether
    others run beside it.
    """
    asked = asked or asked_of(problem, launch.groups, launch.kernel, launch.share)
    work = work_of(launch, asked, beside=beside)
    return taken(launch, problem, asked, work, times_of(work, constants), constants)


def taken(
    launch: Grid,
    problem: Problem,
    asked: Asked,
    work: Work,
    times: Times,
    constants: Constants = FITTED,
) -> float:
    """The same of a launch of which it is known what it asks for, what there is to do and takes."""
    busy = _busy(launch, problem, asked, work, times)
    return float(together(work, times, busy, constants)[0])


def _busy(launch: Grid, problem: Problem, asked: Asked, work: Work, times: Times) -> Floats:
    if exact(launch, asked):
        return least_busy(work, times)
    return np.array([makespan(times, order_of(launch, problem), int(work.clusters[0]))])


def all_together(
    launches: Sequence[Grid], queue: Queue, problem: Problem, constants: Constants = FITTED
) -> float:
    """Cycles from the start of a run's first launch to the end of its last.

    Those of a single stream take their sum, however long each of their CTAs keeps its SM.
    """
    if len({stream for _, stream in queue}) < 2:
        return float(sum(estimate(launch, problem, constants) for launch in launches))
    if launches[0].machine.given:
        return apart(launches, queue, problem, constants)
    stays = [stay(launch, problem, constants) for launch in launches]
    return side_by_side(stays, queue, launches[0].machine, constants)


def side_by_side(
    stays: Sequence[Stay], queue: Queue, machine: Machine, constants: Constants = FITTED
) -> float:
    """The same of launches of which it is known how long they keep their SMs.

    It is not certain which of several streams ends last, so that a share of the mean end counts,
    too.
    """
    streams = len({stream for _, stream in queue})
    if streams < 2:
        return sum(stay.alone for stay in stays)
    begin = constants.branch_latency * (streams - 1)
    found = beside.ends(stays, queue, machine.sm_count, begin)
    return float((1 - constants.early_ends) * found.max() + constants.early_ends * found.mean())


def apart(
    launches: Sequence[Grid], queue: Queue, problem: Problem, constants: Constants = FITTED
) -> float:
    """The same of launches of which the first leaves SMs to the other: they share the memory, too.

    Of that launches side by side are believed to have all, each for itself.
    """
    machine, unhindered = launches[0].machine, replace(constants, memory_bytes=inf)
    stays, memory = [], np.zeros(1)
    for launch in launches:
        asked = asked_of(problem, launch.groups, launch.kernel, launch.share)
        stays.append(stay(launch, problem, unhindered, asked))
        memory += _memory(work_of(launch, asked), constants)
    busy = side_by_side(stays, queue, machine, unhindered)
    return float(_both(np.array([busy]), memory, constants.exposed_memory)[0])


def stay(
    launch: Grid, problem: Problem, constants: Constants = FITTED, asked: Asked | None = None
) -> Stay:
    """How long a launch keeps its SMs where all its CTAs find one at once.

    Where two share an SM, what ends last has it to itself. CTAs with an entry each leave behind
    that, those with several one after the other.
    """
    asked = asked or asked_of(problem, launch.groups, launch.kernel, launch.share)
    work = work_of(launch, asked, beside=True)
    times = times_of(work, constants)
    even = float(together(work, times, mean_busy(work, times), constants)[0])
    busy = _busy(launch, problem, asked, work, times)
    alone = last = float(together(work, times, busy, constants)[0])
    if launch.kernel.ctas_per_sm > 1:
        work = replace(work, sharing=np.ones_like(work.sharing))
        times = times_of(work, constants)
        busy = _busy(launch, problem, asked, work, times)
        last = float(together(work, times, busy, constants)[0])
    last = max(even, last)
    entries, clusters = int(work.entries[0]), int(work.clusters[0])
    if entries > clusters:
        later = (np.arange(clusters) + 0.5) / clusters
        leaves = np.maximum(last - 2 * (last - even) * later, 0.0)
    else:
        each = np.where(launch.parts > 1, times.part, times.whole)
        own = np.sort(np.repeat(each, launch.whole * launch.parts))[::-1]
        leaves = np.append(np.full(clusters - len(own), last), last - (busy[0] - own))
    leaves[0] = last
    return Stay(
        alone=alone,
        leaves=np.repeat(leaves, launch.kernel.ctas),
        even=even,
        rounds=entries / clusters,
        halves=launch.kernel.ctas_per_sm > 1,
    )


def at_least(
    launches: Grid,
    asked: Asked,
    starts: Ints = ALONE,
    constants: Constants = FITTED,
    beside: bool = False,
) -> Floats:
    """Cycles that each of some launches takes at least by ``estimate``, in a fraction of its time.

    The groups of a launch begin at ``starts`` and end with the next one's. What ``estimate`` finds
    for a launch that is ``exact``, of launches ``beside`` others for one that is.
    """
    work = work_of(launches, asked, starts, beside)
    times = times_of(work, constants)
    return together(work, times, least_busy(work, times), constants)


def copying(nbytes: int, machine: Machine, constants: Constants = FITTED) -> float:
    """Cycles that it takes to copy so many bytes before a run."""
    return constants.packing_latency + 2 * nbytes / constants.packing_bytes / machine.sm_count


def times_of(work: Work, constants: Constants) -> Times:
    """What entries take. Where warpgroups take turns, one stores while the other multiplies."""
    turn = np.where(work.finished, constants.finished_latency, constants.turn_latency)
    alone = np.where(work.shared, constants.shared_latency, constants.tile_latency)
    alone = np.where(work.lone, constants.lone_latency, alone)
    lined = _lined(work, constants)
    latency = np.where(work.pingpong, turn, alone) * lined + constants.draw_latency * work.late
    latency = latency + _scaled(work, constants) + _gathering(work, constants)
    computing = np.where(work.shared, constants.one_of_two, 1.0)
    per_value = _per_value(work, constants, work.steps, computing) * lined
    store = latency + per_value * work.values
    whole, end = _tile(work, _multiplying(work, work.k_tiles, store, constants), store, constants)
    if np.any(work.gathers):
        filled = _filled(work, whole, store, constants)
        whole, end = filled, end + whole - filled
    widest = np.where((work.uneven > 1) & (work.parts == 1), whole * work.uneven, 0.0)
    if not (work.parts > 1).any():
        return Times(whole, end, whole, np.zeros_like(whole), whole, widest)
    store = latency + constants.part_value * work.values
    multiply = _multiplying(work, -(-work.k_tiles // work.parts), store, constants)
    part, part_end = _tile(work, multiply, store, constants)
    late = np.minimum(constants.late_part * _memory(work, constants), constants.latest_part)
    late = late + constants.later_sum * (work.entries > work.clusters)
    wait = part_end + each(late, work.starts, work.whole)
    adding = (per_value + constants.sum_value * work.parts) * work.sum_values * work.sharing
    return Times(whole, end, part, wait, constants.sum_latency + adding, widest)


def _lined(work: Work, constants: Constants) -> Floats:
    """Share of the time of storing a value where D is written by columns, or by TMA."""
    by_columns = np.where(work.shuffled, constants.shuffled, constants.lined)
    by_rows = np.where(work.boxed, constants.boxed, 1.0)
    return np.where(work.lines, by_columns, by_rows)


def _per_value(
    work: Work, constants: Constants, steps: Collection[str], computing: Floats
) -> Floats:
    """Cycles of each value for some of its steps; ``computing``: share of what is computed."""
    found = np.zeros_like(work.values)
    for name in steps:
        share = work.steps[name] * (computing if name in COMPUTED else 1.0)
        found = found + getattr(constants, name) * share
    return found


def _scaled(work: Work, constants: Constants) -> Floats:
    """Cycles of a tile for a bias that comes with alpha."""
    found: Floats = constants.bias_latency * work.scaled / np.maximum(1, work.k_tiles)
    return found


def _gathering(work: Work, constants: Constants) -> Floats:
    """Cycles of a tile for the sums of other CTAs that share its K."""
    found = constants.gather_latency + constants.gather_value * work.gathers * work.values
    return np.where(work.gathers, found, 0.0)


def _multiplying(work: Work, k_tiles: Ints, store: Floats, constants: Constants) -> Floats:
    """Cycles that so many K tiles take, of entries whose sums then take so long to be stored.

    A K tile takes the longer of its wgmma time and the time until its operands are there, which all
    stages wait for at one time but that at work: CTAs that share an SM share both, but while the
    other stores.
    """
    together = k_tiles * work.multiply * work.sharing
    sharing = 1 + (work.sharing - 1) * together / np.maximum(together + store, 1.0)
    fed = work.fed + constants.crossed * work.crossed + constants.crowded * work.crowded
    of_clusters = constants.joint_latency + constants.slow_latency * work.last_wave * work.fresh
    of_exchanged = constants.exchanged_latency * work.last_wave * (1 - work.fresh)
    until_full = constants.stage_latency + of_clusters * work.joint + of_exchanged * work.exchanged
    feed = np.maximum(fed * sharing / constants.feed_bytes, until_full / (work.stages - 1))
    aligned = _both(work.multiply * sharing, feed, constants.exposed_feed)
    per_k_tile: Floats = np.maximum(aligned, _copied(work, constants))
    return k_tiles * per_k_tile


def _copied(work: Work, constants: Constants) -> Floats:
    """Cycles that a K tile takes at least where its B is copied word by word."""
    copied = constants.unaligned + constants.beside_copies * work.multiply
    return np.where(work.unaligned, copied, 0.0)


def _tile(
    work: Work, multiply: Floats, store: Floats, constants: Constants
) -> tuple[Floats, Floats]:
    """Cycles from tile to tile, and more until the last one is stored."""
    taken = alone = multiply + store
    if np.any(work.pingpong):
        hidden = work.unboxed & (multiply > alone / 2)
        exposed = np.where(hidden, constants.exposed_unboxed, constants.exposed_turn)
        by_turns = _both(alone / 2, multiply, exposed)
        taken = np.where(work.pingpong, by_turns, alone)
    return taken, np.maximum(alone - taken, 0.0)


def _filled(work: Work, whole: Floats, store: Floats, constants: Constants) -> Floats:
    """Cycles from tile to tile; where CTAs of a cluster share K, without what their rings hide.

    These have many stages and one warpgroup, so that the ring fills while that stores a tile. Of
    all tiles but a cluster's first it shows only as far as sums take longer than their slices.
    """
    rounds = each(work.entries / work.clusters, work.starts, work.whole)
    hidden = store * np.maximum(1 - constants.gather_shown / rounds, 0.0)
    by_sums = work.k_tiles * work.multiply * work.sharing + store
    shown = np.maximum(whole - hidden, np.minimum(by_sums, whole))
    return np.where(work.gathers, shown, whole)


def together(work: Work, times: Times, busy: Floats, constants: Constants) -> Floats:
    """Cycles of launches whose SMs are busy for so many, and that move bytes meanwhile.

    Parts of sums are added up when all are there, so that no byte hides what that takes.
    """
    memory = _memory(work, constants)
    stored = _stored(work, constants)
    off = constants.crossed * work.crossed + constants.within * work.within
    fed = work.slices * (work.fed + off)
    drawn = np.add.reduceat(fed, work.starts) / constants.drawn_bytes / work.sms
    split = work.parts > 1
    ends = np.maximum.reduceat(np.where(split, 0.0, times.end), work.starts)
    latency = constants.launch_latency + constants.cluster_latency * work.clustered
    adding: Floats = np.zeros_like(busy)
    if split.any():
        rounds = np.ceil(np.add.reduceat(work.sums, work.starts) / work.clusters)
        wait, add_up = (
            np.maximum.reduceat(np.where(split, of, 0.0), work.starts)
            for of in (times.wait, times.add_up)
        )
        adding = np.minimum(wait + rounds * add_up, busy)
    moving = _both(
        np.maximum(np.maximum(busy - adding, stored), drawn), memory, constants.exposed_memory
    )
    found: Floats = latency + ends + moving + adding
    if constants.wave_multiply and work.one_wave.any():
        found = np.where(work.one_wave, _one_wave(work, constants), found)
    return found


def _one_wave(work: Work, constants: Constants) -> Floats:
    """Cycles of launches of one wave.

    CTAs begin together and stay in step, so that the L2 hands out at one time what many ask for,
    and what a K tile takes is a matter of multiplying, of who loads and of the ring's length. None
    of these quite hides the others.
    """
    until_full = constants.wave_stage + constants.wave_slow * work.joint * work.fresh
    until_full = until_full + constants.wave_known * work.exchanged * (1 - work.fresh)
    load = np.where(work.by_two, constants.wave_load_by_two, constants.wave_load)
    by_one = work.lone & (work.a_across | work.b_across) & np.logical_not(work.exchanged)
    load = load * np.where(by_one, constants.wave_load_across, 1.0)
    spread = work.exchanged | work.b_across
    crowded = np.where(spread, constants.wave_crowded_exchanged, constants.wave_crowded)
    each_takes = (
        constants.wave_multiply * work.in_step * work.sharing,
        load + constants.wave_crossed * work.crossed * work.sharing,
        constants.wave_crossed_by_all * work.crossed * work.drawing,
        crowded * work.crowded * work.sharing,
        until_full / (work.stages - 1),
        work.stacked * work.fed * work.drawing / constants.drawn_bytes,
    )
    per_k_tile = sum(one**WAVE_POWER for one in each_takes) ** (1 / WAVE_POWER)
    slices = work.k_tiles * np.maximum(per_k_tile, _copied(work, constants))
    behind_sums = [name for name in work.steps if name not in PLAIN]
    behind = _per_value(work, constants, behind_sums, work.computing / 2)
    behind = behind * _lined(work, constants)
    store = (constants.wave_value + behind) * work.values
    store = store + _scaled(work, constants) + _gathering(work, constants)
    store = store + np.where(work.gathers, constants.wave_gathered, 0.0)
    longest, last = (np.maximum.reduceat(of, work.starts) for of in (slices, store))
    read = (work.read + constants.tall * work.tall) * (1 + constants.wave_across * work.across)
    memory = np.add.reduceat(read, work.starts) / constants.memory_bytes / work.sms
    last = last + _stored(work, constants)  # all at one time, when hardly anybody multiplies
    long = (work.k_tiles >= LONG_SLICES) & work.exchanged & work.joint
    share = np.where(np.logical_or.reduceat(long, work.starts), constants.wave_long, 1.0)
    moving = _both(longest, memory, constants.wave_exposed)
    return share * (constants.wave_latency + last + moving)


def _stored(work: Work, constants: Constants) -> Floats:
    """Cycles that it takes all SMs to store each launch's D."""
    return np.add.reduceat(work.written, work.starts) / constants.stored_bytes / work.sms


def _memory(work: Work, constants: Constants) -> Floats:
    """Cycles that the memory takes for each launch's bytes."""
    read = work.read + constants.tall * work.tall + constants.reread * work.again
    of_across = (constants.gather_across - constants.gather_memory) * work.across
    share = np.where(work.gathers, constants.gather_memory + of_across, 1.0)
    nbytes = share * (read + constants.write * work.written)
    found: Floats = np.add.reduceat(nbytes, work.starts) / constants.memory_bytes / work.sms
    return found


def _both(one: Floats, other: Floats, exposed: Floats | float) -> Floats:
    """What two things take that overlap: the longer, and a share of the shorter."""
    found: Floats = np.maximum(one, other) + exposed * np.minimum(one, other)
    return found
