"""Defects planted into right results, and how often the checker catches them.

Every defect here passed gemmctl 0.1.0. `pytest -m planted -rP` tries each over at least 200 seeds
and prints the table of docs/verifying.md; without the marker a few seeds of each are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gemmctl.judging import freivalds, product
from gemmctl.judging.freivalds import Projection
from gemmctl.judging.product import Doubles
from gemmctl.operands import dtypes
from gemmctl.operands.data import DataSpec
from judged import INT, NORMAL, SPECIAL, Written, plan_of

pytestmark = pytest.mark.planted
SEEDS = 200
few_or_all = pytest.mark.parametrize(
    "seeds", [pytest.param(3, id="few"), pytest.param(SEEDS, id="all", marks=pytest.mark.slow)]
)
Plant = Callable[[Written], None]


def tell(what: str, caught: int, tried: int) -> None:
    """A row of the table."""
    print(f"{what}: caught {caught} of {tried}")


def caught(plant: Plant, groups: str, specs: Iterable[DataSpec], *, defaults: str = "") -> bool:
    """Whether any of some kinds of data shows a defect; without it the result has to be right."""
    made = plan_of(groups, defaults=defaults)
    bad = False
    for spec in specs:
        session = Written(made, spec)
        assert all(verdict.ok for verdict in session.write().verify())
        plant(session)
        bad |= not all(verdict.ok for verdict in session.verify())
    return bad


def of_seed(seed: int, *specs: DataSpec) -> list[DataSpec]:
    return [DataSpec(spec.kind, 1000 + seed) for spec in specs]


# Elements that are not finite, anywhere in a large group.


@few_or_all
@pytest.mark.parametrize("d", ["bf16", "f32"])
@pytest.mark.parametrize("kind", ["normal", "int"])
@pytest.mark.parametrize("planted", [np.inf, -np.inf, np.nan], ids=["inf", "-inf", "nan"])
def test_an_element_that_is_not_finite_is_always_caught(
    planted: float, kind: str, d: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = (1024, 1024, 4096) if seeds == SEEDS else (600, 520, 256)
    monkeypatch.setattr(product, "LARGE", m * n * k - 1)
    session = Written(plan_of(f"m: {m}, n: {n}, k: {k}, d: {d}"), DataSpec(kind, 3)).write()  # type: ignore[arg-type]
    right = session.d().copy()
    random, found = np.random.default_rng(1), 0
    for _ in range(seeds):
        row, col = random.integers(m), random.integers(n)
        session.d()[row, col] = dtypes.BY_NAME[d].from_float(np.array([planted]))[0]
        found += not session.verify()[0].ok
        session.d()[row, col] = right[row, col]
    tell(f"{planted} in {d}, {kind} data, K = {k}", found, seeds)
    assert found == seeds


# Single wrong elements, as K grows.


def another(values: Doubles, random: np.random.Generator) -> Doubles:
    return random.permutation(values)


def halved(values: Doubles, random: np.random.Generator) -> Doubles:
    return values / 2


def ten_percent_off(values: Doubles, random: np.random.Generator) -> Doubles:
    return values * 1.1


@pytest.mark.parametrize("d", dtypes.BY_NAME)
@pytest.mark.parametrize("kind", ["normal", "int"])
@pytest.mark.parametrize(
    ("k", "rows"),
    [
        pytest.param(512, 600, id="few"),
        *(
            pytest.param(k, 2048, id=f"all-{k}", marks=pytest.mark.slow)
            for k in (4096, 8192, 65536, 131072)
        ),
    ],
)
@pytest.mark.parametrize(
    ("change", "least"), [(another, 0.95), (halved, 0.85), (ten_percent_off, 0.4)]
)
def test_single_wrong_values_are_caught_at_any_k(
    change: Callable[[Doubles, np.random.Generator], Doubles],
    least: float,
    k: int,
    rows: int,
    kind: str,
    d: str,
) -> None:
    """Freivalds' test alone: sampled rows, which catch all of theirs, have no part in it."""
    n, dtype, random = 512, dtypes.BY_NAME[d], np.random.default_rng(5)
    session = Written(plan_of(f"m: {rows}, n: {n}, k: {k}, d: {d}"), DataSpec(kind, 11)).write()  # type: ignore[arg-type]
    bits = session.d()
    where = random.choice(rows, SEEDS, replace=False)
    cols = random.integers(n, size=SEEDS)
    with ThreadPoolExecutor(2) as pool:
        projection = Projection(session.product(), pool)
    everywhere = np.arange(rows)
    honest = projection.suspects(everywhere, bits)
    assert honest.mean() <= 0.004  # of the blocks are compared for nothing
    values = dtype.to_f32(bits[where, cols]).astype(np.float64)
    wrong = dtype.from_float(change(values, random))
    different = wrong != bits[where, cols]
    bits[where, cols] = wrong
    doubted = projection.suspects(everywhere, bits)[where, cols // freivalds.BLOCK_COLUMNS]
    found, tried = int(doubted[different].sum()), int(different.sum())
    tell(f"{change.__name__} in {d}, {kind} data, K = {k}", found, tried)
    assert found >= least * tried


@few_or_all
def test_what_freivalds_doubts_is_compared_and_found_wrong(
    seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "LARGE", 0)
    session = Written(plan_of("m: 400, n: 520, k: 512"), NORMAL).write()
    right, random, found = session.d().copy(), np.random.default_rng(2), 0
    values = dtypes.BF16.to_f32(right)
    for _ in range(seeds):
        row, col = random.integers(300), random.integers(256)  # in none of the last tiles
        off = np.array([values[row, col] + 2 * values.std()])
        session.d()[row, col] = dtypes.BF16.from_float(off)[0]
        (verdict,) = session.verify()
        found += (verdict.bad == 1) and (verdict.first.row, verdict.first.col) == (row, col)  # type: ignore[union-attr]
        session.d()[:] = right
    tell("two standard deviations off, through the whole check", found, seeds)
    assert found == seeds


# Precision lost on the way: every element stays inside its interval.


def narrowed(values: Doubles, bits: int) -> Doubles:
    """Values rounded to so many significant bits."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def summed(session: Written, step: int, bits: int) -> None:
    """Sums that are rounded to so many bits after every ``step`` products."""
    a, b = session.operand(0), session.operand(1)
    total = np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], step):
        total = narrowed(total + a[:, k : k + step] @ b[:, k : k + step].T, bits)
    session.write(total)


def f16_after_every_16(session: Written) -> None:
    summed(session, 16, 11)


def tf32_after_every_64(session: Written) -> None:
    summed(session, 64, 11)


def bf16_after_every_256(session: Written) -> None:
    summed(session, 256, 8)


def parts_in_tf32(session: Written) -> None:
    """Four parts of K, each rounded to tf32 before they are added up."""
    a, b = session.operand(0), session.operand(1)
    parts = zip(np.array_split(a, 4, axis=1), np.array_split(b, 4, axis=1), strict=True)
    session.write(sum((narrowed(x @ y.T, 11) for x, y in parts), np.zeros((len(a), len(b)))))


def one_k_tile_left_out(session: Written) -> None:
    a, b = session.operand(0), session.operand(1)
    begin = int(np.random.default_rng(session.spec.seed).integers(a.shape[1] // 64)) * 64
    a[:, begin : begin + 64] = 0
    session.write(a @ b.T)


@few_or_all
@pytest.mark.parametrize("d", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("plant", "k", "kinds"),
    [
        (f16_after_every_16, 16384, (NORMAL,)),
        (f16_after_every_16, 16384, (INT,)),
        (tf32_after_every_64, 4096, (NORMAL, INT)),
        (bf16_after_every_256, 4096, (NORMAL, INT)),
        (parts_in_tf32, 4096, (NORMAL, INT)),
        (one_k_tile_left_out, 65536, (NORMAL,)),
        (one_k_tile_left_out, 65536, (INT,)),
    ],
)
def test_precision_that_is_lost_inside_is_always_caught(
    plant: Plant, k: int, kinds: tuple[DataSpec, ...], d: str, seeds: int
) -> None:
    found = sum(caught(plant, f"m: 32, n: 64, k: {k}, d: {d}", of_seed(seed, *kinds))
                for seed in range(seeds))  # fmt: skip
    names = "+".join(spec.kind for spec in kinds)
    tell(f"{plant.__name__} in {d}, {names} data, K = {k}", found, seeds)
    assert found == seeds


def test_lost_precision_is_told_in_a_sentence_of_its_own() -> None:
    session = Written(plan_of("m: 32, n: 64, k: 16384, d: f32"), NORMAL)
    f16_after_every_16(session)
    (verdict,) = session.verify()
    assert verdict.rms is not None and verdict.rms_limit is not None
    assert verdict.rms > verdict.rms_limit
    if not verdict.bad:
        assert "what the arithmetic explains" in verdict.message


# Bits of the operands that are not looked at.


def f16_without_its_lowest_bits(session: Written) -> None:
    a = session.product().a
    cut = dtypes.F16.to_f32(a.bits(64, a.length) & np.uint16(0xFFFC)).astype(np.float64)
    session.write(cut @ session.operand(1).T)


def c_in_tf32(session: Written) -> None:
    c = session.product().c
    cut = dtypes.F32.to_f32(c.bits(64, c.length) & np.uint32(0xFFFFE000)).astype(np.float64)
    session.write(c=cut)


@few_or_all
@pytest.mark.parametrize(
    ("plant", "group"),
    [
        (f16_without_its_lowest_bits, "m: 64, n: 64, k: 64, a: f16, d: f16"),
        (f16_without_its_lowest_bits, "m: 64, n: 64, k: 64, a: f16, d: f32"),
        (c_in_tf32, "m: 64, n: 64, k: 64, c: f32, d: f32, beta: 1"),
        (c_in_tf32, "m: 64, n: 64, k: 64, c: f32, d: f32, beta: -0.7, alpha: 0.1"),
    ],
)
def test_operands_that_lose_bits_are_always_caught(plant: Plant, group: str, seeds: int) -> None:
    found = sum(caught(plant, group, of_seed(seed, NORMAL)) for seed in range(seeds))
    tell(f"{plant.__name__} ({group})", found, seeds)
    assert found == seeds


# Special values.


def a_is_read_where_alpha_is_0(session: Written) -> None:
    with np.errstate(all="ignore"):
        session.write(0 * (session.operand(0) @ session.operand(1).T), alpha=1)


def c_is_read_where_beta_is_0(session: Written) -> None:
    with np.errstate(all="ignore"):
        sums = session.operand(0) @ session.operand(1).T + 0 * session.operand(2)
    session.write(sums)


def subnormal_operands_are_zero(session: Written) -> None:
    made = session.product()
    dtype = made.a.dtype
    bits = made.a.bits(session.plan.problem.groups[0].m, made.a.length)
    bits[bits & dtype.infinity == 0] &= np.array(1 << 8 * dtype.size - 1, dtype.storage)
    with np.errstate(all="ignore"):
        session.write(dtype.to_f32(bits).astype(np.float64) @ session.operand(1).T)


def infinities_are_the_largest_number(session: Written) -> None:
    dtype = dtypes.BY_NAME[session.plan.problem.groups[0].d]
    values = dtype.to_f32(session.d())
    session.d()[np.isinf(values)] -= 1


def nans_are_lost(session: Written) -> None:
    dtype = dtypes.BY_NAME[session.plan.problem.groups[0].d]
    session.d()[np.isnan(dtype.to_f32(session.d()))] = 0


def infinities_change_their_sign(session: Written) -> None:
    dtype = dtypes.BY_NAME[session.plan.problem.groups[0].d]
    values = dtype.to_f32(session.d())
    session.d()[np.isinf(values)] ^= np.array(1 << 8 * dtype.size - 1, dtype.storage)


SHAPE = "m: 64, n: 64, k: 80"


@few_or_all
@pytest.mark.parametrize(
    ("plant", "group"),
    [
        (a_is_read_where_alpha_is_0, f"{SHAPE}, alpha: 0, beta: 1"),
        (c_is_read_where_beta_is_0, SHAPE),
        # Of 32 rows two have subnormals: of so many some have, whatever the seed.
        (subnormal_operands_are_zero, "m: 256, n: 16, k: 80, a: f16, d: f32"),
        (subnormal_operands_are_zero, "m: 256, n: 16, k: 80, d: f32"),
        (infinities_are_the_largest_number, SHAPE),
        (infinities_change_their_sign, f"{SHAPE}, d: f32"),
        (nans_are_lost, SHAPE),
    ],
)
def test_special_values_that_are_not_kept_are_always_caught(
    plant: Plant, group: str, seeds: int
) -> None:
    found = sum(caught(plant, group, of_seed(seed, SPECIAL)) for seed in range(seeds))
    tell(f"{plant.__name__} ({group})", found, seeds)
    assert found == seeds


# No false alarms.


@few_or_all
@pytest.mark.parametrize("d", dtypes.BY_NAME)
@pytest.mark.parametrize(
    "scalars",
    [
        "alpha: 2e38, beta: -3e38",
        "alpha: 1e-44",
        "alpha: 1e-44, beta: 1e-44",
        "alpha: -1, beta: 0.3",
    ],
)
def test_scalars_near_the_ends_of_float32_are_no_false_alarm(
    scalars: str, d: str, seeds: int
) -> None:
    made = plan_of(f"m: 40, n: 48, k: 72, {scalars}", defaults=f"d: {d}, c: f32")
    for seed in range(seeds):
        for spec in of_seed(seed, NORMAL, INT, SPECIAL):
            session = Written(made, spec)
            in_float32(session)
            (verdict,) = session.verify()
            assert verdict.ok, verdict.message


@pytest.mark.parametrize("d", ["bf16", "f32"])
def test_negative_scalars_near_the_ends_of_float32_are_no_false_alarm_either(d: str) -> None:
    made = plan_of(f"m: 40, n: 48, k: 72, alpha: -2e38, beta: -3e38, d: {d}, c: f32")
    session = Written(made, NORMAL)
    in_float32(session)
    assert np.isnan(dtypes.BY_NAME[d].to_f32(session.d())).any()
    (verdict,) = session.verify()
    assert verdict.ok, verdict.message


def in_float32(session: Written) -> None:
    """D as a device computes it: every step rounded to float32, overflow and all."""
    group = session.plan.problem.groups[0]
    with np.errstate(all="ignore"):
        sums = (session.operand(0) @ session.operand(1).T).astype(np.float32)
        result = np.float32(group.alpha) * sums
        if group.beta:
            c = session.operand(2).astype(np.float32)
            result = result + np.float32(group.beta) * c
    session.d()[:] = dtypes.BY_NAME[group.d].from_float(result)
