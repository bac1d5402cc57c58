"""The checker: right results pass, planted defects do not."""

from __future__ import annotations

import io
import math
from itertools import product as pairs

import numpy as np
import pytest

from gemmctl.device.cpu import CpuDevice
from gemmctl.errors import UsageError
from gemmctl.judging import dump, interval, product, recomputed, sampling, statistic, verify
from gemmctl.kernels import cubins
from gemmctl.kernels.constants import QUANTILES
from gemmctl.lists import reading
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan
from gemmctl.planning.arena import FENCE
from gemmctl.planning.tiling import Choice
from judged import INT, NORMAL, SPECIAL, Written, plan_of
from support import make_problem

every_d = pytest.mark.parametrize("d", dtypes.BY_NAME)
every_kind = pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])


@pytest.fixture
def sampled(monkeypatch):
    """Every group with some K counts as large."""
    monkeypatch.setattr(product, "LARGE", 0)


def on_cpu(group, spec):
    """The verdict on what the CPU device computes of one group."""
    made = plan_of(group)
    with CpuDevice().open(made, spec) as session:
        session.run()
        (verdict,) = verify.verify(made, session, spec, device="cpu")
    return verdict


# What is right passes.

GROUPS = (
    "m: 96, n: 96, k: 1024",
    "m: 1, n: 8, k: 8",
    "m: 300, n: 264, k: 40",
    "m: 17, n: 520, k: 1032, lda: 1040, ldb: 1048, ldd: 528",
    "m: 33, n: 96, k: 64, alpha: 0.5, beta: -2, ldc: 101",
    "m: 65, n: 72, k: 200, alpha: 0.3, beta: 1.7",
    "m: 20, n: 40, k: 0, beta: 0.3",
    "m: 20, n: 40, k: 0",
    "m: 0, n: 40, k: 24",
    "m: 20, n: 0, k: 24",
    "m: 20, n: 40, k: 16, alpha: 0, beta: 1",
)


@every_d
@every_kind
@pytest.mark.parametrize("ab", ["bf16", "f16"])
@pytest.mark.parametrize("limit", [product.LARGE, 0], ids=["full", "sampled"])
def test_what_the_cpu_device_computes_is_right(monkeypatch, limit, ab, spec, d):
    monkeypatch.setattr(product, "LARGE", limit)
    made = plan_of(*GROUPS, defaults=f"a: {ab}, d: {d}, c: f32")
    with CpuDevice().open(made, spec) as session:
        session.run()
        verdicts = verify.verify(made, session, spec, device="cpu")
    assert [verdict.message for verdict in verdicts if not verdict.ok] == []
    assert [verdict.group for verdict in verdicts] == list(range(len(GROUPS)))
    assert max(verdict.worst for verdict in verdicts) <= 1


@every_d
@every_kind
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_result_that_is_rounded_once_is_right(spec, d, device):
    groups = "m: 60, n: 72, k: 504", "m: 33, n: 40, k: 24, alpha: 0.3, beta: 1"
    session = Written(plan_of(*groups, defaults=f"d: {d}"), spec)
    session.write(group=0)
    session.write(group=1)
    assert all(verdict.ok for verdict in session.verify(device=device))


def tensor_core_sums(a, b, begin=0.0):
    """A B as Hopper adds: 16 products and the sum so far, aligned, cut, added, and cut again.

    Two bits more than float32 has are kept while adding, as H100s and H200s were seen to do.
    ``begin`` is in the sums before.
    """
    total = np.zeros((len(a), len(b))) + begin
    for k in range(0, a.shape[1], 16):
        addends = a[:, None, k : k + 16] * b[None, :, k : k + 16]
        addends = np.concatenate([total[..., None], addends], axis=2)
        _, top = np.frexp(np.abs(addends).max(axis=2))
        unit = np.ldexp(1.0, top - 26)
        total = (np.trunc(addends / unit[..., None]) * unit[..., None]).sum(axis=2)
        _, top = np.frexp(np.abs(total))
        unit = np.ldexp(1.0, top - 24)
        total = np.trunc(total / unit) * unit
    return total


@every_d
def test_integer_sums_are_exact_on_hopper(d):
    session = Written(plan_of(f"m: 24, n: 32, k: 1024, d: {d}"), INT)
    sums = tensor_core_sums(session.operand(0), session.operand(1))
    (verdict,) = session.write(sums).verify()
    assert verdict.ok and verdict.method == "exact full"


