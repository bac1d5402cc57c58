"""One plan with its operands in place on a GPU."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.device.base import WARM_RUNS, Sample, Setup, repeat
from gemmctl.device.cuda import placement
from gemmctl.device.cuda.calls import elapsed_s, guarded
from gemmctl.device.cuda.gpu import Gpu
from gemmctl.device.cuda.params import GROUP_ARRAYS, GroupArrays, Params, Ring
from gemmctl.device.cuda.tensormaps import encode_map
from gemmctl.kernels.constants import (
    ADDED_ROWS,
    BOX_ROWS,
    FILL_THREADS,
    FLAGS_PER_TILE,
    HASH_THREADS,
    K_TILE,
    MAP_BYTES,
    MAP_THREADS,
    MAPS,
    PACK_CTAS,
    PACK_THREADS,
    RESIDUE_LEAD,
    RESIDUE_ROW_BYTES,
    RESIDUES,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.operands import dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import tables
from gemmctl.planning.arrays import Ints
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiles import TILE, Launch

REPLAYS = 9  # of a CUDA graph, to see what the host spends on one
# Of work queued, in seconds: NVML takes 5 ms to read the energy counter, now and then 33 (H200).
AHEAD_S = 0.05
MOST_AHEAD = 128  # samples queued, four calls each; a driver has room for about a thousand


@dataclass(frozen=True)
class _Ready:
    """One launch whose tables are on the device."""

    launch: Launch
    function: Any
    clusters: int  # to start: what the plan wants, or what fits
    params: Params


@dataclass(frozen=True)
class _Builder:
    """A kernel that builds tensor maps, a thread each."""

    function: Any
    maps: int
    told: list[Any]


def _order(device: Gpu, launch: Launch, clusters: int) -> Ints:
    """In which a launch's tiles are handed out.

    CTAs without a cluster are neighbours as they are. Split sums stay in their order: neighbours in
    the list are parts of one sum, and share nothing (`longk` took 5 to 8% longer).
    """
    count, k_tiles = len(launch.tiles), launch.k_tiles
    if launch.slots or not count:
        return np.arange(count)
    alone = launch.kernel.cluster == 1
    places = np.arange(clusters) if alone else device.places(launch.kernel, clusters)
    return placement.dealt(count, places, alike=bool(k_tiles.min() == k_tiles.max()))


class CudaSession:
    """One plan with its operands in place on a GPU. Made by Gpu.open."""

    def __init__(self, device: Gpu, plan: Plan, data: DataSpec, cleanup: ExitStack) -> None:
        self.device, self._plan, self.cleanup = device, plan, cleanup
        self.base = device.allocate(plan.layout.size, cleanup)
        device.fill_bytes(self.base, plan.layout.size, 0xFF)
        fills = tables.fills(plan, self.base, data)
        refills = tables.refills(fills, plan, self.base)
        with guarded() as filled:
            self._filling(fills, filled)()
            self._refill = self._filling(refills, cleanup)
            device.wait()
        kernels = [
            device.function(k.file, k.symbol, k.shared_bytes)
            for k in (launch.kernel for launch in plan.launches)
        ]
        self._build_maps = device.support("build_maps")
        if any(launch.residues for launch in plan.launches):
            self._build_residues = device.support("build_residues")
        clusters = [
            min(launch.clusters, device.room(function, launch.kernel))
            for launch, function in zip(plan.launches, kernels, strict=True)
        ]
        orders = [
            _order(device, launch, count)
            for launch, count in zip(plan.launches, clusters, strict=True)
        ]
        begun, ended = device.event(cleanup), device.event(cleanup)
        started = monotonic()
        self.ready = self._upload(kernels, clusters, orders)
        self._builders = [self._map_builders(ready) for ready in self.ready]
        self._packs = tables.packs(plan, self.base)
        self._pack = self._packing()
        device.record(begun)
        for builders in self._builders:
            self._set_up_maps(builders, device.stream)
        device.record(ended)
        device.wait()
        self._fan = device.fan(plan.streams, cleanup)
        self._queue = self._launch
        self._graphs: dict[int, Callable[[], None]] = {}
        replay_s = None
        host_s = monotonic() - started
        if plan.launch != "grouped":
            self._queue = self._graph(1)
            replay_s = self._replay_s()
            self.poison()
        self.setup = Setup(host_s, elapsed_s(begun, ended), replay_s)

    def run(self) -> None:
        """Run the plan's launches once and wait for them."""
        self._queue()
        self.device.wait()

    def poison(self) -> None:
        """Fill the D region of the arena, fences included, with 0xFF bytes; C in place anew."""
        layout = self._plan.layout
        self.device.fill_bytes(self.base + layout.d_begin, layout.d_end - layout.d_begin, 0xFF)
        self._refill()

    def read(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """The arena's bytes [begin, end)."""
        return self.device.download(self.base + begin, end - begin)

    def digests(self) -> npt.NDArray[np.uint64]:
        """A hash of each group's D as it is now; 0 for an empty one."""
        device = self.device
        found = np.zeros(len(self._plan.problem.groups), np.uint64)
        records = tables.hashed(self._plan, self.base)
        if not len(records):
            return found
        with guarded() as cleanup:
            at = device.allocate(records.nbytes, cleanup)
            out = device.allocate(found.nbytes, cleanup)
            device.upload(at, records)
            device.fill_bytes(out, found.nbytes, 0)
            device.launch(
                device.support("hash_rows"),
                (2 * device.machine.sm_count, min(len(records), 128)),
                HASH_THREADS,
                [
                    ctypes.c_uint64(at),
                    ctypes.c_uint32(len(records)),
                    ctypes.c_uint64(out),
                ],
            )
            return device.download(out, found.nbytes).view(np.uint64)

    def time(
        self, count: int, *, cold: bool, queue: Callable[[], None] | None = None
    ) -> list[Sample]:
        """So many samples, each between GPU timestamps.

        Cold: a sample is one run, queued behind an L2 flush; several launches are one graph. Warm:
        it is WARM_RUNS runs as one graph, its time shared out, queued behind another such graph.
        Either way the GPU is busy while the host queues a sample, and the host is not in its time
        if that was enough to have all of it queued before the GPU began.

        Where C is in place, the first run has C as it was, and each other the D of that before it.

        ``queue`` queues what else a sample is to be on the device's stream.
        """
        device = self.device
        if queue is None:
            launches = len(self.ready) + (len(self._packs) > 0)
            alone = self._plan.launch == "grouped" and launches <= 1
            queue = self._queue if cold and alone else self._graph(1 if cold else WARM_RUNS)
        runs = 1 if cold else WARM_RUNS
        self._refill()
        with guarded() as cleanup:
            pairs = [(device.event(cleanup), device.event(cleanup)) for _ in range(count)]
            host_bound = []
            if not cold:
                queue()
            for begun, ended in pairs:
                if cold:
                    device.flush_l2()
                device.record(begun)
                queue()
                device.record(ended)
                host_bound.append(device.passed(begun))
            device.wait()
            return [
                Sample(elapsed_s(*pair) / runs, bound)
                for pair, bound in zip(pairs, host_bound, strict=True)
            ]

    def sustain(
        self,
        seconds: float,
        watch: Callable[[], None],
        queue: Callable[[], None] | None = None,
    ) -> list[Sample]:
        """Samples back to back until so many seconds have passed; one sample at least.

        A sample is WARM_RUNS runs as one graph, its time shared out; ``queue`` queues what else it
        is to be. As much is queued as keeps the GPU busy while the host does something else, the
        first sample behind such a graph that is none. ``watch`` is called whenever so much is
        queued, and again and again while none of it has ended.

        Where C is in place, every sample begins with C as it was; to make it so is in none of them.
        """
        device = self.device
        if queue is None:
            queue = self._graph(WARM_RUNS)
        samples: list[Sample] = []
        queued: deque[tuple[Any, Any, bool]] = deque()
        spare: list[tuple[Any, Any]] = []
        ahead = 2  # samples queued; the least that leaves the GPU no gap
        deadline = monotonic() + seconds
        self._refill()
        queue()
        with guarded() as cleanup:
            while True:
                while len(queued) < ahead and (monotonic() < deadline or not samples):
                    pair = spare.pop() if spare else (device.event(cleanup), device.event(cleanup))
                    self._refill()
                    device.record(pair[0])
                    queue()
                    device.record(pair[1])
                    queued.append((*pair, device.passed(pair[0])))
                if not queued:
                    return samples
                watch()
                device.wait(queued[0][1], watch)
                while queued and device.passed(queued[0][1]):  # while watching, many may have
                    begun, ended, bound = queued.popleft()
                    sample_s = elapsed_s(begun, ended)
                    samples.append(Sample(sample_s / WARM_RUNS, bound))
                    spare.append((begun, ended))
                    ahead = min(1 + ceil(AHEAD_S / max(sample_s, 1e-6)), MOST_AHEAD)

    def _graph(self, runs: int) -> Callable[[], None]:
        """What queues so many runs of all launches as one graph, captured when first asked for."""
        if runs not in self._graphs:
            graph = self.device.capture(partial(repeat, self._launch, runs), self.cleanup)
            self._graphs[runs] = partial(self.device.launch_graph, graph)
        return self._graphs[runs]

    def _set_up_maps(self, builders: Sequence[_Builder], stream: int) -> None:
        """Queue the kernels that build the tensor maps of a launch."""
        for one in builders:
            ctas = -(-one.maps // MAP_THREADS)
            self.device.launch(one.function, (ctas, 1), MAP_THREADS, one.told, stream=stream)

    def _replay_s(self) -> float:
        """Seconds of host time that queueing a run takes, while nothing else is queued."""
        taken = []
        for _ in range(REPLAYS):
            started = perf_counter()
            self._queue()
            taken.append(perf_counter() - started)
            self.device.wait()
        return float(np.median(taken))

    def _launch(self) -> None:
        """Queue packing, and then all launches as the plan says."""
        self._pack()
        with self._fan.spread():
            for i, branch in self._plan.queue:
                stream = self._fan.streams[branch]
                if self._plan.launch == "graph":
                    self._set_up_maps(self._builders[i], stream)
                self._launch_one(self.ready[i], stream)

    def _launch_one(self, ready: _Ready, stream: int) -> None:
        kernel = ready.launch.kernel
        self.device.launch(
            ready.function,
            (ready.clusters * kernel.cluster, 1),
            kernel.threads,
            [ready.params],
            shared_bytes=kernel.shared_bytes,
            cluster=kernel.cluster,
            cooperative=ready.launch.slots > 0,  # some CTAs wait for what others compute
            stream=stream,
        )

    def _filling(self, fills: npt.NDArray[np.void], cleanup: ExitStack) -> Callable[[], None]:
        """What queues the kernel that generates operands by their FILL records, if there are any.

        The records have to live until the device has been waited for.
        """
        device = self.device
        if not len(fills):
            return lambda: None
        at = device.allocate(fills.nbytes, cleanup)
        device.upload(at, fills)
        runs = int(np.where(fills["col_step"] > 1, fills["cols"], fills["rows"]).max())
        grid = (min(runs, 4096), min(len(fills), 4096))
        told = [
            ctypes.c_uint64(at),
            ctypes.c_uint32(len(fills)),
            ctypes.c_uint64(device.quantiles()),
        ]
        return partial(device.launch, device.support("fill"), grid, FILL_THREADS, told)

    def _packing(self) -> Callable[[], None]:
        """What queues the kernel that copies operands for all launches, if there are any."""
        device, records = self.device, self._packs
        if not len(records):
            return lambda: None
        at = device.allocate(records.nbytes, self.cleanup)
        device.upload(at, records)
        grid = (PACK_CTAS * device.machine.sm_count, 1)
        told = [ctypes.c_uint64(at), ctypes.c_uint32(len(records))]
        return partial(device.launch, device.support("pack"), grid, PACK_THREADS, told)

    def _upload(self, kernels: list[Any], clusters: list[int], orders: list[Ints]) -> list[_Ready]:
        """Copy all tables to the device in one piece; room for counters and maps lies behind.

        ``clusters``: those of each launch; ``orders``: in which its tiles are handed out.
        """
        device, plan = self.device, self._plan
        end = np.zeros(1, TILE)  # width 0 ends a tile list
        parts: list[npt.NDArray[Any]] = []
        for launch, order in zip(plan.launches, orders, strict=True):
            table = tables.build(launch, plan, self.base)
            parts += [getattr(table, name) for name in GROUP_ARRAYS]
            parts += [np.concatenate([table.tiles[order], end])]
            parts += [np.zeros(1, np.uint32), np.zeros(launch.flags * FLAGS_PER_TILE, np.uint32)]
        sizes = [-(-part.nbytes // MAP_BYTES) * MAP_BYTES for part in parts]
        offsets = np.cumsum([0, *sizes])
        uploaded = int(offsets[-1])
        groups = [len(launch.groups) for launch in plan.launches]
        of_residues = [
            RESIDUES * count if launch.residues else 0
            for launch, count in zip(plan.launches, groups, strict=True)
        ]
        nbytes = uploaded + MAP_BYTES * (MAPS * sum(groups) + sum(of_residues))
        block = device.allocate(nbytes, self.cleanup)
        host = device.pinned(max(uploaded, 1), self.cleanup)
        for part, offset in zip(parts, offsets, strict=False):
            host[offset : offset + part.nbytes] = part.view(np.uint8)
        if uploaded:
            device.upload(block, host)
        at = iter(int(block + offset) for offset in offsets)
        maps = block + uploaded
        residues = maps + MAP_BYTES * MAPS * sum(groups)
        ready = []
        for launch, function, some, count, more in zip(
            plan.launches, kernels, clusters, groups, of_residues, strict=True
        ):
            arrays = GroupArrays(*(next(at) for _ in GROUP_ARRAYS))
            tiles, counter, flags = next(at), next(at), next(at)
            workspace = device.allocate(launch.workspace_bytes, self.cleanup)
            params = Params(
                tiles=tiles,
                tile_count=len(launch.tiles),
                ahead=launch.ahead,
                ring=Ring(launch.stages, launch.stage_bytes),
                counter=counter,
                flags=flags,
                tables=block,
                tables_bytes=nbytes,
                workspace=workspace,
                maps=maps,
                residues=residues if more else 0,
                groups=arrays,
            )
            ready.append(_Ready(launch, function, some, params))
            maps += MAPS * MAP_BYTES * count
            residues += MAP_BYTES * more
        return ready

    def _map_builders(self, ready: _Ready) -> list[_Builder]:
        """The kernels that build the tensor maps of a launch: of its operands, of C by residues."""
        count = len(ready.launch.groups)
        builders = [_Builder(self._build_maps, MAPS * count, self._map_arguments(ready))]
        if ready.params.residues:
            told = self._residue_arguments(ready)
            builders.append(_Builder(self._build_residues, RESIDUES * count, told))
        return builders

    def _map_arguments(self, ready: _Ready) -> list[Any]:
        """What the kernel build_maps is told: a template for every box, groups, element sizes."""
        kernel, count = ready.launch.kernel, len(ready.launch.groups)
        widths = [WIDTH_STEP * (i + 1) for i in range(WIDTHS)]
        a = [
            (BOX_ROWS, K_TILE // kernel.cluster)
            if kernel.a_across
            else (K_TILE, width // kernel.cluster)
            for width in widths
        ]
        b = (BOX_ROWS, K_TILE) if kernel.b_across else (K_TILE, kernel.rows)
        # Rows of B that a gate multiplies, eight and eight: of a few, and of a tile.
        pairs = [(K_TILE, 8, 2), (K_TILE, 8, 2, kernel.rows // 16)]
        boxes = [
            *((kernel.operand, box) for box in (*a, b, *pairs)),
            *(("bf16", (64, width)) for width in widths),  # of C, 128 bytes wide
            *(("f32", (32, width)) for width in widths),
            ("f32", (32, ADDED_ROWS)),
        ]
        return [
            self._templates(boxes),
            ready.params.groups,
            ctypes.c_uint32(count),
            ctypes.c_uint64(ready.params.maps),
            ctypes.c_uint32(dtypes.BY_NAME[kernel.operand].size),
            ctypes.c_uint32(kernel.a_across),
            ctypes.c_uint32(kernel.b_across),
            ctypes.c_uint32(kernel.b_unaligned),
        ]

    def _residue_arguments(self, ready: _Ready) -> list[Any]:
        """What the kernel build_residues is told: likewise."""
        rows = [WIDTH_STEP * (i + 1) // RESIDUES + RESIDUE_LEAD for i in range(WIDTHS)]
        boxes = [
            *(("bf16", (RESIDUE_ROW_BYTES // 2, count)) for count in rows),
            *(("f32", (RESIDUE_ROW_BYTES // 4, count)) for count in rows),
        ]
        return [
            self._templates(boxes, swizzled=False),
            ready.params.groups,
            ctypes.c_uint32(len(ready.launch.groups)),
            ctypes.c_uint64(ready.params.residues),
        ]

    def _templates(
        self, boxes: Sequence[tuple[str, tuple[int, ...]]], *, swizzled: bool = True
    ) -> Any:
        """Tensor maps of types and boxes. Only the box counts: kernels put in the rest."""
        templates = b"".join(
            encode_map(
                dtype, self.base, box, (256,) * (len(box) - 1), box, swizzled=swizzled
            ).tobytes()
            for dtype, box in boxes
        )
        return (ctypes.c_uint8 * len(templates)).from_buffer_copy(templates)
