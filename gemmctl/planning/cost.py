"""How long a launch takes, from how it is cut alone: what the plan chooses by."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import BOX_ROWS, K_TILE, REDUCED_ROWS
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import ACTIVATIONS, Problem
from gemmctl.operands import dtypes
from gemmctl.planning.arrays import ALONE, Flags, Floats, Ints, each
from gemmctl.planning.epilogue import added, c_by_elements, may_begin
from gemmctl.planning.fitting import STRIDE_STEP
from gemmctl.planning.order import LONG_K, PANEL_ROWS, come_first, handed_out, runs
from gemmctl.planning.queue import Queue
from gemmctl.planning.tiling import Grid, Machine, begun, seen

CLOCK_HZ = 1.98e9  # of a cycle below: an H200's highest
WGMMA_ROWS = 64  # of B that one wgmma multiplies, and one warpgroup stores in one go
SHARED_BYTES = 128  # that an SM's shared memory hands out in a cycle
PLAYED = 24  # tiles for each cluster, up to which a list is played through
LINE_BYTES = 128  # of the L2, and of a row of a stage
ENOUGH_STAGES = 12  # of an SM's rings: more hide no more latency (6, 8 and 9 chose worse)
CROWD = 64  # CTAs; where they all draw the same lines, these come later
TALL_ROWS = 128  # a box with a line of more of them opens more pages of the memory
L2_BYTES = 50e6  # what is larger comes from memory again each time it is needed again


@dataclass(frozen=True)
class Constants:
    """What the model takes from measurements, in SM clock cycles; tools/fit_cost.py fits them.

    What is per value is per number that a warpgroup stores. Of two things that overlap, an
    ``exposed`` share of the shorter adds to the longer.
    """

    # A launch
    launch_latency: float = 957.0  # of one that does nothing much, from a cold start
    cluster_latency: float = 1990.0  # more of a kernel that starts in clusters
    branch_latency: float = 6280.0  # until the next of several side by side has begun
    packing_latency: float = 11600.0  # of a launch that packs operands
    packing_bytes: float = 18.0  # that an SM reads or writes in a cycle meanwhile
    # Bytes
    memory_bytes: float = 21.9  # one SM's share of the memory bandwidth in a cycle
    stored_bytes: float = 16.8  # of D that one SM stores in a cycle if all do: 4.4 TB/s
    write: float = 0.775  # share of the memory's time that a byte of D takes
    reread: float = 0.321  # the same of bytes that the L2 still holds
    tall: float = 0.181  # more of a byte that comes in a box of twice TALL_ROWS rows
    feed_bytes: float = 56.8  # that one SM draws from L2 in a cycle
    crossed: float = 0.316  # more of rows that begin within a line, and so cross two
    crowded: float = 1.56  # more of rows of B that CROWD CTAs read at one time
    stage_latency: float = 1960.0  # until a stage of the ring is full, from when it is free
    joint_latency: float = 140.0  # more where it is free when both CTAs of a cluster are done
    slow_latency: float = 835.0  # more in one cluster of five, which all wait for in a single wave
    unaligned: float = 0.15  # more of a K tile whose B is copied word by word
    # A tile: what is not hidden behind the tile before
    tile_latency: float = 2020.0
    shared_latency: float = 2400.0  # where two CTAs share an SM
    turn_latency: float = 5030.0  # where warpgroups take turns
    finished_latency: float = 3800.0  # likewise, of more than alpha A B in whole words
    lined: float = 0.862  # share of that, and of the values' time, where D is written by columns
    draw_latency: float = 2440.0  # more where no record but the next is asked for ahead
    # What each value takes on its way from the sums to memory
    value: float = 0.0141
    stored_byte: float = 0.0347
    element: float = 0.271  # more where rows of D are no whole words
    bias: float = 0.243
    relu: float = 0.075
    gelu: float = 1.18
    gelu_tanh: float = 0.55
    silu: float = 0.435
    c2: float = 0.314  # a C of two bytes, added from the ring
    c4: float = 0.402  # of four bytes
    begun: float = 0.2  # one that the sum begins with
    c_element: float = 1.5  # a C that comes element by element
    added: float = 0.205  # a sum that the L2 adds to D
    # Parts of a split sum
    part_value: float = 1.3  # that is written
    sum_latency: float = 10600.0  # of an entry that adds up parts
    sum_value: float = 0.446  # of each part that is added up
    # What overlaps
    exposed_feed: float = 0.182  # feeding and multiplying
    exposed_turn: float = 0.0163  # one warpgroup's epilogue and the other's multiplying
    exposed_memory: float = 0.215  # the SMs' work and the bytes from memory


FITTED = Constants()


@dataclass(frozen=True)
class Asked:
    """What groups ask for, however they are cut; one entry per group."""

    of_a: Ints  # bytes
    of_b: Floats
    crossing_a: Floats  # share of rows of A that do not begin on a line
    crossing_b: Floats
    read: Floats  # bytes that have to come from memory
    written: Floats
    finished: Flags  # whether D is more than alpha A B, or its rows no whole words
    may_begin: Flags  # whether sums may begin with C, of kernels that have that
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

    ``starts`` and what follows up to ``clustered`` have an entry per launch, all else one per
    group, or a single one for all.
    """

    starts: Ints  # where the groups of each launch begin
    entries: Ints
    clusters: Ints  # CTAs or clusters that take entries
    sms: Ints  # of the GPU
    clustered: Flags  # whether it starts in clusters
    whole: Ints
    parts: Ints
    sums: Ints
    first: Flags  # whether its tiles come before all others
    k_tiles: Ints
    sharing: Floats  # CTAs that an SM's tensor cores and loads are shared by
    stages: Ints  # of the ring, that hide latency
    last_wave: Floats  # share of a cluster's tiles that are in its last wave
    joint: bool | Flags  # whether CTAs of a cluster share them
    pingpong: Flags | bool
    late: Floats  # share of tiles that are drawn while the one before is at work, no sooner
    shared: Flags | bool  # whether two CTAs fit on an SM
    lines: Flags | bool  # whether operands are exchanged, and D is written by columns
    unaligned: bool  # whether B is read where it lies, however that is
    multiply: Floats  # cycles of a K tile on the tensor cores
    fed: Floats  # bytes that a CTA draws for a K tile
    crossed: Floats  # those of them that cross lines
    crowded: Floats  # and those that others draw, too, by how many over CROWD
    uneven: Floats  # the widest tile over the mean
    values: Floats  # of a tile that a warpgroup stores
    sum_values: Ints | int  # of an entry that adds up parts
    finished: Flags  # and what follows: of Asked
    read: Floats
    tall: Floats  # bytes of A by how many times TALL_ROWS more their boxes have
    again: Floats  # bytes that tiles read again
    written: Floats
    steps: Mapping[str, Floats]


