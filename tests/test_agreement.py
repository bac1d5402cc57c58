"""Comparing another library's result with ours: what honest rounding allows, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gemmctl.device.cpu import CpuDevice, CpuSession
from gemmctl.judging import statistic
from gemmctl.judging.agreement import Witness
from gemmctl.judging.product import products_of
from gemmctl.operands import data, dtypes
from gemmctl.operands.activations import activate
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan
from support import make_plans

INT, NORMAL = DataSpec("int", 7), DataSpec("normal", 7)

GROUPS = (
    "m: 96, n: 96, k: 1024",
    "m: 0, n: 96, k: 64",
    "m: 17, n: 520, k: 1032, lda: 1040, ldb: 1048, ldd: 528",
    "m: 33, n: 96, k: 64, alpha: 0.5, beta: -2, ldc: 101",
    "m: 20, n: 40, k: 0, beta: 0.3",
    "m: 20, n: 0, k: 64",
)


@contextmanager
def witnessed(
    spec: DataSpec, *groups: str, d: str = "bf16"
) -> Iterator[tuple[Plan, CpuSession, Witness]]:
    """A session with its own result, and the witness that keeps it."""
    listed = ", ".join(f"{{{group}}}" for group in groups)
    (plan,) = make_plans(
        f"{{gemmctl: 1, defaults: {{d: {d}}}, problems: [{{name: p, groups: [{listed}]}}]}}"
    )
    with CpuDevice().open(plan, spec) as session:
        assert isinstance(session, CpuSession)
        yield plan, session, Witness(plan, session, spec)


def d_of(plan: Plan, session: CpuSession, index: int) -> dtypes.Bits:
    """The bits of one group's D, to be changed in place."""
    group = plan.problem.groups[index]
    memory = session.read(0, plan.layout.size)
    dtype = dtypes.BY_NAME[group.d]
    place = int(plan.layout.d[index]), group.m, group.d_columns, group.ldd
    return data.matrix(memory, *place, dtype, group.across("d"))


def rounded_once(plan: Plan, spec: DataSpec, index: int) -> dtypes.Bits:
    """One group's D as float64 has it."""
    group = plan.problem.groups[index]
    made = products_of(plan, spec, "cuda")[index]
    a, b, c = (
        operand.values(rows, cols).astype(np.float64)
        for operand, rows, cols in (
            (made.a, group.m, group.k),
            (made.b, group.n, group.k),
            (made.c, group.m, group.n),
        )
    )
    return dtypes.BY_NAME[group.d].from_float(group.alpha * (a @ b.T) + group.beta * c)


def write(session: CpuSession, spec: DataSpec, sign: int) -> None:
    """The smallest (-1) or the largest (1) right result everywhere."""
    for product in products_of(session._plan, spec, "cuda"):
        group = product.group
        told = product.expected(np.arange(group.m), range(group.d_columns))
        right = product.d.from_float(told.right + sign * told.allowed)
        d_of(session._plan, session, product.index)[:] = right


def test_a_result_agrees_with_itself() -> None:
    with witnessed(NORMAL, *GROUPS) as (_, session, witness):
        assert witness.disagreement(session) is None


@pytest.mark.parametrize("d", dtypes.BY_NAME)
@pytest.mark.parametrize("spec", [INT, NORMAL], ids=["int", "normal"])
def test_any_two_results_that_reference_calls_right_agree(
    monkeypatch: pytest.MonkeyPatch, d: str, spec: DataSpec
) -> None:
    monkeypatch.setattr(CpuSession, "run", lambda session: write(session, spec, -1))
    with witnessed(spec, *GROUPS, d=d) as (plan, session, witness):
        before = session.read(plan.layout.d_begin, plan.layout.d_end).copy()
        write(session, spec, 1)
        differ = (before != session.read(plan.layout.d_begin, plan.layout.d_end)).any()
        assert differ == (spec.kind == "normal")
        assert witness.disagreement(session) is None


def test_any_two_right_results_of_a_negative_alpha_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuSession, "run", lambda session: write(session, NORMAL, -1))
    with witnessed(NORMAL, "m: 33, n: 96, k: 1024, alpha: -0.7", d="f32") as (_, session, witness):
        write(session, NORMAL, 1)
        assert witness.disagreement(session) is None


