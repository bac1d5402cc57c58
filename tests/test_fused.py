"""Bias, activation, gate and C in place, on the CPU: what is computed, how it is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import product as pairs
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gemmctl.device import cpu
from gemmctl.device.cpu import CpuDevice, CpuSession
from gemmctl.errors import DeviceFailed
from gemmctl.judging import dump, interval, product, sampling, verify
from gemmctl.judging.agreement import Witness
from gemmctl.judging.expected import Expected
from gemmctl.judging.freivalds import Projection
from gemmctl.judging.recomputed import Recomputed
from gemmctl.judging.repeats import repeated
from gemmctl.judging.verdict import Verdict
from gemmctl.kernels import cubins
from gemmctl.kernels.constants import RECIPE_SPECIAL_ROWS
from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES
from gemmctl.measuring import bench
from gemmctl.measuring.tune_cache import fingerprint
from gemmctl.operands import activations, data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.operands.dtypes import Bits
from gemmctl.planning import plan as planning
from gemmctl.planning import tables
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice
from judged import INT, NORMAL, SPECIAL, plan_of
from support import make_problem

Doubles = npt.NDArray[np.float64]

patient = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
every_kind = pytest.mark.parametrize("spec", [INT, NORMAL, SPECIAL], ids=lambda spec: spec.kind)


# What the formulas say, one number at a time.
def _gelu(x: float) -> float:
    return x / 2 * (1 + math.erf(x / math.sqrt(2)))


def _gelu_tanh(x: float) -> float:
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x > -700 else 0.0


FORMULAS: dict[str, Callable[[float], float]] = {
    "none": lambda x: x,
    "relu": lambda x: max(x, 0.0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}
LIMITS = {name: 0.0 for name in FORMULAS} | {"none": -math.inf}  # towards -infinity


@contextmanager
def opened(plan: Plan, spec: DataSpec) -> Iterator[CpuSession]:
    with CpuDevice().open(plan, spec) as session:
        assert isinstance(session, CpuSession)
        yield session


def bits_of(plan: Plan, session: CpuSession, operand: str, group: int = 0) -> Bits:
    """An operand as it lies in the arena, to be changed in place."""
    found = plan.problem.groups[group]
    rows, cols, ld, element = {
        "a": (found.m, found.k, found.lda, found.a),
        "b": (found.n, found.k, found.ldb, found.b),
        "c": (found.m, found.n, found.ldc, found.c),
        "d": (found.m, found.d_columns, found.ldd, found.d),
        "bias": (found.bias_length, 1, 1, found.bias_type),
    }[operand]
    offset = int(getattr(plan.layout, operand)[group])
    memory = session.read(0, plan.layout.size)
    return data.matrix(memory, offset, rows, cols, ld, dtypes.BY_NAME[element])


def values_of(plan: Plan, session: CpuSession, operand: str, group: int = 0) -> Doubles:
    found = plan.problem.groups[group]
    element = {"bias": found.bias_type}.get(operand) or getattr(found, operand)
    bits = bits_of(plan, session, operand, group)
    return dtypes.BY_NAME[element].to_f32(np.ascontiguousarray(bits)).astype(np.float64)


def expected(plan: Plan, session: CpuSession) -> tuple[Doubles, Doubles]:
    """D by the formulas before a run, and the size of what it is made of."""
    group = plan.problem.groups[0]
    x = np.zeros((group.m, group.n))
    size = x.copy()
    if group.alpha and group.k:
        a, b = (values_of(plan, session, operand) for operand in "ab")
        x, size = group.alpha * (a @ b.T), abs(group.alpha) * (np.abs(a) @ np.abs(b).T)
    if group.beta:
        added = group.beta * values_of(plan, session, "c")
        x, size = x + added, size + np.abs(added)
    if group.bias != "none":
        bias = values_of(plan, session, "bias")
        bias = np.broadcast_to(bias.T if group.bias == "n" else bias, x.shape)
        x, size = x + bias, size + np.abs(bias)
    y = np.vectorize(FORMULAS[group.activation], otypes=[float])(x)
    half = group.n // 2
    if group.gate == "halves":
        return y[:, :half] * x[:, half:], (1 + size[:, :half]) * (1 + size[:, half:])
    if group.gate == "pairs":
        return y[:, ::2] * x[:, 1::2], (1 + size[:, ::2]) * (1 + size[:, 1::2])
    return y, size


def verified(
    plan: Plan, spec: DataSpec, spoil: Callable[[CpuSession], None] = lambda session: None
) -> Verdict:
    """The verdict on a group that has run once, after something was done to its D."""
    with opened(plan, spec) as session:
        session.run()
        spoil(session)
        (verdict,) = verify.verify(plan, session, spec, device="cpu")
    return verdict


@st.composite
def groups(draw: st.DrawFn) -> str:
    """A group of any combination of keys, of a few tiles at most, in the words of a list."""
    gate = draw(st.sampled_from(GATES))
    m, n = draw(st.integers(1, 150)), draw(st.integers(1, 300))
    n += n % 2 if gate != "none" else 0
    k = draw(st.sampled_from([0, 1, 8, 64, 65, 200, 600]))
    d = draw(st.sampled_from(list(dtypes.BY_NAME)))
    columns = n if gate == "none" else n // 2
    keys: dict[str, Any] = {
        "m": m,
        "n": n,
        "k": k,
        "a": draw(st.sampled_from(["bf16", "f16"])),
        "d": d,
        "lda": -(-k // 8) * 8 or 8,
        "ldb": -(-k // 8) * 8 or 8,
        "ldd": columns + draw(st.integers(0, 3)),
        "d_offset": draw(st.integers(0, 3)),
        "alpha": draw(st.sampled_from([1, 1, 0, -0.75])),
        "beta": draw(st.sampled_from([0, 1, -1.5])),
        "bias": draw(st.sampled_from(BIASES)),
        "bias_type": draw(st.sampled_from(list(dtypes.BY_NAME))),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "gate": gate,
    }
    if gate == "none" and draw(st.booleans()):
        keys["inplace"] = "true"
    else:
        c = draw(st.sampled_from(list(dtypes.BY_NAME)))
        keys |= {"c": c, "ldc": n + 1, "c_offset": draw(st.integers(0, 3))}
    return ", ".join(f"{key}: {value}" for key, value in keys.items())


# What is computed


@patient
@given(groups(), st.sampled_from([INT, NORMAL]))
def test_every_combination_is_what_the_formulas_say(group: str, spec: DataSpec) -> None:
    plan = plan_of(group)
    with opened(plan, spec) as session:
        right, size = expected(plan, session)
        session.run()
        got = values_of(plan, session, "d")
    dtype = dtypes.BY_NAME[plan.problem.groups[0].d]
    with np.errstate(over="ignore", invalid="ignore"):
        ulp = 2.0**-dtype.mantissa_bits * np.abs(right) + 2.0**-24
        off = np.abs(got - right) <= ulp + 2.0**-14 * size
        beyond = (np.abs(right) > 0.99 * dtype.largest) & np.isinf(got)
    assert (off | beyond).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_an_activation_is_its_formula_from_end_to_end(name: str, precision: Any) -> None:
    x = np.concatenate([np.linspace(-30, 30, 2001), [-3e38, -1e20, 1e20, 3e38, 1e-40]])
    x = x.astype(precision)
    y = activations.activate(name, x)
    right = np.array([FORMULAS[name](value) for value in x.tolist()])
    assert y.dtype == precision
    unit = 2.0**-50 if precision is np.float64 else 2.0**-25
    assert (np.abs(y - right) <= 16 * unit * np.abs(right) + unit * np.abs(x)).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_their_limits_and_keep_nan(name: str) -> None:
    for precision in (np.float32, np.float64):
        ends = np.array([-np.inf, np.inf, np.nan, 0.0, -0.0], precision)
        low, high, nan, *zeros = activations.activate(name, ends).tolist()
        assert (low, high) == (LIMITS[name], math.inf)
        assert math.isnan(nan) and zeros == [0, 0]


def test_a_bias_is_read_with_its_own_type_along_its_own_side() -> None:
    for bias, along in (("n", 1), ("m", 0)):
        plan = plan_of(f"m: 5, n: 24, k: 0, bias: {bias}, bias_type: f16, d: f32")
        with opened(plan, NORMAL) as session:
            session.run()
            d, numbers = values_of(plan, session, "d"), values_of(plan, session, "bias")
        assert len(numbers) == d.shape[along] and len(set(numbers.ravel().tolist())) > 4
        assert (d == (numbers.T if along else numbers)).all()


def test_a_split_sum_goes_through_the_epilogue_once() -> None:
    whole = plan_of("m: 70, n: 300, k: 2048, bias: n, activation: silu, gate: pairs, d: f32")
    chosen = {"some": [Choice(whole.launches[0].kernel.name, 64, 4)]}
    (split,) = planning.make([whole.problem], cubins.manifest().kernels, chosen=chosen)
    assert (split.launches[0].tiles["splits"] == 4).any()
    assert verified(split, NORMAL).ok


# In place


def test_in_place_c_lies_where_d_does() -> None:
    plan = plan_of("m: 8, n: 24, k: 8, beta: 1, inplace: true", "m: 8, n: 24, k: 8, beta: 1")
    assert plan.layout.c[0] == plan.layout.d[0] and plan.layout.c[1] < plan.layout.d_begin


@pytest.mark.parametrize("beta", [1.0, -0.5])
def test_runs_in_place_add_up_until_c_is_made_anew(beta: float) -> None:
    plan = plan_of(f"m: 9, n: 40, k: 16, beta: {beta}, inplace: true, d: f32, ldd: 43")
    with opened(plan, INT) as session:
        c = values_of(plan, session, "c")
        session.run()
        first = values_of(plan, session, "d")
        sums = first - beta * c
        session.run()
        assert np.array_equal(values_of(plan, session, "d"), sums + beta * first)
        session.poison()
        assert np.array_equal(values_of(plan, session, "c"), c)
        session.run()
        assert np.array_equal(values_of(plan, session, "d"), first)


def test_every_burst_of_samples_starts_from_the_same_c() -> None:
    plan = plan_of("m: 9, n: 40, k: 16, beta: 1, inplace: true, d: f32")
    with opened(plan, INT) as session:
        c = values_of(plan, session, "c")
        session.run()
        sums = values_of(plan, session, "d") - c
        for count in (3, 2):
            session.time(count, cold=True)
            assert np.array_equal(values_of(plan, session, "d"), c + count * sums)


def test_a_run_in_place_is_compared_from_the_same_start() -> None:
    plan = plan_of("m: 9, n: 40, k: 16, beta: 1, inplace: true")
    once = bench.Settings(runs=5, max_noise=0)
    with opened(plan, NORMAL) as session:
        assert len(bench.measure(session, CpuDevice(), plan, once).samples) == 5


def test_a_run_in_place_that_changes_from_time_to_time_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of("m: 9, n: 40, k: 16, beta: 1, inplace: true")
    run, count = CpuSession.run, 0

    def flawed(session: CpuSession) -> None:
        nonlocal count
        run(session)
        count += 1
        if count > 5:
            bits_of(plan, session, "d")[3, 4] ^= 1

    monkeypatch.setattr(CpuSession, "run", flawed)
    with opened(plan, NORMAL) as session, pytest.raises(DeviceFailed, match="other bits"):
        bench.measure(session, CpuDevice(), plan, bench.Settings(runs=5, max_noise=0))


def test_repeated_verdicts_start_from_the_same_c() -> None:
    plan = plan_of("m: 9, n: 40, k: 16, beta: 1, inplace: true")
    with opened(plan, NORMAL) as session:
        session.run()
        verdicts = verify.verify(plan, session, NORMAL, device="cpu")
        judged = repeated(session, verdicts, session.digests(), 3)
    assert [verdict.ok for verdict in judged] == [True]


def test_a_verdict_names_what_was_wrong_in_the_first_run_and_every_run_that_differed() -> None:
    plan = plan_of("m: 9, n: 40, k: 16")
    with opened(plan, NORMAL) as session:
        session.run()
        bits_of(plan, session, "d")[3, 4] ^= 0x8000
        (first,) = verify.verify(plan, session, NORMAL, device="cpu")
        (judged,) = repeated(session, [first], session.digests(), 3)
    others = "; ".join(f"run {run} gave other bits than the first" for run in (2, 3))
    assert (first.ok, judged.ok) == (False, False)
    assert judged.message == f"{first.message}; {others}"


def test_what_a_plan_counts() -> None:
    plain, gated, biased, apart, inside = (
        plan_of(f"m: 16, n: 64, k: 32, {keys}")
        for keys in (
            "beta: 0", "gate: halves, activation: silu", "bias: m, bias_type: f32", "beta: 1",
            "beta: 1, inplace: true",
        )
    )  # fmt: skip
    assert {made.flops for made in (plain, gated, biased, apart, inside)} == {2 * 16 * 64 * 32}
    assert gated.bytes == plain.bytes - 16 * 32 * 2
    assert biased.bytes == plain.bytes + 16 * 4
    assert inside.bytes == apart.bytes == plain.bytes + 16 * 64 * 2
    assert inside.layout.size < apart.layout.size


# What the checker says


# Deviations that are no numbers, and errors that are all those of five numbers.
INFINITE = "m: 109, n: 120, k: 0, beta: -1.5, activation: gelu, gate: halves, ldc: 121"
FIVE = "m: 5, n: 100, k: 0, d: f16, bias: m, bias_type: f16, activation: gelu, gate: halves"


@patient
@example(INFINITE, SPECIAL, 2)
@example(FIVE, NORMAL, 131)
@given(groups(), st.sampled_from([INT, NORMAL, SPECIAL]), st.integers(0, 2**32))
def test_every_combination_is_called_right(group: str, spec: DataSpec, seed: int) -> None:
    verdict = verified(plan_of(group), DataSpec(spec.kind, seed))
    assert verdict.ok, verdict.message


@patient
@given(groups(), st.integers(0, 2**32))
def test_what_is_computed_again_in_float32_is_seldom_doubted(group: str, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "LARGE", -1)
        made, spec = plan_of(group), DataSpec("normal", seed)
        assert verified(made, spec).ok
        found = made.problem.groups[0]
        if found.linear:
            return
        with opened(made, spec) as session:
            session.run()
            (judged,) = product.products_of(made, spec, "cpu")
            rows = np.arange(found.m)
            doubted = Recomputed(judged).suspects(rows, bits_of(made, session, "d"))
        assert doubted.sum() <= 0.01 * doubted.size


@pytest.mark.parametrize("k", [8, 16, 32, 128])
@pytest.mark.parametrize("keys", ["activation: silu", "activation: relu", "gate: halves"])
def test_behind_a_short_k_whatever_is_beyond_its_interval_is_doubted(keys: str, k: int) -> None:
    made = plan_of(f"m: 60, n: 96, k: {k}, d: f32, {keys}")
    (judged,) = product.products_of(made, NORMAL, "cuda")
    rows, columns = np.arange(60), range(judged.group.d_columns)
    told = judged.expected(rows, columns)
    right = told.right.astype(np.float32)
    wrong = (told.right + 1.2 * told.allowed).astype(np.float32)
    doubts = Recomputed(judged)
    assert not doubts.suspects(rows, right.view(np.uint32)).any()
    for column in range(0, len(columns), 5):
        found = right.copy()
        found[:, column] = wrong[:, column]
        beyond = interval.judged(judged, told, found)[2][:, column]
        doubted = doubts.suspects(rows, found.view(np.uint32)).any(axis=1)
        assert (doubted == ~beyond).all() and doubted.mean() > 0.3  # relu leaves half of them


@pytest.mark.parametrize("keys", ["alpha: 1", "activation: gelu"])
def test_what_is_far_off_is_doubted_in_whatever_column_it_is(keys: str) -> None:
    made = plan_of(f"m: 40, n: 1400, k: 256, d: f32, {keys}")
    (judged,) = product.products_of(made, NORMAL, "cuda")
    rows, columns = np.arange(40), range(1400)
    right = judged.expected(rows, columns).right.astype(np.float32)
    with ThreadPoolExecutor(1) as pool:
        doubts = Projection(judged, pool) if judged.group.linear else Recomputed(judged)
    assert [column for block in doubts.blocks for column in block] == list(columns)
    for column in (0, 255, 256, 511, 512, 1023, 1024, 1399):
        found = right.copy()
        found[7, column] += 10
        row, block = np.argwhere(doubts.suspects(rows, found.view(np.uint32)))[0].tolist()
        assert row == 7 and column in doubts.blocks[block]


def other(name: str) -> dict[str, Callable[[Any], Any]]:
    """All activations, and one that another takes the place of."""
    wrong = {"relu": "gelu", "gelu": "gelu_tanh", "gelu_tanh": "gelu", "silu": "gelu"}[name]
    return activations.FUNCTIONS | {name: activations.FUNCTIONS[wrong]}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("d", ["bf16", "f32"])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("name", ACTIVATIONS[1:])
def test_another_activation_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, gate: str, d: str, large: bool
) -> None:
    monkeypatch.setattr(product, "LARGE", -1 if large else product.LARGE)
    plan = plan_of(f"m: 64, n: 96, k: 8, d: {d}, activation: {name}, gate: {gate}")
    wrong = other(name)
    monkeypatch.setattr(cpu, "activate", lambda given, x: wrong[given](x))
    assert not verified(plan, NORMAL).ok


DEFECTS: dict[str, dict[str, Any]] = {
    "no bias": {"bias_along": 0},
    "a bias along the other side": {"bias_along": 2},
    "a bias of another type": {"type_bias": dtypes.F16.code},
    "no activation": {"activation": 0},
    "the other gate": {"gate": 2},
}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("what", DEFECTS)
def test_tables_that_say_something_else_are_found(
    monkeypatch: pytest.MonkeyPatch, what: str, large: bool
) -> None:
    monkeypatch.setattr(product, "LARGE", -1 if large else product.LARGE)
    plan = plan_of("m: 96, n: 96, k: 64, bias: n, activation: silu, gate: halves")
    build = tables.build

    def spoiled(*given: Any) -> tables.Tables:
        table = build(*given)
        changed = {
            name: np.full_like(getattr(table, name), value) for name, value in DEFECTS[what].items()
        }
        return replace(table, **changed)

    monkeypatch.setattr(tables, "build", spoiled)
    assert not verified(plan, NORMAL).ok


def test_an_activation_taken_of_rounded_sums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("m: 96, n: 96, k: 64, activation: silu, gate: pairs")

    def of_rounded(name: str, x: Any) -> Any:
        return activations.activate(name, dtypes.BF16.to_f32(dtypes.BF16.from_float(x)))

    monkeypatch.setattr(cpu, "activate", of_rounded)
    assert not verified(plan, NORMAL).ok


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("relu", lambda x: np.fmax(x, 0)),  # NaN becomes 0
        ("silu", lambda x: x / (1 + np.exp(-x))),  # -infinity becomes NaN
        ("gelu", lambda x: np.where(np.isinf(x), x, activations.FUNCTIONS["gelu"](x))),
    ],
)
def test_special_data_show_limits_that_are_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, flaw: Callable[[Any], Any]
) -> None:
    plan = plan_of(f"m: 64, n: 96, k: 64, activation: {name}")
    assert verified(plan, SPECIAL).ok
    monkeypatch.setattr(cpu, "activate", lambda given, x: flaw(x))
    assert not verified(plan, SPECIAL).ok


@pytest.mark.parametrize("d", ["bf16", "f32"])
@pytest.mark.parametrize(
    "keys", ["activation: gelu", "gate: halves", "activation: silu, gate: pairs"]
)
@pytest.mark.parametrize(
    "change", [lambda x: -x, lambda x: 1.1 * x + 1, lambda x: np.inf, lambda x: np.nan]
)
def test_one_wrong_element_of_a_large_group_that_is_not_linear_is_found_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], keys: str, d: str
) -> None:
    monkeypatch.setattr(product, "LARGE", -1)
    monkeypatch.setattr(sampling, "SAMPLED_ROWS", 0)
    plan, dtype = plan_of(f"m: 700, n: 1400, k: 24, d: {d}, {keys}"), dtypes.BY_NAME[d]
    random = np.random.default_rng(2)
    for spec in (NORMAL, INT):
        with opened(plan, spec) as session:
            session.run()
            bits = bits_of(plan, session, "d")
            large = np.argwhere(np.abs(dtype.to_f32(bits)) > 0.5)
            row, col = random.choice(large[large[:, 0] < 512])
            was = dtype.to_f32(bits[row, col : col + 1])
            bits[row, col] = dtype.from_float(np.array([change(float(was[0]))]))[0]
            (verdict,) = verify.verify(plan, session, spec, device="cpu")
        assert verdict.method.endswith("rows+float32")
        assert (verdict.bad, verdict.first and (verdict.first.row, verdict.first.col)) == (
            1,
            (row, col),
        )


def test_a_large_group_with_a_bias_still_goes_through_freivalds_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(product, "LARGE", -1)
    for bias in ("n", "m"):
        plan = plan_of(f"m: 700, n: 776, k: 64, bias: {bias}, beta: 0.5, inplace: true")
        for spec in (NORMAL, INT, SPECIAL):
            verdict = verified(plan, spec)
            assert verdict.ok and verdict.method.endswith("rows+freivalds"), verdict.message

        def spoil(session: CpuSession, plan: Plan = plan) -> None:
            bits_of(plan, session, "d")[300, 40] ^= 0x8000

        assert verified(plan, NORMAL, spoil).bad == 1


@pytest.mark.parametrize("bias", ["n", "m"])
@pytest.mark.parametrize("spec", [NORMAL, SPECIAL], ids=["normal", "special"])
def test_freivalds_test_adds_the_bias_and_passes_over_what_is_special_in_it(
    bias: str, spec: DataSpec
) -> None:
    plan = plan_of(f"m: 700, n: 768, k: 512, bias: {bias}, bias_type: f32, d: f32")
    with opened(plan, spec) as session, ThreadPoolExecutor(1) as pool:
        session.run()
        (judged,) = product.products_of(plan, spec, "cpu")
        projection = Projection(judged, pool)
        rows = np.arange(700)
        assert projection.suspects(rows, bits_of(plan, session, "d")).mean() <= 0.004
        d = bits_of(plan, session, "d").view(np.float32)
        plain = np.flatnonzero(judged.a.plain(rows) & (judged.bias.plain(rows) | (bias == "n")))
        cols = np.flatnonzero(judged.b.plain(768) & (judged.bias.plain(768) | (bias == "m")))
        d[plain[5], cols[7]] += 1
        doubted = projection.suspects(rows, bits_of(plan, session, "d"))
    assert doubted[plain[5], cols[7] // 256]


@pytest.mark.parametrize("gate", GATES)
def test_a_wrong_element_names_the_tile_that_holds_it(gate: str) -> None:
    plan = plan_of(f"m: 300, n: 1300, k: 64, gate: {gate}")
    (launch,) = plan.launches
    columns = launch.kernel.columns_per_tile // (1 if gate == "none" else 2)
    (judged,) = product.products_of(plan, NORMAL, "cpu")
    for col in (0, columns - 1, columns, plan.problem.groups[0].d_columns - 1):
        tile = judged.tile(290, col)
        assert tile is not None
        m0, n0, rows, cols = tile
        assert m0 <= 290 < m0 + rows and n0 // columns == col // columns
        assert n0 % columns == 0 and cols == columns


@pytest.mark.parametrize("kernel", ["128x256", "128x256-x"])
def test_the_corners_of_every_tile_are_in_it_and_in_no_other(kernel: str) -> None:
    problem = make_problem("m: 700, n: 600, k: 64")
    chosen = {problem.name: [Choice(kernel, 128)]}
    (made,) = planning.make([problem], cubins.manifest().kernels, chosen=chosen)
    (judged,) = product.products_of(made, NORMAL, "cuda")
    tiles = [(t["row"], t["col"], t["rows"], t["cols"]) for t in judged.tiles]
    assert len({tile[0] for tile in tiles}) > 2 < len({tile[1] for tile in tiles})
    for tile in tiles:
        row, col, rows, cols = tile
        for i, j in pairs((row, row + rows - 1), (col, col + cols - 1)):
            assert judged.tile(int(i), int(j)) == tile


def test_elements_of_a_gated_d_that_are_not_written_are_counted_among_its_own() -> None:
    plan = plan_of("m: 40, n: 48, k: 64, gate: pairs")

    def spoil(session: CpuSession) -> None:
        bits_of(plan, session, "d")[3] = 0xFFFF

    assert "24 of 960 elements were never written" in verified(plan, NORMAL, spoil).message


def test_integer_sums_leave_room_for_a_bias() -> None:
    k = 2**24 - 1  # with C, all sums up to 2^24 are exact; a bias may be one too many
    plain, biased = (
        plan_of(f"m: 1, n: 1, k: {k}, lda: {2**24}, ldb: {2**24}, {keys}")
        for keys in ("bias: none", "bias: n")
    )
    exact = [product.products_of(made, INT, "cpu")[0].exact_sums for made in (plain, biased)]
    assert exact == [True, False]


class Constant:
    """An operand of one number."""

    recipe = RECIPE_SPECIAL_ROWS
    dtype = dtypes.F32

    def __init__(self, value: float) -> None:
        self._value = value

    def values(self, rows: Any, cols: Any) -> Any:
        shape = [value if isinstance(value, int) else len(value) for value in (rows, cols)]
        return np.full(shape, self._value, np.float32)


def made_of(keys: str, a: float, b: float, c: float, bias: float) -> product.Product:
    """The product of one group of m = n = k = 2 whose operands are constants."""
    (judged,) = product.products_of(
        plan_of(f"m: 2, n: 2, k: 2, lda: 8, ldb: 8, {keys}"), SPECIAL, "cpu"
    )
    operands: dict[str, Any] = {
        name: Constant(value) for name, value in {"a": a, "b": b, "c": c, "bias": bias}.items()
    }
    return replace(judged, **operands)


def test_every_rounding_of_scalars_and_sums_is_allowed_for() -> None:
    unit = 2.0**-24
    for keys, roundings, size in (
        ("alpha: 0.5, beta: 1", 3, 1 + 3),
        ("alpha: 0.5, beta: 1, bias: n", 4, 1 + 3 + 5),
        ("bias: m", 4, 2 + 5),
    ):
        judged = replace(made_of(f"d: f32, {keys}", 1, 1, 3, 5), growth=0.0, steps=0)
        told = judged.expected(np.arange(2), range(2))
        assert told.allowed == pytest.approx(roundings * unit * size, rel=1e-6)


@pytest.mark.parametrize("keys", ["bias: n", "bias: m"])
def test_a_bias_that_joins_the_sums_may_err_as_a_step_of_the_tensor_core_does(keys: str) -> None:
    problem = make_problem(f"m: 96, n: 256, k: 128, {keys}")
    chosen = {problem.name: [Choice("128x192-c2p", 192)]}
    (made,) = planning.make([problem], cubins.manifest().kernels, chosen=chosen)
    (judged,) = product.products_of(made, NORMAL, "cuda")
    rows, cols = np.arange(96), range(256)
    sums, _ = judged.sums(rows, cols)
    _, bias = judged.addends(rows, cols)
    # Both cut off below the largest one's last bit (docs/verifying.md).
    last = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(sums), np.abs(bias)))) - 23)
    cut = (np.trunc(sums / last) + np.trunc(bias / last)) * last
    told, unjoined = (one.expected(rows, cols) for one in (judged, replace(judged, joining=0.0)))
    lost = np.abs(cut - told.right)
    assert (lost > 2.0**-24 * np.abs(told.right)).any()  # more than a rounding to float32
    assert (lost <= told.allowed - unjoined.allowed).all()
    # Nowhere else: a CPU adds and rounds, and integers leave nothing to round.
    (on_cpu,), (whole,) = (
        product.products_of(made, NORMAL, "cpu"),
        product.products_of(made, INT, "cuda"),
    )
    assert on_cpu.joining == whole.joining == 0


def test_integers_that_a_bias_joins_behind_alpha_may_be_none() -> None:
    problem = make_problem("m: 96, n: 256, k: 128, bias: n, alpha: 0.3, d: f32, bias_type: bf16")
    chosen = {problem.name: [Choice("128x192-c2p", 192)]}
    (made,) = planning.make([problem], cubins.manifest().kernels, chosen=chosen)
    (judged,) = product.products_of(made, INT, "cuda")
    assert judged.exact_sums and judged.joining > 0
    assert (judged.expected(np.arange(96), range(256)).allowed > 0).all()


def test_a_sum_that_only_the_bias_brings_back_may_be_infinite() -> None:
    rows, cols = np.arange(2), range(2)
    for bias, loose in ((-3e38, True), (-1e38, False)):
        c = 3e38 if loose else 1e38
        judged = made_of("beta: 1, bias: n, d: f32", 1e38, 1, c, bias)
        told = judged.expected(rows, cols)
        assert told.loose is not None and bool(told.loose.all()) == loose
        assert np.isfinite(told.right).all()


def test_what_may_be_minus_infinity_may_be_0_behind_an_activation_only() -> None:
    free = Expected(
        *(np.full((2, 2), value) for value in (5.0, 1.0, 1.0)), np.ones((2, 2), np.bool_)
    )
    for keys, right in (("activation: relu", True), ("alpha: 1", False)):
        judged = made_of(keys, 1, 1, 1, 1)
        *_, good = interval.judged(judged, free, np.zeros((2, 2), np.float32))
        assert bool(good.all()) == right


def test_what_is_right_outside_its_interval_is_not_the_worst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = Expected(
        *(np.full((2, 2), value) for value in (5.0, 1e-3, 1.0)), np.ones((2, 2), np.bool_)
    )
    judged = made_of("activation: relu, d: f32", 1, 1, 1, 1)
    monkeypatch.setattr(type(judged), "expected", lambda *place: free)
    monkeypatch.setattr(type(judged), "varied", False)
    bits = np.array([[5.0, 0.0], [5.0005, 0.0]], np.float32).view(np.uint32)
    found = interval.compare(judged, np.arange(2), range(2), bits)
    assert found.bad == 0 and found.worst == pytest.approx(0.5, rel=1e-2)


def test_what_was_tuned_holds_for_the_same_bias_activation_and_gate_only() -> None:
    keys = ("bias: none", "bias: n", "activation: gelu", "gate: halves", "gate: pairs")
    found = {fingerprint(plan_of(f"m: 8, n: 8, k: 8, {key}").problem) for key in keys}
    assert len(found) == len(keys)


@pytest.mark.parametrize(
    ("spec", "keys", "method"),
    [
        (INT, "bias: n", "exact full"),
        (INT, "bias: m, activation: relu", "exact full"),
        (INT, "beta: 1, bias: m", "exact full"),
        (INT, "gate: pairs", "bounded full"),
        (INT, "activation: silu", "bounded full"),
        (INT, "alpha: 0.3, activation: relu", "bounded full"),
        (NORMAL, "alpha: 0, bias: n", "exact full"),
        (NORMAL, "alpha: 0, beta: 2, bias: n", "bounded full"),
        (NORMAL, "bias: n", "bounded full"),
    ],
)
def test_the_method_says_where_there_is_a_choice(spec: DataSpec, keys: str, method: str) -> None:
    assert verified(plan_of(f"m: 16, n: 16, k: 16, {keys}"), spec).method == method


@pytest.mark.parametrize("operand", ["bf16", "f16"])
@pytest.mark.parametrize("k", [1, 8, 16, 32, 64, 255, 280, 1023])
def test_integers_with_a_c_and_a_bias_are_exact_whatever_k_is(operand: str, k: int) -> None:
    plan = plan_of(f"m: 16, n: 16, k: {k}, a: {operand}, d: f32, beta: 1, bias: n")

    def spoil(session: CpuSession) -> None:
        bits_of(plan, session, "d").view(np.float32)[3, 5] += 1

    assert verified(plan, INT).method == "exact full"
    assert not verified(plan, INT, spoil).ok


def test_integers_behind_a_gate_are_exact_where_their_product_is() -> None:
    plan = plan_of("m: 40, n: 48, k: 64, d: f32, gate: halves, activation: relu")

    def spoil(session: CpuSession) -> None:
        bits = bits_of(plan, session, "d")
        whole = np.argwhere((bits.view(np.float32) != 0) & (bits.view(np.float32) < 2**23))
        row, col = whole[0]
        bits[row, col] += 1  # the next float32

    assert verified(plan, INT).ok and verified(plan, INT, spoil).bad == 1


def test_what_lies_behind_the_columns_of_a_gated_d_stays_poison() -> None:
    plan = plan_of("m: 40, n: 48, k: 64, gate: halves, ldd: 30")

    def spoil(session: CpuSession) -> None:
        session.read(0, plan.layout.size)[int(plan.layout.d[0]) + 24 * 2] = 0

    assert verified(plan, NORMAL).outside == 0
    assert verified(plan, NORMAL, spoil).outside == 1


@every_kind
def test_a_dump_holds_the_bias_and_a_c_in_place(tmp_path: Any, spec: DataSpec) -> None:
    plan = plan_of(
        "m: 8, n: 8, k: 8", "m: 20, n: 40, k: 16, beta: 1, bias: n, bias_type: f32, inplace: true"
    )
    with opened(plan, spec) as session:
        c, bias = (bits_of(plan, session, operand, 1).copy() for operand in ("c", "bias"))
        session.run()
        d = bits_of(plan, session, "d", 1).copy()
        dump.dump(plan, session, 1, str(tmp_path), spec, device="cpu", repeat=2)
    assert np.array_equal(np.load(tmp_path / "c_bits.npy"), c)
    assert np.array_equal(np.load(tmp_path / "d_bits.npy"), d)
    assert np.array_equal(np.load(tmp_path / "bias_bits.npy").ravel(), bias.ravel())
    assert "inplace: true" in (tmp_path / "problem.yaml").read_text()


def test_a_dump_of_a_gated_group_has_the_columns_that_d_has(tmp_path: Any) -> None:
    plan = plan_of("m: 20, n: 48, k: 16, d: f32, activation: relu, gate: pairs, ldd: 30")
    with opened(plan, INT) as session:
        session.run()
        dump.dump(plan, session, 0, str(tmp_path), INT, device="cpu", repeat=1)
    a, b, d = (np.load(tmp_path / f"{name}.npy").astype(np.float64) for name in "abd")
    x = a @ b.T
    right = (np.maximum(x[:, ::2], 0) * x[:, 1::2]).astype(np.float32)
    assert right.any() and np.array_equal(d, right)


# Other libraries' results


NONLINEAR = ("activation: gelu, bias: n", "activation: silu, gate: halves", "gate: pairs, beta: 1")


@pytest.mark.parametrize("keys", NONLINEAR)
@pytest.mark.parametrize("d", ["bf16", "f32"])
def test_a_result_within_its_interval_agrees_and_one_beyond_it_does_not(keys: str, d: str) -> None:
    plan, dtype = plan_of(f"m: 96, n: 96, k: 1024, d: {d}, {keys}"), dtypes.BY_NAME[d]
    with opened(plan, NORMAL) as session:
        witness = Witness(plan, session, NORMAL)
        (judged,) = product.products_of(plan, NORMAL, "cuda")
        told = judged.expected(np.arange(96), range(plan.problem.groups[0].d_columns))
        bits_of(plan, session, "d")[:] = dtype.from_float(told.right + 0.9 * told.allowed)
        assert witness.disagreement(session) is None
        bits_of(plan, session, "d")[5, 6] = dtype.from_float(told.right[5:6, 6] + 1)[0]
        found = witness.disagreement(session)
    assert found is not None and (found.row, found.col, found.count) == (5, 6, 1)


@pytest.mark.parametrize("keys", NONLINEAR)
def test_an_unfused_chain_may_round_in_between(keys: str) -> None:
    plan = plan_of(f"m: 96, n: 96, k: 64, {keys}")
    group = plan.problem.groups[0]

    def stored(x: Any) -> Any:
        return dtypes.BF16.to_f32(dtypes.BF16.from_float(x))

    with opened(plan, NORMAL) as session:
        plain = replace(group, activation="none", gate="none")
        (judged,) = product.products_of(plan, NORMAL, "cuda")
        judged = replace(judged, group=plain)
        x = stored(judged.expected(np.arange(96), range(96)).right)
        witness = Witness(plan, session, NORMAL)
        half = 48
        parts = {"halves": (x[:, :half], x[:, half:]), "pairs": (x[:, ::2], x[:, 1::2])}
        y, *others = parts.get(group.gate, (x,))
        y = stored(activations.activate(group.activation, y))
        for factor in others:
            y = y * factor
        bits_of(plan, session, "d")[:] = dtypes.BF16.from_float(y)
        assert witness.disagreement(session) is not None
        assert witness.disagreement(session, "unfused") is None
