"""How long a launch takes, from its tiles alone: what the plan chooses by."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from gemmctl.kernels.constants import K_TILE
from gemmctl.lists.problem import Problem
from gemmctl.operands import dtypes
from gemmctl.planning.tiling import PANEL_ROWS, Floats, Launch

CLOCK_HZ = 1.75e9  # of a cycle below; an H200 at work runs at 1.4 to 1.9 GHz
WGMMA_FLOP = 4096  # dense 16-bit floating-point operations per cycle and SM
L2_BYTES = 50e6  # what is larger comes from memory again each time it is needed again


@dataclass(frozen=True)
class Constants:
    """What the model takes from measurements, in SM clock cycles; tools/fit_cost.py fits them."""

    feed_bytes: float = 51.3  # that one SM draws from L2 in a cycle
    memory_bytes: float = 20.5  # one SM's share of the memory bandwidth in a cycle
    reread: float = 0.258  # share of the memory's time that bytes which the L2 still holds take
    launch_latency: float = 13200.0  # of a launch that does nothing much, from a cold start
    cluster_latency: float = 3660.0  # more of a kernel that starts in clusters
    tile_latency: float = 1020.0  # until a tile's first load, not hidden behind the tile before
    epilogue_per_value: float = 0.0839  # of D
    pingpong_epilogue: float = 0.517  # share of it that shows where warpgroups take turns
    part_per_value: float = 1.53  # of a part of a split sum, added up
    exposed_feed: float = 0.0468  # share of the shorter of feeding and multiplying that shows
    exposed_memory: float = 0.0854  # the same of the SMs' work and the bytes from memory


FITTED = Constants()


def estimate(launch: Launch, problem: Problem, constants: Constants = FITTED) -> float:
    """Cycles a launch takes: the longer of its work on the SMs and its bytes from memory.

    Some of the shorter shows, too: it does not hide all the time, and what it does costs power.
    """
    busy, memory = _makespan(launch, constants), _memory(launch, problem, constants)
    longer = max(busy, memory) + constants.exposed_memory * min(busy, memory)
    starting = constants.cluster_latency if launch.kernel.cluster > 1 else 0.0
    return constants.launch_latency + starting + longer


def _makespan(launch: Launch, constants: Constants) -> float:
    """Every free CTA takes the next tile of the list.

    Short lists are played through; for long ones the mean load plus half a tile is as good.
    """
    cycles = _cycles(launch, constants)
    if len(cycles) > 8 * launch.clusters:
        return float(cycles.sum()) / launch.clusters + float(cycles.max()) / 2
    free = [0.0] * launch.clusters
    for tile in cycles.tolist():
        heapq.heapreplace(free, free[0] + tile)
    return max(free)


def _cycles(launch: Launch, constants: Constants) -> Floats:
    """Cycles each tile keeps its CTA (or cluster) busy.

    A K tile takes the longer of its wgmma time and the time to draw its operands from L2; CTAs
    share both where several are on one SM.
    """
    kernel, tiles = launch.kernel, launch.tiles
    width = tiles["width"].astype(np.float64)
    sharing = max(1.0, launch.clusters * kernel.cluster / launch.machine.sm_count)
    multiply = 2 * kernel.rows * width * K_TILE / WGMMA_FLOP
    feed = (kernel.rows + width / kernel.cluster) * K_TILE * 2 / constants.feed_bytes
    per_k_tile = np.maximum(multiply, feed) + constants.exposed_feed * np.minimum(multiply, feed)
    added = np.where(tiles["k_tiles"] == 0, tiles["splits"], 0)  # parts
    shown = constants.pingpong_epilogue if kernel.pingpong else 1.0
    per_value = shown * constants.epilogue_per_value + constants.part_per_value * added
    epilogue = per_value * kernel.rows * width
    work = epilogue + tiles["k_tiles"] * per_k_tile
    cycles: Floats = constants.tile_latency + work * sharing
    return cycles


def _memory(launch: Launch, problem: Problem, constants: Constants) -> float:
    """A, D and C once, and B once for every panel of tiles that streams it, unless it stays.

    What several tiles read again comes from the L2 and counts in part.
    """
    columns, groups, kernel = problem.columns, launch.groups, launch.kernel
    m, n, k = columns.m[groups], columns.n[groups], columns.k[groups]
    size, size_d = dtypes.BY_NAME[kernel.operand].size, dtypes.BY_NAME[kernel.output].size
    of_a, of_b = m * k * size, n * k * size
    panels = np.where(of_b > L2_BYTES, -(-m // PANEL_ROWS), 1)
    written = m * n * size_d * np.where(columns.beta[groups] != 0, 2, 1)
    tiles_m, tiles_n = -(-m // launch.widths), -(-n // kernel.columns_per_tile)
    again = of_a * (tiles_n - 1) + of_b * (tiles_m - 1)
    nbytes = float((of_a + of_b * panels + written + constants.reread * again).sum())
    return nbytes / constants.memory_bytes / launch.machine.sm_count