@pytest.mark.parametrize("added", ["beta: 100", "beta: 100, bias: n"])
def test_any_two_right_results_beside_a_c_that_is_larger_than_them_agree(
    monkeypatch: pytest.MonkeyPatch, added: str
) -> None:
    monkeypatch.setattr(CpuSession, "run", lambda session: write(session, NORMAL, -1))
    with witnessed(NORMAL, f"m: 33, n: 96, k: 8, {added}", d="f32") as (_, session, witness):
        write(session, NORMAL, 1)
        assert witness.disagreement(session) is None


@pytest.mark.parametrize(("added", "fused_too"), [("beta: 1", True), ("bias: m", False)])
def test_a_product_that_was_rounded_before_c_or_a_bias_was_added_agrees(
    added: str, fused_too: bool
) -> None:
    group = f"m: 33, n: 96, k: 1024, alpha: 0.05, {added}"  # which often all but cancel each other
    with witnessed(NORMAL, group) as (plan, session, witness):
        (product,) = products_of(plan, NORMAL, "cuda")
        total, _ = product.sums(np.arange(33), range(96))
        chain = in_bf16(0.05 * total) + x_of(plan, 0) - 0.05 * total
        d_of(plan, session, 0)[:] = dtypes.BF16.from_float(chain)
        assert witness.disagreement(session) is None
        assert (witness.disagreement(session, "fused") is None) == fused_too


def test_integers_that_were_rounded_before_c_was_added_agree() -> None:
    with witnessed(INT, "m: 33, n: 96, k: 64, beta: 1") as (plan, session, witness):
        (product,) = products_of(plan, INT, "cuda")
        total, _ = product.sums(np.arange(33), range(96))
        c, _ = product.addends(np.arange(33), range(96))
        chain = dtypes.BF16.from_float(in_bf16(total) + c)
        assert (chain != d_of(plan, session, 0)).any()
        d_of(plan, session, 0)[:] = chain
        assert witness.disagreement(session) is None


def test_a_c_in_place_is_the_fresh_one_in_the_result_that_others_are_compared_with() -> None:
    group = "{m: 33, n: 96, k: 64, beta: 1, inplace: true}"
    (plan,) = make_plans(f"{{gemmctl: 1, problems: [{{name: p, groups: [{group}]}}]}}")
    with CpuDevice().open(plan, NORMAL) as session:
        assert isinstance(session, CpuSession)
        session.run()
        witness = Witness(plan, session, NORMAL)
        d_of(plan, session, 0)[:] = rounded_once(plan, NORMAL, 0)
        assert witness.disagreement(session) is None


def test_of_a_large_result_any_nan_agrees_with_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmctl.judging.product.LARGE", 0)
    with witnessed(DataSpec("special", 7), "m: 256, n: 64, k: 80") as (plan, session, witness):
        bits = d_of(plan, session, 0)
        nan = np.isnan(dtypes.BF16.to_f32(bits))
        assert nan[1:60].any()  # in rows that are not computed again
        bits[nan] ^= 0x8000
        assert witness.disagreement(session) is None


def test_an_infinity_of_the_other_sign_does_not_agree() -> None:
    special = DataSpec("special", 7)
    with witnessed(special, "m: 96, n: 64, k: 80") as (plan, session, witness):
        bits = d_of(plan, session, 0)
        row, col = np.argwhere(bits == dtypes.BF16.infinity)[0]
        bits[row, col] ^= 0x8000
        found = witness.disagreement(session)
    assert found is not None
    assert (found.row, found.col, found.count) == (row, col, 1)


def test_where_ours_is_infinite_by_a_hair_theirs_may_be_the_largest_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistic, "LIKELY", np.inf)  # that more elements may be either
    group = "m: 64, n: 64, k: 4096, a: f16, b: f16, alpha: 2000"
    with witnessed(NORMAL, group, d="f16") as (plan, session, witness):
        (product,) = products_of(plan, NORMAL, "cuda")
        told = product.expected(np.arange(64), range(64))
        low, high = (
            product.d.to_f32(product.d.from_float(told.right + sign * told.allowed))
            for sign in (-1, 1)
        )
        either = (low == product.d.largest) & np.isinf(high)
        bits = d_of(plan, session, 0)
        ours = bits.copy()
        assert (ours[either] == product.d.infinity).any()
        bits[either] = product.d.infinity - 1
        assert witness.disagreement(session) is None
        bits[:] = ours
        bits[ours == product.d.infinity] = product.d.from_float(np.full(1, 60000.0))[0]
        assert witness.disagreement(session) is not None