@every_d
@pytest.mark.parametrize("ab", ["bf16", "f16"])
@pytest.mark.parametrize("k", [32, 4096])
def test_what_hopper_truncates_is_within_the_bound(monkeypatch, k, ab, d):
    # Positive numbers with all bits in use lose most: the errors all point one way. Those of normal
    # data are of both signs, so that less is likely.
    monkeypatch.setattr(statistic, "LIKELY", np.inf)
    table = np.geomspace(0.01, 1.99, QUANTILES)
    monkeypatch.setattr(
        data, "_numbers", lambda dtype, limit: dtype.to_f32(dtype.from_float(table))
    )
    session = Written(plan_of(f"m: 16, n: 16, k: {k}, a: {ab}, d: {d}"), NORMAL)
    exact = session.operand(0) @ session.operand(1).T
    sums = tensor_core_sums(session.operand(0), session.operand(1))
    if k == 4096:
        assert (sums < exact).all()
    (verdict,) = session.write(sums).verify(device="cuda")
    assert not verdict.bad, verdict.message


@pytest.mark.parametrize(
    ("kernel", "more", "right"),
    [
        ("128x192-c2p", "", True),
        ("128x256-c2", "", True),
        ("64x128", "", True),
        ("64x128", ", ldd: 17", False),  # it comes behind them
    ],
)
def test_what_hopper_truncates_of_sums_that_a_large_c_is_in_is_within_their_bound(
    kernel, more, right
):
    # beta C is some thousand times larger than A B, and each of 4096 steps cuts its last bit.
    some = make_problem(f"m: 16, n: 16, k: 65536, beta: 1e6{more}")
    kernels = cubins.manifest().kernels
    (made,) = plan.make([some], kernels, chosen={some.name: [Choice(kernel, 64)]})
    session = Written(made, NORMAL)
    a, b, c = (session.operand(which) for which in (0, 1, 2))
    (verdict,) = session.write(tensor_core_sums(a, b, 1e6 * c), beta=0).verify()
    assert (verdict.bad == 0) == right


def test_a_result_too_large_for_its_type_is_rightly_infinite():
    session = Written(plan_of("m: 40, n: 48, k: 64, alpha: 20000, d: f16"), INT).write()
    assert np.isinf(dtypes.F16.to_f32(session.d())).any()
    (verdict,) = session.verify()
    assert verdict.ok and verdict.worst <= 1


def test_rightly_infinite_results_do_not_stop_the_search(sampled):
    session = Written(plan_of("m: 400, n: 48, k: 64, alpha: 20000, d: f16"), INT).write()
    assert session.verify()[0].ok
    session.d()[5, 7] ^= 0x4000
    assert session.verify()[0].first.row == 5


def test_a_zero_of_either_sign_is_zero():
    session = Written(plan_of("m: 8, n: 8, k: 0"), INT).write()
    session.d()[:] = dtypes.BF16.from_float(np.full((8, 8), -0.0))
    assert session.verify()[0].ok


@pytest.mark.parametrize("k, alpha", [(8, 2879.27), (16, 5805.37)])
def test_integers_that_fall_between_two_numbers_of_d_are_right(k, alpha):
    # So few integers fit that alpha times their sums has few values, many of them half a unit off.
    session = Written(plan_of(f"m: 256, n: 256, k: {k}, a: f16, d: f16, alpha: {alpha}"), INT)
    assert session.write().verify()[0].ok


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "group",
    [
        "m: 4096, n: 8, k: 8, alpha: 1e-4, bias: n, bias_type: f32",
        "m: 4096, n: 8, k: 8, alpha: 0, beta: 1e-4, bias: n, bias_type: f32",
        "m: 1, n: 4096, k: 64, alpha: 1e-4, bias: m, activation: gelu",
    ],
)
def test_beside_a_bias_that_elements_share_their_errors_may_be_alike(group, seed):
    verdict = on_cpu(group, DataSpec("normal", seed))
    assert verdict.ok, verdict.message


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "group",
    [
        "m: 65, n: 128, k: 31, alpha: 1e-6, beta: 3",
        "m: 65, n: 128, k: 31, alpha: 1e-6, beta: -1.5, inplace: true, a: f16, d: f16",
        "m: 65, n: 128, k: 31, alpha: 1e-6, beta: 3, bias: n, activation: relu",
        "m: 512, n: 512, k: 64, alpha: 1e-4, beta: 3",
    ],
)
def test_beside_a_c_of_few_bits_many_elements_may_lie_between_two_numbers_of_d(group, seed):
    verdict = on_cpu(group, DataSpec("normal", seed))
    assert verdict.ok, verdict.message


def test_a_product_of_float32_that_overflows_by_its_rounding_may_be_infinite():
    group = "m: 128, n: 64, k: 16, a: f16, d: f32, c: f16, alpha: 1e38, beta: 5.194833397675323e33"
    verdict = on_cpu(group, DataSpec("special", 0))
    assert verdict.ok, verdict.message


# Planted defects. The plan has tiles of its own choice; 96 x 96 is one.


def drop_one_k(session):
    a, b = session.operand(0), session.operand(1)
    a[:, 5] = 0
    session.write(a @ b.T)


def drop_16_k(session):
    session.write(session.operand(0)[:, :-16] @ session.operand(1)[:, :-16].T)


