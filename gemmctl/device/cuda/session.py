"""One plan with its operands in place on a GPU."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import chain
from math import ceil
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.device.base import WARM_RUNS, Sample, Setup, repeat
from gemmctl.device.cuda import maps, uploading
from gemmctl.device.cuda.calls import elapsed_s, guarded
from gemmctl.device.cuda.gpu import Gpu
from gemmctl.device.cuda.uploading import Ready
from gemmctl.kernels.constants import (
    FILL_THREADS,
    HASH_THREADS,
    PACK_CTAS,
    PACK_THREADS,
)
from gemmctl.operands.data import DataSpec
from gemmctl.planning import tables
from gemmctl.planning.arena import POISON
from gemmctl.planning.plan import Plan

# L2 flushes before the first sample, 60 us each (H200). The host has slept while the GPU rested and
# queues that one up to 0.3 ms later than a flush by itself takes: with one alone, 146 of 159 lists
# had the host in three of 18 samples or more, most of them the first ones of three bursts.
HEAD_START = 8
REPLAYS = 9  # of a CUDA graph, to see what the host spends on one
# Of work queued, in seconds: NVML takes 5 ms to read the energy counter, now and then 33 (H200).
AHEAD_S = 0.05
MOST_AHEAD = 128  # samples queued, four calls each; a driver has room for about a thousand


class CudaSession:
    """One plan with its operands in place on a GPU. Made by Gpu.open."""

    def __init__(self, device: Gpu, plan: Plan, data: DataSpec, cleanup: ExitStack) -> None:
        self.device, self._plan, self.cleanup = device, plan, cleanup
        self.base = device.allocate(plan.layout.size, cleanup)
        device.fill_bytes(self.base, plan.layout.size, POISON)
        fills = tables.fills(plan, self.base, data)
        refills = tables.refills(fills, plan, self.base)
        with guarded() as filled:
            self._filling(fills, filled)()
            self._refill = self._filling(refills, cleanup)
            device.wait()
        loaded = [uploading.load(device, launch) for launch in plan.launches]
        build = maps.Builders(device, plan.launches, self.base)
        begun, ended = device.event(cleanup), device.event(cleanup)
        started = monotonic()
        with guarded() as uploaded:
            self.ready = uploading.upload(device, loaded, plan, self.base, cleanup, uploaded)
            self._builders = [list(build.of(ready)) for ready in self.ready]
            self._packs = tables.packs(plan, self.base)
            self._pack = self._packing()
            device.record(begun)
            for builder in chain.from_iterable(self._builders):
                builder.queue(device, device.stream)
            device.record(ended)
            device.wait()
            self._fan = device.fan(plan.streams, cleanup)
            host_s = monotonic() - started
        self._queue = self._launch
        self._graphs: dict[int, Callable[[], None]] = {}
        replay_s = None
        if plan.launch != "grouped":
            self._queue = self._graph(1)
            replay_s = self._replay_s()
            self.poison()
        self.setup = Setup(host_s, elapsed_s(begun, ended), replay_s)

    def run(self) -> None:
        """Run the plan's launches once and wait for them."""
        started = monotonic()
        self._queue()
        self.device.wait()
        # Two graphs of WARM_RUNS may be queued at one time, of a library that is half as fast, too.
        self.device.expected_s = 4 * WARM_RUNS * (monotonic() - started)

    def poison(self) -> None:
        """Fill the D region of the arena, fences included, with POISON; C in place anew."""
        layout = self._plan.layout
        self.device.fill_bytes(self.base + layout.d_begin, layout.d_end - layout.d_begin, POISON)
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
        Either way the GPU is busy while the host queues a sample, for HEAD_START flushes more
        before the first one, and the host is not in its time if that was enough to have all of it
        queued before the GPU began.

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
            for _ in range(HEAD_START):
                device.flush_l2()
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
        """What queues so many runs of all launches as one graph, captured when first asked for.

        There is a run by itself before one of many, by which it is known how long these may take.
        """
        if runs not in self._graphs:
            if runs > 1:
                self.run()
            graph = self.device.capture(partial(repeat, self._launch, runs), self.cleanup)
            self._graphs[runs] = partial(self.device.launch_graph, graph)
        return self._graphs[runs]

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
                    for builder in self._builders[i]:
                        builder.queue(self.device, stream)
                self._launch_one(self.ready[i], stream)

    def _launch_one(self, ready: Ready, stream: int) -> None:
        kernel = ready.launch.kernel
        self.device.launch(
            ready.function,
            (ready.clusters * kernel.ctas, 1),
            kernel.threads,
            [ready.params],
            shared_bytes=kernel.shared_bytes,
            cluster=kernel.ctas,
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