def test_a_result_of_the_same_bits_as_a_right_one_is_not_compared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with witnessed(NORMAL, *GROUPS) as (plan, session, witness):
        read: list[tuple[int, int]] = []
        monkeypatch.setattr(
            session,
            "read",
            lambda *place: (read.append(place), CpuSession.read(session, *place))[1],
        )
        assert witness.disagreement(session) is None
        assert not read  # our own bits
        write(session, NORMAL, 1)
        read.clear()
        assert [witness.disagreement(session) for _ in range(2)] == [None, None]
        assert read == [(plan.layout.d_begin, plan.layout.d_end)]
        assert witness.disagreement(session, "unfused") is None
        assert len(read) == 2  # another rule


def test_a_wrong_result_is_wrong_every_time() -> None:
    with witnessed(INT, *GROUPS, d="f32") as (plan, session, witness):
        d_of(plan, session, 2)[5, 301] += 1
        assert witness.disagreement(session) is not None
        assert witness.disagreement(session) is not None


def test_sums_of_integers_leave_no_choice() -> None:
    with witnessed(INT, *GROUPS, d="f32") as (plan, session, witness):
        d_of(plan, session, 2)[5, 301] += 1  # the next float32
        found = witness.disagreement(session)
    assert found is not None
    assert (found.group, found.row, found.col, found.count) == (2, 5, 301, 1)


def test_half_of_a_product_that_is_missing_is_found() -> None:
    with witnessed(NORMAL, *GROUPS) as (plan, session, witness):
        d = d_of(plan, session, 0)
        d[40] = dtypes.BF16.from_float(dtypes.BF16.to_f32(d[40]) / 2)
        found = witness.disagreement(session)
    assert found is not None
    assert (found.group, found.row) == (0, 40)


def test_an_error_just_above_what_two_roundings_differ_by_is_found() -> None:
    with witnessed(NORMAL, "m: 64, n: 64, k: 64") as (plan, session, witness):
        d = d_of(plan, session, 0)
        largest = np.unravel_index(dtypes.BF16.to_f32(d).argmax(), d.shape)
        d[largest] += 1  # the neighbour: one of two results may be rounded up, the other down
        assert witness.disagreement(session) is None
        d[largest] += 1
        found = witness.disagreement(session)
    assert found is not None
    assert (found.row, found.col) == largest
    assert found.low < found.ours < found.high < found.got


def test_what_was_never_written_does_not_agree() -> None:
    with witnessed(NORMAL, *GROUPS) as (plan, session, witness):
        session.poison()
        found = witness.disagreement(session)
    assert found is not None
    sizes = plan.problem.columns.m * plan.problem.columns.n
    assert (found.group, found.row, found.col, found.count) == (0, 0, 0, sizes.sum())


def test_beta_c_alone_leaves_no_choice() -> None:
    with witnessed(NORMAL, "m: 20, n: 40, k: 0, beta: 0.3") as (plan, session, witness):
        d_of(plan, session, 0)[3, 7] ^= 1
        found = witness.disagreement(session)
    assert found is not None
    assert (found.row, found.col) == (3, 7)


def test_a_wrong_c_is_found() -> None:
    group = "m: 33, n: 96, k: 64, beta: 2"
    with witnessed(NORMAL, group) as (plan, session, witness):
        d_of(plan, session, 0)[:] = rounded_once(plan, NORMAL, 0)
        assert witness.disagreement(session) is None
        d_of(plan, session, 0)[4, 9] ^= 0x8000  # the sign
        assert witness.disagreement(session) is not None


def test_a_large_result_is_compared_to_its_last_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmctl.judging.agreement._CHUNK", 1000)
    with witnessed(NORMAL, "m: 70, n: 96, k: 64") as (plan, session, witness):
        d_of(plan, session, 0)[69, 95] ^= 0x8000
        d_of(plan, session, 0)[60, 1] ^= 0x8000
        found = witness.disagreement(session)
    assert found is not None
    assert (found.row, found.col, found.count) == (60, 1, 2)


