"""How long a launch takes, from its tiles alone: what the plan chooses by."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from gemmctl import dtypes
from gemmctl.problem import Problem
from gemmctl.tiling import K_TILE, PANEL, Floats, Launch

CLOCK_HZ = 1.75e9  # of a cycle below; an H200 at work runs at 1.4 to 1.9 GHz
WGMMA_FLOP = 4096  # dense 16-bit floating-point operations per cycle and SM
L2_BYTES = 50e6  # what is larger comes from memory again each time it is needed again


@dataclass(frozen=True)
class Constants:
    """What the model takes from measurements, in SM clock cycles; tools/fit_cost.py fits them."""

    feed_bytes: float = 47.0  # that one SM draws from L2 in a cycle
    memory_bytes: float = 18.6  # one SM's share of the memory bandwidth in a cycle: 4300 GB/s
    launch_latency: float = 5000.0  # of an empty kernel between two timestamps: 2.9 us
    tile_latency: float = 1500.0  # first load of a tile, not hidden behind the tile before it
    epilogue_per_value: float = 0.082  # 2.4 to 3.0 thousand for 128x256
    part_latency: float = 3000.0  # until parts are written, counted, and added up by others
    exposed_feed: float = 0.02  # share of the shorter of feeding and multiplying that shows
    exposed_memory: float = 0.1  # the same of the SMs' work and the bytes from memory


FITTED = Constants()


def estimate(launch: Launch, problem: Problem, constants: Constants = FITTED) -> float:
    """Cycles a launch takes: the longer of its work on the SMs and its bytes from memory.

    Some of the shorter shows, too: it does not hide all the time, and what it does costs power.
    """
    busy, memory = _makespan(launch, constants), _memory(launch, problem, constants)
    longer = max(busy, memory) + constants.exposed_memory * min(busy, memory)
    return constants.launch_latency + longer


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
    split = tiles["splits"] > 0
    parts = np.where(split & (tiles["k_tiles"] == 0), tiles["splits"], 1)  # that are added up
    epilogue = constants.epilogue_per_value * kernel.rows * width * parts
    waiting = constants.tile_latency + np.where(split, constants.part_latency, 0)
    cycles: Floats = waiting + (epilogue + tiles["k_tiles"] * per_k_tile) * sharing
    return cycles


def _memory(launch: Launch, problem: Problem, constants: Constants) -> float:
    """A, D and C once, and B once for every panel of tiles that streams it, unless it stays."""
    columns, groups, kernel = problem.columns, launch.groups, launch.kernel
    m, n, k = columns.m[groups], columns.n[groups], columns.k[groups]
    size, size_d = dtypes.BY_NAME[kernel.operand].size, dtypes.BY_NAME[kernel.output].size
    of_b = n * k * size
    panels = -(-m // (PANEL * launch.widths))
    of_b = np.where(of_b > L2_BYTES, of_b * panels, of_b)
    written = m * n * size_d * np.where(columns.beta[groups] != 0, 2, 1)
    nbytes = float((m * k * size + of_b + written).sum())
    return nbytes / constants.memory_bytes / launch.machine.sm_count
