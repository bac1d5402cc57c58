"""The CUDA device without a GPU: what it says, and what it hands to the driver.

``Driver`` stands in for the driver. Its device memory is this process's memory; kernels do nothing.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, count, pairwise, repeat
from math import ceil
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import cuda.bindings
import numpy as np
import pytest
from cuda.bindings import driver as real
from cuda.pathfinder import DynamicLibNotFoundError

from gemmctl.device import open_device, roofline
from gemmctl.device.base import WARM_RUNS, Sample
from gemmctl.device.cuda import CudaDevice, calls, gpu, graphs, telemetry, tensormaps
from gemmctl.device.cuda import session as session_module
from gemmctl.device.cuda.maps import Copy
from gemmctl.device.cuda.params import ConstantMaps, GroupArrays, Params, Ring
from gemmctl.device.cuda.session import CudaSession
from gemmctl.errors import DeviceFailed, DeviceHung, DeviceUnusable
from gemmctl.kernels import archive, cubins
from gemmctl.kernels.constants import (
    BOXED_ROWS,
    CONSTANT_MAPS,
    FLAGS_PER_TILE,
    HASH_THREADS,
    K_TILE,
    MAP_BYTES,
    MAP_THREADS,
    MAPS,
    PACK_CTAS,
    PACK_THREADS,
    QUANTILES,
    RESIDUES,
)
from gemmctl.kernels.cubins import Kernel, Manifest
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan, tables
from gemmctl.planning.plan import Launching, Plan
from gemmctl.planning.tables import Tables
from gemmctl.planning.tiles import TILE, Launch
from gemmctl.planning.tiling import Choice
from sources import members, offsets, parameters, size
from support import make_problem

KERNELS = cubins.manifest().kernels
CODES = real.CUresult
SPEC = DataSpec("int", 3)
AT_ONCE = range(10**9)  # every question whether an event has passed finds that it has
H200 = "NVIDIA H200"
GROUPS = (
    "m: 300, n: 520, k: 136, count: 3",
    "m: 0, n: 8, k: 8",
    "m: 17, n: 40, k: 24, a: f16, d: f32, alpha: 0.5, beta: 1",
    "m: 64, n: 64, k: 16384",
)


@dataclass(frozen=True)
class Launched:
    """One kernel launch as the driver gets it."""

    symbol: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    cluster: int
    cooperative: bool
    stream: int
    # Of the GEMM kernel; of fill: the records, and where normal numbers are; of pack: the records.
    params: Any


class Driver:
    """The functions of cuda.bindings.driver that gemmctl calls, for GPUs that are not there."""

    def __init__(self) -> None:
        self.gpus: list[tuple[str, tuple[int, int]]] = [(H200, (9, 0))]
        self.version = 13000
        self.free_bytes = 1 << 30
        self.fails: dict[str, CODES] = {}  # what a function answers instead of doing anything
        self.live: dict[int, str] = {}  # handles and addresses that were not given back
        self.launched: list[Launched] = []
        self.queued: list[tuple[str, int]] = []  # what is to happen on which stream, in order
        self.recorded: list[int] = []  # events, in order
        self.asked: list[tuple[int, int]] = []  # which event has passed, after how many records
        self.ahead: Container[int] = ()  # questions, by number, that the GPU was quick enough for
        self.nodes: list[tuple[str, str]] = []  # of every graph: its kind, and where it reads
        self.loaded: list[bytes] = []
        self.constants: dict[bytes, int] = {}  # of a cubin, where its constant memory lies
        self.shared_limit: dict[str, int] = {}  # of a kernel
        self.sms = 132  # that this process may use
        self.fitted = 0  # how often what fits was asked
        self.encoded: list[tuple[int, tuple[int, int]]] = []  # type and box of every tensor map
        self.encoding = 0  # what the encoder answers
        self._memory: dict[int, Any] = {}
        self._encode = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
            *[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4,
        )(self._encode_map)  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("CU"):
            return getattr(real, name)  # types and codes need no driver
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            answer = self.fails.get(name)
            if answer is not None:
                return (answer,)
            return (CODES.CUDA_SUCCESS, *(getattr(self, f"_{name}", lambda *_: ())(*arguments)))

        function.__name__ = name
        return function

    # A handle that has to be given back is the address of memory of its own.

    def _new(self, kind: str, nbytes: int = 1) -> tuple[int]:
        memory = np.full(nbytes + 256, 0x5A, np.uint8)
        address = memory.ctypes.data + -memory.ctypes.data % 256
        self._memory[address] = memory
        self.live[address] = kind
        return (address,)

    def _gone(self, handle: Any) -> tuple[()]:
        del self.live[int(handle)], self._memory[int(handle)]
        return ()

    def _cuDriverGetVersion(self) -> tuple[int]:
        return (self.version,)

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (len(self.gpus),)

    def _cuDeviceGet(self, ordinal: int) -> tuple[int]:
        return (ordinal,)

    def _cuDeviceGetName(self, _: int, device: int) -> tuple[bytes]:
        return (self.gpus[device][0].encode() + b"\0\0",)

    def _cuDeviceGetAttribute(self, which: Any, device: int) -> tuple[int]:
        major, minor = self.gpus[device][1]
        known = {
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "MULTIPROCESSOR_COUNT": self.sms,
            "CLOCK_RATE": 1_980_000,  # kHz
            "MEMORY_CLOCK_RATE": 2_619_000,
            "GLOBAL_MEMORY_BUS_WIDTH": 5120,
        }
        return (known[which.name.removeprefix("CU_DEVICE_ATTRIBUTE_")],)

    def _cuDeviceGetPCIBusId(self, _: int, __: int) -> tuple[bytes]:
        return (b"0000:19:00.0\0",)

    def _cuDeviceGetUuid(self, device: int) -> tuple[Any]:
        return (SimpleNamespace(bytes=bytes(range(16))),)

    def _cuDeviceTotalMem(self, _: int) -> tuple[int]:
        return (141 << 30,)

    def _cuDevicePrimaryCtxRetain(self, _: int) -> tuple[int]:
        return (1,)

    def _cuStreamCreate(self, _: int) -> tuple[int]:
        return self._new("stream")

    def _cuEventCreate(self, _: int) -> tuple[int]:
        return self._new("event")

    def _cuEventElapsedTime(self, _: int, __: int) -> tuple[float]:
        return (5.0,)  # ms

    def cuEventQuery(self, event: int) -> tuple[CODES]:
        self.asked.append((int(event), len(self.recorded)))
        passed = len(self.asked) - 1 in self.ahead
        return (CODES.CUDA_SUCCESS if passed else CODES.CUDA_ERROR_NOT_READY,)

    def _cuGraphGetNodes(self, _: int, count: int = 0) -> tuple[list[int], int]:
        return list(range(count)), len(self.nodes)

    def _cuGraphNodeGetType(self, node: int) -> tuple[Any]:
        kind = f"CU_GRAPH_NODE_TYPE_{self.nodes[node][0]}"
        return (getattr(real.CUgraphNodeType, kind),)

    def _cuGraphMemcpyNodeGetParams(self, node: int) -> tuple[Any]:
        reads = getattr(real.CUmemorytype, f"CU_MEMORYTYPE_{self.nodes[node][1]}")
        return (SimpleNamespace(srcMemoryType=reads),)

    def _cuStreamEndCapture(self, _: int) -> tuple[int]:
        return self._new("graph")

    def _cuGraphInstantiate(self, _: int, __: int) -> tuple[int]:
        return self._new("ready graph")

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return (self.free_bytes, 141 << 30)

    def _cuMemAlloc(self, nbytes: int) -> tuple[int]:
        return self._new("memory", nbytes)

    def _cuMemAllocHost(self, nbytes: int) -> tuple[int]:
        return self._new("host memory", nbytes)

    _cuMemFree = _cuMemFreeHost = _gone
    _cuEventDestroy = _cuStreamDestroy = _cuGraphDestroy = _cuGraphExecDestroy = _gone

    def _cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, _: Any) -> tuple[()]:
        ctypes.memmove(to, source, nbytes)
        return ()

    def _cuMemcpyDtoH(self, to: int, source: int, nbytes: int) -> tuple[()]:
        ctypes.memmove(to, source, nbytes)
        return ()

    def _cuMemsetD8Async(self, at: int, byte: int, nbytes: int, _: Any) -> tuple[()]:
        ctypes.memset(at, byte, nbytes)
        return ()

    def _cuModuleLoadData(self, code: bytes) -> tuple[bytes]:
        self.loaded.append(code)
        return (code,)

    def _cuModuleGetGlobal(self, code: bytes, symbol: bytes) -> tuple[int, int]:
        assert symbol == b"constant_maps"
        nbytes = CONSTANT_MAPS * MAP_BYTES
        if code not in self.constants:
            (self.constants[code],) = self._new("constant memory", nbytes)
            del self.live[self.constants[code]]  # it goes with the cubin
        return self.constants[code], nbytes

    def _cuModuleGetFunction(self, _: bytes, symbol: bytes) -> tuple[str]:
        return (symbol.decode(),)

    def _cuGetProcAddress(self, *_: Any) -> tuple[int, int]:
        return (ctypes.cast(self._encode, ctypes.c_void_p).value or 0, 0)

    def _cuGetErrorString(self, result: Any) -> tuple[bytes]:
        return (f"the words for {int(result)}".encode(),)

    def _encode_map(self, *told: Any) -> int:
        assert told[0] % 128 == 0, "the encoder writes to multiples of 128"
        self.encoded.append((told[1], tuple((ctypes.c_uint32 * told[2]).from_address(told[6]))))
        return self.encoding

    def _cuFuncSetAttribute(self, symbol: str, which: Any, value: int) -> tuple[()]:
        assert which.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        # Kernels of several files have the same symbol: what all of them were allowed.
        self.shared_limit[symbol] = max(value, self.shared_limit.get(symbol, 0))
        return ()

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, symbol: str, threads: int, nbytes: int
    ) -> tuple[int]:
        assert self.shared_limit[symbol] >= nbytes
        self.fitted += 1
        return (min(2048 // threads, (228 << 10) // (nbytes + 1024)),)

    def _cuOccupancyMaxActiveClusters(self, symbol: str, config: Any) -> tuple[int]:
        per_sm, *_ = self._cuOccupancyMaxActiveBlocksPerMultiprocessor(
            symbol, config.blockDimX, config.sharedMemBytes
        )
        cluster = attributes(config)["CLUSTER_DIMENSION"].clusterDim.x
        assert config.gridDimX % cluster == 0
        return (self.sms * per_sm // cluster,)

    def _cuMemcpy2DAsync(self, copy: Any, stream: int) -> tuple[()]:
        assert copy.srcMemoryType == copy.dstMemoryType == real.CUmemorytype.CU_MEMORYTYPE_DEVICE
        for i in range(copy.Height):
            places = (
                int(copy.dstDevice) + i * copy.dstPitch,
                int(copy.srcDevice) + i * copy.srcPitch,
            )
            ctypes.memmove(*places, copy.WidthInBytes)
        self.queued.append(("copy", stream))
        return ()

    def _cuEventRecord(self, event: int, stream: int) -> tuple[()]:
        self.recorded.append(int(event))
        self.queued.append(("record", int(stream)))
        return ()

    def _cuStreamWaitEvent(self, stream: int, _: int, __: int) -> tuple[()]:
        self.queued.append(("wait", int(stream)))
        return ()

    def _cuGraphLaunch(self, _: int, stream: int) -> tuple[()]:
        self.queued.append(("graph", int(stream)))
        return ()

    def _cuLaunchKernelEx(self, config: Any, symbol: str, pointers: int, _: int) -> tuple[()]:
        params: Any = None
        told = attributes(config)
        if symbol == "gemm":
            (where,) = at(pointers, np.uint64, 1).tolist()
            params = Params.from_buffer_copy(ctypes.string_at(where, ctypes.sizeof(Params)))
        elif symbol == "fill":
            records, count, numbers = at(pointers, np.uint64, 3).tolist()
            (records,), (count,) = at(records, np.uint64, 1), at(count, np.uint32, 1)
            (numbers,) = at(numbers, np.uint64, 1).tolist()
            params = at(int(records), tables.FILL, int(count)), numbers
        elif symbol == "pack":
            records, count = at(pointers, np.uint64, 2).tolist()
            (records,), (count,) = at(records, np.uint64, 1), at(count, np.uint32, 1)
            params = at(int(records), tables.PACK, int(count))
        self.queued.append((symbol, int(config.hStream)))
        self.launched.append(
            Launched(
                symbol,
                (config.gridDimX, config.gridDimY, config.gridDimZ),
                config.blockDimX * config.blockDimY * config.blockDimZ,
                config.sharedMemBytes,
                told["CLUSTER_DIMENSION"].clusterDim.x if "CLUSTER_DIMENSION" in told else 1,
                "COOPERATIVE" in told and told["COOPERATIVE"].cooperative == 1,
                int(config.hStream),
                params,
            )
        )
        return ()


def attributes(config: Any) -> dict[str, Any]:
    """The attributes of a launch by their names."""
    assert len(config.attrs) == config.numAttrs
    return {a.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"): a.value for a in config.attrs}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    for module in (calls, gpu, graphs, telemetry, tensormaps):
        monkeypatch.setattr(module, "driver", made)
    monkeypatch.setattr(gpu, "FLUSH_BYTES", 1 << 12)
    monkeypatch.setattr(cuda.bindings, "nvml", None, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", None)
    return made


def plan_of(
    *groups: str,
    launch: Launching = "grouped",
    kernel: str | None = None,
    choice: Choice | None = None,
) -> Plan:
    kernels = [one for one in KERNELS if kernel in (None, one.name)]
    chosen = {"p": [choice]} if choice else None
    (made,) = plan.make([make_problem(*groups)], kernels, launch=launch, chosen=chosen)
    return made


# What keeps a GPU from being used


def unusable(ordinal: int = 0) -> str:
    with pytest.raises(DeviceUnusable) as caught:
        CudaDevice(ordinal)
    return str(caught.value)


def test_a_machine_without_a_driver_is_told_what_to_install() -> None:
    try:
        calls.driver.cuInit(0)
    except DynamicLibNotFoundError:
        said = unusable()
        assert "no NVIDIA driver" in said and "580" in said and "--device cpu" in said
    else:
        pytest.skip("this machine has a driver")


def test_without_a_driver_there_is_no_gpu_to_count(driver: Driver) -> None:
    def missing(_: int) -> None:
        raise DynamicLibNotFoundError("libcuda.so.1")

    driver.cuInit = missing
    with pytest.raises(DeviceUnusable, match=r"no NVIDIA driver: libcuda\.so\.1 was not found"):
        calls.device_count()


@pytest.mark.parametrize(("version", "named"), [(12040, "CUDA 12.4"), (12090, "CUDA 12.9")])
def test_a_driver_that_is_too_old_is_named_with_the_branch_that_is_needed(
    version: int, named: str, driver: Driver
) -> None:
    driver.version = version
    said = unusable()
    assert f"supports {named};" in said and "CUDA 13.0" in said and "580" in said


def test_an_old_driver_is_the_reason_even_where_it_does_not_start(driver: Driver) -> None:
    driver.version, driver.fails["cuInit"] = 12040, CODES.CUDA_ERROR_NO_DEVICE
    assert "supports CUDA 12.4" in unusable()


@pytest.mark.parametrize("version", [13000, 13010, 14000])
def test_a_newer_driver_will_do(version: int, driver: Driver) -> None:
    driver.version = version
    CudaDevice()


def test_a_driver_without_a_gpu_says_so(driver: Driver) -> None:
    driver.fails["cuInit"] = CODES.CUDA_ERROR_NO_DEVICE
    said = unusable()
    assert "sees no GPU" in said and "--device cpu" in said and "nvidia-smi" in said


def test_a_driver_that_does_not_start_is_quoted(driver: Driver) -> None:
    driver.fails["cuInit"] = CODES.CUDA_ERROR_SYSTEM_NOT_READY
    said = unusable()
    assert said == (
        "the NVIDIA driver does not start: the words for 802 (CUDA_ERROR_SYSTEM_NOT_READY)"
    )


@pytest.mark.parametrize(("count", "words"), [(1, "1 CUDA device,"), (2, "2 CUDA devices,")])
def test_a_gpu_that_is_not_there_is_answered_with_how_many_there_are(
    count: int, words: str, driver: Driver
) -> None:
    driver.gpus *= count
    said = unusable(count)
    assert f"there is no cuda:{count}: this machine has {words} numbered from 0" in said


@pytest.mark.parametrize(
    ("name", "capability", "written"),
    [("NVIDIA A100-SXM4-80GB", (8, 0), "8.0"), ("NVIDIA B200", (10, 0), "10.0")],
)
def test_a_gpu_of_another_kind_is_named_with_those_that_will_do(
    name: str, capability: tuple[int, int], written: str, driver: Driver
) -> None:
    driver.gpus = [(name, capability)]
    said = unusable()
    assert f"cuda:0 is a {name} of compute capability {written}" in said
    assert "9.0 (H100, H200) only" in said


def test_the_first_hopper_gpu_is_taken_beside_another_kind(driver: Driver) -> None:
    driver.gpus = [("NVIDIA A100", (8, 0)), (H200, (9, 0)), (H200, (9, 0))]
    device, why = open_device("auto")
    assert isinstance(device, CudaDevice)
    assert (device.ordinal, why) == (1, None)


def test_where_no_gpu_will_do_every_one_of_them_is_explained(driver: Driver) -> None:
    driver.gpus = [("NVIDIA A100", (8, 0)), ("NVIDIA L4", (8, 9))]
    with pytest.raises(DeviceUnusable, match=r"cuda:0 is a NVIDIA A100.*; cuda:1 is a NVIDIA L4"):
        open_device("cuda")
    device, why = open_device("auto")
    assert device.facts.kind == "cpu"
    assert why is not None and "NVIDIA A100" in why and "NVIDIA L4" in why


@pytest.mark.parametrize("refused", ["cuDevicePrimaryCtxRetain", "cuStreamCreate"])
def test_a_gpu_that_others_keep_to_themselves_is_passed_over(refused: str, driver: Driver) -> None:
    driver.gpus = [(H200, (9, 0)), ("NVIDIA A100", (8, 0))]
    driver.fails[refused] = CODES.CUDA_ERROR_DEVICE_UNAVAILABLE
    with pytest.raises(DeviceUnusable, match=r"cuda:0 cannot be used: .*DEVICE_UNAVAILABLE"):
        open_device("cuda:0")
    device, why = open_device("auto")
    assert device.facts.kind == "cpu"
    assert why is not None and "cuda:0 cannot be used" in why and "NVIDIA A100" in why


# The kernels' files


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the shipped cubins that may be damaged."""
    copytree(cubins.manifest().folder, tmp_path / "cubin")
    monkeypatch.setenv("GEMMCTL_CUBINS", str(tmp_path / "cubin"))
    cubins.manifest.cache_clear()
    yield tmp_path / "cubin"
    cubins.manifest.cache_clear()