def test_the_first_difference_is_in_the_first_group_that_has_one() -> None:
    with witnessed(NORMAL, *GROUPS) as (plan, session, witness):
        d_of(plan, session, 0)[40, 9] ^= 0x8000
        d_of(plan, session, 2)[1, 1] ^= 0x8000
        found = witness.disagreement(session)
    assert found is not None
    assert (found.group, found.row, found.col, found.count) == (0, 40, 9, 2)


def test_the_first_difference_of_a_d_by_columns_is_where_the_list_has_it() -> None:
    group = "m: 70, n: 24, k: 64, d_layout: col"
    with witnessed(NORMAL, group) as (plan, session, witness):
        d_of(plan, session, 0)[61, 5] ^= 0x8000  # the sign
        found = witness.disagreement(session)
    assert found is not None
    assert (found.row, found.col, found.count) == (61, 5, 1)


def test_the_first_difference_is_told_with_its_place_and_what_is_allowed() -> None:
    with witnessed(NORMAL, *GROUPS) as (plan, session, witness):
        d_of(plan, session, 3)[4, 9] ^= 0x8000
        told = str(witness.disagreement(session))
    assert re.fullmatch(
        r"1 of D's elements differ from gemmctl's, the first in group 3 at row 4, column 9: "
        r"\S+, and gemmctl has \S+, which allows \S+ to \S+",
        told,
    )


FOLLOWED = (
    "m: 33, n: 96, k: 1024, bias: n",
    "m: 33, n: 96, k: 256, bias: m, bias_type: f32, beta: 1, activation: relu",
    "m: 17, n: 96, k: 256, alpha: 0.1, activation: gelu, ldd: 100",
    "m: 33, n: 96, k: 256, bias: n, gate: halves, activation: silu",
    "m: 33, n: 96, k: 256, alpha: 0.1, bias: m, gate: pairs, activation: gelu_tanh",
    "m: 33, n: 96, k: 256, gate: pairs",
)


@pytest.mark.parametrize("d", dtypes.BY_NAME)
def test_any_two_results_behind_a_bias_activation_or_gate_agree(
    monkeypatch: pytest.MonkeyPatch, d: str
) -> None:
    monkeypatch.setattr(CpuSession, "run", lambda session: write(session, NORMAL, -1))
    with witnessed(NORMAL, *FOLLOWED, d=d) as (_, session, witness):
        write(session, NORMAL, 1)
        for manner in ("", "fused", "unfused"):
            assert witness.disagreement(session, manner) is None


def x_of(plan: Plan, index: int, *, bias: bool = True) -> npt.NDArray[np.float64]:
    """alpha A B + beta C and the bias of one group, as float64 has it."""
    product = products_of(plan, NORMAL, "cuda")[index]
    rows, cols = np.arange(product.group.m), range(product.group.n)
    total, _ = product.sums(rows, cols)
    c, added = product.addends(rows, cols)
    return product.group.alpha * total + c + (added if bias else 0)


