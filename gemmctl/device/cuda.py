"""A Hopper GPU through the CUDA driver: the only module that imports cuda.

Everything the driver can say turns into a sentence here: what keeps a GPU from being used into
DeviceUnusable, what goes wrong while it runs into DeviceFailed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

from gemmctl import cubins, dtypes, tables
from gemmctl.cubins import Kernel
from gemmctl.data import DataSpec
from gemmctl.device.base import Facts, Setup, Telemetry
from gemmctl.errors import DeviceFailed, DeviceHung, DeviceUnusable
from gemmctl.kernels.constants import (
    FILL_THREADS,
    FLAGS_PER_TILE,
    FLUSH_THREADS,
    K_TILE,
    MAP_BYTES,
    MAP_THREADS,
    MAPS,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.plan import Plan
from gemmctl.roofline import H200, Roofline
from gemmctl.tables import Tables
from gemmctl.tiling import TILE, Launch, Machine

MIN_DRIVER = 13000  # CUDA 13.0: what cubins of nvcc 13.0 need
TIME_LIMIT_S = 60.0  # for whatever is queued at one time; far above any honest batch
FLUSH_BYTES = 256 << 20  # four times the L2, which may hold a line twice, once in each half
REPLAYS = 9  # of a CUDA graph, to see what the host spends on one
WARM_RUNS = 20  # back to back in one sample of a warm run
TIMERS = {
    "cold": "each sample is one run between GPU timestamps, queued behind an L2 flush",
    "warm": f"each sample is {WARM_RUNS} runs in a CUDA graph between GPU timestamps",
}
GROUP_ARRAYS = [field.name for field in fields(Tables) if field.name != "tiles"]


class _Groups(ctypes.Structure):
    """Groups in records.cuh. The arrays of Tables in the same order."""

    _fields_ = [(name, ctypes.c_uint64) for name in GROUP_ARRAYS]


class _Params(ctypes.Structure):
    """Params in records.cuh."""

    _fields_ = [
        ("tiles", ctypes.c_uint64),
        ("tile_count", ctypes.c_uint32),
        ("counter", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("tables", ctypes.c_uint64),
        ("tables_bytes", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("maps", ctypes.c_uint64),
        ("groups", _Groups),
    ]


class CudaDevice:
    """One GPU of compute capability 9.0.

    Raises DeviceUnusable if there is no driver, an old one, no such GPU, or one of another kind.
    """

    def __init__(self, ordinal: int = 0, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        count = device_count()
        if ordinal >= count:
            raise DeviceUnusable(
                f"there is no cuda:{ordinal}: this machine has {count} CUDA "
                f"device{'s' if count != 1 else ''}, numbered from 0"
            )
        self.ordinal, self.time_limit_s = ordinal, time_limit_s
        self._device = _call(driver.cuDeviceGet, ordinal)
        name = _call(driver.cuDeviceGetName, 256, self._device).split(b"\0")[0].decode()
        capability = tuple(
            self._attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
        )
        if capability != (9, 0):
            raise DeviceUnusable(
                f"cuda:{ordinal} is a {name} of compute capability {capability[0]}."
                f"{capability[1]}: the kernels are sm_90a code and run on 9.0 (H100, H200) only"
            )
        self._manifest = cubins.manifest()
        self._context = _call(driver.cuDevicePrimaryCtxRetain, self._device)
        _call(driver.cuCtxSetCurrent, self._context)
        self._stream = _call(driver.cuStreamCreate, 1)  # 1: does not wait for the default stream
        self._modules: dict[str, Any] = {}
        self._room: dict[str, int] = {}  # of a kernel's file
        self._flush_buffer = 0
        self._nvml = _Nvml(_call(driver.cuDeviceGetPCIBusId, 32, self._device))
        self.machine = Machine(sm_count=self._attribute("MULTIPROCESSOR_COUNT"))
        self.facts = Facts(
            kind="cuda",
            name=name,
            memory_bytes=_call(driver.cuDeviceTotalMem, self._device),
            driver=self._nvml.driver_version(),
            sm_count=self.machine.sm_count,
            roofline=self._roofline(name),
            timers=TIMERS,
        )

    def _attribute(self, name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_call(driver.cuDeviceGetAttribute, which, self._device))

    def _roofline(self, name: str) -> Roofline:
        """The H200's measured ceilings; for another Hopper GPU what its clocks allow."""
        if "H200" in name:
            return H200
        clock_hz = self._attribute("CLOCK_RATE") * 1e3
        flop_per_s = self.machine.sm_count * 4096 * clock_hz  # dense 16-bit FLOP per cycle and SM
        memory_hz = self._attribute("MEMORY_CLOCK_RATE") * 1e3
        bytes_per_s = 2 * memory_hz * self._attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
        label = (
            f"{name} at full clock: {flop_per_s / 1e12:.0f} TFLOP/s, {bytes_per_s / 1e9:.0f} GB/s"
        )
        return Roofline(label, flop_per_s, bytes_per_s)

    def telemetry(self) -> Telemetry | None:
        """Clocks and power now; None where they cannot be read."""
        return self._nvml.read()

    @contextmanager
    def open(self, plan: Plan, data: DataSpec) -> Iterator[CudaSession]:
        """Allocate the arena, generate the operands, poison D, build the tables and tensor maps.

        Raises DeviceFailed with the bytes needed and free when the arena does not fit.
        """
        with _cleanup() as cleanup:
            yield CudaSession(self, plan, data, cleanup)

    # What sessions and baselines need of the device.

    @property
    def stream(self) -> int:
        """The stream on which everything is queued, as other libraries take it."""
        return int(self._stream)

    def library(self, name: str) -> ctypes.CDLL | None:
        """An NVIDIA library such as ``cublas``, from a wheel or the system, if there is one."""
        try:
            return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
        except DynamicLibNotFoundError:
            return None

    def function(self, file: str, symbol: str, shared_bytes: int = 0) -> Any:
        """A kernel, its cubin loaded at the first call."""
        if file not in self._modules:
            code = self._manifest.load(file)
            try:
                self._modules[file] = _call(driver.cuModuleLoadData, code)
            except DeviceFailed as error:
                raise DeviceUnusable(
                    f"the driver refuses the kernel file {file}: {error}"
                ) from None
        found = _call(driver.cuModuleGetFunction, self._modules[file], symbol.encode())
        if shared_bytes:
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _call(driver.cuFuncSetAttribute, found, limit, shared_bytes)
        return found

    def support(self, symbol: str) -> Any:
        """A kernel around the GEMM."""
        return self.function(self._manifest.support[symbol], symbol)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int],
        threads: int,
        arguments: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cluster: int = 1,
        cooperative: bool = False,
        stream: int | None = None,
    ) -> None:
        """Queue a kernel, on the device's stream or another; ``arguments`` are ctypes objects.

        A ``cooperative`` one runs all its CTAs at one time, or not at all.
        """
        config = _launch_config(grid, threads, shared_bytes, cluster, cooperative)
        config.hStream = self._stream if stream is None else stream
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        _call(driver.cuLaunchKernelEx, config, function, ctypes.addressof(pointers), 0)

    def room(self, function: Any, kernel: Kernel) -> int:
        """Clusters (or single CTAs) of a kernel that run at one time, as the driver counts them.

        Raises DeviceUnusable if there is room for none.
        """
        if kernel.file not in self._room:
            threads, nbytes = kernel.threads, kernel.shared_bytes
            if kernel.cluster > 1:
                config = _launch_config((kernel.cluster, 1), threads, nbytes, kernel.cluster)
                count = _call(driver.cuOccupancyMaxActiveClusters, function, config)
            else:
                per_sm = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
                count = _call(per_sm, function, threads, nbytes) * self.machine.sm_count
            self._room[kernel.file] = int(count)
        if not self._room[kernel.file]:
            raise DeviceUnusable(
                f"this GPU, or the share of it that this process has, has no room for kernel "
                f"{kernel.name}; choose another with --kernel"
            )
        return self._room[kernel.file]

    def allocate(self, nbytes: int, cleanup: ExitStack) -> int:
        """Device memory, freed by ``cleanup``.

        Raises DeviceFailed with the bytes needed and free if there is not enough.
        """
        free, _ = _call(driver.cuMemGetInfo)
        if nbytes > free:
            raise DeviceFailed(
                f"the operands need {nbytes / 1e9:.2f} GB of GPU memory and {free / 1e9:.2f} GB "
                "are free; run fewer or smaller groups, or free memory on the GPU"
            )
        address = int(_call(driver.cuMemAlloc, max(nbytes, 1)))
        cleanup.callback(driver.cuMemFree, address)
        return address

    def pinned(self, nbytes: int, cleanup: ExitStack) -> npt.NDArray[np.uint8]:
        """Host memory that the GPU reads without a detour, freed by ``cleanup``."""
        address = int(_call(driver.cuMemAllocHost, nbytes))
        cleanup.callback(driver.cuMemFreeHost, address)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def upload(self, to: int, array: npt.NDArray[Any]) -> None:
        """Queue a copy of a contiguous array, which has to live until it is done."""
        _call(driver.cuMemcpyHtoDAsync, to, array.ctypes.data, array.nbytes, self._stream)

    def fill_bytes(self, at: int, nbytes: int, byte: int) -> None:
        """Queue setting bytes to one value."""
        if nbytes:
            _call(driver.cuMemsetD8Async, at, byte, nbytes, self._stream)

    def download(self, at: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Bytes of device memory, once everything queued is done."""
        out = np.empty(nbytes, np.uint8)
        if nbytes:
            self.wait()
            _call(driver.cuMemcpyDtoH, out.ctypes.data, at, nbytes)
        return out

    def flush_l2(self) -> None:
        """Queue a read of FLUSH_BYTES, after which nothing older is left in the L2."""
        if not self._flush_buffer:
            self._flush_buffer = self.allocate(FLUSH_BYTES + 16, ExitStack())
            self.fill_bytes(self._flush_buffer, FLUSH_BYTES + 16, 0x5A)
        words = [
            ctypes.c_uint64(self._flush_buffer),
            ctypes.c_uint64(FLUSH_BYTES // 16),
            ctypes.c_uint64(self._flush_buffer + FLUSH_BYTES),
        ]
        self.launch(self.support("flush"), (2 * self.machine.sm_count, 1), FLUSH_THREADS, words)

    def event(self, cleanup: ExitStack) -> Any:
        """A new event, freed by ``cleanup``."""
        made = _call(driver.cuEventCreate, 0)
        cleanup.callback(driver.cuEventDestroy, made)
        return made

    def record(self, event: Any) -> None:
        """Queue taking the time."""
        _call(driver.cuEventRecord, event, self._stream)

    def wait(self) -> None:
        """Wait for everything queued.

        Raises DeviceFailed if a kernel failed, DeviceHung if the time limit passes.
        """
        deadline = monotonic() + self.time_limit_s
        pause = 0.0
        while True:
            (result,) = driver.cuStreamQuery(self._stream)
            if result != driver.CUresult.CUDA_ERROR_NOT_READY:
                _check(result, "the kernel failed")
                return
            if monotonic() > deadline:
                raise DeviceHung(
                    f"a kernel did not finish within {self.time_limit_s:g} s and was given up; "
                    "the GPU is free again once this process has ended"
                )
            sleep(pause)
            pause = min(pause + 1e-5, 1e-3)

    def capture(self, queue: Callable[[], None], cleanup: ExitStack) -> Any:
        """A graph of what ``queue`` queues, ready to launch; freed by ``cleanup``."""
        relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _call(driver.cuStreamBeginCapture, self._stream, relaxed)
        try:
            queue()
        except BaseException:
            driver.cuStreamEndCapture(self._stream)
            raise
        graph = _call(driver.cuStreamEndCapture, self._stream)
        ready = _call(driver.cuGraphInstantiate, graph, 0)
        driver.cuGraphDestroy(graph)
        cleanup.callback(driver.cuGraphExecDestroy, ready)
        return ready

    def launch_graph(self, graph: Any) -> None:
        """Queue a captured graph."""
        _call(driver.cuGraphLaunch, graph, self._stream)

    def fan(self, count: int, cleanup: ExitStack) -> Fan:
        """The device's stream and ``count`` - 1 more, freed by ``cleanup``."""
        streams = [self._stream]
        for _ in range(count - 1):
            streams.append(_call(driver.cuStreamCreate, 1))
            cleanup.callback(driver.cuStreamDestroy, streams[-1])
        return Fan(streams, [self.event(cleanup) for _ in streams])


class Fan:
    """Streams that work side by side on what belongs to one run."""

    def __init__(self, streams: list[Any], events: list[Any]) -> None:
        self._streams, self._events = streams, events
        self.streams = [int(stream) for stream in streams]

    @contextmanager
    def spread(self) -> Iterator[None]:
        """All streams wait for the first when it begins, and the first for all when it ends."""
        main, *others = self._streams
        begun, *ended = self._events
        if not others:
            yield
            return
        _call(driver.cuEventRecord, begun, main)
        for stream in others:
            _call(driver.cuStreamWaitEvent, stream, begun, 0)
        yield
        for stream, event in zip(others, ended, strict=True):
            _call(driver.cuEventRecord, event, stream)
            _call(driver.cuStreamWaitEvent, main, event, 0)


@dataclass(frozen=True)
class _Ready:
    """One launch whose tables are on the device."""

    launch: Launch
    function: Any
    clusters: int  # to start: what the plan wants, or what fits
    params: _Params
    maps: int  # address of the tensor maps, MAPS for each group


class CudaSession:
    """One plan with its operands in place on a GPU. Made by CudaDevice.open."""

    def __init__(self, device: CudaDevice, plan: Plan, data: DataSpec, cleanup: ExitStack) -> None:
        self.device, self._plan, self.cleanup = device, plan, cleanup
        self.base = device.allocate(plan.layout.size, cleanup)
        device.fill_bytes(self.base, plan.layout.size, 0xFF)
        self._generate(data)
        device.wait()
        kernels = [
            device.function(k.file, k.symbol, k.shared_bytes)
            for k in (launch.kernel for launch in plan.launches)
        ]
        self._build_maps = device.support("build_maps")
        begun, ended = device.event(cleanup), device.event(cleanup)
        started = monotonic()
        self.ready = self._upload(kernels)
        self._told = [self._map_arguments(ready) for ready in self.ready]
        device.record(begun)
        self._set_up_maps()
        device.record(ended)
        device.wait()
        self._fan = device.fan(plan.streams, cleanup)
        self._queue = self._launch
        replay_s = None
        host_s = monotonic() - started
        if plan.launch != "grouped":
            self._queue = partial(device.launch_graph, device.capture(self._launch, cleanup))
            replay_s = self._replay_s()
            self.poison()
        self.setup = Setup(host_s, _elapsed_s(begun, ended), replay_s)

    def run(self) -> None:
        """Run the plan's launches once and wait for them."""
        self._queue()
        self.device.wait()

    def poison(self) -> None:
        """Fill the D region of the arena, fences included, with 0xFF bytes."""
        layout = self._plan.layout
        self.device.fill_bytes(self.base + layout.d_begin, layout.d_end - layout.d_begin, 0xFF)

    def read(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """The arena's bytes [begin, end)."""
        return self.device.download(self.base + begin, end - begin)

    def time(
        self, count: int, *, cold: bool, queue: Callable[[], None] | None = None
    ) -> list[float]:
        """Seconds of each of ``count`` runs, between GPU timestamps.

        Cold: a flush is queued before every run, so the GPU never waits for the host in between.
        Warm: every sample is WARM_RUNS runs back to back, as one graph, divided by their number.
        ``queue`` queues a run of something else on the device's stream; it is in no graph.
        """
        device = self.device
        with _cleanup() as cleanup:
            run = queue or self._queue
            if not cold:
                run = partial(_repeat, queue or self._launch)
                if queue is None:
                    run = partial(device.launch_graph, device.capture(run, cleanup))
            pairs = [(device.event(cleanup), device.event(cleanup)) for _ in range(count)]
            for begun, ended in pairs:
                if cold:
                    device.flush_l2()
                device.record(begun)
                run()
                device.record(ended)
            device.wait()
            runs = 1 if cold else WARM_RUNS
            return [_elapsed_s(*pair) / runs for pair in pairs]

    def _set_up_maps(self) -> None:
        """Queue the kernel that builds the tensor maps, for every launch."""
        for ready, told in zip(self.ready, self._told, strict=True):
            ctas = -(-MAPS * len(ready.launch.groups) // MAP_THREADS)
            self.device.launch(self._build_maps, (ctas, 1), MAP_THREADS, told)

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
        """Queue all launches, in turn over the plan's streams."""
        streams = self._fan.streams
        if self._plan.launch == "graph":
            self._set_up_maps()
        with self._fan.spread():
            for i, ready in enumerate(self.ready):
                self._launch_one(ready, streams[i % len(streams)])

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

    def _generate(self, data: DataSpec) -> None:
        """Queue the generation of all operands, and keep the host array alive until it is done."""
        device = self.device
        fills = tables.fills(self._plan, self.base, data)
        if not len(fills):
            return
        with _cleanup() as cleanup:
            at = device.allocate(fills.nbytes, cleanup)
            device.upload(at, fills)
            rows = int(fills["rows"].max())
            device.launch(
                device.support("fill"),
                (min(rows, 4096), min(len(fills), 4096)),
                FILL_THREADS,
                [
                    ctypes.c_uint64(at),
                    ctypes.c_uint32(len(fills)),
                    ctypes.c_uint32(data.kind == "int"),
                ],
            )
            device.wait()

    def _upload(self, kernels: list[Any]) -> list[_Ready]:
        """Copy all tables to the device in one piece; room for counters and maps lies behind."""
        device, plan = self.device, self._plan
        end = np.zeros(1, TILE)  # width 0 ends a tile list
        parts: list[npt.NDArray[Any]] = []
        for launch in plan.launches:
            table = tables.build(launch, plan, self.base)
            parts += [getattr(table, name) for name in GROUP_ARRAYS]
            parts += [np.concatenate([table.tiles, end])]
            parts += [np.zeros(1, np.uint32), np.zeros(launch.flags * FLAGS_PER_TILE, np.uint32)]
        sizes = [-(-part.nbytes // MAP_BYTES) * MAP_BYTES for part in parts]
        offsets = np.cumsum([0, *sizes])
        uploaded = int(offsets[-1])
        groups = [len(launch.groups) for launch in plan.launches]
        nbytes = uploaded + MAPS * MAP_BYTES * sum(groups)
        block = device.allocate(nbytes, self.cleanup)
        host = device.pinned(max(uploaded, 1), self.cleanup)
        for part, offset in zip(parts, offsets, strict=False):
            host[offset : offset + part.nbytes] = part.view(np.uint8)
        if uploaded:
            device.upload(block, host)
        at = iter(int(block + offset) for offset in offsets)
        maps = block + uploaded
        ready = []
        for launch, function, count in zip(plan.launches, kernels, groups, strict=True):
            arrays = _Groups(*(next(at) for _ in GROUP_ARRAYS))
            tiles, counter, flags = next(at), next(at), next(at)
            workspace = device.allocate(launch.workspace_bytes, self.cleanup)
            params = _Params(
                tiles=tiles,
                tile_count=len(launch.tiles),
                counter=counter,
                flags=flags,
                tables=block,
                tables_bytes=nbytes,
                workspace=workspace,
                maps=maps,
                groups=arrays,
            )
            clusters = min(launch.clusters, device.room(function, launch.kernel))
            ready.append(_Ready(launch, function, clusters, params, maps))
            maps += MAPS * MAP_BYTES * count
        return ready

    def _map_arguments(self, ready: _Ready) -> list[Any]:
        """What the kernel build_maps is told: a template for every box, groups, element sizes."""
        kernel, count = ready.launch.kernel, len(ready.launch.groups)
        boxes = [
            *(WIDTH_STEP * (i + 1) // kernel.cluster for i in range(WIDTHS)),  # rows of A
            kernel.rows,  # of B
        ]
        templates = b"".join(
            encode_map(kernel.operand, self.base, (64, 64), 256, (K_TILE, rows)).tobytes()
            for rows in boxes
        )
        return [
            (ctypes.c_uint8 * len(templates)).from_buffer_copy(templates),
            ready.params.groups,
            ctypes.c_uint32(count),
            ctypes.c_uint64(ready.maps),
            ctypes.c_uint32(dtypes.BY_NAME[kernel.operand].size),
        ]


def encode_map(
    dtype: str, address: int, extents: tuple[int, int], row_bytes: int, box: tuple[int, int]
) -> npt.NDArray[np.uint8]:
    """A tensor map of a matrix, by the driver: 128 bytes, extents and box innermost first.

    Called through the driver's entry point: the Python wrapper hands over unaligned memory.
    """
    _, entry, *_ = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0)
    encode = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
        *[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4,
    )(int(entry))  # fmt: skip
    room = np.zeros(2 * MAP_BYTES, np.uint8)
    skip = -room.ctypes.data % MAP_BYTES
    made = room[skip : skip + MAP_BYTES]
    # CUtensorMapSwizzle, L2promotion, FloatOOBfill. 256 bytes at a time would bring the next K tile
    # along with this one, and delay whoever waits for this one.
    swizzle_128, l2_128, zeros = 3, 2, 0
    result = encode(
        made.ctypes.data,
        dtypes.BY_NAME[dtype].tensormap_code,
        2,
        address,
        (ctypes.c_uint64 * 2)(*extents),
        (ctypes.c_uint64 * 1)(row_bytes),
        (ctypes.c_uint32 * 2)(*box),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        swizzle_128,
        l2_128,
        zeros,
    )
    _check(driver.CUresult(result), "the driver refuses a tensor map")
    return made


class _Nvml:
    """Clocks, power and driver version, where the machine's NVML gives them."""

    def __init__(self, bus_id: bytes) -> None:
        self._handle: int | None = None
        with suppress(Exception):  # NVML may be missing: nothing depends on it
            from cuda.bindings import nvml

            nvml.init_v2()
            self._module = nvml
            name = bus_id.split(b"\0")[0].decode()
            self._handle = nvml.device_get_handle_by_pci_bus_id_v2(name)

    def driver_version(self) -> str:
        version = _call(driver.cuDriverGetVersion)
        cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
        if self._handle is None:
            return cuda
        return f"{self._module.system_get_driver_version()} ({cuda})"

    def read(self) -> Telemetry | None:
        if self._handle is None:
            return None
        try:
            nvml = self._module
            active = nvml.device_get_current_clocks_event_reasons(self._handle)
            return Telemetry(
                sm_hz=nvml.device_get_clock_info(self._handle, nvml.ClockType.CLOCK_SM) * 1e6,
                power_w=nvml.device_get_power_usage(self._handle) / 1e3,
                throttle=tuple(reason for bit, reason in _THROTTLE.items() if active & bit),
            )
        except nvml.NvmlError:
            return None


# NVML, "clocks event reasons": what holds the clock below its maximum.
_THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


def _launch_config(
    grid: tuple[int, int],
    threads: int,
    shared_bytes: int,
    cluster: int,
    cooperative: bool = False,
) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    attributes = []
    if cluster > 1:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x = cluster
        attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
        attributes.append(attribute)
    if cooperative:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        attributes.append(attribute)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _repeat(queue: Callable[[], None]) -> None:
    for _ in range(WARM_RUNS):
        queue()


@contextmanager
def _cleanup() -> Iterator[ExitStack]:
    """An ExitStack that frees nothing once a kernel hangs: the driver would wait for it."""
    with ExitStack() as stack:
        try:
            yield stack
        except DeviceHung:
            stack.pop_all()
            raise


def device_count() -> int:
    """How many CUDA devices the driver sees.

    Raises DeviceUnusable with the reason if there is no driver, an old one, or no GPU.
    """
    try:
        (result,) = driver.cuInit(0)
    except RuntimeError:  # cuda.pathfinder's DynamicLibNotFoundError is one
        raise DeviceUnusable(
            "no NVIDIA driver: libcuda.so.1 was not found; install driver branch 580 or newer, "
            "or use --device cpu"
        ) from None
    version = _call(driver.cuDriverGetVersion)
    if version and version < MIN_DRIVER:
        raise DeviceUnusable(
            f"the NVIDIA driver supports CUDA {version // 1000}.{version % 1000 // 10}; the "
            "kernels need CUDA 13.0: driver branch 580 or newer"
        )
    if result == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        raise DeviceUnusable("the NVIDIA driver sees no GPU; use --device cpu, or check nvidia-smi")
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DeviceUnusable(f"the NVIDIA driver does not start: {_reason(result)}")
    return int(_call(driver.cuDeviceGetCount))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """A driver function's results without the status: nothing, one, or a tuple.

    Raises DeviceFailed with the driver's reason.
    """
    result, *values = function(*arguments)
    _check(result, f"{function.__name__} failed")
    return values[0] if len(values) == 1 else tuple(values)


def _check(result: Any, what: str) -> None:
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DeviceFailed(f"{what}: {_reason(result)}")


def _reason(result: Any) -> str:
    _, text = driver.cuGetErrorString(result)
    return f"{text.decode()} ({driver.CUresult(result).name})" if text else str(result)


def _elapsed_s(begun: Any, ended: Any) -> float:
    return float(_call(driver.cuEventElapsedTime, begun, ended)) / 1e3