def add_the_last_k_block_twice(session):
    a, b = session.operand(0), session.operand(1)
    session.write(a @ b.T + a[:, -64:] @ b[:, -64:].T)


def swap_rows_of_b(session):
    b = session.operand(1)
    b[[3, 40]] = b[[40, 3]]
    session.write(session.operand(0) @ b.T)


def leave_a_tile_unwritten(session):
    session.write()
    session.d()[-16:, -32:] = np.iinfo(session.d().dtype).max


def write_before_d(session):
    session.write()
    session.memory[int(session.plan.layout.d[0]) - session.begin - 1] = 0


def write_past_d(session):
    session.write()
    last = session.d()[-1]
    after = last.__array_interface__["data"][0] + last.nbytes - session.memory.ctypes.data
    session.memory[after + padding(session)] = 0


def padding(session):
    """Bytes between the end of one row of D and the next."""
    return session.d().strides[0] - session.d()[0].nbytes


def write_into_the_padding(session):
    session.write()
    first = session.d()[0]
    after = first.__array_interface__["data"][0] + first.nbytes - session.memory.ctypes.data
    assert padding(session)
    session.memory[after] = 0


def make_one_nan(session):
    session.write()
    session.d()[60, 33] = dtypes.BY_NAME[session.plan.problem.groups[0].d].from_float(
        np.array([np.nan])
    )[0]


def ignore_alpha(session):
    session.write(alpha=1)


def ignore_beta(session):
    session.write(beta=0)


def take_beta_as_one(session):
    session.write(beta=1)


def swap_two_columns(session):
    session.write()
    session.d()[:, [2, 90]] = session.d()[:, [90, 2]]


def shift_c_by_a_column(session):
    session.write(c=np.roll(session.operand(2), 1, axis=1))


DEFECTS = (
    drop_one_k, drop_16_k, add_the_last_k_block_twice, swap_rows_of_b, leave_a_tile_unwritten,
    write_before_d, write_past_d, write_into_the_padding, make_one_nan, ignore_alpha, ignore_beta,
    take_beta_as_one, swap_two_columns, shift_c_by_a_column,
)  # fmt: skip


@every_d
@every_kind
@pytest.mark.parametrize("k", [64, 1024])
@pytest.mark.parametrize(
    ("device", "limit"),
    [("cuda", product.LARGE), ("cuda", 0), ("cpu", product.LARGE)],
    ids=["cuda-full", "cuda-sampled", "cpu-full"],
)
def test_every_planted_defect_is_found(monkeypatch, device, limit, k, spec, d):
    monkeypatch.setattr(product, "LARGE", limit)
    made = plan_of(f"m: 96, n: 96, k: {k}, d: {d}, ldd: 104, alpha: 1.5, beta: 0.5")
    session = Written(made, spec)
    assert session.write().verify(device=device)[0].ok
    missed = []
    for plant in DEFECTS:
        session.memory[:] = 0xFF
        plant(session)
        if session.verify(device=device)[0].ok:
            missed.append(plant.__name__)
    assert missed == []


@every_d
@every_kind
def test_a_defect_in_one_tile_that_is_not_sampled_is_found(monkeypatch, sampled, spec, d):
    monkeypatch.setattr(sampling, "SAMPLED_ROWS", 0)
    session = Written(plan_of(f"m: 700, n: 776, k: 1024, d: {d}"), spec).write()
    assert session.verify()[0].ok
    a, b = session.operand(0)[64:128], session.operand(1)[256:384]
    a[:, 5] = 0
    session.d()[64:128, 256:384] = dtypes.BY_NAME[d].from_float(a @ b.T)
    (verdict,) = session.verify()
    assert not verdict.ok and verdict.bad
    assert 64 <= verdict.first.row < 128 and 256 <= verdict.first.col < 384


@every_d
@every_kind
def test_a_single_wrong_element_that_is_not_sampled_is_found(monkeypatch, sampled, spec, d):
    monkeypatch.setattr(sampling, "SAMPLED_ROWS", 0)
    session = Written(plan_of(f"m: 700, n: 776, k: 1024, d: {d}"), spec).write()
    dtype = dtypes.BY_NAME[d]
    was = float(dtype.to_f32(session.d()[300:301, 100:101])[0, 0])
    typical = float(np.std(dtype.to_f32(session.d())))
    session.d()[300, 100] = dtype.from_float(np.array([was + 2 * typical]))[0]
    (verdict,) = session.verify()
    assert verdict.bad == 1 and (verdict.first.row, verdict.first.col) == (300, 100)


@pytest.mark.parametrize(("row", "col"), [(300, 100), (699, 100), (300, 775), (699, 775)])
def test_an_element_is_counted_once_however_it_is_found(sampled, row, col):
    session = Written(plan_of("m: 700, n: 776, k: 64"), INT).write()
    session.d()[row, col] ^= 0x4000
    (verdict,) = session.verify()
    assert verdict.bad == 1 and (verdict.first.row, verdict.first.col) == (row, col)


