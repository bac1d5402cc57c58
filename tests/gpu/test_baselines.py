"""Other libraries beside the kernels, and the kernels launched group by group, on a Hopper GPU."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gemmctl.device.cuda import CudaDevice, gpu
from gemmctl.device.cuda.session import CudaSession
from gemmctl.judging import verify
from gemmctl.judging.agreement import Witness
from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.measuring import baselines
from gemmctl.measuring.bench import Entry
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan
from gemmctl.planning.plan import Launching, Plan
from support import PROBLEMS, environment

pytestmark = pytest.mark.filterwarnings("ignore")  # those of torch

EQUAL = ("m: 256, n: 384, k: 512, count: 6",)
RAGGED = ("m: 300, n: 264, k: 512", "m: 0, n: 264, k: 512", "m: 17, n: 264, k: 512")
MIXED = ("m: 300, n: 264, k: 512, ldd: 272", "m: 17, n: 1000, k: 72", "m: 640, n: 8, k: 4096")
SCALED = ("m: 256, n: 384, k: 512, alpha: 0.5, beta: -2, count: 3",)
WIDER = ("m: 256, n: 384, k: 512, a: f16, d: f32, count: 4",)
NARROWER = ("m: 256, n: 384, k: 512, a: bf16, d: f16, count: 4",)
LONG = ("m: 128, n: 128, k: 32768, count: 2",)
INPLACE = ("m: 256, n: 384, k: 512, beta: 1, inplace: true, count: 3",)
INPLACE_F32 = ("m: 256, n: 384, k: 512, d: f32, beta: -2, inplace: true, count: 3",)
OTHER_C = ("m: 256, n: 384, k: 512, c: f32, beta: 1, count: 3",)
PLAIN = "m: 256, n: 384, k: 512, count: 3"

CUBLAS_EX = {"cublas-loop", "cublas-streams", "cublaslt"}
CUBLAS = {"cublas", *CUBLAS_EX}
TORCH = {"torch", "torch-bmm", "torch-grouped"}
OWN_D = {"torch-grouped", "deepgemm"}


def planned(*groups: str, launch: Launching = "grouped") -> Plan:
    listed = ", ".join(f"{{{group}}}" for group in groups)
    text = f"{{gemmctl: 1, problems: [{{name: p, groups: [{listed}]}}]}}"
    (made,) = plan.make(
        reading.load(["-"], io.StringIO(text)), cubins.manifest().kernels, launch=launch
    )
    return made


def entries(
    session: CudaSession, made: Plan, spec: DataSpec, *, cold: bool = True
) -> dict[str, Entry]:
    """Every baseline; those of a library that is not installed are left out."""
    found = baselines.enter(tuple(baselines.BASELINES), session, made, spec, cold=cold)
    missing = ("torch is not installed", "there is no libcublas", "deep_gemm is not installed")
    return {e.rival.name: e for e in found if not e.rival.reason.startswith(missing)}


@pytest.mark.parametrize("kind", ["int", "normal"])
@pytest.mark.parametrize(
    ("groups", "able"),
    [
        (EQUAL, CUBLAS | TORCH | {"deepgemm"}),
        (RAGGED, CUBLAS | {"torch", "torch-grouped", "deepgemm"}),
        (MIXED, CUBLAS | {"torch"}),
        (SCALED, CUBLAS | {"torch", "torch-bmm"}),
        (INPLACE, CUBLAS | {"torch", "torch-bmm"}),
        (OTHER_C, set()),
        (WIDER, CUBLAS_EX | {"torch", "torch-bmm"}),
        (NARROWER, set()),
        (LONG, CUBLAS | TORCH | {"deepgemm"}),
    ],
    ids=["equal", "ragged", "mixed", "scaled", "inplace", "other_c", "wider", "narrower", "long"],
)
def test_every_baseline_that_can_run_a_list_agrees_with_gemmctl(
    device: CudaDevice, groups: tuple[str, ...], able: set[str], kind: str
) -> None:
    made, spec = planned(*groups), DataSpec(kind, 11)  # type: ignore[arg-type]
    with device.open(made, spec) as session:
        found = entries(session, made, spec)
    told = {name: (e.rival.verdict, e.rival.reason) for name, e in found.items()}
    expected = {name: "ok" if name in able else "n/a" for name in found}
    assert {name: verdict for name, (verdict, _) in told.items()} == expected, told


@pytest.mark.parametrize("cold", [True, False])
def test_float32_in_place_is_right_as_far_as_a_library_adds_it(
    device: CudaDevice, cold: bool
) -> None:
    made, spec = planned(*INPLACE_F32), DataSpec("normal", 11)
    with device.open(made, spec) as session:
        found = entries(session, made, spec, cold=cold)
    told = {name: (e.rival.verdict, e.rival.reason) for name, e in found.items()}
    print(told)
    assert "wrong" not in {verdict for verdict, _ in told.values()}, told
    assert {told[name][0] for name in CUBLAS_EX & told.keys()} == {"ok"}, told


# What cublasLt fuses, where it has a kernel for it, and what torch computes of each of them.
FUSIBLE = ["bias: n", "activation: relu", "activation: gelu_tanh", "bias: n, activation: relu",
           "bias: n, activation: gelu_tanh", "bias: n, beta: 1, activation: relu"]  # fmt: skip
OTHERS = ["bias: m", "bias: n, bias_type: f32", "activation: gelu", "activation: silu",
          "bias: n, activation: gelu", "bias: m, activation: silu",
          *(f"gate: {gate}, activation: {activation}" for gate in ("halves", "pairs")
            for activation in ("none", "relu", "gelu", "gelu_tanh", "silu")),
          "gate: halves, activation: silu, bias: n, beta: 1",
          "gate: pairs, activation: silu, alpha: 0.5"]  # fmt: skip


@pytest.mark.parametrize("kind", ["int", "normal"])
@pytest.mark.parametrize("types", ["a: bf16", "a: f16", "a: bf16, d: f32"])
@pytest.mark.parametrize("following", [*FUSIBLE, *OTHERS])
def test_what_follows_a_product_is_the_same_in_every_library(
    device: CudaDevice, following: str, types: str, kind: str
) -> None:
    made, spec = planned(f"{PLAIN}, {types}, {following}"), DataSpec(kind, 11)  # type: ignore[arg-type]
    with device.open(made, spec) as session:
        found = entries(session, made, spec)
    told = {name: (e.rival.verdict, e.rival.manner, e.rival.reason) for name, e in found.items()}
    print(told)
    assert "wrong" not in {verdict for verdict, *_ in told.values()}, told
    able = {name for name, (verdict, *_) in told.items() if verdict == "ok"}
    if following not in FUSIBLE and types != "a: bf16, d: f32":  # whose own bias is of f32
        assert "cublaslt" not in able
    if types != "a: bf16, d: f32":  # on which it is for the library to decide
        wanted = {"torch", "torch-bmm", *(["cublaslt"] if following in FUSIBLE else [])}
        assert able >= wanted & told.keys(), told
    assert told.get("cublaslt", ("n/a", ""))[:2] in (("ok", "fused"), ("n/a", ""))


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("groups", [EQUAL, RAGGED], ids=["equal", "ragged"])
def test_timing_a_baseline_takes_time_and_leaves_a_right_result(
    device: CudaDevice, groups: tuple[str, ...], cold: bool
) -> None:
    made, spec = planned(*groups), DataSpec("normal", 3)
    with device.open(made, spec) as session:
        witness = Witness(made, session, spec)
        for name, entry in entries(session, made, spec, cold=cold).items():
            if entry.timed is None:
                assert entry.rival.verdict == "n/a", entry.rival
                continue
            session.poison()
            samples = entry.timed.time(5, cold=cold)
            assert all(1e-6 < s.seconds < 0.01 for s in samples), (name, samples)
            if name not in OWN_D:
                assert witness.disagreement(session) is None, name
        assert all(1e-6 < s.seconds < 0.01 for s in session.time(5, cold=cold))
        assert witness.disagreement(session) is None


def test_every_baseline_can_be_a_graph(device: CudaDevice) -> None:
    made, spec = planned(*EQUAL), DataSpec("int", 3)
    with device.open(made, spec) as session:
        found = entries(session, made, spec, cold=False)
    told = {name: (entry.rival.form, entry.rival.reason) for name, entry in found.items()}
    print(told)
    told.pop("cublas", None)  # of which nobody says whether it can
    assert set(told.values()) == {("graph", "")}


def test_a_run_that_the_host_is_slow_to_queue_is_marked(device: CudaDevice) -> None:
    made = planned(*EQUAL)

    def queue() -> None:
        session.run()  # waits for the GPU, which then waits for us
        session._queue()

    with device.open(made, DataSpec("int", 3)) as session:
        samples = session.time(5, cold=True, queue=queue)
        assert all(sample.host_bound for sample in samples)


def test_a_run_that_is_queued_while_the_gpu_is_busy_is_not_marked(device: CudaDevice) -> None:
    made = planned("m: 4096, n: 4096, k: 4096")
    with device.open(made, DataSpec("int", 3)) as session:
        for cold in (True, False):
            session.time(3, cold=cold)
            marked = [sample.host_bound for sample in session.time(20, cold=cold)]
            assert sum(marked) <= 2, (cold, marked)  # the host may be called away


class Counting:
    """The driver, and the device memory that this process has from it: others have theirs."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.sizes: dict[int, int] = {}  # by address

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    def cuMemAlloc(self, nbytes: int) -> Any:
        result, address = self.driver.cuMemAlloc(nbytes)
        self.sizes[int(address)] = nbytes
        return result, address

    def cuMemFree(self, address: int) -> Any:
        self.sizes.pop(address, None)
        return self.driver.cuMemFree(address)


