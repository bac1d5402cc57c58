"""Rows that TMA cannot step over: which operands are copied first, to where, and what is said."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.device.cpu import CpuDevice
from gemmctl.judging import verify
from gemmctl.kernels import cubins
from gemmctl.lists.problem import LAYOUTS
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import cost, plan, tables
from gemmctl.planning.packing import STRIDE_END, STRIDE_STEP, remedies, unweave, weave
from gemmctl.planning.plan import TOGETHER, Launching, Plan
from sources import members, size
from support import Command, make_plans, make_problem

KERNELS = cubins.manifest().kernels
BF16 = dtypes.BF16.size

ODD = """\
gemmctl: 1
problems:
  - name: odd
    groups:
      - {m: 33, n: 41, k: 71}
      - {m: 33, n: 41, k: 71, a_layout: col, b_layout: row, beta: 1}
      - {m: 33, n: 41, k: 71, a_layout: col, d_layout: col, bias: n}
      - {m: 33, n: 42, k: 71, activation: silu, gate: halves}
      - {m: 33, n: 41, k: 71, a: f16, d: f32, b_layout: row}
      - {m: 33, n: 40, k: 72, a_offset: 1, b_offset: 2, c_offset: 3, d_offset: 5, beta: 1}
      - {m: 33, n: 40, k: 72, d_layout: col, b_offset: 2, d_offset: 7, beta: 1, inplace: true}
  - name: even
    groups:
      - {m: 33, n: 41, k: 72}
"""
UNALIGNED_LIST = """\
gemmctl: 1
problems:
  - name: unaligned
    groups:
      - {m: 33, n: 300, k: 71, beta: 1, c: f32}
      - {m: 1, n: 7, k: 130, ldb: 137, alpha: 0.5}
      - {m: 40, n: 129, k: 64}
      - {m: 33, n: 41, k: 71, d_layout: col, bias: n}
      - {m: 300, n: 64, k: 333, a: f16, d: f32, activation: silu, ldd: 67}
      - {m: 9, n: 8, k: 0, bias: m}
      - {m: 40, n: 128, k: 64, a_offset: 1, b_offset: 7, c_offset: 1, d_offset: 3, beta: 1}
"""
PACKS_NOTHING = """
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
CpuSession._pack = lambda self, record: None
main()
"""


def plan_of(*groups: str, launch: Launching = "grouped") -> Plan:
    (made,) = plan.make([make_problem(*groups)], KERNELS, launch=launch)
    return made


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Groups of every layout and alignment, some of them empty or not multiplied."""

    def group() -> str:
        m, n, k = (draw(st.integers(0, 40)) for _ in "mnk")
        a, b, d = (draw(st.sampled_from(LAYOUTS)) for _ in "abd")
        runs = {"lda": k if a == "row" else m, "ldb": k if b == "col" else n}
        lds = {key: max(1, run) + draw(st.integers(0, 20)) for key, run in runs.items()}
        fields = {"m": m, "n": n, "k": k, "a_layout": a, "b_layout": b, "d_layout": d, **lds}
        fields |= {"alpha": draw(st.sampled_from([1, 1, 0])), "d": draw(st.sampled_from(WRITTEN))}
        for key in ("a_offset", "b_offset"):
            fields[key] = draw(st.sampled_from([0, 0, 1, 4, 8, 127]))
        return ", ".join(f"{key}: {value}" for key, value in fields.items())

    return plan_of(*(group() for _ in range(draw(st.integers(1, 6)))))


WRITTEN = ("bf16", "f32")  # types of D that kernels of every layout write


def stored(made: Plan) -> list[tuple[int, ...]]:
    """Of every A, then every B that launches multiply, each of which is lines that lie contiguous.

    Its group, where it is read and with which leading dimension, lines and their length, and where
    it lies and with which leading dimension. Offsets are in bytes, the rest is in elements.
    """
    columns, packing, (a, b) = made.exchanged.columns, made.packing, made.operands
    multiplied = np.flatnonzero((columns.m > 0) & (columns.n > 0) & (columns.depth > 0))
    found = []
    for operand, extents, read, ld, source, source_ld in (
        ("a", columns.m, packing.a, packing.lda, a, columns.lda),
        ("b", columns.n, packing.b, packing.ldb, b, columns.ldb),
    ):
        across = columns.across(operand)
        lines, lengths = np.where(across, (columns.k, extents), (extents, columns.k))
        entries = np.stack([read, ld, lines, lengths, source, source_ld], axis=1)
        found += [(group, *entries[group].tolist()) for group in multiplied.tolist()]
    return found