@dataclass(frozen=True)
class Times:
    """Cycles that entries of each group keep a CTA or cluster busy."""

    whole: Floats  # a tile that is not split
    end: Floats  # more of the last one, until it is stored
    part: Floats  # a part of a split tile
    add_up: Floats  # what adds up parts
    widest: Floats  # the widest tile that is not split, where they are not equal


def estimate(
    launch: Grid, problem: Problem, constants: Constants = FITTED, asked: Asked | None = None
) -> float:
    """Cycles a launch takes: the longer of its work on the SMs and its bytes from memory.

    Some of the shorter shows, too: it does not hide all the time, and what it does costs power.
    ``asked`` is what ``asked_of`` says of the launch, where that is known.
    """
    asked = asked or asked_of(problem, launch.groups, launch.kernel, launch.share)
    work = work_of(launch, asked)
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
    if exact(launch, asked):
        busy = least_busy(work, times)
    else:
        played = makespan(times, order_of(launch, problem), int(work.clusters[0]))
        busy = np.array([played])
    return float(together(work, times, busy, constants)[0])


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
    share = np.array([min(1.0, launch.entries.sum() / launch.room) for launch in launches])
    return spread(alone, share, queue, constants)


def spread(alone: Floats, share: Floats, queue: Queue, constants: Constants = FITTED) -> float:
    """The same, of launches that take so long by themselves and start on a ``share`` of the GPU."""
    order, streams = np.transpose(queue)
    branches = np.bincount(streams, alone[order])
    even = constants.launch_latency + ((alone - constants.launch_latency) * share).sum()
    begun = constants.branch_latency * (len(branches) - 1)
    return float(max(branches.max(), even, begun + branches.mean()))