def test_sessions_give_back_what_baselines_took(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, spec = planned(*EQUAL), DataSpec("int", 1)
    counting = Counting(gpu.driver)
    monkeypatch.setattr(gpu, "driver", counting)
    held = []
    for _ in range(4):
        with device.open(made, spec) as session:
            entries(session, made, spec)
            during = sum(counting.sizes.values())
        held.append(sum(counting.sizes.values()) + reserved_by_torch())
        assert during >= made.layout.size
    assert held[-1] <= held[1]


def reserved_by_torch() -> int:
    """Bytes that torch's allocator has from the driver, be they in use or not."""
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch.cuda.memory_reserved())


AWKWARD = (
    "m: 16, n: 64, k: 64", "m: 257, n: 255, k: 65, lda: 72, ldb: 72, ldd: 256", "m: 1, n: 8, k: 8",
    "m: 0, n: 128, k: 64", "m: 17, n: 64, k: 0", "m: 1000, n: 136, k: 4096, beta: 1",
    "m: 64, n: 96, k: 128, a: f16, d: f32, alpha: 0.5, count: 9", "m: 2048, n: 1024, k: 512",
)  # fmt: skip


@pytest.mark.parametrize("launch", ["graph", "serial", "streams"])
@pytest.mark.parametrize("kind", ["int", "normal"])
def test_however_launched_groups_are_right(
    device: CudaDevice, launch: Launching, kind: str
) -> None:
    made, spec = planned(*AWKWARD, launch=launch), DataSpec(kind, 5)  # type: ignore[arg-type]
    with device.open(made, spec) as session:
        session.run()
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("launch", ["grouped", "graph", "serial", "streams"])
@pytest.mark.parametrize("cold", [True, False])
def test_timing_graphs_leaves_a_right_result(
    device: CudaDevice, launch: Launching, cold: bool
) -> None:
    made, spec = planned(*AWKWARD, launch=launch), DataSpec("int", 5)
    with device.open(made, spec) as session:
        assert all(0 < sample.seconds < 0.01 for sample in session.time(5, cold=cold))
        assert wrong(made, session, spec) == []