def archive_of(file: str) -> str:
    return cubins.manifest().archives[file]


def kernel_file(made: Plan) -> str:
    return made.launches[0].kernel.file


def test_a_gpu_without_a_manifest_is_unusable(driver: Driver, shipped: Path) -> None:
    (shipped / "manifest.json").unlink()
    assert "cannot read the kernel manifest" in unusable()


@pytest.mark.parametrize("which", [kernel_file, lambda _: "fill.cubin"], ids=["gemm", "support"])
def test_a_missing_cubin_makes_the_gpu_unusable(
    which: Callable[[Plan], str], driver: Driver, shipped: Path
) -> None:
    made = plan_of(*GROUPS)
    gone = archive_of(which(made))
    (shipped / gone).unlink()
    with (
        pytest.raises(DeviceUnusable, match=f"cannot read the kernel file .*{gone}"),
        CudaDevice().open(made, SPEC),
    ):
        pass


@pytest.mark.parametrize("which", [kernel_file, lambda _: "fill.cubin"], ids=["gemm", "support"])
def test_a_damaged_cubin_never_reaches_the_gpu(
    which: Callable[[Plan], str], driver: Driver, shipped: Path
) -> None:
    made = plan_of(*GROUPS)
    path = shipped / archive_of(which(made))
    files = archive.unpack(path.read_bytes())
    damaged = files[which(made)][:-1] + b"?"
    path.write_bytes(archive.pack(files | {which(made): damaged}))
    with pytest.raises(DeviceUnusable, match="is damaged"), CudaDevice().open(made, SPEC):
        pass
    assert damaged not in driver.loaded