# What is packed, and to where


@given(plans())
def test_what_launches_read_has_strides_and_addresses_that_tma_takes(made: Plan) -> None:
    for _, offset, ld, _, length, *_ in stored(made):
        assert offset % STRIDE_STEP == 0
        assert ld * BF16 % STRIDE_STEP == 0
        assert length <= ld < STRIDE_END // BF16


@given(plans())
def test_copies_share_no_byte_with_each_other_or_with_any_operand(made: Plan) -> None:
    packing, before = made.packing, plan.lay_out(made.problem)[0].size
    ends = packing.to + packing.lines * packing.words * STRIDE_STEP
    spans = [(0, before), *zip(packing.to.tolist(), ends.tolist(), strict=True)]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(spans)))
    assert max(end for _, end in spans) <= packing.end == made.layout.size


@given(plans())
def test_what_tma_can_read_where_it_lies_is_read_there(made: Plan) -> None:
    for group, offset, ld, lines, _, source, source_ld in stored(made):
        steps, begins = (x % STRIDE_STEP == 0 for x in (source_ld * BF16, source))
        assert (offset == source) == (begins and (steps or lines == 1)), group
        assert ld == source_ld or not (steps and begins)


@given(plans())
def test_a_run_leaves_every_operand_where_launches_read_it(made: Plan) -> None:
    with CpuDevice().open(made, DataSpec("normal", 3)) as session:
        session.run()
        memory = session.read(0, made.layout.size)
        for group, offset, ld, lines, length, source, source_ld in stored(made):
            now = data.matrix(memory, offset, lines, length, ld, dtypes.BF16)
            before = data.matrix(memory, source, lines, length, source_ld, dtypes.BF16)
            assert np.array_equal(now, before), group


def test_an_operand_of_one_line_is_read_where_it_lies_whatever_its_leading_dimension() -> None:
    made = plan_of("m: 1, n: 16, k: 9, ldb: 16", "m: 8, n: 1, k: 16, ldb: 549755813888")
    assert made.packing.bytes == 0
    assert made.packing.lda.tolist() == [16, 16] and made.packing.ldb.tolist() == [16, 16]
    assert made.packing.a.tolist() == made.layout.a.tolist()


@pytest.mark.parametrize(
    "group",
    [
        "m: 0, n: 7, k: 7",
        "m: 7, n: 0, k: 7",
        "m: 7, n: 8, k: 0, lda: 1, ldb: 1",
        "m: 7, n: 8, k: 7, alpha: 0",
        "m: 7, n: 7, k: 8, ldd: 9, ldc: 7, beta: 1",
        "m: 7, n: 9, k: 64",
        "m: 7, n: 8, k: 8, a_offset: 8, b_offset: 16, c_offset: 1, d_offset: 3, beta: 1",
        "m: 7, n: 8, k: 8, a_offset: 1, b_offset: 1, alpha: 0",
    ],
)
def test_what_nothing_reads_and_c_and_d_and_odd_m_and_n_are_not_packed(group: str) -> None:
    assert plan_of(group).packing.bytes == 0


UNALIGNED = [kernel for kernel in KERNELS if kernel.b_unaligned]


def kernels_of(made: Plan) -> list[str]:
    return [launch.kernel.name for launch in made.launches]