@pytest.mark.parametrize("launch", ["grouped", "graph"])
def test_d_is_poison_until_the_first_run(device: CudaDevice, launch: Launching) -> None:
    made, spec = planned(*AWKWARD, launch=launch), DataSpec("int", 5)
    with device.open(made, spec) as session:
        assert (session.read(made.layout.d_begin, made.layout.d_end) == 0xFF).all()


def test_streams_give_the_same_bits_every_time(device: CudaDevice) -> None:
    made, spec = planned(*AWKWARD, launch="streams"), DataSpec("normal", 5)
    begin, end = made.layout.d_begin, made.layout.d_end
    with device.open(made, spec) as session:
        session.run()
        first = session.read(begin, end)
        for _ in range(50):
            session.poison()
            session.run()
            assert np.array_equal(session.read(begin, end), first)


def wrong(made: Plan, session: CudaSession, spec: DataSpec) -> list[str]:
    return [v.message for v in verify.verify(made, session, spec) if not v.ok]


def test_capturing_what_fails_leaves_the_stream_usable(device: CudaDevice) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    made, spec = planned(*EQUAL), DataSpec("int", 1)
    with device.open(made, spec) as session:
        with pytest.raises(RuntimeError, match="no"):
            device.capture(fail, session.cleanup)
        session.run()
        assert wrong(made, session, spec) == []


@pytest.fixture
def against(device: CudaDevice) -> Callable[..., dict[str, object]]:
    """The command's JSON for one of the lists that ship."""

    def run(name: str, *options: str) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-m", "gemmctl", "run", str(PROBLEMS / f"{name}.yaml"), "-f", "json",
             "--max-time", "0.5", *options],
            capture_output=True, text=True, timeout=300, check=False,
            env=environment(GEMMCTL_DEVICE="cuda"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)["problems"][0]
        return found

    return run


def test_the_command_times_every_baseline_that_can_run(
    against: Callable[..., dict[str, object]],
) -> None:
    found = against("seed10-bf16", "--against", "all")
    beside = found["against"]
    assert isinstance(beside, dict)
    assert list(beside) == list(baselines.BASELINES)
    for name, one in beside.items():
        assert one["verdict"] == "ok" or "install" in one["reason"] or "libcublas" in one["reason"]
        assert (one["ratio"] is None) == (one["verdict"] != "ok"), name
        assert (one["form"] in ("graph", "calls")) == (one["verdict"] == "ok"), name
    medians = {name: one["median_s"] for name, one in beside.items() if one["median_s"]}
    assert found["best"] == min(medians, key=medians.__getitem__)
    assert found["best_ratio_verdict"] in ("FASTER", "SAME", "SLOWER", "UNSURE")
    low, high = found["best_ratio_interval"]  # type: ignore[misc]
    assert low <= found["best_ratio"] <= high
    for name, one in beside.items():
        print(name, one["form"], one["host_bound"], one["ratio"], one["ratio_verdict"])


def test_one_launch_for_all_groups_is_faster_than_one_for_each(
    against: Callable[..., dict[str, object]],
) -> None:
    times = [against("lora", "--launch", x)["median_s"] for x in ("grouped", "streams", "serial")]
    print(times)
    assert times[0] < times[1] and times[0] < times[2]  # type: ignore[operator]
