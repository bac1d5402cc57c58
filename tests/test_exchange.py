"""A D by columns as the kernels compute it: operands exchanged, and nothing else changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.device.cpu import CpuDevice
from gemmctl.lists.problem import LAYOUTS
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning.exchange import exchanged
from gemmctl.planning.plan import Plan
from judged import plan_of
from support import Command, make_problem

EVERY_LAYOUT = [(a, b, d) for a in LAYOUTS for b in LAYOUTS for d in LAYOUTS]


def test_where_every_d_is_by_rows_nothing_changes() -> None:
    some = make_problem("m: 8, n: 8, k: 8, a_layout: col, b_layout: row", "m: 8, n: 8, k: 8")
    assert exchanged(some) is some


def test_a_group_that_is_there_many_times_is_exchanged_once() -> None:
    some = make_problem("m: 8, n: 8, k: 8, d_layout: col, count: 1000", "m: 8, n: 8, k: 8")
    assert len({id(group) for group in exchanged(some).groups}) == 2


@given(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.sampled_from(["none", "n", "m"]))
def test_exchanging_keeps_every_place_in_memory(a: str, b: str, bias: str) -> None:
    layouts = f"a_layout: {a}, b_layout: {b}, d_layout: col, bias: {bias}"
    some = make_problem(f"m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldc: 50, ldd: 48, {layouts}")
    (before,), (after,) = some.groups, exchanged(some).groups
    assert (after.m, after.n, after.k) == (before.n, before.m, before.k)
    assert (after.lda, after.ldb) == (before.ldb, before.lda)
    assert (after.ldc, after.ldd) == (before.ldc, before.ldd)
    # What of an operand's rows lies across memory does so for the other operand.
    assert (after.across("a"), after.across("b")) == (before.across("b"), before.across("a"))
    assert not after.across("c") and not after.across("d")
    assert after.bias_length == before.bias_length
    assert after.depth == before.depth


def result(plan: Plan, kind: data.Kind) -> list[np.ndarray]:
    """Every D, m x n, as the CPU computes it."""
    found = []
    with CpuDevice().open(plan, DataSpec(kind, 5)) as session:
        session.run()
        for group, offset in zip(plan.problem.groups, plan.layout.d.tolist(), strict=True):
            dtype = dtypes.BY_NAME[group.d]
            memory = session.read(0, plan.layout.size)
            shape = group.m, group.n, group.ldd
            bits = data.matrix(memory, offset, *shape, dtype, group.across("d"))
            found.append(np.array(bits))
    return found


@pytest.mark.parametrize("bias", ["none", "n", "m"])
def test_sums_of_integers_are_the_same_in_every_layout(bias: str) -> None:
    group = f"m: 23, n: 41, k: 70, bias: {bias}, alpha: 2, beta: -1, d: f32"
    lds = "lda: 80, ldb: 72, ldc: 43, ldd: 47"
    # Operands have keys of their groups' places, so that each has a problem of its own.
    alone = [
        plan_of(f"{group}, {lds}, a_layout: {a}, b_layout: {b}, d_layout: {d}")
        for a, b, d in EVERY_LAYOUT
    ]
    first, *others = (result(plan, "int")[0] for plan in alone)
    assert all(np.array_equal(first, other) for other in others)


LISTED = "\n".join(
    [
        "gemmctl: 1",
        "problems:",
        "  - name: every",
        "    groups:",
        *(
            f"      - {{m: 37, n: 70, k: 72, a_layout: {a}, b_layout: {b}, d_layout: {d}, "
            f"lda: 80, ldb: 80, ldd: 77, beta: {beta}, c: f32, bias: {bias}, activation: silu}}"
            for (a, b, d), beta, bias in zip(
                EVERY_LAYOUT, (0, 1) * 4, ("none", "n", "m", "n") * 2, strict=True
            )
        ),
    ]
)


@pytest.mark.parametrize("kind", ["normal", "int", "special"])
def test_every_layout_is_verified_in_as_few_launches_as_there_are_of_a_and_b(
    gemmctl: Command, kind: str
) -> None:
    done = gemmctl("verify", "-", "--data", kind, stdin=LISTED)
    assert done.returncode == 0, done.stdout + done.stderr
    planned = gemmctl("plan", "-", stdin=LISTED)
    (titles, row) = planned.stdout.splitlines()
    cells = dict(zip(titles.split(), row.split(), strict=False))
    shown = "bf16/rrr,bf16/rrc,bf16,bf16/rcc,bf16/crr,bf16/crc,bf16/ccr,bf16/ccc"
    assert (cells["dtype"], cells["launches"]) == (shown, "4")


SPOILT = """
import sys
from gemmctl.device import cpu
from gemmctl.__main__ import main

run = cpu.CpuSession.run

def wrong(self):
    run(self)
    group = self._plan.problem.groups[0]
    row, col = 5, 31
    at = row + col * group.ldd if group.d_layout == "col" else col + row * group.ldd
    self._arena[self._plan.layout.d[0] + 2 * at + 1] ^= 0x40

cpu.CpuSession.run = wrong
main()
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_element_is_named_by_the_row_and_column_of_the_list(
    gemmctl: Command, layout: str
) -> None:
    text = (
        "{gemmctl: 1, problems: [{name: p, groups: "
        f"[{{m: 37, n: 70, k: 72, d_layout: {layout}}}]}}]}}"
    )
    done = gemmctl("verify", "-", "--data", "int", stdin=text, python=("-c", SPOILT))
    assert done.returncode == 1
    assert "1 of 2590 elements compared are wrong, the first at row 5, column 31" in done.stdout
    assert "rows at row 0, column 0" in done.stdout