@pytest.mark.parametrize("off", ["k: 2049", "k: 2049, b_offset: 3", "k: 2049, a_offset: 8"])
def test_a_large_unaligned_b_stays_where_it_lies_and_a_is_woven(off: str) -> None:
    made = plan_of(f"m: 16, n: 4096, {off}", "m: 16, n: 64, k: 64")
    assert kernels_of(made)[0] == UNALIGNED[0].name and len(kernels_of(made)) == 2
    packing = made.packing
    assert packing.woven.tolist() == [True]
    assert (packing.source.tolist(), packing.lines.tolist()) == ([int(made.layout.a[0])], [16])
    assert packing.lda.tolist() == [-(-2049 // 64) * 64, 64]
    assert (packing.b.tolist(), packing.ldb.tolist()) == (made.layout.b.tolist(), [2049, 64])


@pytest.mark.parametrize(
    "group",
    [
        "m: 16, n: 512, k: 2049",  # too small to be worth it
        "m: 8192, n: 4096, k: 2049",  # multiplying takes longer than packing
        "m: 16, n: 4096, k: 2049, gate: halves",
        "m: 16, n: 4096, k: 2048, a_offset: 1",
        "m: 16, n: 4097, k: 2048, b_layout: row",
        "m: 2049, n: 4096, k: 16, a_layout: col, b_layout: row",
        "m: 16, n: 4096, k: 2049, ldb: 16777217",
    ],
)
def test_any_other_operand_that_tma_cannot_read_is_packed_as_it_is(group: str) -> None:
    made = plan_of(group)
    assert UNALIGNED[0].name not in kernels_of(made)
    assert made.packing.bytes and not made.packing.woven.any()


def test_without_a_kernel_for_it_an_unaligned_b_is_packed() -> None:
    others = [kernel for kernel in KERNELS if not kernel.b_unaligned]
    (made,) = plan.make([make_problem("m: 16, n: 4096, k: 2049")], others)
    assert len(made.packing.woven) == 2 and not made.packing.woven.any()


@given(st.lists(st.tuples(*[st.integers(1, 40)] * 3, *[st.integers(0, 20)] * 2), min_size=1))
def test_a_run_weaves_every_a_beside_a_kernel_for_an_unaligned_b(
    sizes: list[tuple[int, int, int, int, int]],
) -> None:
    groups = [f"m: {m}, n: {n}, k: {k}, lda: {k + i}, ldb: {k + j}" for m, n, k, i, j in sizes]
    (made,) = plan.make([make_problem(*groups)], UNALIGNED)
    packing, layout = made.packing, made.layout
    assert packing.b.tolist() == layout.b.tolist()
    with CpuDevice().open(made, DataSpec("normal", 3)) as session:
        session.run()
        memory = session.read(0, layout.size)
        for group, (m, _, k, i, _) in enumerate(sizes):
            ld = int(packing.lda[group])
            assert ld % 64 == 0 and ld - k < 64
            woven = data.matrix(memory, int(packing.a[group]), m, ld, ld, dtypes.BF16)
            before = data.matrix(memory, int(layout.a[group]), m, k, k + i, dtypes.BF16)
            now = unweave(woven)
            assert np.array_equal(now[:, :k], before) and not now[:, k:].any()


def test_a_block_is_woven_by_quarters_of_it() -> None:
    words = np.arange(32, dtype=np.uint32)
    woven = weave(words[None])[0]
    assert [woven[4 * j + i] for i in range(4) for j in range(8)] == words.tolist()
    assert np.array_equal(unweave(woven[None])[0], words)


def test_every_kernel_for_an_unaligned_b_is_right(gemmctl: Command) -> None:
    options = ("--kernel", UNALIGNED[0].name, "--data", "all", "-f", "json")
    done = gemmctl("verify", "-", *options, stdin=UNALIGNED_LIST)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)["checks"]
    names = {choice.split()[0] for check in checks for choice in check["choices"]}
    assert names == {UNALIGNED[0].name}


def test_operands_of_a_d_by_columns_are_packed_as_they_are_exchanged() -> None:
    made = plan_of("m: 6, n: 10, k: 9, lda: 16, d_layout: col")  # B becomes A, and is packed
    assert made.packing.source.tolist() == made.layout.b.tolist()
    assert (made.packing.lines.tolist(), made.packing.line_bytes.tolist()) == ([10], [18])
    assert (made.packing.lda.tolist(), made.packing.ldb.tolist()) == ([16], [16])


def test_rows_that_lie_too_far_apart_for_tma_are_packed() -> None:
    made = plan_of("m: 2, n: 8, k: 8, lda: 549755813888")
    assert (made.packing.lines.tolist(), made.packing.lda.tolist()) == ([2], [8])


# Records


def test_the_words_of_records_follow_each_other() -> None:
    made = plan_of("m: 3, n: 5, k: 9", "m: 1000, n: 8, k: 65, ldb: 72", "m: 8, n: 8, k: 8")
    records = tables.packs(made, 1 << 40)
    assert records["line_bytes"].tolist() == [18, 130, 18]  # every A, then every B
    assert records["first"].tolist() == [0, 3 * 2, 3 * 2 + 1000 * 9]
    assert records["end"].tolist() == [6, 9006, 9006 + 5 * 2]
    assert (records["source"] - np.uint64(1 << 40)).tolist() == [
        *made.layout.a[:2].tolist(),
        int(made.layout.b[0]),
    ]


def test_records_are_laid_out_as_the_kernel_reads_them() -> None:
    declared = members("Pack")
    assert np.dtype([(member.name, np.uint64) for member in declared]) == tables.PACK
    assert {member.type for member in declared} == {"uint64_t"}
    assert tables.PACK.itemsize == size("Pack")


# What it costs


def test_the_estimate_has_the_copies_at_the_speed_of_the_memory() -> None:
    made = plan_of("m: 640, n: 640, k: 1001")
    cycles = sum(cost.estimate(launch, made.exchanged) for launch in made.launches)
    nbytes = 2 * 640 * 1001 * BF16
    assert made.packing.bytes == nbytes
    copying = cost.copying(nbytes, made.launches[0].machine)
    assert made.estimate_s == pytest.approx((cycles + copying) / cost.CLOCK_HZ)


# What would make it needless


@pytest.mark.parametrize(
    ("group", "changes"),
    [
        ("m: 8, n: 8, k: 1001", ["k 1001 -> 1008"]),
        ("m: 8, n: 8, k: 2147483647", ["k 2147483647 -> 2147483640"]),  # the largest k is odd
        ("m: 8, n: 8, k: 1001, ldb: 1008", ["lda 1001 -> 1008"]),
        # With an lda that is written, 1008 would be refused as the k of such rows.
        ("m: 8, n: 8, k: 1001, lda: 1001", ["lda 1001 -> 1008", "ldb 1001 -> 1008"]),
        ("m: 8, n: 8, k: 1000, lda: 1001, ldb: 1003", ["lda 1001 -> 1008", "ldb 1003 -> 1008"]),
        ("m: 9, n: 8, k: 16, a_layout: col", ["lda 9 -> 16"]),
        ("m: 8, n: 8, k: 8, lda: 549755813888", ["lda 549755813888 -> 549755813880"]),
        ("m: 1, n: 8, k: 8, lda: 9", []),
        ("m: 8, n: 8, k: 1000", []),
        ("m: 1, n: 8, k: 8, a_offset: 1, b_offset: 7", ["a_offset 1 -> 0", "b_offset 7 -> 0"]),
        ("m: 8, n: 8, k: 9, a_offset: 4", ["k 9 -> 16", "a_offset 4 -> 0"]),
        ("m: 8, n: 8, k: 8, a_offset: 8, b_offset: 120, c_offset: 1, d_offset: 1", []),
        ("m: 8, n: 8, k: 8, a_offset: 1, alpha: 0", []),
    ],
)
def test_what_would_spare_a_copy_is_named(group: str, changes: list[str]) -> None:
    assert remedies(make_problem(group, group)) == changes


@given(plans())
def test_the_values_that_are_named_spare_every_copy(made: Plan) -> None:
    named = re.findall(r"(\w+) (\d+) -> (\d+)", "; ".join(remedies(made.problem)))
    assert bool(named) == bool(made.packing.bytes)
    for name, value, legal in named:
        if name.endswith("offset"):
            assert int(value) % 8 and legal == "0"
        else:
            assert int(legal) % 8 == 0 and 0 < int(legal) - int(value) < 8, name


# Through the command


def test_lists_with_odd_rows_are_right(gemmctl: Command) -> None:
    done = gemmctl("verify", "-", "--data", "all", stdin=ODD)
    assert done.returncode == 0, done.stdout


def test_launches_read_the_copies_and_not_the_operands(gemmctl: Command) -> None:
    done = gemmctl("verify", "-", "--data", "int", stdin=ODD, python=("-c", PACKS_NOTHING))
    assert done.returncode == 1
    assert "odd (int): group 0" in done.stdout and "even (int)" not in done.stdout


def test_plan_says_what_is_copied_and_what_would_spare_it(gemmctl: Command) -> None:
    done = gemmctl("plan", "-", stdin=ODD)
    assert done.returncode == 0
    (note,) = (line for line in done.stderr.splitlines() if "every run copies" in line)
    assert note.startswith("gemmctl: odd: every run copies 0.0")
    assert "k 71 -> 72, lda 33 -> 40, " in note


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            "{m: 33, n: 40, k: 72}",
            "which 128x256-c2u reads in another order; without --kernel 128x256-c2u it would not",
        ),
        (
            "{m: 33, n: 40, k: 72}, {m: 33, n: 40, k: 71}",
            "whose rows are not on 16-byte boundaries or which 128x256-c2u reads in another order; "
            "with k 71 -> 72 and without --kernel 128x256-c2u it would not",
        ),
        (
            "{m: 33, n: 40, k: 71}, {m: 33, n: 40, k: 0}",
            "whose rows are not on 16-byte boundaries; with k 71 -> 72 it would not",
        ),
    ],
)
def test_a_copy_that_a_chosen_kernel_asks_for_is_told_as_its_own(
    groups: str, said: str, gemmctl: Command
) -> None:
    text = f"{{gemmctl: 1, problems: [{{name: p, groups: [{groups}]}}]}}"
    done = gemmctl("plan", "-", "--kernel", "128x256-c2u", stdin=text)
    (note,) = (line for line in done.stderr.splitlines() if "every run copies" in line)
    assert note.endswith(f" MB of A and B first, {said}")