@pytest.mark.parametrize("row", [0, 511, 512, 1030])
def test_an_integer_off_by_1_in_a_row_that_is_not_sampled_is_found(monkeypatch, sampled, row):
    monkeypatch.setattr(sampling, "SAMPLED_ROWS", 0)
    session = Written(plan_of("m: 1300, n: 264, k: 64, d: f32"), INT).write()
    session.d().view(np.float32)[row, 40] += 1
    (verdict,) = session.verify()
    assert verdict.bad == 1 and (verdict.first.row, verdict.first.col) == (row, 40)


@pytest.mark.parametrize("more", ["", ", activation: relu"])
def test_an_integer_off_by_1_is_found_in_whatever_column_it_is(monkeypatch, sampled, more):
    monkeypatch.setattr(sampling, "SAMPLED_ROWS", 0)
    session = Written(plan_of(f"m: 300, n: 1100, k: 64, d: f32{more}"), INT)
    right = session.product().expected(np.arange(300), range(1100)).right.astype(np.float32)
    last = sampling.sample(session.product()).columns.start
    for col in (0, 255, 256, 511, 512, last - 1, last, 1099):
        session.d().view(np.float32)[:] = right
        session.d().view(np.float32)[40, col] += 1
        (verdict,) = session.verify()
        assert verdict.bad == 1 and (verdict.first.row, verdict.first.col) == (40, col)


@every_d
def test_integers_that_are_off_by_one_place_are_found(d):
    session = Written(plan_of(f"m: 40, n: 48, k: 512, d: {d}"), INT).write()
    session.d()[7, 9] += 1
    (verdict,) = session.verify()
    assert verdict.bad == 1 and (verdict.first.row, verdict.first.col) == (7, 9)


@every_d
def test_elements_beyond_the_bound_are_wrong_and_those_within_it_are_not(d):
    session = Written(plan_of(f"m: 40, n: 48, k: 2048, d: {d}"), NORMAL)
    a, b = session.operand(0), session.operand(1)
    sums, magnitude = a @ b.T, np.abs(a) @ np.abs(b).T
    likely = statistic.LIKELY * statistic.drift(2048, "cuda")
    assert likely < 2 * (2048 / 16 + 1) * 2.0**-23  # the worst case
    allowed = likely * magnitude + 3 * 2.0**-24 * np.abs(sums)
    assert session.write(sums + 0.99 * allowed).verify(device="cuda")[0].bad == 0
    (verdict,) = session.write(sums + 3 * allowed).verify(device="cuda")
    assert verdict.bad and verdict.worst > 1


@pytest.mark.parametrize("limit", [product.LARGE, 0], ids=["full", "sampled"])
@pytest.mark.parametrize("group", ["", ", beta: 0.7", ", activation: silu"])
def test_over_a_long_k_an_element_that_is_a_tenth_off_is_wrong(monkeypatch, limit, group):
    # In the worst case that only signs of one kind would give, it could be right.
    monkeypatch.setattr(product, "LARGE", limit)
    session = Written(plan_of(f"m: 64, n: 48, k: 65536, d: f32{group}"), NORMAL)
    rows, columns = np.arange(64), range(48)
    right = session.product().expected(rows, columns).right
    session.d()[:] = right.astype(np.float32).view(np.uint32)
    assert session.verify()[0].ok
    row, column = np.unravel_index(np.argmax(right), right.shape)
    session.d()[row, column] = (1.1 * right[row, column]).astype(np.float32).view(np.uint32)
    first = session.verify()[0].first
    assert (first.row, first.col) == (row, column)


@pytest.mark.parametrize("more", ["", ", activation: relu"])
def test_integers_behind_a_gate_leave_no_choice_where_float32_holds_their_product(more):
    session = Written(plan_of(f"m: 16, n: 64, k: 64, d: f32, gate: halves{more}"), INT)
    right = session.product().expected(np.arange(16), range(32)).right
    session.d()[:] = right.astype(np.float32).view(np.uint32)
    assert session.verify()[0].ok
    place = np.argwhere((right == right.astype(np.float32)) & (right > 0))[0]
    session.d()[tuple(place)] += 1
    assert session.verify()[0].bad == 1


def test_errors_that_are_all_as_large_as_the_bound_are_wrong_as_a_whole():
    session = Written(plan_of("m: 40, n: 48, k: 2048, d: f32"), NORMAL)
    a, b = session.operand(0), session.operand(1)
    sums, magnitude = a @ b.T, np.abs(a) @ np.abs(b).T
    allowed = statistic.LIKELY * statistic.drift(2048, "cuda") * magnitude
    (verdict,) = session.write(sums + 0.99 * allowed).verify(device="cuda")
    assert not verdict.ok and verdict.bad == 0 and verdict.rms > verdict.rms_limit
    assert "precision is lost on the way" in verdict.message