def at_least(
    launches: Grid, asked: Asked, starts: Ints = ALONE, constants: Constants = FITTED
) -> Floats:
    """Cycles that each of some launches takes at least by ``estimate``, in a fraction of its time.

    The groups of a launch begin at ``starts`` and end with the next one's. What ``estimate`` finds
    for a launch that is ``exact``.
    """
    work = work_of(launches, asked, starts)
    times = times_of(work, constants)
    return together(work, times, least_busy(work, times), constants)


def exact(launch: Grid, asked: Asked) -> bool:
    """Whether a launch takes, up to rounding, what it takes at least: without being played through.

    All its entries are equal, or they are too many to be played through and none comes first.
    """
    if launch.slots:
        return False
    if launch.entries.sum() > PLAYED * launch.room:
        return not come_first(launch).any()
    cut = (launch.rows, launch.high, launch.wide, launch.widths, launch.k_tiles)
    alike = (*cut, asked.crossing_a, asked.crossing_b, asked.finished, asked.may_begin)
    return all((of == of[0]).all() for of in (*alike, *asked.steps.values()))


def copying(nbytes: int, machine: Machine, constants: Constants = FITTED) -> float:
    """Cycles that it takes to copy so many bytes before a run."""
    return constants.packing_latency + 2 * nbytes / constants.packing_bytes / machine.sm_count


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
        size_c = columns.size("c")[groups]
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
        crossing_a=_crossing(columns.lda[groups], size),
        crossing_b=_crossing(columns.ldb[groups], size),
        read=read,
        written=of_d * size_d,
        finished=more | ~words,
        may_begin=may_begin(problem, groups),
        steps={name: share for name, share in steps.items() if share.any()},
    )