def test_a_cubin_that_the_driver_refuses_makes_the_gpu_unusable(driver: Driver) -> None:
    driver.fails["cuModuleLoadData"] = CODES.CUDA_ERROR_NO_BINARY_FOR_GPU
    refused = pytest.raises(DeviceUnusable, match=r"refuses the kernel file \S+\.cubin: .*209")
    with refused, CudaDevice().open(plan_of(*GROUPS), SPEC):
        pass


def test_a_cubin_is_loaded_once(driver: Driver) -> None:
    device, made = CudaDevice(), plan_of(*GROUPS)
    for _ in range(2):
        with device.open(made, SPEC):
            pass
    files = {launch.kernel.file for launch in made.launches} | {"fill.cubin", "build_maps.cubin"}
    assert len(driver.loaded) == len(files)


def test_an_archive_is_unpacked_once_for_all_its_cubins(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[str] = []
    unpack = Manifest.unpack

    def noting(manifest: Manifest, name: str) -> dict[str, bytes]:
        unpacked.append(name)
        return unpack(manifest, name)

    monkeypatch.setattr(Manifest, "unpack", noting)
    made = plan_of(*GROUPS)
    with CudaDevice().open(made, SPEC):
        pass
    kernels = {archive_of(launch.kernel.file) for launch in made.launches}
    assert sorted(unpacked) == sorted({*kernels, "support.tar.xz"})
    assert len(driver.loaded) > len(unpacked)


def test_a_cubin_that_found_no_memory_is_loaded_when_there_is_some(driver: Driver) -> None:
    device, made = CudaDevice(), plan_of(*GROUPS)
    driver.fails["cuModuleLoadData"] = CODES.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceFailed, match="OUT_OF_MEMORY"), device.open(made, SPEC):
        pass
    del driver.fails["cuModuleLoadData"]
    with device.open(made, SPEC):
        pass
    assert len(set(driver.loaded)) == len(driver.loaded) > len(made.launches)


# What it is


def test_a_device_says_what_it_is(driver: Driver) -> None:
    facts = CudaDevice().facts
    assert (facts.kind, facts.name, facts.sm_count) == ("cuda", H200, 132)
    assert (facts.memory_bytes, facts.driver) == (141 << 30, "CUDA 13.0")


def test_a_driver_is_named_by_the_cuda_version_that_it_supports(driver: Driver) -> None:
    driver.version = 13020
    assert CudaDevice().facts.driver == "CUDA 13.2"


def test_a_gpu_is_told_from_others_of_its_kind(driver: Driver) -> None:
    assert CudaDevice().facts.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("name", "measured"), [(H200, roofline.H200), ("NVIDIA H100 80GB HBM3", roofline.H100)]
)
def test_a_gpu_of_a_measured_kind_is_judged_by_what_was_measured(
    name: str, measured: roofline.Roofline, driver: Driver
) -> None:
    driver.gpus = [(name, (9, 0))]
    assert CudaDevice().facts.roofline == measured


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GH200 480GB", "NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA H100 NVL",
     "NVIDIA H200 MIG 3g.71gb", "NVIDIA H20", "NVIDIA H800"],
)  # fmt: skip
def test_another_hopper_gpu_is_judged_by_what_its_clocks_allow(name: str, driver: Driver) -> None:
    driver.gpus = [(name, (9, 0))]
    found = CudaDevice().facts.roofline
    assert found is not None and f"clocks of {name} allow" in found.name
    assert found.flop_per_s == 132 * 4096 * 1.98e9
    assert found.bytes_per_s == 2 * 2.619e9 * 5120 / 8


class Nvml(SimpleNamespace):
    """cuda.bindings.nvml for one GPU."""

    class NvmlError(Exception):
        pass

    ClockType = SimpleNamespace(CLOCK_SM=1, CLOCK_MEM=2)
    ClockId = SimpleNamespace(APP_CLOCK_TARGET=1)
    reasons = 0

    def init_v2(self) -> None: ...

    def device_get_handle_by_pci_bus_id_v2(self, name: str) -> int:
        assert name == "0000:19:00.0"
        return 5

    def system_get_driver_version(self) -> str:
        return "580.65.06"

    def device_get_current_clocks_event_reasons(self, _: int) -> int:
        return self.reasons

    def device_get_clock_info(self, _: int, which: int) -> int:
        return {1: 1755, 2: 3201}[which]  # MHz

    def device_get_max_clock_info(self, _: int, which: int) -> int:
        return {1: 1980, 2: 3201}[which]

    def device_get_clock(self, _: int, which: int, setting: int) -> int:
        return {(1, 1): 1830}[which, setting]

    def device_get_power_usage(self, _: int) -> int:
        return 698_500  # mW

    def device_get_total_energy_consumption(self, _: int) -> int:
        return 12_345_678  # mJ