def test_without_k_there_is_no_room_for_error():
    session = Written(plan_of("m: 40, n: 48, k: 0, beta: 0.3, d: f32"), NORMAL).write()
    assert session.verify()[0].ok and session.verify()[0].method == "exact full"
    session.d()[3, 4] += 1
    assert session.verify()[0].bad == 1


def test_beta_c_is_rounded_to_float32_before_it_is_rounded_to_d():
    # Some beta c lies just off the middle of two bf16 numbers: the first rounding puts it there.
    for beta in np.arange(1.1, 2, 0.01, np.float32).astype(np.float64).tolist():
        session = Written(plan_of(f"m: 200, n: 200, k: 0, beta: {beta!r}, c: f32"), NORMAL).write()
        once = session.d().copy()
        session.d()[:] = dtypes.BF16.from_float((beta * session.operand(2)).astype(np.float32))
        if (session.d() != once).any():
            break
    assert (session.d() != once).any()
    assert session.verify()[0].ok


def test_integers_scaled_without_rounding_leave_no_room_either():
    session = Written(plan_of("m: 40, n: 48, k: 64, alpha: 0.5, beta: 2, d: f32"), INT).write()
    session.d()[3, 4] += 1
    assert session.verify()[0].bad == 1


def test_a_write_into_the_gap_between_two_results_is_told_of_one_of_them():
    made = plan_of("m: 8, n: 8, k: 8", "m: 8, n: 8, k: 8")
    session = Written(made, INT)
    session.write(group=0)
    session.write(group=1)
    between = int(made.layout.d[1]) - session.begin - FENCE // 2
    session.memory[between : between + 3] = 0
    assert sum(verdict.outside for verdict in session.verify()) == 3


def test_a_write_at_an_empty_group_is_found():
    made = plan_of("m: 0, n: 8, k: 8")
    session = Written(made, INT)
    assert session.verify()[0].ok
    session.memory[-1] = 0
    assert session.verify()[0].outside == 1


@pytest.mark.parametrize("split", [1, 100])
def test_a_sum_that_is_computed_again_and_what_it_allows_for_are_of_all_of_k(monkeypatch, split):
    judged = Written(plan_of("m: 20, n: 24, k: 512, activation: silu"), NORMAL).product()
    monkeypatch.setattr(recomputed, "_CHUNK", 44 * 512 // split)
    rows, columns = np.arange(20), range(24)
    total, magnitude = judged.sums(rows, columns)
    again, most = recomputed.rough(judged, 0.0).sums(rows, columns)
    assert (most >= magnitude * (1 - 1e-6)).all()
    assert again == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        (INT, "m: 64, n: 64, k: 64, beta: 0.3, c: f32"),
        (NORMAL, "m: 64, n: 64, k: 0, beta: 0.3, bias: n, bias_type: f32, c: f32"),
    ],
)
def test_a_sum_of_two_numbers_of_which_one_was_rounded_leaves_a_choice(spec, group):
    verdict = on_cpu(f"{group}, d: f32", spec)
    assert verdict.ok and verdict.method == "bounded full", verdict.message


def test_precision_that_is_lost_in_some_rows_is_found_though_the_last_ones_are_right():
    session = Written(plan_of("m: 600, n: 16, k: 512, d: f32"), NORMAL)
    a, b = session.operand(0), session.operand(1)
    allowed = statistic.LIKELY * statistic.drift(512, "cuda") * (np.abs(a) @ np.abs(b).T)
    allowed[512:] = 0  # what is compared last
    (verdict,) = session.write(a @ b.T + 0.9 * allowed).verify()
    assert not verdict.ok and verdict.bad == 0 and verdict.rms > verdict.rms_limit


def test_a_wrong_element_says_nothing_of_the_precision_of_the_others():
    session = Written(plan_of("m: 40, n: 48, k: 64"), NORMAL).write()
    session.d()[3, 4] = 0
    (verdict,) = session.verify()
    assert verdict.bad == 1 and verdict.rms <= verdict.rms_limit
    assert "precision" not in verdict.message


def test_elements_that_are_little_but_their_bias_say_nothing_of_precision():
    session = Written(plan_of("m: 64, n: 8, k: 8, alpha: 1e-6, bias: n"), NORMAL)
    judged, rows, columns = session.product(), np.arange(64), range(8)
    expected = judged.expected(rows, columns)
    found = interval.compare(judged, rows, columns, dtypes.BF16.from_float(expected.right))
    assert found.bad == 0 and found.errors.count == 0


@pytest.mark.parametrize("alpha, most", [("1e-6", 0), ("1", 64 * 8)])
def test_elements_that_are_little_but_their_c_say_nothing_of_precision(alpha, most):
    session = Written(plan_of(f"m: 64, n: 8, k: 64, alpha: {alpha}, beta: 3"), NORMAL)
    judged, rows, columns = session.product(), np.arange(64), range(8)
    expected = judged.expected(rows, columns)
    found = interval.compare(judged, rows, columns, dtypes.BF16.from_float(expected.right))
    assert found.bad == 0
    assert 0.9 * most <= found.errors.count <= most


