"""Operands exchanged, for a D by columns or by kernels that write one, and nothing else changed."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.device.cpu import CpuDevice
from gemmctl.kernels import cubins
from gemmctl.lists.problem import BIASES, LAYOUTS, Columns, Problem
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan as planning
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
    offsets = "a_offset: 1, b_offset: 2, c_offset: 3, d_offset: 4"
    lds = "lda: 72, ldb: 80, ldc: 50, ldd: 48"
    some = make_problem(f"m: 24, n: 40, k: 64, {lds}, {offsets}, {layouts}")
    (before,), (after,) = some.groups, exchanged(some).groups
    assert (after.m, after.n, after.k) == (before.n, before.m, before.k)
    assert (after.lda, after.ldb) == (before.ldb, before.lda)
    assert (after.ldc, after.ldd) == (before.ldc, before.ldd)
    assert (after.a_offset, after.b_offset) == (before.b_offset, before.a_offset)
    assert (after.c_offset, after.d_offset) == (before.c_offset, before.d_offset)
    # What of an operand's rows lies across memory does so for the other operand.
    assert (after.across("a"), after.across("b")) == (before.across("b"), before.across("a"))
    assert not after.across("c") and not after.across("d")
    assert after.bias_length == before.bias_length
    assert after.depth == before.depth


@st.composite
def problems(draw: st.DrawFn, d_layouts: tuple[str, ...] = LAYOUTS) -> Problem:
    """Groups of every layout and bias whose numbers all differ."""
    numbers = iter(draw(st.permutations(range(100, 140))))

    def group() -> str:
        layouts = {"a": draw(st.sampled_from(LAYOUTS)), "b": draw(st.sampled_from(LAYOUTS))}
        layouts["d"] = draw(st.sampled_from(d_layouts))
        words = [f"{operand}_layout: {layout}" for operand, layout in layouts.items()]
        words += [f"{extent}: {next(numbers)}" for extent in "mnk"]
        words += [f"ld{operand}: {next(numbers) + 40}" for operand in "abcd"]
        words += [f"a: {draw(st.sampled_from(['bf16', 'f16']))}", "d: f32", "alpha: 3", "beta: 2"]
        return ", ".join([*words, f"bias: {draw(st.sampled_from(BIASES))}"])

    return make_problem(*(group() for _ in range(draw(st.integers(1, 4)))))


def lists_of(columns: Columns) -> dict[str, list[float]]:
    return {each.name: getattr(columns, each.name).tolist() for each in fields(Columns)}


@given(problems())
def test_columns_that_are_exchanged_twice_are_what_they_were(some: Problem) -> None:
    columns = some.columns
    assert lists_of(columns.exchanged.exchanged) == lists_of(columns)
    assert lists_of(columns.exchanged) != lists_of(columns)


@given(problems(d_layouts=("col",)))
def test_columns_are_exchanged_as_groups_with_a_d_by_columns_are(some: Problem) -> None:
    assert lists_of(some.columns.exchanged) == lists_of(exchanged(some).columns)


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


# One element is wrong, and tiles are as wide as 256 allows.
SPOILT = """
import sys
from gemmctl.device import cpu
from gemmctl.planning import plan
from gemmctl.planning.tiling import Choice, grid
from gemmctl.__main__ import main

run = cpu.CpuSession.run
row, col = map(int, sys.argv[1:3])
del sys.argv[1:3]

def wrong(self):
    run(self)
    group = self._plan.problem.groups[0]
    at = row + col * group.ldd if group.d_layout == "col" else col + row * group.ldd
    self._arena[self._plan.layout.d[0] + 2 * at + 1] ^= 0x40

def widest(problem, launches, kernels, machine, **_):
    kernel = kernels[0]
    return [
        (Choice(kernel.name, 256), grid(problem, groups, kernel, 256, machine))
        for groups in launches
    ]

cpu.CpuSession.run = wrong
plan.choose = widest
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
    done = gemmctl("verify", "-", "--data", "int", stdin=text, python=("-c", SPOILT, "5", "31"))
    assert done.returncode == 1
    assert "1 of 2590 elements compared are wrong, the first at row 5, column 31" in done.stdout
    assert "rows at row 0, column 0" in done.stdout


@pytest.mark.parametrize(
    ("kernel", "layout", "tile"),
    [
        ("128x256", "row", "tile of 152 rows at row 152, column 256"),
        ("128x256", "col", "tile of 128 rows at row 256, column 152"),
        ("128x256-x", "row", "tile of 128 rows at row 256, column 152"),
        ("128x256-x", "col", "tile of 152 rows at row 152, column 256"),
    ],
)
def test_the_tile_of_a_wrong_element_is_where_the_list_has_it_whoever_exchanges_operands(
    kernel: str, layout: str, tile: str, gemmctl: Command
) -> None:
    text = (
        "{gemmctl: 1, problems: [{name: p, groups: "
        f"[{{m: 304, n: 304, k: 64, d_layout: {layout}}}]}}]}}"
    )
    options = ("verify", "-", "--data", "int", "--kernel", kernel)
    done = gemmctl(*options, stdin=text, python=("-c", SPOILT, "290", "300"))
    assert done.returncode == 1
    assert f"the first at row 290, column 300 ({tile})" in done.stdout


# Kernels that write D by columns

EACH = sorted(
    {(of.name, *of.multiplies[2:]) for of in cubins.manifest().kernels if of.d_across}
)  # names, and layouts of A and B where D is by rows
EXCHANGING = sorted({name for name, *_ in EACH})