@pytest.fixture
def nvml(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    made = Nvml()
    monkeypatch.setattr(cuda.bindings, "nvml", made, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", made)
    return made


def test_clocks_and_power_come_in_base_units(nvml: Nvml) -> None:
    found = CudaDevice().telemetry()
    assert found is not None
    assert (found.sm_hz, found.power_w, found.throttle) == (1.755e9, 698.5, ())
    assert found.memory_hz == 3.201e9


def test_the_highest_clock_and_the_one_set_are_known(nvml: Nvml) -> None:
    facts = CudaDevice().facts
    assert (facts.sm_max_hz, facts.sm_set_hz) == (1.98e9, 1.83e9)


@pytest.mark.parametrize("error", [Nvml.NvmlError, RuntimeError, AttributeError])
def test_clocks_that_cannot_be_read_are_none_and_the_others_are_kept(
    error: type[Exception], nvml: Nvml
) -> None:
    clocks = nvml.device_get_clock_info

    def fail(*told: int) -> int:
        if told == (5, nvml.ClockType.CLOCK_SM):
            return clocks(*told)
        raise error

    nvml.device_get_clock = nvml.device_get_clock_info = fail
    device = CudaDevice()
    assert (device.facts.sm_max_hz, device.facts.sm_set_hz) == (1.98e9, None)
    found = device.telemetry()
    assert found is not None
    assert (found.sm_hz, found.memory_hz) == (1.755e9, None)


def test_what_holds_the_clock_down_is_named(nvml: Nvml) -> None:
    nvml.reasons = 0x2 | 0x4 | 0x40 | 0x1  # idling is none
    found = CudaDevice().telemetry()
    assert found is not None
    assert found.throttle == ("clock setting", "power cap", "hardware thermal")


def test_the_driver_is_named_by_its_own_version_too(nvml: Nvml) -> None:
    assert CudaDevice().facts.driver == "580.65.06 (CUDA 13.0)"


def test_a_gpu_whose_clocks_cannot_be_read_works_without(nvml: Nvml) -> None:
    def fail(_: int) -> int:
        raise Nvml.NvmlError

    nvml.device_get_power_usage = fail
    assert CudaDevice().telemetry() is None


def test_energy_is_counted_in_joules(nvml: Nvml) -> None:
    assert CudaDevice().energy_j() == pytest.approx(12345.678)


def test_a_gpu_that_counts_no_energy_works_without(nvml: Nvml) -> None:
    def fail(_: int) -> int:
        raise Nvml.NvmlError

    nvml.device_get_total_energy_consumption = fail
    device = CudaDevice()
    assert device.energy_j() is None
    assert device.telemetry() is not None


def test_a_machine_without_nvml_works_without(driver: Driver) -> None:
    device = CudaDevice()
    assert device.telemetry() is None
    assert device.energy_j() is None
    assert (device.facts.sm_max_hz, device.facts.sm_set_hz) == (None, None)


# What goes wrong while it runs


def test_operands_that_do_not_fit_are_refused_with_the_bytes_needed_and_free(
    driver: Driver,
) -> None:
    driver.free_bytes = 30_000_000
    made = plan_of("m: 4096, n: 4096, k: 4096")
    needed = f"need {made.layout.size / 1e9:.2f} GB"
    too_much = pytest.raises(DeviceFailed, match=rf"{needed} of GPU memory and 0\.03 GB are free")
    with too_much, CudaDevice().open(made, SPEC):
        pass


def test_a_kernel_that_fails_is_quoted(driver: Driver) -> None:
    with CudaDevice().open(plan_of(*GROUPS), SPEC) as session:
        driver.fails["cuStreamQuery"] = CODES.CUDA_ERROR_ILLEGAL_ADDRESS
        words = r"the kernel failed: the words for 700 \(CUDA_ERROR_ILLEGAL_ADDRESS\)"
        with pytest.raises(DeviceFailed, match=words):
            session.run()
        del driver.fails["cuStreamQuery"]


def test_a_function_of_the_driver_that_fails_is_named(driver: Driver) -> None:
    driver.fails["cuMemAlloc"] = CODES.CUDA_ERROR_OUT_OF_MEMORY
    failed = pytest.raises(DeviceFailed, match=r"cuMemAlloc failed: .* 2 \(\S+OUT_OF_MEMORY")
    with failed, CudaDevice().open(plan_of(*GROUPS), SPEC):
        pass


def test_a_kernel_that_does_not_end_is_given_up(driver: Driver) -> None:
    def hang() -> None:
        with CudaDevice(time_limit_s=0.01).open(plan_of(*GROUPS), SPEC) as session:
            driver.fails["cuStreamQuery"] = CODES.CUDA_ERROR_NOT_READY
            session.run()

    with pytest.raises(DeviceHung, match=r"did not finish within 0\.01 s"):
        hang()


def test_what_takes_long_by_itself_may_take_longer_in_graphs_of_many(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CudaDevice(time_limit_s=0.01).open(plan_of(*GROUPS), SPEC) as session:
        monkeypatch.setattr(session_module, "monotonic", iter([0.0, 5.0]).__next__)
        session.run()
        assert session.device.expected_s == 4 * WARM_RUNS * 5.0
        driver.fails["cuStreamQuery"] = CODES.CUDA_ERROR_NOT_READY
        times = iter([0.0, 399.0, 401.0])
        monkeypatch.setattr(gpu, "monotonic", times.__next__)
        with pytest.raises(DeviceHung, match=r"did not finish within 400 s"):
            session.device.wait()
        del driver.fails["cuStreamQuery"]


def test_streams_are_joined_though_what_they_were_for_fails(driver: Driver) -> None:
    with ExitStack() as cleanup:
        fan = CudaDevice().fan(3, cleanup)
        driver.queued.clear()
        with pytest.raises(ZeroDivisionError), fan.spread():
            raise ZeroDivisionError
        main, *others = fan.streams
        assert [entry for entry in driver.queued if entry[0] == "wait"][-2:] == [("wait", main)] * 2
        assert [stream for what, stream in driver.queued if what == "record"] == [main, *others]


def test_memory_that_is_out_when_a_kernel_is_loaded_is_no_fault_of_the_file(
    driver: Driver,
) -> None:
    device = CudaDevice()
    driver.fails["cuModuleLoadData"] = CODES.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceFailed, match=r"OUT_OF_MEMORY"):
        device.support("flush")
    driver.fails["cuModuleLoadData"] = CODES.CUDA_ERROR_INVALID_IMAGE
    with pytest.raises(DeviceUnusable, match="the driver refuses the kernel file"):
        device.support("flush")


def test_what_a_kernel_that_does_not_end_may_use_is_not_freed(driver: Driver) -> None:
    used: dict[int, str] = {}

    def hang() -> None:
        with CudaDevice(time_limit_s=0.01).open(plan_of(*GROUPS), SPEC) as session:
            used.update(driver.live)
            driver.fails["cuStreamQuery"] = CODES.CUDA_ERROR_NOT_READY
            session.run()

    with pytest.raises(DeviceHung):
        hang()
    assert used.items() <= driver.live.items()


@pytest.mark.parametrize("launch", ["grouped", "streams"])
def test_a_session_gives_back_what_it_took(launch: Launching, driver: Driver) -> None:
    device = CudaDevice()
    device.flush_l2()  # has memory of its own, once
    device.quantiles()  # likewise
    before = dict(driver.live)
    with device.open(plan_of(*GROUPS, launch=launch), SPEC) as session:
        session.run()
        session.time(3, cold=True)
        session.time(3, cold=False)
        driver.ahead = AT_ONCE
        session.sustain(0, lambda: None)
        assert driver.live != before
    assert driver.live == before


def test_a_session_that_cannot_start_gives_back_what_it_took(driver: Driver) -> None:
    device = CudaDevice()
    device.quantiles()
    before = dict(driver.live)
    driver.fails["cuLaunchKernelEx"] = CODES.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(DeviceFailed), device.open(plan_of(*GROUPS), SPEC):
        pass
    assert driver.live == before


# What the kernels get


@pytest.fixture
def session(driver: Driver) -> Iterator[CudaSession]:
    with CudaDevice().open(plan_of(*GROUPS), SPEC) as made:
        yield made


def at(address: int, dtype: Any, count: int) -> Any:
    """A copy of device memory."""
    wanted = np.dtype(dtype)
    return np.frombuffer(ctypes.string_at(address, wanted.itemsize * count), wanted)


def gemms(driver: Driver) -> list[Launched]:
    return [launched for launched in driver.launched if launched.symbol == "gemm"]


def given(driver: Driver, session: CudaSession) -> list[tuple[Launch, Any, Tables]]:
    """Of every launch: the plan's part, the parameters, and the tables they should name."""
    made = session._plan
    session.run()
    return [
        (launch, launched.params, tables.build(launch, made, session.base))
        for launch, launched in zip(made.launches, gemms(driver), strict=True)
    ]


def flag_count(launch: Launch) -> int:
    """A flag of every split tile for every warpgroup that multiplies in the CTAs of a cluster."""
    return launch.flags * launch.kernel.cluster * (launch.kernel.threads // 128 - 1)


def test_a_launch_is_told_where_its_arrays_are(driver: Driver, session: CudaSession) -> None:
    for _, params, table in given(driver, session):
        for name, _kind in params.groups._fields_:
            array = getattr(table, name)
            assert np.array_equal(at(getattr(params.groups, name), array.dtype, len(array)), array)


def test_a_tile_list_ends_with_an_entry_of_width_0(driver: Driver, session: CudaSession) -> None:
    for _, params, table in given(driver, session):
        count = len(table.tiles)
        assert params.tile_count == count
        listed = at(params.tiles, TILE, count + 1)
        assert np.array_equal(listed[:count], table.tiles)
        assert listed["width"][count] == 0


def test_parts_of_few_sums_begin_on_ctas_that_lie_apart(driver: Driver) -> None:
    made = plan_of("m: 10, n: 6144, k: 2048", choice=Choice("128x256", 256, 2))
    with CudaDevice().open(made, SPEC) as session:
        ((_, params, table),) = given(driver, session)
        first = at(params.tiles, TILE, 132)  # whose memory is gone with the session
        waits = first["k_tiles"] == 0
        assert np.bincount(np.flatnonzero(waits) * 4 // 132).tolist() == [9, 9, 9, 9]
        assert sorted(first.tolist()) == sorted(table.tiles[:132].tolist())


def test_a_launch_is_told_how_far_ahead_tiles_may_be_taken(
    driver: Driver, session: CudaSession
) -> None:
    for launch, params, _ in given(driver, session):
        assert params.ahead == launch.ahead


def test_counters_and_flags_begin_at_0(driver: Driver, session: CudaSession) -> None:
    told = given(driver, session)
    assert any(launch.flags for launch, _, _ in told)
    for launch, params, _ in told:
        assert at(params.counter, np.uint32, 1) == 0
        assert not at(params.flags, np.uint32, flag_count(launch)).any()


def test_nothing_that_a_kernel_is_given_overlaps(driver: Driver, session: CudaSession) -> None:
    taken = [(session.base, session._plan.layout.size)]
    for launch, params, table in given(driver, session):
        taken += [
            (getattr(params.groups, name), getattr(table, name).nbytes)
            for name, _ in params.groups._fields_
        ]
        taken += [
            (params.tiles, (len(table.tiles) + 1) * TILE.itemsize),
            (params.counter, 4),
            (params.flags, 4 * flag_count(launch)),
            (params.workspace, launch.workspace_bytes),
            (params.maps, len(launch.groups) * size("Maps")),
        ]
    taken = sorted((begin, begin + nbytes) for begin, nbytes in taken if nbytes)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))


def test_everything_lies_inside_of_what_was_allocated(driver: Driver, session: CudaSession) -> None:
    owned = [
        (address, address + len(driver._memory[address]) - 256)
        for address, kind in driver.live.items()
        if kind == "memory"
    ]
    for launch, params, _ in given(driver, session):
        for begin, nbytes in (
            (params.maps, len(launch.groups) * size("Maps")),
            (params.workspace, launch.workspace_bytes),
        ):
            assert any(low <= begin and begin + nbytes <= high for low, high in owned)


def test_maps_and_tiles_lie_where_the_hardware_wants_them(
    driver: Driver, session: CudaSession
) -> None:
    for _, params, _ in given(driver, session):
        assert params.maps % 128 == 0
        assert params.tiles % 16 == 0
        assert params.workspace % 16 == 0


def marked_maps(session: CudaSession) -> Iterator[tuple[Any, Any]]:
    """Of each launch: its maps, which the kernels that build them are not there for, as numbers.

    And those that are in constant memory, copied there anew.
    """
    for ready in session.ready:
        params, groups = ready.params, len(ready.launch.groups)
        maps = np.arange(groups * MAPS, dtype=np.uint64).repeat(MAP_BYTES // 8)
        ctypes.memmove(params.maps, maps.ctypes.data, maps.nbytes)
        there = params.constants
        if there.groups:
            Copy(ready).queue(session.device, session.device.stream)
        copied = at(ready.constants, np.uint64, there.groups * there.each * (MAP_BYTES // 8))
        yield maps.reshape(groups, MAPS, -1), copied.reshape(there.groups, there.each, -1)


@pytest.mark.parametrize(
    ("group", "each"),
    [
        ("m: 64, n: 64, k: 64", 2),
        ("m: 64, n: 64, k: 64, beta: 1", 3),
        ("m: 64, n: 65, k: 64, ldb: 64, beta: 1", 2),  # C comes by residues, whose maps are others
        ("m: 64, n: 64, k: 64, d: f32, beta: 1, inplace: true", 3),  # D is added to
    ],
)
def test_maps_that_a_kernel_uses_are_copied_to_constant_memory_as_far_as_there_is_room(
    group: str, each: int, driver: Driver
) -> None:
    made = plan_of(f"{group}, count: 300", kernel="128x256")
    with CudaDevice().open(made, SPEC) as session:
        (ready,) = session.ready
        there = ready.params.constants
        assert (there.first, there.each, there.groups) == (0, each, CONSTANT_MAPS // each)
        assert [ready.constants] == list(driver.constants.values())
        ((maps, copied),) = marked_maps(session)
        assert np.array_equal(copied, maps[: there.groups, :each])
        assert driver.queued.count(("copy", session.device.stream)) == 2


def test_launches_of_one_kernel_have_constant_memory_one_behind_the_other(
    driver: Driver,
) -> None:
    alike = "m: 512, n: 512, k: 512"
    made = plan_of(f"{alike}, count: 3", f"{alike}, beta: 1", kernel="64x256", launch="serial")
    with CudaDevice().open(made, SPEC) as session:
        told = [ready.params.constants for ready in session.ready]
        assert [(there.first, there.groups, there.each) for there in told] == [
            (0, 1, 2), (2, 1, 2), (4, 1, 2), (6, 1, 3),
        ]  # fmt: skip
        for maps, copied in marked_maps(session):
            assert np.array_equal(maps[:, : copied.shape[1]], copied)


def test_constant_memory_is_one_sessions_at_a_time(driver: Driver) -> None:
    device, made = CudaDevice(), plan_of("m: 64, n: 64, k: 64")
    with device.open(made, SPEC) as first:
        with device.open(made, SPEC) as second:
            had = [session.ready[0].params.constants.groups for session in (first, second)]
        assert had == [1, 0]
    with device.open(made, SPEC) as third:
        assert third.ready[0].params.constants.groups == 1


def test_a_graph_that_builds_maps_in_every_run_copies_none(driver: Driver) -> None:
    with CudaDevice().open(plan_of("m: 64, n: 64, k: 64", launch="graph"), SPEC) as session:
        assert session.ready[0].params.constants.groups == 0
    assert "copy" not in {what for what, _ in driver.queued}


def launched_for(driver: Driver, made: Plan) -> tuple[Kernel, Launched]:
    with CudaDevice().open(made, SPEC) as session:
        session.run()
    (launched,) = gemms(driver)
    return made.launches[0].kernel, launched


@pytest.mark.parametrize("name", ["128x256-c2", "128x256", "64x128"])
def test_a_kernel_is_launched_with_its_threads_clusters_and_shared_memory(
    name: str, driver: Driver
) -> None:
    kernel, launched = launched_for(driver, plan_of("m: 64, n: 64, k: 64", kernel=name))
    assert (launched.threads, launched.cluster) == (kernel.threads, kernel.cluster)
    assert launched.shared_bytes == kernel.shared_bytes == driver.shared_limit["gemm"]


@pytest.mark.parametrize("n", [256 * 5, 256 * 200])
def test_a_launch_is_as_many_clusters_as_the_plan_says(n: int, driver: Driver) -> None:
    made = plan_of(f"m: 256, n: {n}, k: 64", kernel="128x256-c2")
    _, launched = launched_for(driver, made)
    assert launched.grid == (2 * made.launches[0].clusters, 1, 1)


@pytest.mark.parametrize(("name", "room"), [("128x256-c2", 33), ("128x256", 66), ("64x128", 132)])
def test_no_more_clusters_are_started_than_the_driver_has_room_for(
    name: str, room: int, driver: Driver
) -> None:
    driver.sms = 66  # half of them: a share that MPS gives a process
    made = plan_of("m: 256, n: 256000, k: 64", kernel=name)
    kernel, launched = launched_for(driver, made)
    assert made.launches[0].clusters > room
    assert launched.grid == (room * kernel.cluster, 1, 1)


def test_a_kernel_that_has_no_room_at_all_is_named(driver: Driver) -> None:
    driver.sms = 1
    refused = pytest.raises(DeviceUnusable, match=r"no room for kernel 128x256-c2; .*--kernel")
    with refused, CudaDevice().open(plan_of("m: 8, n: 8, k: 8", kernel="128x256-c2"), SPEC):
        pass


def test_the_driver_is_asked_once_how_much_of_a_kernel_fits(driver: Driver) -> None:
    device, made = CudaDevice(), plan_of("m: 8, n: 8, k: 8", "m: 8, n: 8, k: 8", launch="serial")
    for _ in range(2):
        with device.open(made, SPEC):
            pass
    assert driver.fitted == 1


def test_a_launch_whose_ctas_wait_for_each_other_is_cooperative(driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 16384", "m: 64, n: 64, k: 64, d: f32")
    with CudaDevice().open(made, SPEC) as session:
        session.run()
        session.time(1, cold=False)
    split = [launch.slots > 0 for launch in made.launches]
    assert sorted(split) == [False, True]
    runs = 1 + 1 + gpu.WARM_RUNS  # one by itself before the graph
    assert [launched.cooperative for launched in gemms(driver)] == split * runs


@pytest.mark.parametrize("name", ["128x256-c2", "128x256", "64x128", "128x256-c2x"])
def test_there_is_a_map_for_every_width_of_a_ctas_share_and_of_c_for_b_gates_and_d_in_boxes(
    name: str, driver: Driver
) -> None:
    made = plan_of("m: 64, n: 64, k: 64", kernel=name)
    with CudaDevice().open(made, SPEC):
        pass
    kernel, widths = made.launches[0].kernel, range(16, 257, 16)
    code, f32 = dtypes.BF16.tensormap_code, dtypes.F32.tensormap_code
    of_a = [(code, (K_TILE, width // kernel.cluster)) for width in widths]
    runs = [max(1, width // kernel.cluster // 32) for width in widths]
    shuffled = [(code, (K_TILE, 2, 4, 4, count)) for count in runs]
    of_b = [(K_TILE, kernel.rows), (K_TILE, 8, 2), (K_TILE, 8, 2, kernel.rows // 16)]
    of_c = [*((code, (64, width)) for width in widths), *((f32, (32, width)) for width in widths)]
    # Of two blocks of columns: of rows, and of every other one.
    boxed = [(f32, (32, 2, BOXED_ROWS)), (f32, (32, 2, BOXED_ROWS // 2, 2))]
    assert driver.encoded == [*of_a, *shuffled, *((code, box) for box in of_b), *of_c, *boxed]


def test_a_map_that_the_driver_refuses_is_an_error(driver: Driver) -> None:
    driver.encoding = int(CODES.CUDA_ERROR_INVALID_VALUE)
    failed = pytest.raises(DeviceFailed, match=r"refuses a tensor map: .*INVALID_VALUE")
    with failed, CudaDevice().open(plan_of(*GROUPS), SPEC):
        pass


@pytest.mark.parametrize("kind", data.KINDS)
def test_operands_are_generated_as_the_tables_say(kind: data.Kind, driver: Driver) -> None:
    made, spec, device = plan_of(*GROUPS), DataSpec(kind, 2**40 + 3), CudaDevice()
    with device.open(made, spec) as session:
        expected = tables.fills(made, session.base, spec)
    (launched,) = (launched for launched in driver.launched if launched.symbol == "fill")
    records, numbers = launched.params
    assert np.array_equal(records, expected)
    assert numbers == device.quantiles()
    bf16 = at(numbers, np.uint16, QUANTILES)
    f32 = at(numbers + 4 * QUANTILES, np.uint32, QUANTILES)
    assert np.array_equal(bf16, data.quantiles(dtypes.BF16))
    assert np.array_equal(f32, data.quantiles(dtypes.F32))


def test_operands_are_packed_as_the_tables_say(driver: Driver) -> None:
    made = plan_of("m: 64, n: 40, k: 63, count: 3", "m: 8, n: 8, k: 8")
    with CudaDevice().open(made, SPEC) as session:
        session.run()
        expected = tables.packs(made, session.base)
    (launched,) = (launched for launched in driver.launched if launched.symbol == "pack")
    assert len(launched.params) == 6
    assert np.array_equal(launched.params, expected)
    assert (launched.grid, launched.threads) == ((PACK_CTAS * driver.sms, 1, 1), PACK_THREADS)


def test_c_in_place_is_generated_again_with_every_poison_and_before_every_burst(
    driver: Driver,
) -> None:
    made = plan_of("m: 64, n: 40, k: 64, beta: 1", "m: 9, n: 5, k: 8, beta: 2, inplace: true")
    with CudaDevice().open(made, SPEC) as session:
        session.poison()
        driver.queued.clear()
        session.time(2, cold=True)
        queued = [what for what, _ in driver.queued]
        c = made.layout.d[1] + session.base
    assert queued == ["fill", *AHEAD, *["flush", "record", "gemm", "record"] * 2]
    _, *again = (launched.params[0] for launched in driver.launched if launched.symbol == "fill")
    assert [records["ptr"].tolist() for records in again] == [[c], [c]]


def test_a_hash_is_asked_for_every_d_with_elements(driver: Driver) -> None:
    made = plan_of("m: 64, n: 40, k: 64, ldd: 56, d: f32", "m: 0, n: 8, k: 8", "m: 3, n: 5, k: 8")
    with CudaDevice().open(made, SPEC) as session:
        found = session.digests()
        records = tables.hashed(made, session.base)
    assert found.dtype == np.uint64 and len(found) == 3
    (launched,) = (launched for launched in driver.launched if launched.symbol == "hash_rows")
    assert launched.threads == HASH_THREADS
    assert records["group"].tolist() == [0, 2]
    assert records["pitch_bytes"].tolist() == [56 * 4, 5 * 2]
    assert records["row_bytes"].tolist() == [40 * 4, 5 * 2]
    assert records["rows"].tolist() == [64, 3]
    assert (records["ptr"] - np.uint64(session.base)).tolist() == made.layout.d[[0, 2]].tolist()


def test_maps_are_built_by_a_thread_each(driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 64, count: 1000")
    with CudaDevice().open(made, SPEC):
        pass
    (built,) = (launched for launched in driver.launched if launched.symbol == "build_maps")
    assert built.threads == MAP_THREADS
    assert built.grid == (ceil(MAPS * 1000 / built.threads), 1, 1)


def test_maps_of_residues_are_built_where_c_comes_so(driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 64, count: 500", "m: 64, n: 65, k: 64, beta: 1, count: 500")
    with CudaDevice().open(made, SPEC):
        pass
    (built,) = (launched for launched in driver.launched if launched.symbol == "build_residues")
    assert built.grid == (ceil(RESIDUES * 1000 / built.threads), 1, 1)


def test_no_maps_of_residues_are_built_where_every_c_lies_on_16_bytes(driver: Driver) -> None:
    with CudaDevice().open(plan_of("m: 64, n: 64, k: 64, beta: 1"), SPEC):
        pass
    assert "build_residues" not in {launched.symbol for launched in driver.launched}


def test_a_problem_of_empty_groups_launches_nothing(driver: Driver) -> None:
    with CudaDevice().open(plan_of("m: 0, n: 8, k: 8"), SPEC) as session:
        session.run()
        session.time(2, cold=True)
    assert {launched.symbol for launched in driver.launched} <= {"flush"}


def test_the_arena_is_poison_before_operands_are_generated(session: CudaSession) -> None:
    nbytes = session._plan.layout.size
    assert (session.read(0, nbytes) == 0xFF).all()


def test_poison_covers_the_region_of_d_and_nothing_else(session: CudaSession) -> None:
    layout = session._plan.layout
    ctypes.memset(session.base, 0, layout.size)
    session.poison()
    poisoned = session.read(0, layout.size) == 0xFF
    assert np.array_equal(
        np.flatnonzero(poisoned[[0, layout.d_begin - 1, layout.d_begin, layout.d_end - 1]]), [2, 3]
    )
    assert poisoned.sum() == layout.d_end - layout.d_begin


def test_rows_are_copied_without_what_lies_between_them(driver: Driver) -> None:
    source, to = (np.full(64, fill, np.uint8) for fill in (7, 0))
    CudaDevice().copy_rows((to.ctypes.data + 3, 20), (source.ctypes.data, 16), 10, 3, 42)
    rows = [np.arange(10) + 3 + 20 * i for i in range(3)]
    assert np.array_equal(np.flatnonzero(to == 7), np.concatenate(rows))
    assert driver.queued == [("copy", 42)]


# Timing


ONE_LAUNCH = "m: 300, n: 520, k: 136, count: 3"
AHEAD = ["flush"] * 8  # that a GPU is busy with before the first sample
CAPTURED = ["record", "wait", "gemm", "gemm", "record", "wait"]  # of GROUPS: fork, launch, join


def timed(driver: Driver, made: Plan, *, cold: bool) -> tuple[list[Sample], list[str]]:
    """Three samples, and what was queued for them."""
    with CudaDevice().open(made, SPEC) as session:
        driver.queued.clear()
        return session.time(3, cold=cold), [what for what, _ in driver.queued]


def test_the_gpu_is_busy_for_long_enough_that_a_host_which_slept_queues_the_first_sample(
    driver: Driver,
) -> None:
    _, cold = timed(driver, plan_of(ONE_LAUNCH), cold=True)
    assert cold[: len(AHEAD) + 2] == [*AHEAD, "flush", "record"]
    _, warm = timed(driver, plan_of(ONE_LAUNCH), cold=False)
    begin = warm.index("graph")  # not timed: the L2 has what it reads from then on
    assert warm[begin - len(AHEAD) : begin + 2] == [*AHEAD, "graph", "record"]


def test_a_cold_run_has_a_flush_before_it(driver: Driver) -> None:
    samples, queued = timed(driver, plan_of(ONE_LAUNCH), cold=True)
    assert [sample.seconds for sample in samples] == [5e-3] * 3
    assert queued == AHEAD + ["flush", "record", "gemm", "record"] * 3  # no flush is timed


def test_a_cold_run_of_several_launches_is_one_graph(driver: Driver) -> None:
    made = plan_of(*GROUPS)
    assert len(made.launches) > 1
    _, queued = timed(driver, made, cold=True)
    assert queued == CAPTURED + AHEAD + ["flush", "record", "graph", "record"] * 3


def test_packing_and_the_launch_behind_it_are_one_graph(driver: Driver) -> None:
    _, queued = timed(driver, plan_of("m: 64, n: 64, k: 63"), cold=True)
    assert queued == ["pack", "gemm"] + AHEAD + ["flush", "record", "graph", "record"] * 3


@pytest.mark.parametrize("launch", ["grouped", "graph", "serial", "streams"])
def test_a_run_packs_once_before_anything_is_multiplied(launch: Launching, driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 63, count: 3", "m: 64, n: 64, k: 9, d: f32", launch=launch)
    with CudaDevice().open(made, SPEC) as session:
        session.run()
    names = [what for what, _ in driver.queued]
    assert names.count("pack") == 1
    begun = names.index("pack")
    assert names.index("gemm") > begun
    if launch == "streams":  # which wait for it
        main = driver.queued[begun][1]
        assert driver.queued[begun + 1] == ("record", main) and names[begun + 2] == "wait"


def test_a_warm_sample_is_many_runs_in_one_graph_shared_out(driver: Driver) -> None:
    made = plan_of(*GROUPS)
    samples, queued = timed(driver, made, cold=False)
    assert [sample.seconds for sample in samples] == pytest.approx([5e-3 / gpu.WARM_RUNS] * 3)
    once = CAPTURED  # says how long the graph may take
    first = ["graph"]  # is not timed: the GPU is at it while the first sample is queued
    graphs = AHEAD + first + ["record", "graph", "record"] * 3
    assert queued == once + CAPTURED * gpu.WARM_RUNS + graphs


@pytest.mark.parametrize(
    "sample",
    [
        lambda session: session.time(1, cold=False),
        lambda session: session.sustain(0.0, lambda: None),
    ],
    ids=["warm", "back to back"],
)
def test_a_graph_of_many_runs_may_take_as_long_as_these(
    sample: Callable[[CudaSession], object], driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.ahead = AT_ONCE
    with CudaDevice().open(plan_of(*GROUPS), SPEC) as session:
        times = chain([0.0, 5.0], repeat(5.0))  # a run takes 5 s, and then no time passes
        monkeypatch.setattr(session_module, "monotonic", times.__next__)
        sample(session)
        assert session.device.expected_s >= gpu.WARM_RUNS * 5.0


@pytest.mark.parametrize("cold", [True, False])
def test_a_graph_is_captured_once(cold: bool, driver: Driver) -> None:
    with CudaDevice().open(plan_of(*GROUPS), SPEC) as session:
        session.time(1, cold=cold)
        driver.queued.clear()
        session.time(1, cold=cold)
        assert "gemm" not in [what for what, _ in driver.queued]


@pytest.mark.parametrize("cold", [True, False])
def test_what_else_is_timed_is_queued_as_it_is(
    cold: bool, driver: Driver, session: CudaSession
) -> None:
    driver.queued.clear()
    session.time(2, cold=cold, queue=lambda: driver.queued.append(("other", 0)))
    queued = [what for what, _ in driver.queued]
    if cold:
        assert queued == AHEAD + ["flush", "record", "other", "record"] * 2
    else:
        assert queued == AHEAD + ["other"] + ["record", "other", "record"] * 2


@pytest.mark.parametrize("cold", [True, False])
def test_samples_that_began_before_all_was_queued_are_marked(
    cold: bool, driver: Driver, session: CudaSession
) -> None:
    driver.ahead = {0, 2}
    samples = session.time(3, cold=cold)
    assert [sample.host_bound for sample in samples] == [True, False, True]


def test_whether_a_sample_began_is_asked_once_all_of_it_is_queued(
    driver: Driver, session: CudaSession
) -> None:
    session.time(1, cold=True)  # captures the graph, which records events of its own
    driver.recorded.clear()
    driver.asked.clear()
    session.time(3, cold=True)
    begins = driver.recorded[::2]  # one for the beginning and one for the end of each
    assert driver.asked == [(begins[0], 2), (begins[1], 4), (begins[2], 6)]


# Back to back


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's clock goes on by a second whenever it is read."""
    monkeypatch.setattr(session_module, "monotonic", map(float, count()).__next__)


def sustained(
    driver: Driver, made: Plan, seconds: float = 0.0, watch: Callable[[], None] = lambda: None
) -> tuple[list[Sample], list[str]]:
    """Samples back to back, and what was queued for them."""
    with CudaDevice().open(made, SPEC) as session:
        driver.queued.clear()
        driver.recorded.clear()
        return session.sustain(seconds, watch), [what for what, _ in driver.queued]


def test_samples_back_to_back_are_graphs_of_many_runs_and_none_waits_for_the_host(
    driver: Driver, ticking: None
) -> None:
    driver.ahead, made = AT_ONCE, plan_of(*GROUPS)
    samples, queued = sustained(driver, made, 10.0)
    assert [sample.seconds for sample in samples] == pytest.approx([5e-3 / gpu.WARM_RUNS] * 9)
    graphs = ["graph"] + ["record", "graph", "record"] * 9
    assert queued == CAPTURED + CAPTURED * gpu.WARM_RUNS + graphs


def test_all_that_ended_while_somebody_watched_is_queued_anew_before_they_watch_again(
    driver: Driver, ticking: None
) -> None:
    driver.ahead, made = AT_ONCE, plan_of(ONE_LAUNCH)
    watched: list[int] = []
    samples, _ = sustained(driver, made, 60.0, lambda: watched.append(len(driver.recorded) // 2))
    most = 1 + ceil(session_module.AHEAD_S / 5e-3)  # one that runs, and the time after it
    assert watched[:5] == [2 + most * i for i in range(5)]
    assert watched[-1] == len(samples)
    assert len(set(driver.recorded)) == 2 * most  # events are used again


def test_at_least_one_sample_is_taken_and_all_that_were_queued_count(driver: Driver) -> None:
    driver.ahead = AT_ONCE
    samples, queued = sustained(driver, plan_of(ONE_LAUNCH))
    assert len(samples) == queued.count("graph") - 1 == 2


def test_c_in_place_is_generated_before_every_sample_and_outside_of_it(driver: Driver) -> None:
    driver.ahead = AT_ONCE
    made = plan_of("m: 9, n: 5, k: 8, beta: 2, inplace: true")
    _, queued = sustained(driver, made)
    first = ["gemm"] + ["gemm"] * gpu.WARM_RUNS + ["fill", "graph"]
    assert queued == first + ["fill", "record", "graph", "record"] * 2


def test_what_else_is_sampled_back_to_back_is_queued_as_it_is(
    driver: Driver, session: CudaSession
) -> None:
    driver.ahead = AT_ONCE
    driver.queued.clear()
    session.sustain(0, lambda: None, lambda: driver.queued.append(("other", 0)))
    assert [what for what, _ in driver.queued] == ["other"] + ["record", "other", "record"] * 2


def test_somebody_may_watch_while_there_is_nothing_to_queue(driver: Driver) -> None:
    watched: list[int] = []

    def watch() -> None:
        watched.append(len(driver.asked))
        if len(watched) == 10:
            driver.ahead = AT_ONCE

    sustained(driver, plan_of(ONE_LAUNCH), watch=watch)
    assert len(watched) == 10


def test_samples_back_to_back_that_the_gpu_had_to_wait_for_are_marked(driver: Driver) -> None:
    for began in (True, False):  # before all of a sample was queued
        # Two samples are queued, the first is waited for, and both have ended.
        driver.asked.clear()
        driver.ahead = {0, 1, 2, 3, 4} if began else {2, 3, 4}
        samples, _ = sustained(driver, plan_of(ONE_LAUNCH))
        assert [sample.host_bound for sample in samples] == [began] * 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (CODES.CUDA_ERROR_ILLEGAL_ADDRESS, DeviceFailed),
        (CODES.CUDA_ERROR_NOT_READY, DeviceHung),
    ],
)
def test_a_kernel_that_fails_or_hangs_back_to_back_is_told(
    answer: CODES, error: type[Exception], driver: Driver
) -> None:
    def run() -> None:
        with CudaDevice(time_limit_s=0.01).open(plan_of(ONE_LAUNCH), SPEC) as session:
            driver.cuEventQuery = lambda _: (answer,)  # type: ignore[method-assign]
            session.sustain(0, lambda: None)

    with pytest.raises(error):
        run()


def test_what_cannot_be_captured_leaves_nothing_behind(driver: Driver) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    device = CudaDevice()
    before = dict(driver.live)
    with ExitStack() as cleanup, pytest.raises(RuntimeError, match="no"):
        device.capture(fail, cleanup)
    assert driver.live == before


@pytest.mark.parametrize(
    ("nodes", "fits"),
    [
        ([("KERNEL", ""), ("MEMCPY", "DEVICE"), ("MEMSET", "")], True),
        ([("KERNEL", ""), ("MEMCPY", "HOST")], False),
    ],
)
def test_a_graph_that_reads_the_hosts_memory_is_refused(
    nodes: list[tuple[str, str]], fits: bool, driver: Driver
) -> None:
    device = CudaDevice()
    before = dict(driver.live)
    driver.nodes = nodes
    with ExitStack() as cleanup:
        if fits:
            device.capture(lambda: None, cleanup)
        else:
            with pytest.raises(DeviceFailed, match="copy from host memory"):
                device.capture(lambda: None, cleanup)
    assert driver.live == before


def test_a_graph_sets_up_the_maps_of_every_launch_in_every_run(driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 64", "m: 8, n: 8, k: 8, d: f32", launch="graph")
    with CudaDevice().open(made, SPEC) as session:
        queued = [what for what, _ in driver.queued]
        captured = queued.index("graph")
        branches = ["build_maps", "gemm"] * 2
        assert queued[captured - 8 : captured] == ["record", "wait", *branches, "record", "wait"]
        driver.queued.clear()
        session.run()
        assert [what for what, _ in driver.queued] == ["graph"]
        assert session.setup.replay_s is not None
        assert session.setup.replay_s > 0


def test_a_run_that_is_no_graph_has_no_time_of_a_replay(session: CudaSession) -> None:
    assert session.setup.replay_s is None


def test_launches_of_single_groups_take_turns_on_the_streams(driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 64, count: 20", launch="streams")
    with CudaDevice().open(made, SPEC):
        streams = [launched.stream for launched in gemms(driver)]
    assert len(set(streams[: plan.STREAMS])) == plan.STREAMS
    assert streams == [streams[i % plan.STREAMS] for i in range(20)]


@pytest.mark.parametrize("launch", ["grouped", "graph"])
def test_launches_are_queued_on_the_streams_and_in_the_order_of_the_plan(
    launch: Launching, driver: Driver
) -> None:
    made = plan_of(
        "m: 300, n: 300, k: 64, d: f32",
        "m: 64, n: 64, k: 65536",
        "m: 8, n: 8, k: 8, d: f16",
        "m: 64, n: 64, k: 32768, a: f16",
        launch=launch,
    )
    with CudaDevice().open(made, SPEC) as session:
        session.run()
        first = gemms(driver)[: len(made.launches)]
        tiles = [session.ready[i].params.tiles for i, _ in made.queue]
    assert [launched.params.tiles for launched in first] == tiles
    assert [launched.cooperative for launched in first] == [True, True, False, False]
    main, other, *rest = [launched.stream for launched in first]
    assert main == other and len({main, *rest}) == 3
    last = [stream for what, stream in driver.queued if what == "build_maps"][-4:]
    assert launch == "grouped" or last == [launched.stream for launched in first]


def test_streams_begin_after_what_was_queued_before_and_are_waited_for(driver: Driver) -> None:
    with CudaDevice().open(plan_of("m: 64, n: 64, k: 64, count: 20", launch="streams"), SPEC):
        main = driver.queued[0][1]
    names = [what for what, _ in driver.queued]
    spread = driver.queued[names.index("gemm") - plan.STREAMS : names.index("graph")]
    others = [stream for _, stream in spread[1 : plan.STREAMS]]
    assert spread[: plan.STREAMS] == [("record", main), *(("wait", other) for other in others)]
    joined = [step for other in others for step in (("record", other), ("wait", main))]
    assert spread[-len(joined) :] == joined
    assert len({main, *others}) == plan.STREAMS


def test_launches_one_after_the_other_share_a_stream(driver: Driver) -> None:
    made = plan_of("m: 64, n: 64, k: 64, count: 20", launch="serial")
    with CudaDevice().open(made, SPEC) as session:
        session.run()
    assert len({launched.stream for launched in gemms(driver)}) == 1


# What stands on both sides


@pytest.mark.parametrize(
    ("structure", "struct"),
    [
        (GroupArrays, "Groups"),
        (Ring, "Ring"),
        (ConstantMaps, "ConstantMaps"),
        (Params, "Params"),
    ],
)
def test_parameters_are_laid_out_as_the_kernel_reads_them(structure: Any, struct: str) -> None:
    mine = {name: getattr(structure, name).offset for name, _ in structure._fields_}
    assert mine == offsets(struct)
    assert list(mine) == [member.name for member in members(struct)]


def test_parameters_fit_what_a_kernel_may_be_given() -> None:
    assert ctypes.sizeof(Params) <= 32764  # CUDA 12.1 on, compute capability 7.0 on


def test_every_kernel_is_given_arguments_of_the_sizes_it_takes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, list[int]] = {}
    launch = CudaDevice.launch

    def note(self: CudaDevice, *told_of: Any, **rest: Any) -> None:
        symbol, _, _, arguments = told_of
        told[symbol] = [ctypes.sizeof(argument) for argument in arguments]
        launch(self, *told_of, **rest)

    monkeypatch.setattr(CudaDevice, "launch", note)
    with CudaDevice().open(plan_of(*GROUPS, "m: 8, n: 9, k: 9, beta: 1"), SPEC) as session:
        session.time(1, cold=True)
    assert told == {
        kernel: [size(kind) for kind in parameters(kernel)]
        for kernel in ("fill", "build_maps", "build_residues", "flush", "gemm", "pack")
    }


def test_every_warpgroup_that_multiplies_has_a_flag_of_its_own() -> None:
    consumers = max(kernel.cluster * (kernel.threads // 128 - 1) for kernel in KERNELS)
    assert consumers <= FLAGS_PER_TILE


def test_a_tensor_map_is_as_long_as_the_kernel_takes_it_for() -> None:
    assert size("TensorMap") == MAP_BYTES