def test_of_many_changes_the_first_are_named(gemmctl: Command) -> None:
    text = ODD.replace("      - {m: 33", "      - {m: 8, n: 8, k: 9}\n      - {m: 33", 1)
    done = gemmctl("plan", "-", stdin=text)
    assert "k 9 -> 16, k 71 -> 72, lda 33 -> 40 and 5 more it would not" in done.stderr


def test_run_shows_the_bytes_that_were_packed_within_the_time(gemmctl: Command) -> None:
    options = ("-", "-v", "--columns", "problem,packed MB", "--max-time", "0.1")
    done = gemmctl("run", *options, stdin=ODD)
    (odd,) = (made for made in make_plans(ODD) if made.problem.name == "odd")
    shown = [line.split() for line in done.stdout.splitlines()[1:]]
    assert shown[1] == ["even", "0"] and shown[0][0] == "odd"
    assert float(shown[0][1]) == pytest.approx(odd.packing.bytes / 1e6, rel=1e-3)
    assert "packed MB (-v shows them) are copied first" in done.stderr


def test_run_says_nothing_of_packing_where_nothing_is_packed(gemmctl: Command) -> None:
    done = gemmctl("run", "-", "-v", "--only", "even", "--max-time", "0.1", stdin=ODD)
    assert "packed" not in done.stdout + done.stderr