def silu(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return x / (1 + np.exp(-x))


def in_bf16(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return dtypes.BF16.to_f32(dtypes.BF16.from_float(x)).astype(np.float64)


def test_what_is_rounded_between_kernels_agrees_as_unfused_only() -> None:
    with witnessed(NORMAL, FOLLOWED[3]) as (plan, session, witness):
        x = in_bf16(in_bf16(x_of(plan, 0, bias=False)) + x_of(plan, 0) - x_of(plan, 0, bias=False))
        chain = in_bf16(silu(x[:, :48])) * x[:, 48:]
        d_of(plan, session, 0)[:] = dtypes.BF16.from_float(chain)
        assert witness.disagreement(session, "unfused") is None
        assert witness.disagreement(session, "fused") is not None


def test_a_product_that_was_rounded_before_c_was_added_agrees_behind_an_activation() -> None:
    group = "m: 33, n: 96, k: 1024, alpha: 0.05, beta: 1, activation: relu"
    with witnessed(NORMAL, group) as (plan, session, witness):
        (product,) = products_of(plan, NORMAL, "cuda")
        total, _ = product.sums(np.arange(33), range(96))
        chain = in_bf16(in_bf16(0.05 * total) + x_of(plan, 0) - 0.05 * total)
        d_of(plan, session, 0)[:] = dtypes.BF16.from_float(np.maximum(chain, 0))
        assert witness.disagreement(session, "unfused") is None
        assert witness.disagreement(session, "fused") is not None


def test_a_bias_that_is_added_to_what_was_rounded_agrees_as_unfused_only() -> None:
    group = "m: 33, n: 96, k: 1024, alpha: 0.05, bias: m"  # which often all but cancel each other
    with witnessed(NORMAL, group) as (plan, session, witness):
        without = x_of(plan, 0, bias=False)
        chain = in_bf16(without) + x_of(plan, 0) - without
        d_of(plan, session, 0)[:] = dtypes.BF16.from_float(chain)
        assert witness.disagreement(session, "unfused") is None
        assert witness.disagreement(session, "fused") is not None


def test_a_gelu_made_of_an_approximate_tanh_agrees_as_fused_only() -> None:
    group = "m: 33, n: 96, k: 64, alpha: 0.3, activation: gelu_tanh"
    with witnessed(NORMAL, group, d="f32") as (plan, session, witness):
        x = x_of(plan, 0)
        for error in (2.0**-16, 2.0**-14):
            tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)) * (1 - error)
            d_of(plan, session, 0)[:] = dtypes.F32.from_float(x * (1 + tanh) / 2)
            assert (witness.disagreement(session, "fused") is None) == (error == 2.0**-16)
            assert witness.disagreement(session, "unfused") is not None


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_no_other_activation_may_be_approximate(name: str) -> None:
    group = f"m: 33, n: 96, k: 16, alpha: 0.3, activation: {name}"
    with witnessed(NORMAL, group, d="f32") as (plan, session, witness):
        right = activate(name, x_of(plan, 0))
        for error, agrees in ((0.0, True), (2.0**-17, False)):
            d_of(plan, session, 0)[:] = dtypes.F32.from_float(right * (1 + error))
            assert (witness.disagreement(session, "fused") is None) == agrees


@pytest.mark.parametrize("manner", ["", "fused", "unfused"])
def test_a_gate_whose_halves_are_exchanged_is_found(manner: Any) -> None:
    with witnessed(NORMAL, FOLLOWED[3]) as (plan, session, witness):
        x = x_of(plan, 0)
        d_of(plan, session, 0)[:] = dtypes.BF16.from_float(silu(x[:, 48:]) * x[:, :48])
        found = witness.disagreement(session, manner)
    assert found is not None
    assert found.count > 33 * 48 / 2


@pytest.mark.parametrize("manner", ["", "fused", "unfused"])
def test_one_wrong_element_behind_a_gate_is_found(manner: Any) -> None:
    with witnessed(NORMAL, *FOLLOWED) as (plan, session, witness):
        d_of(plan, session, 3)[32, 47] ^= 0x8000  # the sign
        found = witness.disagreement(session, manner)
    assert found is not None
    assert (found.group, found.row, found.col, found.count) == (3, 32, 47, 1)


def test_64_wrong_rows_of_a_large_group_behind_a_gate_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gemmctl.judging.product.LARGE", 0)
    group = "m: 256, n: 96, k: 256, gate: halves, activation: silu"
    with witnessed(NORMAL, group) as (plan, session, witness):
        d = d_of(plan, session, 0)
        ours = d.copy()
        for first in range(0, 256, 64):
            d[first : first + 64] ^= 0x8000
            found = witness.disagreement(session)
            d[:] = ours
            assert found is not None and first <= found.row < first + 64


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0], ids=["inf", "-inf", "nan"])
def test_whatever_is_no_number_is_found_in_a_large_group_behind_a_gate(
    monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    monkeypatch.setattr("gemmctl.judging.product.LARGE", 0)
    group = "m: 256, n: 96, k: 256, gate: halves, activation: silu"
    with witnessed(NORMAL, group) as (plan, session, witness):
        d_of(plan, session, 0)[200, 3] = bits
        found = witness.disagreement(session)
    assert found is not None
    assert (found.row, found.col, found.count) == (200, 3, 1)
