"""Decide how a problem runs: kernel, tiles and their order, launches, where operands lie.

Everything here is pure: no device is asked, nothing is allocated, and the same problem, kernels
and machine always give the same plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gemmctl import dtypes
from gemmctl.cubins import Kernel
from gemmctl.errors import ListError
from gemmctl.problem import Group, Problem
from gemmctl.yamlfile import Mark

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# One entry of the tile list, as the kernel reads it (32 bytes: one L2 sector).
TILE = np.dtype(
    [
        ("group", np.uint32),  # index into the launch's group arrays
        ("m0", np.uint32),  # first row of D
        ("n0", np.uint32),  # first column of D
        ("width", np.uint32),  # rows of D, a multiple of 16
        ("k_tiles", np.uint32),  # slices of 64 along K; 0: D = beta C
        ("alpha", np.float32),
        ("beta", np.float32),
        ("unused", np.uint32),
    ]
)

K_TILE = 64  # elements of K in one pipeline stage: 128 bytes of a 16-bit type, the swizzle's span
WIDTH_STEP = 16  # tile widths come in multiples of this: two 8-wide wgmma columns per stmatrix pair
FENCE = 256  # bytes of 0xFF kept before and after every D, to show writes outside it
ALIGNMENT = 256  # bytes; every operand starts on such a boundary (TMA itself needs 16)

# Cost model, in SM clock cycles: see estimate().
FEED_BYTES_PER_CYCLE = 47.0  # what one SM draws from L2, measured on H200s
TILE_LATENCY = 1500.0  # first load of a tile, not hidden behind the tile before it
EPILOGUE_PER_VALUE = 2700.0 / (128 * 256)  # 2.4-3.0k cycles for 128x256, measured on H200s
FEW_ROWS = 600  # rows of A below which B's bytes take longer than its multiplications
LONG_K = 1024  # a tile of at least this K is worth scheduling; shorter ones are latency-bound
PANEL = 8  # tiles of A that stay live while B streams past: about a square window over 66 pairs


@dataclass(frozen=True)
class Machine:
    """What the plan needs to know of the GPU: an H200's numbers unless a real one is asked."""

    sm_count: int = 132


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel: groups that share element types."""

    kernel: Kernel
    groups: Ints  # indices into problem.groups, in the order of the launch's arrays
    widths: Ints  # rows of A per tile, one per entry of groups
    tiles: npt.NDArray[np.void]  # TILE records in the order they are handed out
    machine: Machine

    @property
    def clusters(self) -> int:
        """Clusters (or single CTAs) the launch starts: all that fit, or one per tile."""
        slots = self.machine.sm_count * self.kernel.ctas_per_sm // self.kernel.cluster
        return min(slots, len(self.tiles))

    @property
    def ahead(self) -> int:
        """How many tiles a cluster takes before it is done with one.

        One is fairest at the end of the list and enough while a tile outlasts the way to the
        next record; short tiles need more to keep the loads going.
        """
        return 1 if self.tiles["k_tiles"].mean() * K_TILE >= LONG_K else 3

    @property
    def waves(self) -> float:
        """Tiles over the clusters that work on them at once."""
        slots = self.machine.sm_count * self.kernel.ctas_per_sm // self.kernel.cluster
        return len(self.tiles) / slots

    @property
    def padded_macs(self) -> int:
        """Multiply-adds the tensor cores do, padding included."""
        per_k = self.tiles["width"].astype(np.int64) * self.tiles["k_tiles"]
        return int(per_k.sum()) * self.kernel.columns_per_tile * K_TILE


@dataclass(frozen=True)
class Layout:
    """Byte offsets of every operand in one arena, one entry per group of the problem.

    The region [d_begin, d_end) holds every D with FENCE bytes before the first and after each.
    Groups with beta 0 share one C that is never to be read.
    """

    a: Ints
    b: Ints
    c: Ints
    d: Ints
    d_begin: int
    d_end: int
    size: int


@dataclass(frozen=True)
class Plan:
    """A problem made ready for a device."""

    problem: Problem
    launches: tuple[Launch, ...]
    layout: Layout
    flops: int  # 2 m n k, summed over groups
    bytes: int  # A, B and D once, C once where beta is not 0

    @property
    def tiles(self) -> int:
        """Entries of all tile lists."""
        return sum(len(launch.tiles) for launch in self.launches)

    @property
    def waves(self) -> float:
        """Waves of all launches."""
        return sum(launch.waves for launch in self.launches)

    @property
    def tile_efficiency(self) -> float:
        """Useful multiply-adds over those done with padding; 1 where there are none."""
        padded = sum(launch.padded_macs for launch in self.launches)
        return self.flops / 2 / padded if padded else 1.0

    @property
    def kernel(self) -> str:
        """The names of the kernels used, each once."""
        return "+".join(dict.fromkeys(launch.kernel.name for launch in self.launches)) or "none"

    @cached_property
    def dtype(self) -> str:
        """Element types, as in ``bf16->f32``; several joined by commas."""
        pairs = {(g.a, g.d): None for g in self.problem.groups}
        return ",".join(a if a == d else f"{a}->{d}" for a, d in pairs)

    @cached_property
    def shape(self) -> str:
        """M x N x K of the groups, a range where they differ."""
        columns = self.problem.columns
        return "x".join(_range(values) for values in (columns.m, columns.n, columns.k))


def make(
    problems: Iterable[Problem], kernels: Sequence[Kernel], machine: Machine = Machine()
) -> list[Plan]:
    """Plan every problem.

    Raises ListError with every group that no kernel can run: its place, the reason and the
    nearest legal value.
    """
    problems = list(problems)
    refused: dict[tuple[Mark, str], None] = {}
    for problem in problems:
        for group in {id(group): group for group in problem.groups}.values():
            refused.update(dict.fromkeys(_refusals(group, kernels)))
    if refused:
        raise ListError(refused)
    return [_plan(problem, kernels, machine) for problem in problems]


def _refusals(group: Group, kernels: Sequence[Kernel]) -> Iterable[tuple[Mark, str]]:
    """What keeps the kernels from running a group, if anything."""
    pairs = {(kernel.operand, kernel.output) for kernel in kernels}
    operands = sorted({operand for operand, _ in pairs})
    outputs = sorted({output for _, output in pairs})
    if group.a != group.b:
        yield (
            group.where("b", "a"),
            f"a is {group.a} and b is {group.b}: the kernels multiply operands of one type; "
            f"set both to the same of {', '.join(operands)}",
        )
    elif group.a not in operands:
        yield (
            group.where("a", "b"),
            f"no kernel multiplies {group.a} operands; use one of {', '.join(operands)}",
        )
    if group.d not in outputs:
        yield (
            group.where("d"),
            f"no kernel writes {group.d}; use one of {', '.join(outputs)}",
        )
    for key, layout, wanted in (
        ("a_layout", group.a_layout, "row"),
        ("b_layout", group.b_layout, "col"),
        ("d_layout", group.d_layout, "row"),
    ):
        if layout != wanted:
            yield (
                group.where(key),
                f"{key} {layout} has no kernel yet; store that matrix as {key}: {wanted}",
            )
    if group.m == 0 or group.n == 0:
        return
    # TMA: strides are multiples of 16 bytes and below 2^40 (PTX ISA, tensor maps).
    for key, value, extent, element in (
        ("lda", group.lda, "k", group.a),
        ("ldb", group.ldb, "k", group.b),
        ("ldd", group.ldd, "n", group.d),
    ):
        if group.k == 0 and key != "ldd":
            continue
        size = dtypes.BY_NAME[element].size
        step = 16 // size
        if value % step:
            packed = "" if key in group.marks else f" ({key} defaults to {extent})"
            yield (
                group.where(key, extent),
                f"{key} is {value}{packed}, but TMA rows start on 16-byte boundaries: {key} must "
                f"be a multiple of {step} for {element}; the nearest is {key}: "
                f"{-(-value // step) * step}",
            )
        elif value * size >= 1 << 40:
            yield (
                group.where(key, extent),
                f"{key} is {value}, but TMA rows lie less than 2^40 bytes apart: {key} must be "
                f"below {(1 << 40) // size} for {element}",
            )


def _plan(problem: Problem, kernels: Sequence[Kernel], machine: Machine) -> Plan:
    columns = problem.columns
    active = (columns.m > 0) & (columns.n > 0)
    types = [(group.a, group.d) for group in problem.groups]
    launches = []
    for pair in dict.fromkeys(types):
        same = np.fromiter((kind == pair for kind in types), bool, len(types))
        groups = np.flatnonzero(active & same)
        if len(groups):
            fitting = [k for k in kernels if (k.operand, k.output) == pair]
            launches.append(_choose(problem, groups, fitting, machine))
    m, n, k = columns.m, columns.n, columns.k
    layout, moved = _lay_out(problem)
    return Plan(
        problem=problem,
        launches=tuple(launches),
        layout=layout,
        flops=2 * sum(int(x) * int(y) * int(z) for x, y, z in zip(m, n, k, strict=True)),
        bytes=moved,
    )


def _lay_out(problem: Problem) -> tuple[Layout, int]:
    """Place every operand in one arena; also the bytes that a run has to move."""
    columns = problem.columns
    m, n, k = columns.m, columns.n, columns.k
    size = {name: np.fromiter((dtypes.BY_NAME[getattr(group, name)].size
                               for group in problem.groups), np.int64, len(problem.groups))
            for name in "abcd"}  # fmt: skip
    has_c = columns.beta != 0
    rows = {"a": m, "b": n, "c": m, "d": m}
    lds = {"a": columns.lda, "b": columns.ldb, "c": columns.ldc, "d": columns.ldd}
    spans = {name: rows[name] * lds[name] * size[name] for name in "abcd"}

    def place(lengths: Ints, start: int, gap: int = 0) -> tuple[Ints, int]:
        padded = (lengths + gap + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        ends = start + np.cumsum(padded)
        return ends - padded, int(ends[-1]) if len(ends) else start

    unread = int(spans["c"][~has_c].max(initial=0))
    a, end = place(spans["a"], 0)
    b, end = place(spans["b"], end)
    c, end = place(np.where(has_c, spans["c"], 0), end)
    (shared,), end = place(np.array([unread]), end)
    d_begin = end
    d, end = place(spans["d"], d_begin + FENCE, gap=FENCE)
    useful = m * k * size["a"] + n * k * size["b"] + m * n * (size["d"] + has_c * size["c"])
    layout = Layout(a, b, np.where(has_c, c, shared), d, d_begin, end, end)
    return layout, int(useful[(m > 0) & (n > 0)].sum())


def _choose(problem: Problem, groups: Ints, kernels: Sequence[Kernel], machine: Machine) -> Launch:
    """The kernel and width limit with the least estimated time."""
    candidates = [
        _launch(problem, groups, kernel, limit, machine)
        for kernel in kernels
        for limit in _width_limits(kernel)
    ]
    best = min(candidates, key=estimate)
    return replace(best, tiles=_ordered(problem, best))


def _width_limits(kernel: Kernel) -> list[int]:
    """Widest tiles to try: the kernel's own and every 32 below, down to half of it."""
    return list(range(kernel.max_width, kernel.max_width // 2 - 1, -32))


def _launch(problem: Problem, groups: Ints, kernel: Kernel, limit: int, machine: Machine) -> Launch:
    """Cut groups into tiles: as few rows of tiles as ``limit`` allows, each as narrow as fits.

    Tiles of a group go in panels of PANEL rows of tiles, each panel along all of B, so that the
    tiles in flight at one time form a square and read the least.
    """
    columns = problem.columns
    m, n, k = columns.m[groups], columns.n[groups], columns.k[groups]
    widths = _ceil(_ceil(m, _ceil(m, limit)), WIDTH_STEP) * WIDTH_STEP
    tiles_m, tiles_n = _ceil(m, widths), _ceil(n, kernel.columns_per_tile)
    counts = tiles_m * tiles_n
    of = np.repeat(np.arange(len(groups)), counts)
    index = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    panel_tiles = (PANEL * tiles_n)[of]
    panel = index // panel_tiles
    height = np.minimum(PANEL, tiles_m[of] - panel * PANEL)
    inside = index - panel * panel_tiles
    tiles = np.zeros(len(of), TILE)
    tiles["group"] = of
    tiles["m0"] = (panel * PANEL + inside % height) * widths[of]
    tiles["n0"] = inside // height * kernel.columns_per_tile
    tiles["width"] = widths[of]
    tiles["k_tiles"] = _ceil(k, K_TILE)[of]
    tiles["alpha"] = columns.alpha[groups][of]
    tiles["beta"] = columns.beta[groups][of]
    return Launch(kernel, groups, widths, tiles, machine)


def _cycles(launch: Launch) -> Floats:
    """Cycles each tile keeps its CTA (or cluster) busy.

    A K tile takes the longer of its wgmma time (4096 bf16 FLOP per cycle and SM) and the time to
    draw its operands from L2; CTAs that share an SM share both.
    """
    kernel = launch.kernel
    width = launch.tiles["width"].astype(np.float64)
    multiply = 2 * kernel.rows * width * K_TILE / 4096
    feed = (kernel.rows + width / kernel.cluster) * K_TILE * 2 / FEED_BYTES_PER_CYCLE
    per_k_tile = np.maximum(multiply, feed) * kernel.ctas_per_sm
    epilogue = EPILOGUE_PER_VALUE * kernel.rows * width * kernel.ctas_per_sm
    cycles: Floats = TILE_LATENCY + epilogue + launch.tiles["k_tiles"] * per_k_tile
    return cycles


def estimate(launch: Launch) -> float:
    """Cycles a launch takes: every free CTA takes the next tile of the list.

    Short lists are played through; for long ones the mean load plus half a tile is as good.
    """
    cycles = _cycles(launch)
    if len(cycles) > 8 * launch.clusters:
        return float(cycles.sum()) / launch.clusters + float(cycles.max()) / 2
    free = [0.0] * launch.clusters
    for tile in cycles.tolist():
        heapq.heapreplace(free, free[0] + tile)
    return max(free)


def _ordered(problem: Problem, launch: Launch) -> npt.NDArray[np.void]:
    """The tile list in the order in which tiles are handed out.

    Where K differs, long K first, so that the end is even; but short tiles hide behind each
    other's latency, and sorting them measured 5 to 11% slower. Where K is the same, groups of few
    rows are spread among those of many: the ones wait for memory, the others for the tensor cores
    (measured: 2% at K = 768, nothing at K = 2048).
    """
    k_tiles = launch.tiles["k_tiles"].astype(np.int64)
    if k_tiles.min() == k_tiles.max():
        small = problem.columns.m[launch.groups][launch.tiles["group"]] < FEW_ROWS
        return launch.tiles[np.argsort(_spread(small), kind="stable")]
    if k_tiles.mean() * K_TILE < LONG_K:
        return launch.tiles
    return launch.tiles[np.argsort(-k_tiles, kind="stable")]


def _spread(chosen: npt.NDArray[np.bool_]) -> Floats:
    """Sort keys that space both classes of a list evenly and keep each in its own order."""
    rank = np.where(chosen, np.cumsum(chosen), np.cumsum(~chosen)) - 0.5
    keys: Floats = rank / np.where(chosen, chosen.sum(), (~chosen).sum())
    return keys


def _ceil(value: Ints, step: Ints | int) -> Ints:
    return (value + step - 1) // step


def _range(values: Ints) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}..{high}"