def test_elements_that_relu_leaves_at_0_say_nothing_of_precision():
    session = Written(plan_of("m: 40, n: 48, k: 64, d: f32, activation: relu"), NORMAL)
    judged, rows, columns = session.product(), np.arange(40), range(48)
    x = judged.linear(rows, columns)
    right = np.maximum(x.right, 0).astype(np.float32).view(np.uint32)
    found = interval.compare(judged, rows, columns, right)
    assert found.bad == 0 and found.errors.count == np.count_nonzero(x.right + x.allowed > 0)


def test_rows_with_special_values_say_nothing_of_precision():
    session = Written(plan_of("m: 200, n: 48, k: 64, d: f32"), SPECIAL).write()
    judged, columns = session.product(), range(48)
    assert session.verify()[0].ok
    for plain in (True, False):
        rows = np.flatnonzero(judged.a.plain(200) == plain)
        found = interval.compare(judged, rows, columns, session.d()[rows])
        counted = len(rows) * np.count_nonzero(judged.b.plain(48)) if plain else 0
        assert len(rows) and found.errors.count == counted


@pytest.mark.parametrize("d", ["bf16", "f16"])
def test_the_statistic_of_sums_that_are_rounded_once_is_1(d):
    (verdict,) = Written(plan_of(f"m: 64, n: 96, k: 64, d: {d}"), NORMAL).write().verify()
    assert verdict.rms == pytest.approx(1, rel=0.05)


def test_the_statistic_is_the_root_of_the_mean_over_all_parts():
    errors = sum((statistic.Errors(60, 300.0), statistic.Errors(40, 100.0)), statistic.NO_ERRORS)
    assert errors.statistic == 2  # of 400 over 100
    assert errors.limit == pytest.approx(math.sqrt(1.1 + 10 / 10))
    assert statistic.NO_ERRORS.statistic is None


# What a verdict says.


def test_where_there_is_nothing_to_round_there_is_no_statistic_and_no_limit_of_it():
    for spec, known in ((INT, False), (NORMAL, True)):
        (verdict,) = Written(plan_of("m: 16, n: 16, k: 64"), spec).write().verify()
        assert (verdict.rms is not None, verdict.rms_limit is not None) == (known, known)


def test_a_verdict_names_the_first_bad_element_and_counts_them():
    session = Written(plan_of(*["m: 300, n: 600, k: 64, d: f32"] * 2), INT)
    session.write(group=0)
    session.write(group=1)
    value = float(session.d(1).view(np.float32)[290, 310])
    session.d(1).view(np.float32)[290, 310] = value + 1
    session.d(1).view(np.float32)[[291, 299], [0, 599]] += 1
    good, bad = session.verify()
    assert good.ok and good.bad == 0 and good.first is None
    assert not bad.ok and bad.bad == 3 and bad.group == 1
    first = bad.first
    assert (first.row, first.col) == (290, 310)
    assert (first.got, first.expected, first.low, first.high) == (value + 1, value, value, value)
    row, col, rows, columns = first.tile
    assert row <= 290 < row + rows and col <= 310 < col + columns
    (launch,) = session.plan.launches
    place = (col, row, columns) if launch.kernel.d_across else (row, col, rows)
    assert (1, *place) in [
        (int(launch.groups[t["group"]]), t["m0"], t["n0"], t["width"]) for t in launch.tiles
    ]
    tile = f"tile of {rows} rows at row {row}, column {col}"
    for part in ("group 1", "3 of 180000", "row 290, column 310", tile):
        assert part in bad.message


def test_the_first_bad_element_is_the_first_in_memory_whichever_part_it_was_found_in():
    session = Written(plan_of("m: 600, n: 600, k: 8"), INT).write()
    session.d()[[10, 520], [550, 3]] ^= 0x4000
    first = session.verify()[0].first
    assert (first.row, first.col) == (10, 550)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_error_is_told_whichever_way_it_points(sign):
    session = Written(plan_of("m: 40, n: 48, k: 64"), NORMAL)
    right = session.operand(0) @ session.operand(1).T
    right[3, 4] += sign
    assert session.write(right).verify()[0].worst > 1


def test_an_error_is_told_over_half_a_place_where_nothing_else_is_allowed():
    session = Written(plan_of("m: 16, n: 16, k: 0, beta: 1"), NORMAL).write()
    assert session.verify()[0].worst == 0
    row, col = np.argwhere(np.abs(dtypes.BF16.to_f32(session.d())) > 0.25)[0]
    session.d()[row, col] += 3  # places away from 0, or six halves
    assert session.verify()[0].worst == pytest.approx(6)