def test_json_has_the_bytes_that_are_packed(gemmctl: Command) -> None:
    found = json.loads(gemmctl("plan", "-", "-f", "json", stdin=ODD).stdout)
    expected = [made.packing.bytes for made in make_plans(ODD)]
    assert [problem["packed_bytes"] for problem in found["problems"]] == expected
    assert expected[0] > 0 == expected[1]


@pytest.mark.parametrize("launch", ["graph", "serial", "streams"])
def test_operands_are_packed_once_however_launches_are_made(launch: Launching) -> None:
    text = ODD.split("  - name: even")[0]
    (grouped,), (made,) = make_plans(text), make_plans(text, launch)
    assert np.array_equal(made.packing.source, grouped.packing.source)
    assert (launch in TOGETHER) == (len(made.launches) == len(grouped.launches))
    spec = DataSpec("int", 5)
    with CpuDevice().open(made, spec) as session:
        session.run()
        verdicts = verify.verify(made, session, spec, device="cpu")
    assert [verdict.message for verdict in verdicts if not verdict.ok] == []


@pytest.mark.parametrize(
    ("off", "aligned", "left"),
    [
        ("m: 16, n: 512, k: 2049", "m: 16, n: 8192, k: 4096", False),  # which is not copied anyway
        ("m: 16, n: 4096, k: 2049", "m: 8192, n: 8192, k: 8192", True),  # which takes no longer
    ],
)
def test_aligned_groups_have_no_say_in_whether_an_unaligned_b_stays_where_it_lies(
    off: str, aligned: str, left: bool
) -> None:
    made = plan_of(off, aligned)
    assert (UNALIGNED[0].name in kernels_of(made)) == left
    assert made.packing.woven.any() == left


def test_an_a_that_nothing_multiplies_is_not_woven() -> None:
    some = make_problem("m: 33, n: 40, k: 71, alpha: 0, beta: 1")
    (made,) = plan.make([some], UNALIGNED)
    assert made.packing.bytes == 0