def kernels_of(gemmctl: Command, *groups: str) -> set[str]:
    """The kernels that the plan takes for one problem."""
    listed = ", ".join(f"{{{group}}}" for group in groups)
    text = f"{{gemmctl: 1, problems: [{{name: p, groups: [{listed}]}}]}}"
    done = gemmctl("plan", "-", "-f", "json", stdin=text)
    assert done.returncode == 0, done.stderr
    return {choice.split()[0] for choice in json.loads(done.stdout)["problems"][0]["choices"]}


@pytest.mark.parametrize(
    "group",
    [
        "m: 1024, n: 288, k: 4096",
        "m: 1024, n: 400, k: 4096",
        "m: 1024, n: 400, k: 4096, alpha: 0.5, a: f16, d: f32",
        "m: 400, n: 1024, k: 4096, d_layout: col",
        "m: 2048, n: 64, k: 256",
        "m: 1024, n: 400, k: 4096, b_layout: row",
        "m: 1024, n: 400, k: 4096, a_layout: col, b_layout: row, d: f32",
        "m: 2048, n: 64, k: 256, a_layout: col",
    ],
)
def test_operands_are_exchanged_where_rows_of_b_would_fill_too_few_of_their_tiles(
    group: str, gemmctl: Command
) -> None:
    assert kernels_of(gemmctl, f"{group}, count: 16") <= set(EXCHANGING)


@pytest.mark.parametrize(
    "more",
    [
        "beta: 1",
        "beta: 1, inplace: true",
        "bias: n",
        "bias: m",
        "activation: relu",
        "gate: halves",
        "gate: pairs",
        "n: 401",
        "ldd: 404",
        "b_layout: row, beta: 1",
        "d: f16",
    ],
)
def test_operands_stay_where_the_kernels_that_exchange_them_cannot_compute_d(
    more: str, gemmctl: Command
) -> None:
    able = "m: 1024, n: 400, k: 4096, count: 16"
    group = able.replace("n: 400", more) if more.startswith("n:") else f"{able}, {more}"
    assert kernels_of(gemmctl, group).isdisjoint(EXCHANGING)


def test_one_group_that_they_cannot_compute_keeps_its_launch_from_them_and_no_other(
    gemmctl: Command,
) -> None:
    able = "m: 1024, n: 400, k: 4096, count: 16"
    assert kernels_of(gemmctl, able, "m: 8, n: 8, k: 8, gate: pairs").isdisjoint(EXCHANGING)
    others = "m: 8, n: 8, k: 8, gate: pairs, a: f16", "m: 0, n: 9, k: 8, gate: none, bias: n"
    assert kernels_of(gemmctl, able, *others) & set(EXCHANGING)


ABLE = """\
gemmctl: 1
problems:
  - name: by rows
    groups:
      - {m: 300, n: 136, k: 1000}
      - {m: 1, n: 8, k: 8}
      - {m: 257, n: 264, k: 71, alpha: 0.5, lda: 73, ldd: 272}
      - {m: 0, n: 13, k: 8}
      - {m: 17, n: 64, k: 0}
      - {m: 40, n: 64, k: 100, alpha: 0}
  - name: by columns
    defaults: {d_layout: col}
    groups:
      - {m: 136, n: 300, k: 1000}
      - {m: 8, n: 1, k: 8}
      - {m: 264, n: 257, k: 71, alpha: 0.5, ldb: 73, ldd: 272}
      - {m: 13, n: 0, k: 8}
      - {m: 64, n: 17, k: 0}
  - name: in float32
    defaults: {a: f16, d: f32}
    groups:
      - {m: 300, n: 132, k: 100}
  - name: split
    groups:
      - {m: 130, n: 264, k: 8192}
"""


@pytest.mark.parametrize(("kernel", "a", "b"), EACH)
def test_every_kernel_that_exchanges_operands_is_right_by_rows_and_by_columns(
    kernel: str, a: str, b: str, gemmctl: Command
) -> None:
    other = {"row": "col", "col": "row"}
    lie = f"defaults: {{a_layout: {a}, b_layout: {b}}}\nproblems:"
    turned = f"{{d_layout: col, a_layout: {other[b]}, b_layout: {other[a]}}}"
    text = ABLE.replace("problems:", lie).replace("{d_layout: col}", turned)
    if (a, b) != ("row", "col"):
        text = text.replace(", lda: 73", "").replace(", ldb: 73", "")
    options = ("--kernel", kernel, "--data", "all", "-f", "json")
    done = gemmctl("verify", "-", *options, stdin=text)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)["checks"]
    chosen = {check["name"]: check["choices"] for check in checks}
    assert {choice.split()[0] for choices in chosen.values() for choice in choices} == {kernel}
    few = {of.name for of in cubins.manifest().kernels if of.for_few_tiles}
    assert kernel in few or all("k/" in choice for choice in chosen["split"])


def test_sums_of_integers_are_the_same_with_operands_exchanged() -> None:
    group = "m: 23, n: 40, k: 71, alpha: 2, d: f32"
    made = make_problem(group, group.replace("m: 23, n: 40", "m: 40, n: 23, d_layout: col"))
    both = [
        planning.make([made], cubins.manifest().named(name))[0] for name in ("128x256", "128x256-x")
    ]
    one, other = (result(plan, "int") for plan in both)
    assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