def test_nan_is_infinitely_wrong():
    session = Written(plan_of("m: 96, n: 96, k: 64"), NORMAL)
    make_one_nan(session)
    (verdict,) = session.verify()
    assert verdict.worst == math.inf and math.isnan(verdict.first.got) and verdict.unwritten == 0


@pytest.mark.parametrize(
    ("kernel", "first_row", "first_column"), [("128x256", 480, 384), ("128x256-x", 640, 208)]
)
def test_of_a_large_group_the_last_row_and_column_of_tiles_are_compared_in_any_case(
    kernel, first_row, first_column
):
    some = make_problem("m: 700, n: 400, k: 64")
    chosen = {"p": [Choice(kernel, 256)]}
    (made,) = plan.make([some], cubins.manifest().kernels, chosen=chosen)
    (judged,) = product.products_of(made, INT, "cuda")
    taken = sampling.sample(judged)
    assert set(range(first_row, 700)) <= set(taken.rows.tolist())
    assert len(taken.rows) <= sampling.SAMPLED_ROWS + 700 - first_row
    assert taken.columns == range(first_column, 400)


def test_unwritten_elements_are_counted_in_a_group_of_any_size(sampled):
    session = Written(plan_of("m: 700, n: 600, k: 64"), INT).write()
    session.d()[10:20, 30:50] = 0xFFFF
    (verdict,) = session.verify()
    assert verdict.unwritten == 200
    assert "200 of 420000 elements were never written" in verdict.message


def test_changed_bytes_outside_are_counted(sampled):
    session = Written(plan_of("m: 40, n: 48, k: 64, ldd: 56"), INT).write()
    write_into_the_padding(session)
    write_past_d(session)
    (verdict,) = session.verify()
    assert verdict.outside == 1 + 1 and verdict.bad == 0
    assert "2 bytes outside D were changed" in verdict.message


@pytest.mark.parametrize(
    ("spec", "group", "method"),
    [
        (INT, "k: 64", "exact full"),
        (INT, "k: 64, beta: 1", "exact full"),
        (INT, "k: 64, alpha: 0.3", "bounded full"),
        (NORMAL, "k: 64", "bounded full"),
        (NORMAL, "k: 0, beta: 0.3", "exact full"),
    ],
)
def test_the_method_says_how_and_how_much_was_compared(spec, group, method, monkeypatch):
    session = Written(plan_of(f"m: 16, n: 16, {group}"), spec).write()
    assert session.verify()[0].method == method
    monkeypatch.setattr(product, "LARGE", -1 if "k: 0" not in group else 0)
    expected = method if "k: 0" in group else method.replace("full", "rows+freivalds")
    assert session.verify()[0].method == expected


def test_results_larger_than_a_batch_are_read_in_strips(monkeypatch, sampled):
    made = plan_of("m: 300, n: 264, k: 40, ldd: 272", "m: 0, n: 8, k: 8", "m: 300, n: 264, k: 40")
    session = Written(made, INT)
    session.write(group=0)
    session.write(group=2)
    monkeypatch.setattr(verify, "_BATCH_BYTES", 20_000)
    reads = []
    read = session.read
    session.read = lambda begin, end: reads.append((begin, end)) or read(begin, end)
    assert all(verdict.ok for verdict in session.verify())
    assert max(end - begin for begin, end in reads) <= 21_000
    # Every byte is read once, in order.
    assert [begin for begin, _ in reads] == [made.layout.d_begin, *(end for _, end in reads[:-1])]
    assert reads[-1][1] == made.layout.d_end
    session.d(2)[299, 0] ^= 0x80
    session.memory[int(made.layout.d[0]) - session.begin + 150 * 272 * 2 - 1] = 0
    first, empty, last = session.verify()
    assert first.outside == 1 and empty.ok and last.first.row == 299


def test_progress_grows_to_1():
    session = Written(plan_of(*["m: 16, n: 16, k: 16"] * 20), INT)
    heard = []
    session.verify(progress=heard.append)
    assert heard == sorted(heard) and heard[-1] == 1 and len(heard) > 1


def test_a_failing_read_is_not_swallowed():
    session = Written(plan_of("m: 16, n: 16, k: 16"), INT)

    def read(begin, end):
        raise RuntimeError("gone")

    session.read = read
    with pytest.raises(RuntimeError, match="gone"):
        session.verify()


# What a dump leaves.

ASKED = {"device": "cpu", "repeat": 2}


