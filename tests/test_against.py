"""Baselines without a GPU: what they are asked to compute, and what they cannot run."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmctl.device.base import WARM_RUNS, Facts
from gemmctl.errors import UsageError
from gemmctl.measuring import baselines
from gemmctl.measuring.baselines import cublas, cublaslt, deepgemm, torch
from gemmctl.measuring.baselines.base import Inapplicable, NoGraph
from gemmctl.measuring.bench import Entry
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan
from standins import (
    NOT_SUPPORTED,
    FakeCublas,
    FakeCublasLt,
    FakeDeepGemm,
    FakeTorch,
    opened,
)
from support import Command, make_plans

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
SCALED = ("m: 24, n: 40, k: 64, ldc: 41, alpha: 0.5, beta: -2, count: 3",)
INPLACE = ("m: 24, n: 40, k: 64, ldd: 41, alpha: 0.5, beta: -2, inplace: true, count: 3",)
ADDING = (*MIXED, *SCALED, *INPLACE, "m: 24, n: 40, k: 64, d: f32, beta: 1, count: 2")
# All of A, B and D; those with D in layout row first.
LAYOUTS = tuple(
    f"m: 24, n: 40, k: 64, a_layout: {a}, b_layout: {b}, d_layout: {d}, {scalars}"
    for d, scalars in (("row", "alpha: 1"), ("col", "alpha: 0.5, beta: 1"))
    for a in ("row", "col")
    for b in ("row", "col")
)
# Operands that begin off all boundaries but those of their elements.
BEGUN = (
    "m: 24, n: 40, k: 64, a_offset: 1, b_offset: 2, c_offset: 4, d_offset: 8, beta: 1",
    "m: 24, n: 40, k: 64, d: f32, a_offset: 64, d_offset: 3",
)
BIASED = ("m: 24, n: 40, k: 64, bias: n, count: 3",)
FUSED = (
    *(f"m: 24, n: 40, k: 64, activation: {f}" for f in ("none", "relu", "gelu_tanh")),
    *(f"m: 24, n: 40, k: 64, bias: n, activation: {f}" for f in ("none", "relu", "gelu_tanh")),
    "m: 7, n: 40, k: 64, ldd: 48, bias: n, beta: 1, alpha: 0.5, activation: relu, inplace: true",
    "m: 7, n: 40, k: 64, d: f32, bias: n, beta: -2, ldc: 41, activation: gelu_tanh",
)
GATED = ("m: 24, n: 40, k: 64, activation: silu, gate: halves, count: 3",)


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


@pytest.mark.parametrize("text", ["", "cublas,", "all,", "all,cublass", "cuBLAS", "torch cublas"])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there is no baseline"):
        baselines.chosen(text)


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(UsageError, match="did you mean torch-bmm"):
        baselines.chosen("torch-bm")


@pytest.mark.parametrize("pace", ["burst", "sustained"])
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_the_command_has_baselines_ready_for_the_cache_state_and_the_pace_that_it_times(
    cache: str, pace: str, gemmctl: Command, two_problems: Path
) -> None:
    patched = (
        "import sys; from gemmctl.measuring import baselines, sustained; "
        "from gemmctl.__main__ import main; "
        "from gemmctl.measuring.bench import Entry, Rival; "
        "baselines.check_device = lambda *_: None; "
        "sustained.LEAD_S = sustained.BLOCK_S = 0.01; "
        "baselines.enter = lambda names, *_, **told: print(sorted(told.items()), "
        "file=sys.stderr) or "
        "[Entry(Rival(name, 'n/a')) for name in names]; main()"
    )
    options = ("--against", "all", "--cache", cache, "--max-time", "0", "--pace", pace)
    done = gemmctl("run", two_problems, *options, python=("-c", patched))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"[('cold', {cache == 'cold'}), ('pace', '{pace}')]") == 2


def test_only_a_gpu_has_baselines() -> None:
    cpu = Facts("cpu", "a cpu", 1 << 30)
    with pytest.raises(UsageError, match="needs a Hopper GPU"):
        baselines.check_device(("torch",), cpu)
    baselines.check_device((), cpu)


def verdicts(
    names: str, plan: Plan, session: Any, spec: DataSpec = NORMAL, *, cold: bool = True
) -> dict[str, Entry]:
    entries = baselines.enter(baselines.chosen(names), session, plan, spec, cold=cold)
    return {entry.rival.name: entry for entry in entries}


def told(found: dict[str, Entry]) -> dict[str, tuple[str, str]]:
    return {name: (entry.rival.verdict, entry.rival.reason) for name, entry in found.items()}


# cuBLAS


CUBLAS = "cublas,cublas-loop,cublas-streams"


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize(
    ("groups", "manner"),
    [
        (EQUAL, ""),
        (RAGGED, ""),
        (MIXED, ""),
        (SCALED, "copied"),
        (INPLACE, ""),
        (ADDING, "copied"),
        (LAYOUTS, "copied"),
        (BEGUN, "copied"),
    ],
    ids=["equal", "ragged", "mixed", "scaled", "inplace", "adding", "layouts", "begun"],
)
def test_cublas_is_asked_for_what_gemmctl_computes(
    groups: tuple[str, ...], manner: str, spec: DataSpec, cold: bool
) -> None:
    plan = plan_of(*groups)
    with opened(plan, spec, FakeCublas()) as session:
        found = verdicts(CUBLAS, plan, session, spec, cold=cold)
    assert told(found) == dict.fromkeys(CUBLAS.split(","), ("ok", ""))
    assert {entry.rival.form for entry in found.values()} == {"graph"}
    assert {entry.rival.manner for entry in found.values()} == {manner}


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


def test_a_grouped_call_keeps_products_of_another_beta_apart() -> None:
    group = "m: 8, n: 8, k: 8, inplace: true"
    plan = plan_of(f"{group}, beta: 1", f"{group}, beta: 2", f"{group}, beta: 1")
    (batch,) = cublas.batches(cublas.products(plan, 0))
    assert [len(found) for found in batch.groups] == [2, 1]


def test_c_is_copied_on_the_stream_that_adds_to_the_copy() -> None:
    plan, library = plan_of("m: 8, n: 8, k: 8, beta: 1, count: 20"), FakeCublas()
    with opened(plan, NORMAL, library) as session:
        cublas.per_group(session, plan, 8)
        assert session.device.copied_on == [100 + i % 8 for i in range(20)]
        session.device.copied_on.clear()
        cublas.grouped(session, plan)
        assert session.device.copied_on == [100] * 20


def test_no_c_is_copied_that_is_in_place_or_not_read() -> None:
    plan, library = plan_of(*INPLACE, *EQUAL), FakeCublas()
    with opened(plan, NORMAL, library) as session:
        verdicts(CUBLAS, plan, session)
        assert session.device.copied_on == []


def test_a_call_per_group_is_spread_over_the_streams() -> None:
    plan, library = plan_of("m: 8, n: 8, k: 8, count: 20"), FakeCublas()
    with opened(plan, NORMAL, library) as session:
        cublas.per_group(session, plan, 8)
        streams = [handle["stream"] for handle in library.objects.values()]
        assert streams == list(range(100, 108))
    assert library.used == [1 + i % 8 for i in range(20)]


def test_every_handle_has_a_workspace_of_its_own_and_sums_in_float32() -> None:
    plan, library = plan_of("m: 8, n: 8, k: 8"), FakeCublas()
    with opened(plan, NORMAL, library) as session:
        cublas.per_group(session, plan, 8)
        handles = list(library.objects.values())
        rooms = sorted(handle["workspace"][0] for handle in handles)
        assert {handle["workspace"][1] for handle in handles} == {cublas.WORKSPACE_BYTES}
        assert all(end - begin >= cublas.WORKSPACE_BYTES for begin, end in pairwise(rooms))
        assert {handle["math"] for handle in handles} == {16}
        assert not any(handle.get("gone") for handle in handles)
    assert all(handle["gone"] for handle in library.objects.values())


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("m: 0, n: 8, k: 8", "nothing to compute"),
        ("m: 1, n: 8, k: 8, lda: 2147483648", "leading dimension is above 2147483647"),
        ("m: 1, n: 8, k: 8, beta: 1, ldc: 2147483648", "leading dimension is above 2147483647"),
    ],
)
def test_cublas_says_what_it_cannot_run(group: str, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        cublas.products(plan_of(group), 0)


def test_a_c_whose_rows_lie_too_far_apart_to_be_copied_is_told() -> None:
    (product,) = cublas.products(plan_of("m: 1, n: 8, k: 8, beta: 1, ldc: 1073741824"), 0)
    with pytest.raises(Inapplicable, match=r"rows lie above 2147483647 bytes apart$"):
        _ = product.copy


def test_cublas_adds_no_c_of_another_type_than_d() -> None:
    plan = plan_of("m: 8, n: 8, k: 8, beta: 1, c: f32")
    with opened(plan, NORMAL, FakeCublas()) as session:
        found = verdicts(CUBLAS, plan, session)
    reason = "cuBLAS adds to D in place, and C is f32, D bf16"
    assert told(found) == dict.fromkeys(CUBLAS.split(","), ("n/a", reason))


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("bias: n", "cuBLAS knows no bias"),
        ("activation: relu", "cuBLAS knows no activation"),
        ("gate: pairs", "cuBLAS knows no gate"),
        ("bias: m, activation: silu, gate: halves", "cuBLAS knows no bias, activation and gate"),
    ],
)
def test_cublas_does_nothing_but_multiply_and_add(group: str, reason: str) -> None:
    plan = plan_of("m: 8, n: 8, k: 8", f"m: 8, n: 8, k: 8, {group}")
    with opened(plan, NORMAL, FakeCublas()) as session:
        found = verdicts(CUBLAS, plan, session)
    assert told(found) == dict.fromkeys(CUBLAS.split(","), ("n/a", reason))


def test_a_c_that_is_not_read_may_lie_however_it_wants() -> None:
    plan = plan_of("m: 1, n: 8, k: 8, ldc: 2147483648")
    (product,) = cublas.products(plan, 0)
    assert (product.c, product.ldc) == (product.d, product.ldd)


def test_without_libcublas_there_are_no_cublas_baselines() -> None:
    plan = plan_of(*EQUAL)
    with opened(plan, NORMAL) as session:
        found = verdicts(f"{CUBLAS},cublaslt", plan, session)
    assert {entry.rival.verdict for entry in found.values()} == {"n/a"}
    assert "there is no libcublas;" in found["cublas"].rival.reason
    assert "there is no libcublasLt;" in found["cublaslt"].rival.reason
    assert all(entry.timed is None for entry in found.values())


def test_an_old_cublas_lacks_only_the_grouped_call() -> None:
    plan, library = plan_of(*EQUAL), FakeCublas(missing=("cublasGemmGroupedBatchedEx",))
    with opened(plan, NORMAL, library) as session:
        found = verdicts(CUBLAS, plan, session)
    assert [entry.rival.verdict for entry in found.values()] == ["n/a", "ok", "ok"]
    assert "too old: it has no cublasGemmGroupedBatchedEx" in found["cublas"].rival.reason


def test_what_cublas_refuses_is_na_with_its_own_word() -> None:
    plan, library = plan_of(*EQUAL), FakeCublas()
    library.status = NOT_SUPPORTED
    with opened(plan, NORMAL, library) as session:
        found = verdicts("cublas,cublas-loop", plan, session)
    assert [entry.rival.reason for entry in found.values()] == [
        "cublasGemmGroupedBatchedEx says CUBLAS_STATUS_NOT_SUPPORTED",
        "cublasGemmEx says CUBLAS_STATUS_NOT_SUPPORTED",
    ]


# cublasLt


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize(
    ("groups", "manner"),
    [
        (EQUAL, ""),
        (RAGGED, ""),
        (MIXED, ""),
        (ADDING, ""),
        (INPLACE, ""),
        (BIASED, "fused"),
        (FUSED, "fused"),
        (LAYOUTS, ""),
        (BEGUN, ""),
    ],
    ids=["equal", "ragged", "mixed", "adding", "inplace", "biased", "fused", "layouts", "begun"],
)
def test_cublaslt_is_asked_for_what_gemmctl_computes(
    groups: tuple[str, ...], manner: str, spec: DataSpec, cold: bool
) -> None:
    plan = plan_of(*groups)
    with opened(plan, spec, FakeCublasLt()) as session:
        found = verdicts("cublaslt", plan, session, spec, cold=cold)
    assert told(found) == {"cublaslt": ("ok", "")}
    assert (found["cublaslt"].rival.form, found["cublaslt"].rival.manner) == ("graph", manner)


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("bias: m", "cublasLt's bias is along N, and here it is along M"),
        ("bias: n, bias_type: f32", "cublasLt's bias is of D's type, and here it is f32, D bf16"),
        ("activation: gelu", "cublasLt's gelu is the tanh form, and here it is the one with erf"),
        ("activation: silu", "cublasLt knows no silu"),
        ("gate: halves", "cublasLt knows no gate"),
    ],
)
def test_what_cublaslt_does_not_fuse_as_we_do_is_na(group: str, reason: str) -> None:
    plan = plan_of(*EQUAL, f"m: 8, n: 8, k: 8, {group}")
    with opened(plan, NORMAL, FakeCublasLt()) as session:
        found = verdicts("cublaslt", plan, session)
    assert told(found) == {"cublaslt": ("n/a", reason)}


def test_the_heuristics_are_asked_for_every_epilogue_of_a_shape_and_for_equal_ones_once() -> None:
    plan, library = plan_of(*FUSED[:6], *FUSED[:6]), FakeCublasLt()
    with opened(plan, NORMAL, library) as session:
        cublaslt.fastest(session, plan)
    assert [asked[4] for asked in library.asked] == [(1,), (2,), (32,), (4,), (6,), (36,)]


def used(plan: Plan, library: FakeCublasLt, **gpu: Any) -> list[tuple[int, int, int]]:
    """The kernel, stream and workspace of every product of one run."""
    with opened(plan, NORMAL, library) as session:
        vars(session.device).update(gpu)
        calls = cublaslt.fastest(session, plan)
        library.used.clear()
        calls.queue()
    return library.used


def test_every_shape_has_the_kernel_that_is_fastest_on_it() -> None:
    class Choosy(FakeCublasLt):
        """Whose third kernel is best for few rows, and whose second for many."""

        def on_Matmul(self, *arguments: Any) -> int:
            _, cols = self.objects[arguments[6].value]["layout"][1:3]
            self.kernels = {1: 3.0, 2: 2.0, 3: 1.0 if cols < 10 else 4.0}
            return super().on_Matmul(*arguments)

    plan = plan_of("m: 24, n: 40, k: 64", "m: 7, n: 40, k: 64", "m: 24, n: 40, k: 64")
    assert [kernel for kernel, _, _ in used(plan, Choosy())] == [2, 3, 2]


def test_the_heuristics_are_asked_once_for_every_shape() -> None:
    plan, library = plan_of(*MIXED), FakeCublasLt()
    with opened(plan, NORMAL, library) as session:
        cublaslt.fastest(session, plan)
    assert len(library.asked) == len(set(library.asked)) == 3


def test_a_kernel_that_refuses_to_run_is_passed_over() -> None:
    library = FakeCublasLt()
    library.refused = {2}
    assert [kernel for kernel, _, _ in used(plan_of(*EQUAL), library)] == [3, 3, 3]


def test_where_no_kernel_runs_cublaslt_says_why() -> None:
    plan, library = plan_of(*EQUAL), FakeCublasLt()
    library.refused = {1, 2, 3}
    with opened(plan, NORMAL, library) as session:
        found = verdicts("cublaslt", plan, session)
    reason = "cublasLtMatmul says CUBLAS_STATUS_NOT_SUPPORTED"
    assert told(found) == {"cublaslt": ("n/a", reason)}


def test_where_the_heuristics_name_no_kernel_that_fits_there_is_none() -> None:
    plan, library = plan_of(*EQUAL), FakeCublasLt()
    library.kernels.clear()  # but one whose state says that it does not fit
    with opened(plan, NORMAL, library) as session:
        found = verdicts("cublaslt", plan, session)
    assert told(found) == {"cublaslt": ("n/a", "cublasLt's heuristics name no kernel")}


@pytest.mark.parametrize(
    "group",
    ["m: 8, n: 8, k: 8, a: bf16, d: f16", "m: 8, n: 8, k: 8, beta: 1, c: f32", "m: 8, n: 8, k: 0"],
)
def test_what_cublaslt_refuses_is_na_with_its_own_word(group: str) -> None:
    plan = plan_of(group)
    with opened(plan, NORMAL, FakeCublasLt()) as session:
        rival = verdicts("cublaslt", plan, session)["cublaslt"].rival
    assert rival.verdict == "n/a"
    assert re.match(r"cublasLt\w+ says CUBLAS_STATUS_NOT_SUPPORTED", rival.reason)


@pytest.mark.parametrize(("one", "eight", "streams"), [(1.0, 2.0, 1), (2.0, 1.0, 8)])
def test_products_run_over_one_stream_or_eight_whichever_is_faster(
    one: float, eight: float, streams: int
) -> None:
    plan = plan_of("m: 8, n: 8, k: 8, count: 20")
    places = [place for _, *place in used(plan, FakeCublasLt(), fan_s={1: one, 8: eight})]
    assert [stream for stream, _ in places] == [100 + i % streams for i in range(20)]
    rooms = sorted({room for _, room in places})
    assert len(rooms) == streams  # a workspace for each
    assert all(end - begin >= cublas.WORKSPACE_BYTES for begin, end in pairwise(rooms))


def test_where_it_cannot_be_a_graph_cublaslt_is_spread_over_streams() -> None:
    plan, library = plan_of("m: 8, n: 8, k: 8, count: 20"), FakeCublasLt()
    library.capture_status = NOT_SUPPORTED
    with opened(plan, NORMAL, library) as session:
        rival = verdicts("cublaslt", plan, session)["cublaslt"].rival
    assert (rival.verdict, rival.form) == ("ok", "calls")
    assert {stream for _, stream, _ in library.used[-20:]} == set(range(100, 108))


def test_whatever_cublaslt_made_is_given_back() -> None:
    plan, library = plan_of(*MIXED), FakeCublasLt()
    with opened(plan, NORMAL, library) as session:
        verdicts("cublaslt", plan, session)
        assert not any(made.get("gone") for made in library.objects.values())
    assert library.objects
    assert all(made.get("gone") for made in library.objects.values())


# C in place


@pytest.mark.parametrize("form", ["graph", "calls"])
def test_one_run_in_place_is_compared_and_many_warm_ones_are_timed(form: str) -> None:
    plan, library = plan_of(*INPLACE), FakeCublas()
    library.capture_status = 0 if form == "graph" else NOT_SUPPORTED
    with opened(plan, NORMAL, library) as session:
        entry = verdicts("cublas-loop", plan, session, cold=False)["cublas-loop"]
        assert (entry.rival.verdict, entry.rival.form) == ("ok", form)
        assert entry.timed is not None
        done: list[int] = []
        library.multiply = lambda *told: done.append(1)  # type: ignore[method-assign]
        entry.timed.time(1, cold=False)
    assert len(done) == WARM_RUNS * len(plan.problem.groups)


def test_what_adds_to_what_an_earlier_run_left_in_place_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(*INPLACE)
    with opened(plan, NORMAL, FakeCublas()) as session:
        monkeypatch.setattr(session, "poison", lambda: None)
        rival = verdicts("cublas-loop", plan, session)["cublas-loop"].rival
    assert rival.verdict == "wrong"


# Graphs and calls


def entered(plan: Plan, library: Any, *, cold: bool = True, **gpu: Any) -> Entry:
    """The only baseline of a library, on a GPU with these fields."""
    with opened(plan, NORMAL, library) as session:
        vars(session.device).update(gpu)
        return verdicts("cublas", plan, session, cold=cold)["cublas"]


def test_what_is_fastest_as_a_graph_is_timed_as_one() -> None:
    rival = entered(plan_of(*EQUAL), FakeCublas(), call_s=2.0, graph_s=1.0).rival
    assert (rival.verdict, rival.form, rival.reason) == ("ok", "graph", "")


def test_what_is_fastest_by_its_own_calls_is_timed_by_them() -> None:
    rival = entered(plan_of(*EQUAL), FakeCublas(), call_s=1.0, graph_s=2.0).rival
    assert (rival.verdict, rival.form, rival.reason) == ("ok", "calls", "")


def test_warm_runs_are_a_graph_as_with_gemmctl_itself() -> None:
    rival = entered(plan_of(*EQUAL), FakeCublas(), cold=False, call_s=1.0, graph_s=999.0).rival
    assert rival.form == "graph"


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
def test_what_cannot_be_captured_is_timed_as_calls_with_the_reason(cold: bool) -> None:
    library = FakeCublas()
    library.capture_status = NOT_SUPPORTED
    rival = entered(plan_of(*EQUAL), library, cold=cold).rival
    assert (rival.verdict, rival.form) == ("ok", "calls")
    assert rival.reason == "cublasGemmGroupedBatchedEx says CUBLAS_STATUS_NOT_SUPPORTED"


def test_what_the_driver_makes_no_graph_of_is_timed_as_calls_with_the_reason() -> None:
    rival = entered(plan_of(*EQUAL), FakeCublas(), refuses_graphs="it will not").rival
    assert (rival.verdict, rival.form, rival.reason) == ("ok", "calls", "it will not")


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
def test_what_is_wrong_as_a_graph_only_is_timed_as_calls_with_the_reason(cold: bool) -> None:
    rival = entered(plan_of(*EQUAL), FakeCublas(), cold=cold, forgets_graphs=True).rival
    assert (rival.verdict, rival.form) == ("ok", "calls")
    assert re.match(r"as a graph, \d+ of D's elements differ", rival.reason)


def test_what_is_right_as_a_graph_only_is_timed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cublas.grouped

    def lazy(session: Any, plan: Plan) -> Any:
        """Whose calls are quick and do nothing, but in a graph."""
        right = made(session, plan)

        class Lazy:
            graph, poison, deliver = right.graph, right.poison, right.deliver
            manner = ""

            def queue(self) -> None: ...

        return Lazy()

    monkeypatch.setitem(baselines.BASELINES, "cublas", lazy)
    rival = entered(plan_of(*EQUAL), FakeCublas(), graph_s=5.0).rival
    assert (rival.verdict, rival.form) == ("ok", "graph")
    assert rival.reason.startswith("as calls, ")


@pytest.mark.parametrize(("cold", "runs"), [(True, 1), (False, WARM_RUNS)], ids=["cold", "warm"])
@pytest.mark.parametrize("form", ["graph", "calls"])
def test_a_sample_is_one_cold_run_or_many_warm_ones(cold: bool, runs: int, form: str) -> None:
    plan, library = plan_of(*EQUAL), FakeCublas()
    library.capture_status = 0 if form == "graph" else NOT_SUPPORTED
    with opened(plan, NORMAL, library) as session:
        entry = verdicts("cublas", plan, session, cold=cold)["cublas"]
        assert entry.timed is not None and entry.rival.form == form
        done: list[str] = []
        session.time = lambda count, *, cold, queue: done.append(f"{cold=}") or queue()
        library.multiply_groups = lambda *told: done.append("run")  # type: ignore[method-assign]
        entry.timed.time(1, cold=cold)
    assert done == [f"{cold=}"] + ["run"] * runs


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("form", ["graph", "calls"])
def test_a_sustained_sample_is_many_runs_whatever_one_of_a_burst_is(cold: bool, form: str) -> None:
    plan, library = plan_of(*EQUAL), FakeCublas()
    library.capture_status = 0 if form == "graph" else NOT_SUPPORTED
    with opened(plan, NORMAL, library) as session:
        (entry,) = baselines.enter(("cublas",), session, plan, NORMAL, cold=cold, pace="sustained")
        assert entry.timed is not None and entry.rival.form == form
        done: list[str] = []
        session.time = lambda count, *, cold, queue: queue()
        session.sustain = lambda seconds, watch, queue: done.append(f"{seconds} {watch}") or queue()
        library.multiply_groups = lambda *told: done.append("run")  # type: ignore[method-assign]
        entry.timed.time(1, cold=cold)
        assert done == ["run"] * (1 if cold else WARM_RUNS)
        done.clear()
        entry.timed.sustain(3.0, "watch")  # type: ignore[arg-type]
    assert done == ["3.0 watch"] + ["run"] * WARM_RUNS


def test_a_baseline_is_timed_at_no_pace_if_it_is_wrong_at_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(*EQUAL)
    with opened(plan, NORMAL) as session:

        def ways(_: Any, __: Any, cold: bool, ___: bool) -> list[baselines._Way]:
            queue = session.run if cold else session.poison
            return [baselines._Way("graph", queue, queue)]

        monkeypatch.setattr(baselines, "_ways", ways)
        monkeypatch.setitem(
            baselines.BASELINES, "torch", lambda session, plan: Own(session, plan, lambda _: None)
        )
        verdicts = [
            baselines.enter(("torch",), session, plan, NORMAL, pace=pace)[0].rival.verdict
            for pace in ("burst", "sustained")
        ]
    assert verdicts == ["ok", "wrong"]


def test_what_was_compared_is_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, done = plan_of(*EQUAL), []
    with opened(plan, NORMAL, FakeCublas()) as session:

        def queue() -> None:
            done.append("queued")
            session.run()

        monkeypatch.setattr(baselines, "_ways", lambda *_: [baselines._Way("graph", queue, queue)])
        entry = verdicts("cublas", plan, session)["cublas"]
        assert entry.rival.verdict == "ok" and entry.timed is not None
        done.clear()
        entry.timed.time(3, cold=True)
    assert done == ["queued"] * 3


# The check that comes before the timing


class Own:
    """A baseline that has gemmctl itself compute, and then spoils what it is told to."""

    manner = ""

    def __init__(self, session: Any, plan: Plan, spoil: Callable[[Any], None]) -> None:
        self._session, self._spoil = session, spoil

    def queue(self) -> None:
        self._session.run()

    def graph(self, runs: int) -> Callable[[], None]:
        raise NoGraph("it runs on the CPU")

    def poison(self) -> None: ...

    def deliver(self) -> None:
        self._spoil(self._session)


def entry_of(monkeypatch: pytest.MonkeyPatch, plan: Plan, spoil: Callable[[Any], None]) -> Entry:
    monkeypatch.setitem(
        baselines.BASELINES, "torch", lambda session, plan: Own(session, plan, spoil)
    )
    with opened(plan, NORMAL) as session:
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


# torch and DeepGEMM


TORCH = "torch,torch-bmm,torch-grouped"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    made = FakeTorch()
    monkeypatch.setattr(torch, "_imported", lambda: made)
    monkeypatch.setitem(sys.modules, "deep_gemm", FakeDeepGemm(made))
    return made


@contextmanager
def with_torch(fake: FakeTorch, plan: Plan, spec: DataSpec = NORMAL) -> Iterator[Any]:
    with opened(plan, spec) as session:
        fake.gpu = session.device
        yield session


def test_without_torch_there_are_no_torch_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    plan = plan_of(*EQUAL)
    with opened(plan, NORMAL) as session:
        found = verdicts(f"{TORCH},deepgemm", plan, session)
    assert set(told(found).values()) == {("n/a", "torch is not installed")}


TILES = ("m: 256, n: 40, k: 64, ldd: 48", "m: 0, n: 40, k: 64", "m: 128, n: 40, k: 64")
EXACTLY = {  # what a baseline can run
    "torch": [EQUAL, RAGGED, MIXED, ADDING, TILES, LAYOUTS, BEGUN],
    "torch-bmm": [
        *(EQUAL, MIXED[:1], MIXED[1:2], SCALED, INPLACE),
        *((one,) for one in (*LAYOUTS, *BEGUN)),
    ],
    "torch-grouped": [
        *(EQUAL, RAGGED, (MIXED[0], "m: 7, n: 40, k: 64"), TILES),
        *((one, one.replace("m: 24", "m: 8")) for one in LAYOUTS[:4]),
        *((one, one.replace("k: 64", "k: 8")) for one in LAYOUTS[:4]),
    ],
    "deepgemm": [EQUAL, RAGGED, (MIXED[0], "m: 7, n: 40, k: 64"), TILES],
}


@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize("form", ["graph", "calls", "warm"])
@pytest.mark.parametrize(
    ("name", "groups"), [(name, groups) for name, lists in EXACTLY.items() for groups in lists]
)
def test_torch_and_deepgemm_are_asked_for_what_gemmctl_computes(
    fake: FakeTorch, name: str, groups: tuple[str, ...], form: str, spec: DataSpec
) -> None:
    plan = plan_of(*groups)
    with with_torch(fake, plan, spec) as session:
        session.device.graph_s = 999.0 if form == "calls" else 0.0
        found = verdicts(name, plan, session, spec, cold=form != "warm")
    assert told(found) == {name: ("ok", "")}
    assert found[name].rival.form == ("calls" if form == "calls" else "graph")
    assert found[name].rival.manner == ""


ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
FOLLOWING = [  # of a product
    f"{added}, activation: {activation}, gate: {gate}"
    for added in ("beta: 0", "beta: -2, ldc: 41, alpha: 0.5", "alpha: 0.5", "bias: n", "bias: m",
                  "bias: n, bias_type: f32", "bias: n, d: f32, a: f16, alpha: 2",
                  "bias: m, beta: 1, d: f32, a: f16")
    for activation in ACTIVATIONS
    for gate in ("none", "halves", "pairs")
]  # fmt: skip


@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize("following", FOLLOWING)
def test_torch_is_asked_for_whatever_follows_a_product(
    fake: FakeTorch, following: str, spec: DataSpec
) -> None:
    plan = plan_of(f"m: 24, n: 40, k: 64, ldd: 41, {following}, count: 2")
    for form, graph_s in (("graph", 0.0), ("calls", 999.0)):
        with with_torch(fake, plan, spec) as session:
            session.device.graph_s = graph_s
            found = verdicts("torch,torch-bmm", plan, session, spec)
        assert told(found) == dict.fromkeys(found, ("ok", ""))
        assert {entry.rival.form for entry in found.values()} == {form}


@pytest.mark.parametrize("gate", ["none", "halves", "pairs"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_grouped_mm_is_followed_by_activation_and_gate(
    fake: FakeTorch, activation: str, gate: str
) -> None:
    follow = f"activation: {activation}, gate: {gate}"
    plan = plan_of(*(f"{group}, {follow}" for group in RAGGED))
    with with_torch(fake, plan) as session:
        found = verdicts("torch-grouped", plan, session)
    assert told(found) == {"torch-grouped": ("ok", "")}


@pytest.mark.parametrize(
    ("group", "manner"),
    [
        ("bias: n", ""),
        ("bias: m", ""),
        ("bias: n, bias_type: f32", "unfused"),
        ("bias: n, d: f32", "unfused"),
        ("bias: n, beta: 1", "unfused"),
        ("activation: relu", "unfused"),
        ("gate: halves", "unfused"),
        ("beta: 1", ""),
    ],
)
def test_what_takes_torch_more_kernels_than_the_product_is_called_unfused(
    fake: FakeTorch, group: str, manner: str
) -> None:
    plan = plan_of(*EQUAL, f"m: 24, n: 40, k: 64, {group}")
    with with_torch(fake, plan) as session:
        assert verdicts("torch", plan, session)["torch"].rival.manner == manner


def test_a_chain_in_place_adds_to_c_as_it_was(fake: FakeTorch) -> None:
    plan = plan_of("m: 24, n: 40, k: 64, beta: 1, inplace: true, bias: n, activation: gelu")
    for cold in (True, False):
        with with_torch(fake, plan) as session:
            found = verdicts("torch", plan, session, cold=cold)
        assert told(found) == {"torch": ("ok", "")}


def test_a_chain_that_leaves_out_a_step_is_wrong(
    fake: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake.nn.functional, "silu", lambda x: x)
    plan = plan_of(*GATED)
    with with_torch(fake, plan) as session:
        found = verdicts("torch,torch-bmm,torch-grouped", plan, session)
    assert {entry.rival.verdict for entry in found.values()} == {"wrong"}


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("name", EXACTLY)
def test_what_torch_cannot_capture_is_timed_as_calls_with_the_reason(
    fake: FakeTorch, name: str, cold: bool
) -> None:
    plan = plan_of(*EQUAL)
    fake.refuses_capture = True
    with with_torch(fake, plan) as session:
        rival = verdicts(name, plan, session, cold=cold)[name].rival
    assert (rival.verdict, rival.form) == ("ok", "calls")
    assert rival.reason.endswith("says: operation not permitted when stream is capturing")


alone_and_gated = pytest.mark.parametrize(
    ("name", "groups"),
    [*((name, EQUAL) for name in EXACTLY), *((name, GATED) for name in EXACTLY if name in TORCH)],
)


@alone_and_gated
def test_what_an_earlier_run_left_does_not_count_for_a_graph(
    fake: FakeTorch, name: str, groups: tuple[str, ...]
) -> None:
    plan = plan_of(*groups)
    with with_torch(fake, plan) as session:
        session.device.forgets_graphs = True
        rival = verdicts(name, plan, session)[name].rival
    assert (rival.verdict, rival.form) == ("ok", "calls")
    assert rival.reason.startswith("as a graph, ")


@alone_and_gated
def test_what_an_earlier_run_left_does_not_count_for_calls(
    fake: FakeTorch, monkeypatch: pytest.MonkeyPatch, name: str, groups: tuple[str, ...]
) -> None:
    plan = plan_of(*groups)
    with with_torch(fake, plan) as session:
        made = baselines.BASELINES[name](session, plan)  # which has run
        monkeypatch.setitem(baselines.BASELINES, name, lambda session, plan: made)
        monkeypatch.setattr(fake, "queue", lambda work: None)
        session.device.refuses_graphs = "it will not"
        rival = verdicts(name, plan, session)[name].rival
    assert rival.verdict == "wrong"
    assert rival.reason.startswith("as calls, ")


def test_an_older_torch_without_graphs_that_can_be_kept_is_timed_as_calls(fake: FakeTorch) -> None:
    def older() -> None: ...

    plan = plan_of(*EQUAL)
    fake.cuda.CUDAGraph = older
    with with_torch(fake, plan) as session:
        rival = verdicts("torch", plan, session)["torch"].rival
    assert (rival.verdict, rival.form) == ("ok", "calls")
    assert "torch 2.11 says:" in rival.reason and "keep_graph" in rival.reason


@pytest.mark.parametrize("form", ["graph", "calls"])
def test_torch_gives_back_what_it_allocated_when_the_session_ends(
    fake: FakeTorch, form: str
) -> None:
    plan = plan_of(*EQUAL)
    with with_torch(fake, plan) as session:
        session.device.graph_s = 999.0 if form == "calls" else 0.0
        entries = verdicts("torch-grouped", plan, session)
        allocated = [weakref.ref(fake.grouped_d), weakref.ref(fake.captured_d)]
        fake.grouped_d = fake.captured_d = None
        assert any(one() is not None for one in allocated)
        for graph in session.device.graphs:
            graph.clear()  # the driver's graphs have no hold on torch's memory
    assert entries and fake.emptied == 1
    assert all(one() is None for one in allocated)


@pytest.mark.parametrize(
    ("groups", "layout"), [(TILES, "contiguous"), (EQUAL, "masked"), (RAGGED, "masked")]
)
def test_deepgemm_takes_rows_in_one_piece_where_they_are_whole_tiles(
    fake: FakeTorch, groups: tuple[str, ...], layout: str
) -> None:
    plan = plan_of(*groups)
    with with_torch(fake, plan) as session:
        verdicts("deepgemm", plan, session)
    library: Any = sys.modules["deep_gemm"]
    assert set(library.called) == {layout}


@pytest.mark.parametrize("name", ["get_m_alignment_for_contiguous_layout", None])
def test_deepgemm_of_another_age_is_asked_for_its_tiles_as_it_can_be(
    fake: FakeTorch, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    library: Any = sys.modules["deep_gemm"]
    monkeypatch.delattr(FakeDeepGemm, "get_mk_alignment_for_contiguous_layout")
    if name:
        setattr(library, name, lambda: 128)
    plan = plan_of(*TILES)
    with with_torch(fake, plan) as session:
        assert verdicts("deepgemm", plan, session)["deepgemm"].rival.verdict == "ok"
    assert set(library.called) == {"contiguous"}


def test_what_deepgemm_refuses_is_na_with_its_own_word(fake: FakeTorch) -> None:
    plan = plan_of("m: 24, n: 40, k: 72")
    with with_torch(fake, plan) as session:
        found = verdicts("deepgemm", plan, session)
    reason = "deep_gemm says: Assertion error (sm90_bf16_gemm.hpp:118): k % 64 == 0"
    assert told(found) == {"deepgemm": ("n/a", reason)}


def test_a_deepgemm_without_bf16_is_na(fake: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeDeepGemm, "m_grouped_bf16_gemm_nt_masked")
    plan = plan_of(*EQUAL)
    with with_torch(fake, plan) as session:
        found = verdicts("deepgemm", plan, session)
    reason = "this deep_gemm has no m_grouped_bf16_gemm_nt_masked"
    assert told(found) == {"deepgemm": ("n/a", reason)}


def test_without_deepgemm_there_is_no_deepgemm_baseline(
    fake: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    plan = plan_of(*EQUAL)
    with with_torch(fake, plan) as session:
        found = verdicts("deepgemm", plan, session)
    assert told(found) == {"deepgemm": ("n/a", "deep_gemm is not installed")}


@pytest.mark.parametrize(
    "line", ["import nowhere", "raise OSError('no libnvrtc')", "assert False, 'no CUDA'"]
)
def test_a_deepgemm_that_does_not_load_is_na_and_what_it_prints_is_no_result(
    fake: FakeTorch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "deep_gemm.py").write_text(f"print('hello')\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "deep_gemm")
    plan = plan_of(*EQUAL)
    with with_torch(fake, plan) as session:
        rival = verdicts("deepgemm", plan, session)["deepgemm"].rival
    assert rival.verdict == "n/a"
    assert rival.reason.startswith("deep_gemm cannot be loaded: ")
    assert capsys.readouterr().out == ""


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
        (torch.grouped, BIASED, "grouped_mm knows no bias$"),
        (torch.grouped, ("m: 8, n: 8, k: 8, lda: 9",), "put their rows on 16-byte boundaries$"),
        (torch.grouped, ("m: 8, n: 8, k: 8, b_offset: 4",), "put their rows on 16-byte bound"),
        (torch.grouped, (*GATED, *EQUAL), "groups differ in activation and gate$"),
        (torch.batched, (*GATED, *EQUAL), "groups differ in ldd, activation and gate$"),
        (torch.batched, (*BIASED, f"{BIASED[0]}, bias_type: f32"), "in the type of the bias$"),
        (deepgemm.grouped, GATED, "DeepGEMM knows no activation and gate$"),
        (deepgemm.grouped, ("m: 8, n: 8, k: 15",), "put their rows on 16-byte boundaries$"),
        (deepgemm.grouped, MIXED[:2], "groups differ in N and K$"),
        (deepgemm.grouped, ("m: 8, n: 8, k: 8, alpha: 2",), "no alpha and beta"),
        (deepgemm.grouped, ("m: 8, n: 8, k: 8, beta: 1",), "no alpha and beta"),
        (deepgemm.grouped, ("m: 8, n: 8, k: 8, a: f16",), "bf16 from bf16 only"),
        (deepgemm.grouped, ("m: 8, n: 8, k: 8, d: f32",), "bf16 from bf16 only"),
    ],
)
def test_torch_and_deepgemm_say_what_they_cannot_run(
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
        self.manner = self._work.manner

    def queue(self) -> None:
        for call in self._work.run:
            call()

    def graph(self, runs: int) -> Callable[[], None]:
        raise NoGraph("it runs on the CPU")

    def poison(self) -> None:
        for tensor in self._work.results:
            tensor.fill_(float("nan"))

    def deliver(self) -> None:
        for call in self._work.deliver:
            call()


@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
@pytest.mark.parametrize(
    ("make", "groups"),
    [
        (torch.loop, EQUAL),
        (torch.loop, RAGGED),
        (torch.loop, MIXED[:3]),
        (torch.loop, SCALED),
        (torch.loop, INPLACE),
        (torch.batched, EQUAL),
        (torch.batched, MIXED[:1]),
        (torch.batched, MIXED[1:2]),
        (torch.batched, SCALED),
        (torch.grouped, EQUAL),
        (torch.grouped, RAGGED),
        (torch.grouped, (MIXED[0], "m: 7, n: 40, k: 64")),
    ],
)
def test_torch_itself_understands_what_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, make: Any, groups: tuple[str, ...], spec: DataSpec
) -> None:
    plan = plan_of(*groups)
    monkeypatch.setitem(
        baselines.BASELINES, "torch", lambda session, plan: TorchOnCpu(session, plan, make)
    )
    with opened(plan, spec) as session:
        entry = verdicts("torch", plan, session, spec)["torch"]
    assert (entry.rival.verdict, entry.rival.form) == ("ok", "calls")


@pytest.mark.parametrize("make", [torch.loop, torch.batched])
def test_torch_itself_understands_whatever_follows_a_product(
    monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    monkeypatch.setitem(
        baselines.BASELINES, "torch", lambda session, plan: TorchOnCpu(session, plan, make)
    )
    for following in FOLLOWING:
        if "a: f16" in following:
            continue  # f32 from f16 is for GPUs
        plan = plan_of(f"m: 24, n: 40, k: 64, ldd: 41, {following}, count: 2")
        with opened(plan, NORMAL) as session:
            found = verdicts("torch", plan, session)
        assert found["torch"].rival.verdict == "ok", (following, found["torch"].rival.reason)


def test_a_batch_whose_groups_are_not_evenly_spaced_is_no_bmm() -> None:
    found = pytest.importorskip("torch")
    group = "m: 8, n: 8, k: 8"
    plan = plan_of(group, group, "m: 0, n: 8, k: 8", group)  # which has a B
    with opened(plan, NORMAL) as session, pytest.raises(Inapplicable, match="not evenly spaced"):
        torch.batched(torch.Operands(found, found.from_numpy(session._arena), plan))