def _crossing(leading: Ints, size: int) -> Floats:
    """The share of a matrix' rows that do not begin on a line; packed ones begin on 16 bytes."""
    row_bytes = -(-leading * size // STRIDE_STEP) * STRIDE_STEP
    found: Floats = 1 - np.gcd(row_bytes, LINE_BYTES) / LINE_BYTES
    return found


def work_of(launches: Grid, asked: Asked, starts: Ints = ALONE) -> Work:
    """What there is to do, of launches whose groups begin at ``starts``."""
    kernel, sms = launches.kernel, launches.machine.sm_count
    entries = np.add.reduceat(launches.entries, starts)
    clusters = np.minimum(launches.room, entries)
    of = each(clusters, starts, launches.groups)
    high, wide = launches.high, launches.wide
    width = launches.rows / high
    # Narrow tiles wait for shared memory, which hands out all of B for few rows of A.
    cycles = np.maximum(width / 2, (WGMMA_ROWS + width) * 32 / SHARED_BYTES)
    held = kernel.rows // (1 if kernel.pingpong else kernel.threads // 128 - 1)
    size = dtypes.BY_NAME[kernel.operand].size
    loaded = launches.boxes
    in_ring = kernel.stages(np.maximum.reduceat(loaded, starts))
    of_a = loaded / kernel.cluster
    beside = np.minimum(high, np.maximum(PANEL_ROWS / launches.widths, of / wide))
    boxes = BOX_ROWS if kernel.a_across else loaded
    across = kernel.rows * asked.crossing_b + of_a * asked.crossing_a
    return Work(
        starts=starts,
        entries=entries,
        clusters=clusters,
        sms=np.full_like(starts, sms),
        clustered=np.full(len(starts), kernel.cluster > 1),
        whole=launches.whole,
        parts=launches.parts,
        sums=launches.sums,
        first=come_first(launches, starts),
        k_tiles=launches.k_tiles,
        sharing=np.maximum(1.0, of * kernel.cluster / sms),
        stages=each(
            np.minimum(in_ring, ENOUGH_STAGES // kernel.ctas_per_sm), starts, launches.groups
        ),
        last_wave=each(clusters / entries, starts, launches.groups),
        joint=kernel.cluster > 1,
        pingpong=kernel.pingpong,
        late=_late(launches, starts, entries, clusters),
        shared=kernel.ctas_per_sm > 1,
        lines=kernel.d_across,
        unaligned=kernel.b_unaligned,
        multiply=kernel.rows // WGMMA_ROWS * (K_TILE // 16) * cycles,
        fed=kernel.b_bytes + of_a * (K_TILE * size),
        crossed=across * (K_TILE * size),
        crowded=kernel.rows * (K_TILE * size) * beside / CROWD,
        uneven=np.maximum(launches.widths / width, 1.0),
        values=held * width,
        sum_values=REDUCED_ROWS * held,
        finished=asked.finished,
        read=asked.read,
        tall=np.maximum(boxes / TALL_ROWS - 1, 0.0) * asked.of_a,
        again=asked.of_a * (wide - 1) + asked.of_b * (high - 1),
        written=asked.written,
        steps=_steps(launches, asked),
    )


def _steps(launches: Grid, asked: Asked) -> Mapping[str, Floats]:
    """What each value goes through; C is in the sum already where that begins with it."""
    first = begun(launches, asked.may_begin)
    if not first.any():
        return asked.steps
    return {**asked.steps, "c2": asked.steps["c2"] * ~first, "begun": first.astype(float)}


def _late(launches: Grid, starts: Ints, entries: Ints, clusters: Ints) -> Floats:
    """For each group, the share of its launch's tiles that are drawn one at a time.

    Those are all where some K is long, else the last two of every cluster.
    """
    longest = np.maximum.reduceat(launches.k_tiles, starts)
    at_end = np.minimum(1.0, 2 * clusters / entries)
    return each(np.where(longest * K_TILE < LONG_K, at_end, 1.0), starts, launches.groups)


def times_of(work: Work, constants: Constants) -> Times:
    """What entries take.

    A K tile takes the longer of its wgmma time and the time until its operands are there, which all
    stages wait for at one time but that at work: CTAs that share an SM share both. Where warpgroups
    take turns, one stores while the other multiplies.
    """
    multiply = work.multiply * work.sharing
    fed = work.fed + constants.crossed * work.crossed + constants.crowded * work.crowded
    of_clusters = constants.joint_latency + constants.slow_latency * work.last_wave
    until_full = constants.stage_latency + of_clusters * work.joint
    feed = np.maximum(fed * work.sharing / constants.feed_bytes, until_full / (work.stages - 1))
    per_k_tile = _both(multiply, feed, constants.exposed_feed)
    per_k_tile = per_k_tile * (1 + constants.unaligned * work.unaligned)
    turn = np.where(work.finished, constants.finished_latency, constants.turn_latency)
    alone = np.where(work.shared, constants.shared_latency, constants.tile_latency)
    lined = np.where(work.lines, constants.lined, 1.0)
    latency = np.where(work.pingpong, turn, alone) * lined + constants.draw_latency * work.late
    per_value = sum(getattr(constants, name) * share for name, share in work.steps.items())
    per_value = per_value * lined
    whole, end = _tile(
        work, work.k_tiles * per_k_tile, latency + per_value * work.values, constants
    )
    widest = np.where((work.uneven > 1) & (work.parts == 1), whole * work.uneven, 0.0)
    if not (work.parts > 1).any():
        return Times(whole, end, whole, whole, widest)
    multiplied = -(-work.k_tiles // work.parts) * per_k_tile
    part, _ = _tile(work, multiplied, latency + constants.part_value * work.values, constants)
    adding = (per_value + constants.sum_value * work.parts) * work.sum_values * work.sharing
    return Times(whole, end, part, constants.sum_latency + adding, widest)


def _tile(
    work: Work, multiply: Floats, store: Floats, constants: Constants
) -> tuple[Floats, Floats]:
    """Cycles from tile to tile, and more until the last one is stored."""
    taken = alone = multiply + store
    if np.any(work.pingpong):
        by_turns = _both(alone / 2, multiply, constants.exposed_turn)
        taken = np.where(work.pingpong, by_turns, alone)
    return taken, np.maximum(alone - taken, 0.0)


def least_busy(work: Work, times: Times) -> Floats:
    """Cycles that the SMs are busy with each launch at least; ``makespan`` finds how many."""
    split = work.parts > 1
    each: Floats = np.where(split, work.parts * times.part, times.whole)
    total = each * work.whole
    longest = shortest = times.whole
    late = np.where(work.first, 0.0, times.whole)
    if split.any():
        total = total + work.sums * times.add_up
        longest = np.where(split, times.part + times.add_up, times.whole)
        shortest = np.where(split, np.minimum(times.part, times.add_up), times.whole)
        late = np.where(split, times.add_up, late)
    mean = np.add.reduceat(total, work.starts) / work.clusters
    rounds = -(-work.entries // work.clusters)
    played = np.maximum(mean, rounds * np.minimum.reduceat(shortest, work.starts))
    played = np.maximum(played, np.maximum.reduceat(longest, work.starts))
    widest = np.maximum.reduceat(times.widest, work.starts)
    played = np.maximum(played, _unevenly(mean, widest, rounds))
    first_ends = np.maximum.reduceat(np.where(work.first, longest, 0.0), work.starts)
    rest_ends = mean + np.maximum.reduceat(late, work.starts) / 2
    long_list = work.entries > PLAYED * work.clusters
    return np.where(long_list, np.maximum(first_ends, rest_ends), played)


def _unevenly(mean: Floats, widest: Floats, rounds: Ints | int) -> Floats:
    """Cycles until tiles of unequal widths are done, some of which may begin last; 0 of none."""
    found: Floats = np.minimum(mean + widest / 2, rounds * widest)
    return np.where(widest > 0, found, 0.0)


@dataclass(frozen=True)
class Order:
    """The entries of a launch as they are handed out, each by its group."""

    parts: Ints
    whole: Ints
    sums: Ints
    first: int  # of ``whole``, that come before all others


def order_of(launch: Grid, problem: Problem) -> Order:
    """The order in which a launch's entries are handed out."""
    of, split = handed_out(launch, problem), launch.parts > 1
    first = int(launch.whole[come_first(launch) & ~split].sum())
    if not launch.slots:
        return Order(of[:0], of, of[:0], first)
    in_parts, in_runs = of[split[of]], runs(launch)
    return Order(
        np.repeat(in_parts, launch.parts[in_parts]),
        of[~split[of]],
        np.repeat(in_runs, launch.sums[in_runs]),
        first,
    )


def makespan(times: Times, order: Order, clusters: int) -> float:
    """Cycles until all is done, as every free CTA takes the next entry of the list.

    Short lists are played through. Of long ones what comes first is, which may end last; for the
    others the mean load plus half an entry is as good.
    """
    parts, whole, sums = (
        of[by]
        for of, by in zip(
            (times.part, times.whole, times.add_up),
            (order.parts, order.whole, order.sums),
            strict=True,
        )
    )
    entries = len(parts) + len(whole) + len(sums)
    mean = (parts.sum() + whole.sum() + sums.sum()) / clusters
    free = [0.0] * clusters
    _play(free, parts)
    complete = max(free)
    if entries <= PLAYED * clusters:
        _play(free, whole)
        _play(free, sums, complete)
        return max(*free, float(_unevenly(mean, times.widest.max(), -(-entries // clusters))))
    _play(free, whole[: order.first])
    adding = float(sums.max(initial=0.0))
    longest = max(float(whole[order.first :].max(initial=0.0)), adding)
    return max(*free, complete + adding, float(mean) + longest / 2)


def _play(free: list[float], entries: Floats, begin: float = 0.0) -> None:
    """Give entries to the CTAs that are ``free`` first, none before ``begin``; a heap of cycles."""
    for entry in entries.tolist():
        heapq.heapreplace(free, max(free[0], begin) + entry)


def together(work: Work, times: Times, busy: Floats, constants: Constants) -> Floats:
    """Cycles of launches whose SMs are busy for so many, and that move bytes meanwhile.

    Parts of sums are added up when all are there, so that no byte hides what that takes.
    """
    read = work.read + constants.tall * work.tall + constants.reread * work.again
    nbytes = read + constants.write * work.written
    memory = np.add.reduceat(nbytes, work.starts) / constants.memory_bytes / work.sms
    stored = np.add.reduceat(work.written, work.starts) / constants.stored_bytes / work.sms
    split = work.parts > 1
    ends = np.maximum.reduceat(np.where(split, 0.0, times.end), work.starts)
    latency = constants.launch_latency + constants.cluster_latency * work.clustered
    adding: Floats = np.zeros_like(busy)
    if split.any():
        rounds = np.ceil(np.add.reduceat(work.sums, work.starts) / work.clusters)
        add_up = np.maximum.reduceat(np.where(split, times.add_up, 0.0), work.starts)
        adding = np.minimum(rounds * add_up, busy)
    moving = _both(np.maximum(busy - adding, stored), memory, constants.exposed_memory)
    return latency + ends + moving + adding


def _both(one: Floats, other: Floats, exposed: float) -> Floats:
    """What two things take that overlap: the longer, and a share of the shorter."""
    found: Floats = np.maximum(one, other) + exposed * np.minimum(one, other)
    return found