@every_kind
def test_a_dump_reproduces_its_group(tmp_path, spec):
    made = plan_of(
        "m: 8, n: 8, k: 8",
        "m: 20, n: 40, k: 16, lda: 24, alpha: 0.3, beta: 1e-3, a: f16, c: f32",
    )
    with CpuDevice().open(made, spec) as session:
        session.run()
        dump.dump(made, session, 1, str(tmp_path / "new" / "folder"), spec, **ASKED)
    folder = tmp_path / "new" / "folder"
    original = Written(made, spec)
    for which, name in enumerate("abc"):
        assert np.array_equal(np.load(folder / f"{name}.npy"), original.operand(which, 1))
    assert np.load(folder / "a_bits.npy").dtype == np.uint16

    text = (folder / "problem.yaml").read_text()
    assert f"--device cpu --kernel {made.launches[0].kernel.name} --data {spec.kind} " in text
    assert f" --seed {spec.seed} --repeat 2 problem.yaml\n" in text
    (again,) = plan.make(
        reading.load([str(folder / "problem.yaml")], io.StringIO()), cubins.manifest().kernels
    )
    assert again.problem.groups[1] == made.problem.groups[1]
    with CpuDevice().open(again, spec) as session:
        session.run()
        found = session.read(again.layout.d_begin, again.layout.d_end)
        offset = int(again.layout.d[1]) - again.layout.d_begin
        bits = data.matrix(found, offset, 20, 40, 40, dtypes.F16)
        assert np.array_equal(bits, np.load(folder / "d_bits.npy"))


@pytest.mark.parametrize(
    "lie",
    [
        "a_layout: col, lda: 32, b_layout: row, ldb: 48, d_layout: col, ldc: 27, ldd: 25",
        "a_layout: col, lda: 32, b_layout: row, d_layout: col, ldd: 25, inplace: true",
        "b_layout: row, ldb: 48, ldc: 43",
    ],
)
def test_matrices_that_lie_across_are_dumped_as_what_they_are(tmp_path, lie):
    made = plan_of(f"m: 24, n: 40, k: 16, {lie}, beta: -2, alpha: 0.5, d: f32, c: f32")
    with CpuDevice().open(made, INT) as session:
        session.run()
        dump.dump(made, session, 0, str(tmp_path), INT, **ASKED)
    a, b, c, d = (np.load(tmp_path / f"{name}.npy").astype(np.float64) for name in "abcd")
    assert (a.shape, b.shape, c.shape) == ((24, 16), (40, 16), (24, 40))
    assert min(x.std() for x in (a, b, c)) > 1
    assert np.array_equal(d, 0.5 * (a @ b.T) - 2 * c)


@pytest.mark.parametrize("launch", ["grouped", "serial"])
def test_the_command_of_a_dump_launches_as_the_plan_did(tmp_path, launch):
    (made,) = plan.make(
        [plan_of("m: 8, n: 8, k: 8").problem], cubins.manifest().kernels, launch=launch
    )
    with CpuDevice().open(made, INT) as session:
        session.run()
        dump.dump(made, session, 0, str(tmp_path), INT, **ASKED)
    command = (tmp_path / "problem.yaml").read_text().splitlines()[0]
    assert ("--launch serial" in command) == (launch == "serial")


def test_a_dump_leaves_out_a_c_that_is_not_read(tmp_path):
    made = plan_of("m: 8, n: 8, k: 8")
    with CpuDevice().open(made, INT) as session:
        dump.dump(made, session, 0, str(tmp_path), INT, **ASKED)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{x}{y}.npy" for x, y in pairs("abd", ("", "_bits"))} | {"problem.yaml"}


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    made = plan_of("m: 8, n: 8, k: 8")
    with CpuDevice().open(made, INT) as session, pytest.raises(UsageError, match="cannot write"):
        dump.dump(made, session, 0, str(tmp_path / "file" / "folder"), INT, **ASKED)


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (OSError(28, "No space left on device"), UsageError, "No space left on device"),
        (OSError("64 requested and 7 written"), UsageError, "64 requested and 7 written"),
        (KeyboardInterrupt("on the way"), KeyboardInterrupt, "on the way"),
    ],
)
def test_of_a_dump_that_ends_before_its_end_nothing_is_left(
    error, raised, told, tmp_path, monkeypatch
):
    made, save = plan_of("m: 8, n: 8, k: 8"), np.save

    def full(path, array):
        save(path, array)
        if path.name == "b.npy":
            raise error

    monkeypatch.setattr(np, "save", full)
    for folder in (tmp_path, tmp_path / "new" / "newer"):
        with CpuDevice().open(made, INT) as session, pytest.raises(raised, match=told):
            dump.dump(made, session, 0, str(folder), INT, **ASKED)
        assert tmp_path.is_dir() and not list(tmp_path.iterdir())


def test_a_subnormal_counts_like_the_smallest_normal_number():
    # Seen on an H200: got 0.179424539 where 0.179424342 is right. One product is 2^-24 * 65504.
    spec = data.DataSpec("special", 19)
    places = "m: 1, n: 8, k: 8, count: 4", "m: 513, n: 192, k: 320, beta: -2, c: bf16"
    made = plan_of(*places, defaults="a: f16, d: f32")
    subject = product.products_of(made, spec, "cuda")[4]
    element = subject.expected(np.array([217]), range(87, 88))
    assert element.right == pytest.approx(0.179424342, abs=1e-9)
    assert element.allowed > 0.179424539 - 0.179424342
