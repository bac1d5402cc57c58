"""One Hopper GPU: its memory, kernels, streams, graphs and clocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import attrgetter
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

from gemmctl.device.base import WARM_RUNS, Facts, Telemetry
from gemmctl.device.cuda import graphs, placement
from gemmctl.device.cuda.calls import call, check, device_count, guarded
from gemmctl.device.cuda.telemetry import Nvml
from gemmctl.device.roofline import MEASURED, Roofline, of_clocks
from gemmctl.errors import DeviceFailed, DeviceHung, DeviceUnusable
from gemmctl.kernels import cubins
from gemmctl.kernels.constants import FLUSH_THREADS, PLACES_THREADS
from gemmctl.kernels.cubins import Kernel
from gemmctl.operands import data, dtypes
from gemmctl.planning.arrays import Ints
from gemmctl.planning.tiling import Machine

OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY.name
TIME_LIMIT_S = 60.0  # for whatever is queued at one time; far above any honest batch
FLUSH_BYTES = 256 << 20  # four times the L2, which may hold a line twice, once in each half
TIMERS = {
    "cold": "each sample is one run between GPU timestamps, queued behind an L2 flush, as a CUDA "
    "graph if it is several launches",
    "warm": f"each sample is {WARM_RUNS} runs in a CUDA graph between GPU timestamps, queued "
    "behind another such graph",
    "sustained": f"each sample is the mean of a block of runs back to back, {WARM_RUNS} in a CUDA "
    "graph between GPU timestamps",
}


class Gpu:
    """One GPU of compute capability 9.0.

    Raises DeviceUnusable if there is no driver, an old one, no such GPU, one of another kind, or
    one that others keep to themselves.
    """

    def __init__(self, ordinal: int = 0, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        count = device_count()
        if ordinal >= count:
            raise DeviceUnusable(
                f"there is no cuda:{ordinal}: this machine has {count} CUDA "
                f"device{'s' if count != 1 else ''}, numbered from 0"
            )
        self.ordinal, self.time_limit_s = ordinal, time_limit_s
        self.expected_s = 0.0  # that honest work may take beside the limit, as a session found
        self._device = call(driver.cuDeviceGet, ordinal)
        name = call(driver.cuDeviceGetName, 256, self._device).split(b"\0")[0].decode()
        capability = tuple(
            self._attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
        )
        if capability != (9, 0):
            raise DeviceUnusable(
                f"cuda:{ordinal} is a {name} of compute capability {capability[0]}."
                f"{capability[1]}: the kernels are sm_90a code and run on 9.0 (H100, H200) only"
            )
        self._manifest = cubins.manifest()
        try:
            self._context = call(driver.cuDevicePrimaryCtxRetain, self._device)
            call(driver.cuCtxSetCurrent, self._context)
            self._stream = call(driver.cuStreamCreate, 1)  # 1: does not wait for the default stream
        except DeviceFailed as error:  # others have it to themselves, or all of its memory
            raise DeviceUnusable(f"cuda:{ordinal} cannot be used: {error}") from error
        self._modules: dict[str, Any] = {}
        self._code: dict[str, bytes] = {}  # of cubins that came with one that was loaded
        self._claimed: set[str] = set()  # files of kernels whose constant memory a session has
        self._room: dict[str, int] = {}  # of a kernel's file
        self._places: dict[tuple[int, int], Ints] = {}
        self._flush_buffer = 0
        self._quantiles = 0
        self._nvml = Nvml(call(driver.cuDeviceGetPCIBusId, 32, self._device))
        self.machine = Machine(sm_count=self._attribute("MULTIPROCESSOR_COUNT"))
        sm_max_hz, sm_set_hz = self._nvml.sm_clocks()
        self.facts = Facts(
            kind="cuda",
            name=name,
            memory_bytes=call(driver.cuDeviceTotalMem, self._device),
            driver=self._nvml.driver_version(),
            sm_count=self.machine.sm_count,
            roofline=self._roofline(name),
            timers=TIMERS,
            uuid=f"GPU-{UUID(bytes=call(driver.cuDeviceGetUuid, self._device).bytes)}",
            sm_max_hz=sm_max_hz,
            sm_set_hz=sm_set_hz,
        )

    def _attribute(self, name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(driver.cuDeviceGetAttribute, which, self._device))

    def _roofline(self, name: str) -> Roofline:
        """The rates measured on a GPU of this name; for another what its clocks allow."""
        if name in MEASURED:
            return MEASURED[name]
        return of_clocks(
            name,
            sm_count=self.machine.sm_count,
            sm_hz=self._attribute("CLOCK_RATE") * 1e3,
            memory_hz=self._attribute("MEMORY_CLOCK_RATE") * 1e3,
            bus_bits=self._attribute("GLOBAL_MEMORY_BUS_WIDTH"),
        )

    def telemetry(self) -> Telemetry | None:
        """Clocks and power now; None where they cannot be read."""
        return self._nvml.read()

    def energy_j(self) -> float | None:
        """Joules that the board has used; None where they are not counted."""
        return self._nvml.energy_j()

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
            if file not in self._code:
                self._code |= self._manifest.unpack(self._manifest.archives[file])
            try:
                self._modules[file] = call(driver.cuModuleLoadData, self._code.pop(file))
            except DeviceFailed as error:
                if OUT_OF_MEMORY in str(error):
                    raise
                raise DeviceUnusable(
                    f"the driver refuses the kernel file {file}: {error}"
                ) from None
        found = call(driver.cuModuleGetFunction, self._modules[file], symbol.encode())
        if shared_bytes:
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(driver.cuFuncSetAttribute, found, limit, shared_bytes)
        return found

    def claim_constants(self, file: str, cleanup: ExitStack) -> int:
        """Where the tensor maps in the constant memory of a kernel's file lie, which is loaded.

        They are one session's until ``cleanup``: 0 while another has them.
        """
        if file in self._claimed:
            return 0
        self._claimed.add(file)
        cleanup.callback(self._claimed.discard, file)
        address, _ = call(driver.cuModuleGetGlobal, self._modules[file], b"constant_maps")
        return int(address)

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
        call(driver.cuLaunchKernelEx, config, function, ctypes.addressof(pointers), 0)

    def room(self, function: Any, kernel: Kernel) -> int:
        """Clusters (or single CTAs) of a kernel that run at one time, as the driver counts them.

        Raises DeviceUnusable if there is room for none.
        """
        if kernel.file not in self._room:
            threads, nbytes = kernel.threads, kernel.shared_bytes
            if kernel.ctas > 1:
                config = _launch_config((kernel.ctas, 1), threads, nbytes, kernel.ctas)
                count = call(driver.cuOccupancyMaxActiveClusters, function, config)
            else:
                per_sm = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
                count = call(per_sm, function, threads, nbytes) * self.machine.sm_count
            self._room[kernel.file] = int(count)
        if not self._room[kernel.file]:
            raise DeviceUnusable(
                f"this GPU, or the share of it that this process has, has no room for kernel "
                f"{kernel.name}; choose another with --kernel"
            )
        return self._room[kernel.file]

    def places(self, kernel: Kernel, clusters: int) -> Ints:
        """The place on the chip of each of so many clusters of a launch (placement.places).

        A share of a GPU, where not every SM is to be had, is not looked at: they stay as they are.
        """
        key = kernel.ctas, clusters
        if key not in self._places:
            try:
                alone = self._sms(1, self.machine.sm_count, kernel.shared_bytes)
                joined = self._sms(kernel.ctas, clusters, kernel.shared_bytes)
                self._places[key] = placement.places(alone, joined)
            except DeviceHung:
                raise
            except DeviceFailed:
                return np.arange(clusters)
        return self._places[key]

    def _sms(self, cluster: int, clusters: int, shared_bytes: int) -> Ints:
        """The SM of the first CTA of each cluster of a launch that has no other beside it."""
        ctas = cluster * clusters
        function = self.function(self._manifest.support["places"], "places", shared_bytes)
        with guarded() as cleanup:
            sms = self.allocate(4 * (ctas + 1), cleanup)
            arrived = sms + 4 * ctas
            self.fill_bytes(arrived, 4, 0)
            self.launch(
                function,
                (ctas, 1),
                PLACES_THREADS,
                [ctypes.c_uint64(sms), ctypes.c_uint64(arrived)],
                shared_bytes=shared_bytes,
                cluster=cluster,
                cooperative=True,
            )
            found = self.download(sms, 4 * ctas).view(np.uint32)
        return found[::cluster].astype(np.int64)

    def allocate(self, nbytes: int, cleanup: ExitStack) -> int:
        """Device memory, freed by ``cleanup``.

        Raises DeviceFailed with the bytes needed and free if there is not enough.
        """
        free, _ = call(driver.cuMemGetInfo)
        if nbytes > free:
            raise DeviceFailed(
                f"the operands need {nbytes / 1e9:.2f} GB of GPU memory and {free / 1e9:.2f} GB "
                "are free; run fewer or smaller groups, or free memory on the GPU"
            )
        address = int(call(driver.cuMemAlloc, max(nbytes, 1)))
        cleanup.callback(driver.cuMemFree, address)
        return address

    def pinned(self, nbytes: int, cleanup: ExitStack) -> npt.NDArray[np.uint8]:
        """Host memory that the GPU reads without a detour, freed by ``cleanup``."""
        address = int(call(driver.cuMemAllocHost, nbytes))
        cleanup.callback(driver.cuMemFreeHost, address)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def upload(self, to: int, array: npt.NDArray[Any]) -> None:
        """Queue a copy of a contiguous array, which has to live until it is done."""
        call(driver.cuMemcpyHtoDAsync, to, array.ctypes.data, array.nbytes, self._stream)

    def copy_rows(
        self, to: tuple[int, int], source: tuple[int, int], row_bytes: int, rows: int, stream: int
    ) -> None:
        """Queue a copy of rows of bytes within device memory.

        ``to`` and ``source``: where the first row lies, and bytes from one to the next.
        """
        copy = driver.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.dstDevice, copy.dstPitch = to
        copy.srcDevice, copy.srcPitch = source
        copy.WidthInBytes, copy.Height = row_bytes, rows
        call(driver.cuMemcpy2DAsync, copy, stream)

    def fill_bytes(self, at: int, nbytes: int, byte: int) -> None:
        """Queue setting bytes to one value."""
        if nbytes:
            call(driver.cuMemsetD8Async, at, byte, nbytes, self._stream)

    def download(self, at: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Bytes of device memory, once everything queued is done."""
        out = np.empty(nbytes, np.uint8)
        if nbytes:
            self.wait()
            call(driver.cuMemcpyDtoH, out.ctypes.data, at, nbytes)
        return out

    def quantiles(self) -> int:
        """Where the numbers that normal data consist of lie on the device, for the fill kernel."""
        if not self._quantiles:
            types = sorted(dtypes.BY_NAME.values(), key=attrgetter("code"))
            parts = [data.quantiles(dtype).view(np.uint8) for dtype in types]
            numbers = np.concatenate(parts)
            self._quantiles = self.allocate(numbers.nbytes, ExitStack())
            self.upload(self._quantiles, numbers)
            self.wait()
        return self._quantiles

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
        made = call(driver.cuEventCreate, 0)
        cleanup.callback(driver.cuEventDestroy, made)
        return made

    def record(self, event: Any) -> None:
        """Queue taking the time."""
        call(driver.cuEventRecord, event, self._stream)

    def passed(self, event: Any) -> bool:
        """Whether the GPU has come past an event; an error shows in whoever waits for the work."""
        (result,) = driver.cuEventQuery(event)
        return bool(result == driver.CUresult.CUDA_SUCCESS)

    def wait(self, event: Any = None, watch: Callable[[], None] = lambda: None) -> None:
        """Wait for everything queued, or for an event; ``watch`` is called meanwhile.

        Raises DeviceFailed if a kernel failed, DeviceHung if the time limit passes.
        """
        limit_s = self.time_limit_s + self.expected_s
        deadline = monotonic() + limit_s
        pause = 0.0
        while True:
            if event is None:
                (result,) = driver.cuStreamQuery(self._stream)
            else:
                (result,) = driver.cuEventQuery(event)
            if result != driver.CUresult.CUDA_ERROR_NOT_READY:
                check(result, "the kernel failed")
                return
            if monotonic() > deadline:
                raise DeviceHung(
                    f"a kernel did not finish within {limit_s:.3g} s and was given up; "
                    "the GPU is free again once this process has ended"
                )
            watch()
            sleep(pause)
            pause = min(pause + 1e-5, 1e-3)

    def capture(self, queue: Callable[[], None], cleanup: ExitStack) -> Any:
        """A graph of what ``queue`` queues, ready to launch; freed by ``cleanup``.

        Raises DeviceFailed if that cannot be one.
        """
        thread_local = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call(driver.cuStreamBeginCapture, self._stream, thread_local)
        try:
            queue()
        except BaseException:
            _, *begun = driver.cuStreamEndCapture(self._stream)
            for graph in filter(None, begun):
                driver.cuGraphDestroy(graph)
            raise
        graph = call(driver.cuStreamEndCapture, self._stream)
        try:
            return graphs.ready(graph, cleanup)
        finally:
            driver.cuGraphDestroy(graph)

    def adopt(self, graph: int, cleanup: ExitStack) -> Any:
        """Another library's graph, ready to launch; freed by ``cleanup``.

        Raises DeviceFailed if the driver refuses it.
        """
        return graphs.ready(graph, cleanup)

    def launch_graph(self, graph: Any) -> None:
        """Queue a captured graph."""
        call(driver.cuGraphLaunch, graph, self._stream)

    def fan(self, count: int, cleanup: ExitStack) -> Fan:
        """The device's stream and ``count`` - 1 more, freed by ``cleanup``."""
        streams = [self._stream]
        for _ in range(count - 1):
            streams.append(call(driver.cuStreamCreate, 1))
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
        begun = self._events[0]
        if not others:
            yield
            return
        call(driver.cuEventRecord, begun, main)
        for stream in others:
            call(driver.cuStreamWaitEvent, stream, begun, 0)
        try:
            yield
        except BaseException:
            with suppress(DeviceFailed):  # what else may be wrong; what was queued is waited for
                self._join()
            raise
        self._join()

    def _join(self) -> None:
        main, *others = self._streams
        for stream, event in zip(others, self._events[1:], strict=True):
            call(driver.cuEventRecord, event, stream)
            call(driver.cuStreamWaitEvent, main, event, 0)


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
