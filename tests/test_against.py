"""Baselines without a GPU: what they are asked to compute, and what they cannot run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmctl.device.base import Facts
from gemmctl.device.cpu import CpuDevice, CpuSession
from gemmctl.errors import UsageError
from gemmctl.measuring import baselines
from gemmctl.measuring.baselines import cublas, torch
from gemmctl.measuring.baselines.base import Inapplicable
from gemmctl.measuring.bench import Entry
from gemmctl.operands import dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan
from support import make_plans

INT, NORMAL = DataSpec("int", 7), DataSpec("normal", 7)

EQUAL = ("m: 24, n: 40, k: 64, count: 3",)
RAGGED = ("m: 24, n: 40, k: 64", "m: 0, n: 40, k: 64", "m: 7, n: 40, k: 64")
MIXED = (
    "m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldd: 48, count: 2",
    "m: 7, n: 88, k: 136, alpha: 0.5",
    "m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldd: 48",
    "m: 16, n: 8, k: 24, a: f16, d: f32, alpha: -2",
    "m: 0, n: 8, k: 8",
)


def plan_of(*groups: str) -> Plan:
    listed = ", ".join(f"{{{group}}}" for group in groups)
    (made,) = make_plans(f"{{gemmctl: 1, problems: [{{name: p, groups: [{listed}]}}]}}")
    return made


# Names


def test_a_list_of_names_keeps_its_order_and_each_once() -> None:
    assert baselines.chosen("torch,cublas,torch") == ("torch", "cublas")


def test_all_is_every_baseline() -> None:
    assert baselines.chosen("all") == tuple(baselines.BASELINES)
    assert baselines.chosen("torch,all") == tuple(baselines.BASELINES)


def test_no_option_is_no_baseline() -> None:
    assert baselines.chosen(None) == ()


@pytest.mark.parametrize("text", ["", "cublas,", "cuBLAS", "torch cublas"])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there is no baseline"):
        baselines.chosen(text)


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(UsageError, match="did you mean torch-bmm"):
        baselines.chosen("torch-bm")


def test_only_a_gpu_has_baselines() -> None:
    cpu = Facts("cpu", "a cpu", 1 << 30)
    with pytest.raises(UsageError, match="needs a Hopper GPU"):
        baselines.check_device(("torch",), cpu)
    baselines.check_device((), cpu)


# cuBLAS, with a library that computes on the CPU as cuBLAS is documented to


TYPES = {0: dtypes.F32, 2: dtypes.F16, 14: dtypes.BF16}


class FakeCublas:
    """Column-major products in this process's memory, one at a time or grouped."""

    NOT_SUPPORTED = 15

    def __init__(self, *, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self.status = 0
        self.used: list[int] = []  # handles, one for each product
        self.handles: dict[int, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("cublas") and name not in self.missing:
            return lambda *arguments: self.called(name, arguments)
        raise AttributeError(name)

    @property
    def cublasGetStatusName(self) -> Any:
        class Name:
            def __call__(self, status: int) -> bytes:
                return {15: b"CUBLAS_STATUS_NOT_SUPPORTED"}[status]

        return Name()

    def called(self, name: str, arguments: tuple[Any, ...]) -> int:
        if name == "cublasCreate_v2":
            arguments[0]._obj.value = handle = len(self.handles) + 1
            self.handles[handle] = {}
        elif name == "cublasDestroy_v2":
            self.handles[arguments[0].value]["destroyed"] = True
        elif name == "cublasSetStream_v2":
            self.handles[arguments[0].value] = {"stream": arguments[1].value}  # no workspace left
        elif name == "cublasSetWorkspace_v2":
            self.handles[arguments[0].value]["workspace"] = arguments[1].value, arguments[2].value
        elif name == "cublasSetMathMode":
            self.handles[arguments[0].value]["math"] = arguments[1].value
        elif self.status:
            return self.status
        elif name == "cublasGemmEx":
            self.used.append(arguments[0].value)
            self.multiply(*(self.plain(argument) for argument in arguments[1:]))
        elif name == "cublasGemmGroupedBatchedEx":
            self.multiply_groups(*(self.plain(argument) for argument in arguments[1:]))
        return 0

    @staticmethod
    def plain(argument: Any) -> Any:
        """A ctypes argument as numbers."""
        return list(argument) if isinstance(argument, ctypes.Array) else argument.value

    def multiply(
        self, op_a: int, op_b: int, m: int, n: int, k: int, alpha: list[float], a: int, a_type: int,
        lda: int, b: int, b_type: int, ldb: int, beta: list[float], c: int, c_type: int, ldc: int,
        compute: int, algorithm: int,
    ) -> None:  # fmt: skip
        assert (op_a, op_b, beta, compute, algorithm) == (1, 0, [0.0], 68, -1)
        assert lda >= max(1, k) and ldb >= max(1, k) and ldc >= max(1, m)
        # Stored by columns: a matrix of k rows is k contiguous elements a column.
        product = self.columns(a, a_type, k, m, lda).T @ self.columns(b, b_type, k, n, ldb)
        dtype = TYPES[c_type]
        self.storage(c, dtype, m, n, ldc)[:] = dtype.from_float(alpha[0] * product)

    def multiply_groups(
        self, op_a: list[int], op_b: list[int], m: list[int], n: list[int], k: list[int],
        alpha: list[float], a: int, a_type: int, lda: list[int], b: int, b_type: int,
        ldb: list[int], beta: list[float], c: int, c_type: int, ldc: list[int],
        count: int, sizes: list[int], compute: int,
    ) -> None:  # fmt: skip
        for array in (op_a, op_b, m, n, k, alpha, lda, ldb, beta, ldc, sizes):
            assert len(array) == count
        total = sum(sizes)
        pointers = [(ctypes.c_uint64 * total).from_address(array) for array in (a, b, c)]
        index = 0
        for i, size in enumerate(sizes):
            for _ in range(size):
                self.multiply(
                    op_a[i], op_b[i], m[i], n[i], k[i], [alpha[i]], pointers[0][index], a_type,
                    lda[i], pointers[1][index], b_type, ldb[i], [beta[i]], pointers[2][index],
                    c_type, ldc[i], compute, -1,
                )  # fmt: skip
                index += 1

    def columns(self, address: int, kind: int, rows: int, cols: int, ld: int) -> Any:
        dtype = TYPES[kind]
        return dtype.to_f32(self.storage(address, dtype, rows, cols, ld)).astype(np.float64)

    @staticmethod
    def storage(address: int, dtype: dtypes.DType, rows: int, cols: int, ld: int) -> Any:
        extent = ((cols - 1) * ld + rows) * dtype.size
        memory = (ctypes.c_uint8 * extent).from_address(address)
        return np.ndarray(
            (rows, cols), dtype.storage, memory, strides=(dtype.size, ld * dtype.size)
        )


class FakeDevice:
    """What baselines need of a GPU, in this process's memory."""

    stream = 100

    def __init__(self, library: FakeCublas | None) -> None:
        self.found = library
        self.memory: list[Any] = []
        self.graphs = 0

    def library(self, name: str) -> FakeCublas | None:
        assert name == "cublas"
        return self.found

    def allocate(self, nbytes: int, cleanup: ExitStack) -> int:
        self.memory.append(np.empty(nbytes, np.uint8))
        return int(self.memory[-1].ctypes.data)

    def upload(self, to: int, array: Any) -> None:
        ctypes.memmove(to, array.ctypes.data, array.nbytes)

    def wait(self) -> None:
        pass

    def fan(self, count: int, cleanup: ExitStack) -> Any:
        streams = [self.stream + i for i in range(count)]
        return SimpleNamespace(streams=streams, spread=nullcontext)

    def capture(self, queue: Callable[[], None], cleanup: ExitStack) -> Callable[[], None]:
        self.graphs += 1
        return queue

    def launch_graph(self, graph: Callable[[], None]) -> None:
        graph()


@contextmanager
def opened(plan: Plan, spec: DataSpec = NORMAL, library: FakeCublas | None = None) -> Iterator[Any]:
    """A CPU session dressed as one on a GPU."""
    with CpuDevice().open(plan, spec) as session, ExitStack() as cleanup:
        assert isinstance(session, CpuSession)
        session.base = session._arena.ctypes.data  # type: ignore[attr-defined]
        session.device = FakeDevice(library)  # type: ignore[attr-defined]
        session.cleanup = cleanup  # type: ignore[attr-defined]
        yield session


def verdicts(names: str, plan: Plan, session: Any, spec: DataSpec = NORMAL) -> dict[str, Entry]:
    entries = baselines.enter(baselines.chosen(names), session, plan, spec)
    return {entry.rival.name: entry for entry in entries}


CUBLAS = "cublas,cublas-loop,cublas-streams"


@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize("groups", [EQUAL, RAGGED, MIXED], ids=["equal", "ragged", "mixed"])
def test_cublas_is_asked_for_what_gemmctl_computes(groups: tuple[str, ...], spec: DataSpec) -> None:
    plan = plan_of(*groups)
    with opened(plan, spec, FakeCublas()) as session:
        found = verdicts(CUBLAS, plan, session, spec)
    assert [(e.rival.verdict, e.rival.reason) for e in found.values()] == [("ok", "")] * 3


def test_the_grouped_call_is_one_for_each_pair_of_types_and_equal_products_are_one_group() -> None:
    plan = plan_of(*MIXED)
    bf16, f16 = cublas.batches(cublas.products(plan, 0))
    assert [len(group) for group in bf16.groups] == [3, 1]
    assert [len(group) for group in f16.groups] == [1]
    assert bf16.pointers().tolist() == [
        *(int(plan.layout.b[i]) for i in (0, 1, 3, 2)),
        *(int(plan.layout.a[i]) for i in (0, 1, 3, 2)),
        *(int(plan.layout.d[i]) for i in (0, 1, 3, 2)),
    ]


def test_a_call_per_group_is_spread_over_the_streams_in_one_graph() -> None:
    plan, library = plan_of("m: 8, n: 8, k: 8, count: 20"), FakeCublas()
    with opened(plan, NORMAL, library) as session:
        cublas.PerGroup(session, plan, 8).queue()
        streams = [handle["stream"] for handle in library.handles.values()]
        assert streams == list(range(100, 108))
        assert session.device.graphs == 1
    assert library.used[:20] == [1 + i % 8 for i in range(20)]


def test_every_handle_has_a_workspace_of_its_own_and_sums_in_float32() -> None:
    plan, library = plan_of("m: 8, n: 8, k: 8"), FakeCublas()
    with opened(plan, NORMAL, library) as session:
        cublas.PerGroup(session, plan, 8)
        handles = list(library.handles.values())
        begins = sorted(handle["workspace"][0] for handle in handles)
        assert {handle["workspace"][1] for handle in handles} == {cublas.WORKSPACE_BYTES}
        assert (np.diff(begins) >= cublas.WORKSPACE_BYTES).all()
        assert {handle["math"] for handle in handles} == {16}
        assert not any(handle.get("destroyed") for handle in handles)
    assert all(handle["destroyed"] for handle in library.handles.values())


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("m: 8, n: 8, k: 8, beta: 1", "adds to D in place"),
        ("m: 0, n: 8, k: 8", "nothing to compute"),
        ("m: 1, n: 8, k: 8, lda: 2147483648", "leading dimension is above 2147483647"),
    ],
)
def test_cublas_says_what_it_cannot_run(group: str, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        cublas.products(plan_of(group), 0)


def test_without_libcublas_there_are_no_cublas_baselines() -> None:
    plan = plan_of(*EQUAL)
    with opened(plan, library=None) as session:
        found = verdicts(CUBLAS, plan, session)
    assert {entry.rival.verdict for entry in found.values()} == {"n/a"}
    assert all("no libcublas" in entry.rival.reason for entry in found.values())
    assert all(entry.timed is None for entry in found.values())


def test_an_old_cublas_lacks_only_the_grouped_call() -> None:
    plan = plan_of(*EQUAL)
    with opened(plan, library=FakeCublas(missing=("cublasGemmGroupedBatchedEx",))) as session:
        found = verdicts(CUBLAS, plan, session)
    assert [entry.rival.verdict for entry in found.values()] == ["n/a", "ok", "ok"]
    assert "older than CUDA 12.5" in found["cublas"].rival.reason


def test_what_cublas_refuses_is_na_with_its_own_word() -> None:
    plan, library = plan_of(*EQUAL), FakeCublas()
    library.status = FakeCublas.NOT_SUPPORTED
    with opened(plan, library=library) as session:
        found = verdicts("cublas,cublas-loop", plan, session)
    assert [entry.rival.reason for entry in found.values()] == [
        "cublasGemmGroupedBatchedEx says CUBLAS_STATUS_NOT_SUPPORTED",
        "cublasGemmEx says CUBLAS_STATUS_NOT_SUPPORTED",
    ]


# The check that comes before the timing


class Own:
    """A baseline that has gemmctl itself compute, and then spoils what it is told to."""

    def __init__(self, session: Any, plan: Plan, spoil: Callable[[Any], None]) -> None:
        self._session, self._spoil = session, spoil

    def queue(self) -> None:
        self._session.run()

    def deliver(self) -> None:
        self._spoil(self._session)


def entry_of(monkeypatch: pytest.MonkeyPatch, plan: Plan, spoil: Callable[[Any], None]) -> Entry:
    monkeypatch.setitem(
        baselines.BASELINES, "torch", lambda session, plan: Own(session, plan, spoil)
    )
    with opened(plan) as session:
        return verdicts("torch", plan, session)["torch"]


def test_a_right_baseline_is_to_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(monkeypatch, plan_of(*EQUAL), lambda session: None)
    assert entry.rival.verdict == "ok"
    assert entry.timed is not None


def test_a_wrong_baseline_is_not_timed_and_its_first_wrong_element_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(*EQUAL)

    def spoil(session: Any) -> None:
        offset = int(plan.layout.d[2]) + 2 * (5 * 40 + 9)  # row 5, column 9
        session._arena[offset + 1] ^= 0x80  # the sign

    entry = entry_of(monkeypatch, plan, spoil)
    assert (entry.rival.verdict, entry.timed) == ("wrong", None)
    assert "group 2 at row 5, column 9" in entry.rival.reason


def test_what_gemmctl_left_in_d_does_not_count_for_a_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(*EQUAL)
    monkeypatch.setattr(Own, "queue", lambda self: None)
    entry = entry_of(monkeypatch, plan, lambda session: None)
    assert entry.rival.verdict == "wrong"


def test_a_baseline_is_timed_by_what_it_queues() -> None:
    plan = plan_of(*EQUAL)
    seen: list[Any] = []

    def time(count: int, *, cold: bool, queue: Callable[[], None]) -> list[float]:
        seen.append((count, cold, queue))
        return [1.0] * count

    with opened(plan, library=FakeCublas()) as session:
        session.time = time
        timed = verdicts("cublas", plan, session)["cublas"].timed
        assert timed is not None
        assert timed.time(3, cold=True) == [1.0] * 3
    ((count, cold, queue),) = seen
    assert (count, cold) == (3, True)
    assert isinstance(queue.__self__, cublas.Grouped)


# torch


def test_without_torch_there_are_no_torch_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    plan = plan_of(*EQUAL)
    with opened(plan) as session:
        found = verdicts("torch,torch-bmm,torch-grouped", plan, session)
    reasons = {(entry.rival.verdict, entry.rival.reason) for entry in found.values()}
    assert reasons == {("n/a", "torch is not installed")}


@pytest.mark.parametrize(
    ("make", "groups", "reason"),
    [
        (torch.loop, ("m: 0, n: 8, k: 8",), "nothing to compute"),
        (torch.loop, ("m: 8, n: 8, k: 8, beta: 1, c: f32",), "C is f32, D bf16"),
        (torch.batched, RAGGED, "groups differ in M$"),
        (torch.batched, MIXED[:2], "groups differ in M, N, K, lda, ldb, ldd and alpha$"),
        (
            torch.batched,
            ("m: 8, n: 8, k: 8", "m: 8, n: 8, k: 8, a: f16, d: f32"),
            "in the type of A and the type of D$",
        ),
        (
            torch.batched,
            ("m: 8, n: 8, k: 8, beta: 1, ldc: 9", "m: 8, n: 8, k: 8, beta: 1"),
            "groups differ in ldc$",
        ),
        (torch.grouped, MIXED[:2], "groups differ in N and K$"),
        (torch.grouped, ("m: 8, n: 8, k: 8, alpha: 2",), "no alpha and beta"),
        (torch.grouped, ("m: 8, n: 8, k: 8, beta: 1",), "no alpha and beta"),
        (torch.grouped, ("m: 8, n: 8, k: 8, a: f16, d: f32",), "writes the type of its operands"),
    ],
)
def test_torch_says_what_it_cannot_run(
    make: Callable[[torch.Operands], torch.Work], groups: tuple[str, ...], reason: str
) -> None:
    untouched = SimpleNamespace(mm=None, addmm=None, bmm=None, baddbmm=None)
    with pytest.raises(Inapplicable, match=reason):
        make(torch.Operands(untouched, None, plan_of(*groups)))


class TorchOnCpu:
    """Calls of torch on the CPU session's memory."""

    def __init__(self, session: Any, plan: Plan, make: Any) -> None:
        found = pytest.importorskip("torch")
        operands = torch.Operands(found, found.from_numpy(session._arena), plan)
        self._work = make(operands)

    def queue(self) -> None:
        for call in self._work.run:
            call()

    def deliver(self) -> None:
        for call in self._work.deliver:
            call()


SCALED = ("m: 24, n: 40, k: 64, ldc: 41, alpha: 0.5, beta: -2, count: 3",)


@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize(
    ("make", "groups"),
    [
        (torch.loop, EQUAL),
        (torch.loop, RAGGED),
        (torch.loop, MIXED[:3]),
        (torch.loop, SCALED),
        (torch.batched, EQUAL),
        (torch.batched, MIXED[:1]),
        (torch.batched, MIXED[1:2]),
        (torch.batched, SCALED),
        (torch.grouped, EQUAL),
        (torch.grouped, RAGGED),
        (torch.grouped, (MIXED[0], "m: 7, n: 40, k: 64")),
    ],
)
def test_torch_is_asked_for_what_gemmctl_computes(
    monkeypatch: pytest.MonkeyPatch, make: Any, groups: tuple[str, ...], spec: DataSpec
) -> None:
    plan = plan_of(*groups)
    monkeypatch.setitem(
        baselines.BASELINES, "torch", lambda session, plan: TorchOnCpu(session, plan, make)
    )
    with opened(plan, spec) as session:
        entry = verdicts("torch", plan, session, spec)["torch"]
    assert (entry.rival.verdict, entry.rival.reason) == ("ok", "")


def test_a_batch_whose_groups_are_not_evenly_spaced_is_no_bmm() -> None:
    found = pytest.importorskip("torch")
    group = "m: 8, n: 8, k: 8"
    plan = plan_of(group, group, "m: 0, n: 8, k: 8", group)  # which has a B
    with opened(plan) as session, pytest.raises(Inapplicable, match="not evenly spaced"):
        torch.batched(torch.Operands(found, found.from_numpy(session._arena), plan))
