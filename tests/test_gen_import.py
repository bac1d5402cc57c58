"""``gemmctl gen import``: lists of other tools, and tokens per expert."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gemmctl.cli import app
from gemmctl.errors import ListError, UsageError
from gemmctl.generating import importing
from gemmctl.generating.source import Source
from gemmctl.lists import reading
from gemmctl.lists.problem import Group, Problem
from support import Command, environment

BF16 = {"a": "bf16", "b": "bf16", "d": "bf16"}
MATMUL = "M: 4, N: 5, K: 6, transA: N"  # the next key begins in column 33
WEIGHTS = ("--n", "4096", "--k", "7168")


def imported(data: str | bytes, *args: str) -> list[Problem]:
    """The problems of a list that ``gemmctl gen import -`` made of standard input."""
    done = CliRunner().invoke(
        app, ["gen", "import", "-", *args], input=data, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return reading.load(["-"], io.StringIO(done.stdout))


def shapes(data: str | bytes, *args: str) -> list[list[tuple[int, int, int]]]:
    """M, N and K of the groups of each problem."""
    return [[(g.m, g.n, g.k) for g in problem.groups] for problem in imported(data, *args)]


def matmul(text: str) -> Group:
    (problem,) = imported(f"- {{{text}}}")
    (group,) = problem.groups
    return group


def npy(rows: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(rows))
    return file.getvalue()


# Shapes


@pytest.mark.parametrize(
    "text",
    [
        "1024 1024 128\n16 8 8\n",
        "1024, 1024, 128\n\n# tiny\n16,8,8",
        "1024x1024x128\r\n16X8X8\r\n",
        "0 1024x1024x128\n1 16x8x8\n",
        "[1024x1024x128][16x8x8]\n",
        "# of a profiler\n [1024x1024x128] [ 16x8x8 ],\n",
        "# JSON has no comments, but YAML does\n[[1024, 1024, 128],\n [16, 8, 8]]",
        "[[1024, 1024, 128], [16, 8, 8]]",
        "- [1024, 1024, 128]\n- [16, 8, 8]\n",
        npy([[1024, 1024, 128], [16, 8, 8]]),
    ],
    ids=repr,
)
def test_shapes_are_read_from_every_form(text: str | bytes) -> None:
    assert shapes(text) == [[(1024, 1024, 128), (16, 8, 8)]]


def test_json_may_be_indented_with_tabs(gemmctl: Command, tmp_path: Path) -> None:
    rows = [[1024, 1024, 128], [16, 8, 8]]
    (tmp_path / "shapes.json").write_text(json.dumps(rows, indent="\t"))
    done = gemmctl("gen", "import", "shapes.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  - {m: 1024, n: 1024, k: 128}" in done.stdout
    listed = {"gemmctl": 1, "problems": [{"name": "a", "groups": [{"m": 8, "n": 8, "k": 8}]}]}
    (tmp_path / "list.json").write_text(json.dumps(listed, indent="\t"))
    assert gemmctl("plan", "-q", "list.json").returncode == 0


def test_commas_and_lines_between_brackets_begin_problems() -> None:
    found = imported("[8x8x8],[16x8x16][32x32x32]\n[1x2x3]", "--name", "some")
    assert [problem.name for problem in found] == ["some-1", "some-2", "some-3"]
    assert [len(problem.groups) for problem in found] == [1, 2, 1]


def test_types_are_those_of_the_option() -> None:
    ((group,),) = (problem.groups for problem in imported("1 2 3", "--dtype", "f16:f32"))
    assert (group.a, group.b, group.d) == ("f16", "f16", "f32")


def test_a_problem_is_called_after_its_file(gemmctl: Command, tmp_path: Path) -> None:
    (tmp_path / "shapes of mine.txt").write_text("1 2 3\n")
    done = gemmctl("gen", "import", "shapes of mine.txt")
    assert (
        done.stdout
        == """\
# gemmctl gen import 'shapes of mine.txt' --dtype bf16
# From lines of M, N and K: 1 group of 1 x 2 x 3.
gemmctl: 1
problems:
  - name: 'shapes of mine'
    defaults: {a: bf16, b: bf16, d: bf16}
    groups:
      - {m: 1, n: 2, k: 3}
"""
    )


@settings(max_examples=50)
@given(st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 3), min_size=1, max_size=20))
def test_whatever_shapes_are_written_come_back(written: list[tuple[int, int, int]]) -> None:
    text = "\n".join(f"{m} {n} {k}" for m, n, k in written)
    what, found = importing.shapes(Source("-", text.encode()), BF16)
    assert what == "lines of M, N and K"
    assert [[(g["m"], g["n"], g["k"]) for g in groups] for groups in found] == [written]


# Tokens per expert


@pytest.mark.parametrize(
    "text",
    ["5 0 3", "5\n0\n3\n", "5, 0, 3", "[5, 0, 3]", "- 5\n- 0\n- 3", "[[5, 0, 3]]", npy([5, 0, 3])],
    ids=repr,
)
def test_tokens_per_expert_are_read_from_every_form(text: str | bytes) -> None:
    assert shapes(text, *WEIGHTS) == [[(5, 4096, 7168), (0, 4096, 7168), (3, 4096, 7168)]]


@pytest.mark.parametrize("text", ["[[5, 0], [1, 2]]", npy([[5, 0], [1, 2]])], ids=repr)
def test_a_table_of_tokens_has_a_problem_in_each_row(text: str | bytes) -> None:
    found = imported(text, *WEIGHTS, "--name", "layer")
    assert [problem.name for problem in found] == ["layer-1", "layer-2"]
    assert [[group.m for group in problem.groups] for problem in found] == [[5, 0], [1, 2]]


def test_a_text_of_tokens_is_one_problem_as_the_help_says(gemmctl: Command) -> None:
    assert [[m for m, _, _ in row] for row in shapes("5 0\n1 2\n", *WEIGHTS)] == [[5, 0, 1, 2]]
    told = " ".join(gemmctl("gen", "import", "--help").stdout.split())
    assert "text, which is one problem, or JSON or .npy, where each row of a table is one" in told


# Objects


@pytest.mark.parametrize("keys", ["mnk", "MNK"])
def test_objects_without_a_key_of_hipblaslt_are_shapes_as_they_are_written(keys: str) -> None:
    m, n, k = keys
    text = f'[{{"{m}": 1, "{n}": 2, "{k}": 3}}, {{"{k}": 6, "{n}": 5, "{m}": 4, "count": 2}}]'
    ((one, *two),) = (problem.groups for problem in imported(text))
    assert [(g.m, g.n, g.k) for g in (one, *two)] == [(1, 2, 3), (4, 5, 6), (4, 5, 6)]
    assert (one.a_layout, one.b_layout, one.d_layout) == ("row", "col", "row")


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("[[128.0, 2, 3e0]]", ()),
        ('[{"m": 128.0, "n": 2.0, "k": 3, "count": 1.0}]', ()),
        ('[{"M": 2.0, "N": 128.0, "K": 3, "transA": "T", "ldb": 3.0, "batch_count": 1.0}]', ()),
        ("[128.0]", ("--n", "2", "--k", "3")),
    ],
)
def test_numbers_may_be_written_with_a_point(text: str, args: tuple[str, ...]) -> None:
    assert shapes(text, *args) == [[(128, 2, 3)]]
    done = CliRunner().invoke(app, ["gen", "import", "-", *args], input=text)
    assert ".0" not in done.stdout


@pytest.mark.parametrize("text", ["1 2 3\n", "[[1, 2, 3]]", "[1x2x3]\n"])
def test_a_file_may_begin_with_a_byte_order_mark(text: str) -> None:
    assert shapes(b"\xef\xbb\xbf" + text.encode()) == [[(1, 2, 3)]]


# Matmuls of hipBLASLt


def test_a_logged_matmul_becomes_the_product_of_its_transposes() -> None:
    group = matmul(
        "function: matmul, M: 4096, N: 64, K: 1024, lda: 1024, ldb: 1024, ldc: 4096, ldd: 4096, "
        "stride_a: 0, alpha: 1.000000, beta: 0.000000, transA: T, transB: N, batch_count: 1, "
        "scaleA: 0, bias_vector: false, a_type: bf16_r, b_type: bf16_r, c_type: bf16_r, "
        "d_type: bf16_r, compute_type: c_f32_r, activation_type: none, rotating: 512, iters: 10"
    )
    assert (group.m, group.n, group.k) == (64, 4096, 1024)
    assert (group.a_layout, group.b_layout, group.d_layout) == ("row", "col", "row")
    assert (group.a, group.b, group.d) == ("bf16",) * 3


@pytest.mark.parametrize(
    ("trans", "layouts"),
    [("N, transB: N", ("row", "row")), ("T, transB: N", ("row", "col")),
     ("N, transB: T", ("col", "row")), ("T, transB: T", ("col", "col"))],
)  # fmt: skip
def test_every_element_stays_where_it_is_in_memory(trans: str, layouts: tuple[str, str]) -> None:
    m, n, k = 6, 4, 2
    group = matmul(f"M: {m}, N: {n}, K: {k}, lda: 7, ldb: 8, ldd: 9, transA: {trans}")
    assert (group.a_layout, group.b_layout) == layouts
    trans_a, trans_b = trans[0], trans[-1]

    def ours(layout: str, ld: int, i: int, j: int) -> int:
        return i * ld + j if layout == "row" else j * ld + i

    for row in range(m):
        for depth in range(k):  # column-major, or row-major if transposed
            theirs = depth * 7 + row if trans_a == "N" else row * 7 + depth
            assert ours(group.b_layout, group.ldb, depth, row) == theirs
    for depth in range(k):
        for column in range(n):
            theirs = column * 8 + depth if trans_b == "N" else depth * 8 + column
            assert ours(group.a_layout, group.lda, column, depth) == theirs
    for row in range(m):
        for column in range(n):
            assert ours(group.d_layout, group.ldd, column, row) == column * 9 + row


def test_a_batch_is_a_count_and_every_matmul_a_problem() -> None:
    found = imported("- {M: 1, N: 2, K: 3, batch_count: 5}\n- {m: 4, n: 5, k: 6, lda: 6}\n")
    assert [len(problem.groups) for problem in found] == [5, 1]


def test_types_and_scalars_of_a_matmul_come_along() -> None:
    group = matmul("M: 1, N: 2, K: 8, a_type: f16_r, b_type: f16_r, c_type: f16_r, d_type: f32_r, "
                   "alpha: 0.1, beta: 2, ldc: 3")  # fmt: skip
    assert (group.a, group.b, group.c, group.d) == ("f16", "f16", "f16", "f32")
    assert (group.alpha, group.beta, group.ldc) == (np.float32(0.1), 2, 3)


@pytest.mark.parametrize(("alpha", "beta"), [(0, 1), (1, 1), (0, 0), (-1, 0)])
def test_scalars_that_are_0_or_1_come_along_too(alpha: int, beta: int) -> None:
    group = matmul(f"M: 8, N: 8, K: 8, alpha: {alpha}, beta: {beta}, transA: N")
    assert (group.alpha, group.beta) == (alpha, beta)


@pytest.mark.parametrize(
    ("trans", "taken"),
    [("T, transB: N", True), ("N, transB: N", False), ("N, transB: T", False),
     ("T, transB: T", False)],
)  # fmt: skip
def test_bf16_becomes_f16_where_both_lie_along_k_only(trans: str, taken: bool) -> None:
    text = f"- {{M: 8, N: 8, K: 8, transA: {trans}, a_type: bf16_r, b_type: bf16_r, d_type: f16_r}}"
    done = CliRunner().invoke(app, ["gen", "import", "-"], input=text)
    assert (done.exit_code == 0) == taken
    assert taken or "no kernel takes bf16 to f16" in str(done.exception)


@pytest.mark.parametrize(
    "keys",
    ["scaleA: none, scaleB: 0, scaleC: false", "grouped_gemm: 0, c_equal_d: false, amaxD: false",
     "iters: 10, cold_iters: 2, rotating: 512, flush: true, call_count: 7, any_stride: true",
     "bias_source: d, bias_type: f32_r, scale_type: f32_r, compute_type: c_f32_r"],
)  # fmt: skip
def test_what_leaves_the_product_of_a_matmul_alone_is_passed_over(keys: str) -> None:
    assert matmul(f"{MATMUL}, {keys}") == matmul(MATMUL)


# What is wrong

WRONG = [
    ("", (), "<stdin> is empty; it should have M N K, MxNxK, INDEX MxNxK, or [MxNxK][MxNxK]..."),
    ("# nothing\n", (), "<stdin> has no numbers; it should have M N K, MxNxK"),
    (";,", WEIGHTS, "<stdin> has no numbers; it should have tokens per expert"),
    ("# nothing\n", WEIGHTS, "<stdin> has no numbers; it should have tokens per expert"),
    ("", WEIGHTS, "<stdin> is empty; it should have tokens per expert"),
    ("-1 2 3 4", WEIGHTS, "<stdin>:1:1: expected tokens per expert, whole numbers, not '-1'"),
    ("-1 2 3", (), "<stdin>:1:1: a size must be an integer from 0 to 2147483647, not -1"),
    ("- {m: 1, n: 2, k: 3, alpha: 2}\n", (), "<stdin>:1:22: unknown key 'alpha' beside M, N and "
     "K; take it out, or write the matmul as hipBLASLt logs it"),
    ("- {m: 1, n: 2, k: 3, count: 0}\n", (), "<stdin>:1:29: count must be an integer from 1 to "),
    ("- {m: 1, n: 2}\n", (), "<stdin>:1:3: this object has no K; add it"),
    ("1 2 3\n4 5\n", (), "<stdin>:2:1: expected M N K, MxNxK, INDEX MxNxK, or [MxNxK][MxNxK]..., "
     "not 2 numbers; if they are tokens per expert, give --n and --k"),
    ("1 2 3\n  many\n", (), "<stdin>:2:3: expected M N K, MxNxK"),
    ("M N K\n1 2 3\n", (), "<stdin>:1:1: expected M N K, MxNxK, INDEX MxNxK, or [MxNxK][MxNxK]..., "
     "in numbers; take out a line that only names them"),
    ("[1, 2, 3]\n[4, 5, 6]\n", (), "<stdin>:2:1: a list or an object on every line is no list; "
     "put all of them into one: [..., ...]"),
    ('{"m": 1}\n{"m": 2}\n', WEIGHTS, "<stdin>:2:1: a list or an object on every line is no list"),
    ("1 2 3\n".encode("utf-16"), (), "<stdin>: byte 0xff at 0 is not UTF-8; save the file as UTF-8 "
     "text"),
    (b"PK\x03\x04" + bytes(9), (), "<stdin> is an archive, as numpy.savez writes; numpy.save one "
     "array as .npy"),
    ("1 2 9999999999\n", (), "<stdin>:1:1: a size must be an integer from 0 to 2147483647, not "),
    ("1.0 2 3", (), "<stdin>:1:1: expected M N K, MxNxK"),  # in JSON and YAML alone they may be so
    ("5.0", WEIGHTS, "<stdin>:1:1: expected tokens per expert, whole numbers, not '5.0'"),
    ("[1x2x3][4x5]\n", (), "<stdin>:1:1: expected [MxNxK][MxNxK]..., with commas between"),
    ("[1x2x3],\n[1x2x3],[4]\n", (), "<stdin>:2:9: expected [MxNxK][MxNxK]"),
    ("[1, 2, 3]", (), "<stdin>:1:2: expected [M, N, K], not a number; if they are tokens per "),
    ("[[1, 2]]", (), "<stdin>:1:2: expected M, N and K, not 2 numbers"),
    ("[[1, 2, x]]", (), "<stdin>:1:9: expected an integer from 0 to 2147483647"),
    ("[1, 2", WEIGHTS, "<stdin>:1:6: "),
    ("[]", (), "<stdin>:1:1: expected a list of at least one"),
    ("gemmctl: 1\nproblems: []\n", (), "<stdin>:1:1: this is a problem list already; gemmctl run"),
    ('{"format": 2, "command": "plan", "gemmctl": "0.2.0"}', (), "<stdin>:1:1: this is what "
     "gemmctl wrote about lists, not a problem list; give the lists themselves"),
    ('{"a": [1]}', WEIGHTS, "<stdin>:1:1: expected a list of tokens per expert, not a mapping"),
    ("Tests:\n- name: x\n", (), "<stdin>:1:1: expected a list of numbers, of [M, N, K], or of"),
    ("- {M: 1, N: 2, transA: T}\n", (), "<stdin>:1:3: this matmul has no K; add it"),
    ("- {M: [1, 2], N: 2, K: 3, ldd: 4}\n", (), "<stdin>:1:7: M is a list; write a matmul for "),
    ("- {M: -1, N: 2, K: 3}\n", (), "<stdin>:1:7: M must be an integer from 0 to 2147483647"),
    ("- {M: 1, N: 2, K: 3, a_type: f64_r}\n", (), "<stdin>:1:30: a_type must be one of f16_r, "),
    ("- {M: 1, N: 2, K: 3, transA: C}\n", (), "<stdin>:1:30: transA must be one of N, T"),
    ("- {M: 1, N: 2, K: 3, activation_type: gelu}\n", (), "<stdin>:1:39: activation_type other "
     "than none cannot be imported; take it out"),
    (f"- {{{MATMUL}, grouped_gemm: 2}}", (), "<stdin>:1:47: grouped_gemm other than false"),
    (f"- {{{MATMUL}, c_equal_d: true}}", (), "<stdin>:1:44: c_equal_d other than false cann"),
    (f"- {{{MATMUL}, scaleD_vector: 1}}", (), "<stdin>:1:48: scaleD_vector other than false"),
    (f"- {{{MATMUL}, scaleE: true}}", (), "<stdin>:1:41: scaleE other than false cannot be "),
    (f"- {{{MATMUL}, amaxD: true}}", (), "<stdin>:1:40: amaxD other than false cannot"),
    (f"- {{{MATMUL}, scaleA: Vector}}", (), "<stdin>:1:41: scaleA other than none cannot"),
    (f"- {{{MATMUL}, compute_type: c_f64_r}}", (), "<stdin>:1:47: compute_type other than c_f32_"),
    (f"- {{{MATMUL}, compute_type: c_i32_r}}", (), "<stdin>:1:47: compute_type other than c_f32_"),
    (f"- {{{MATMUL}, transb: T}}", (), "<stdin>:1:33: unknown key 'transb' in a matmul; did you "
     "mean 'transB'?"),
    (f"- {{{MATMUL}, count: 2}}", (), "<stdin>:1:33: unknown key 'count' in a matmul; did you mean "
     "'batch_count'?"),
    (f"- {{{MATMUL}, foo: bar}}", (), "<stdin>:1:33: unknown key 'foo' in a matmul; take it out"),
    (f"- {{{MATMUL}}}\n- {{m: 1, n: 2, k: 3, count: 4}}\n", (), "<stdin>:2:3: this has no key of "
     "hipBLASLt's, as others of the list have, which are transposed; give it its transA, or a "),
    ("- {m: 1, M: 2, n: 2, k: 3}", (), "<stdin>:1:10: duplicate key 'M', first on line 1 as 'm'; "
     "remove one of the two"),
    (f"- {{{MATMUL},\n   k: 3}}", (), "<stdin>:2:4: duplicate key 'k', first on line 1 as 'K'; "),
    (f"- {{{MATMUL}, a_type: f8_r}}", (), "<stdin>:1:41: a_type must be one of f16_r, bf16_r"),
    (f"- {{{MATMUL}, b_type: f32_r}}", (), "<stdin>:1:41: b_type must be one of f16_r, bf16_r"),
    (f"- {{{MATMUL}, a_type: f16_r}}", (), "<stdin>:1:33: this matmul has a_type and no b_type and "
     "no d_type; add it"),
    (f"- {{{MATMUL}, a_type: f16_r, b_type: bf16_r, d_type: f32_r}}", (), "<stdin>:1:56: a_type is "
     "f16_r and b_type bf16_r, and the kernels multiply operands of one type; make them the same"),
    (f"- {{{MATMUL}, a_type: f16_r, b_type: f16_r, d_type: bf16_r}}", (), "<stdin>:1:71: no kernel "
     "takes f16 to bf16 where transA is N and transB N; write d_type: f16_r or f32_r"),
    (f"- {{{MATMUL}}}", ("--dtype", "bf16:f16"), "<stdin>:1:3: no kernel takes bf16 to f16 where "
     "transA is N and transB N; write --dtype bf16:bf16 or bf16:f32"),
    (f"- {{{MATMUL}, lda: 3}}", (), "<stdin>:1:38: lda is 3, but M = 4 elements lie side by side; "
     "write lda: 4 or more"),
    ("- {M: 4, N: 5, K: 6, transA: T, ldb: 6, lda: 5}", (), "<stdin>:1:46: lda is 5, but K = 6 "),
    ("- {M: 4, N: 5, K: 6, transB: T, ldb: 4}", (), "<stdin>:1:38: ldb is 4, but N = 5 elements "),
    ("- {M: 4, N: 5, K: 6, transB: N, ldd: 3}", (), "<stdin>:1:38: ldd is 3, but M = 4 elements "),
    ("- -x", (), "<stdin>:1:3: expected [M, N, K], not the text '-x'"),
    ("-x", (), "<stdin>:1:1: expected a list of numbers, of [M, N, K], or of objects such as {m: "
     "128, n: 256, k: 64}, not the text '-x'"),
    ("[[]]", (), "<stdin>:1:2: expected a list of at least one"),
    ("[[1, 2, 3], {m: 1}]", (), "<stdin>:1:13: expected [M, N, K], not a mapping"),
    ("[[1, 2.5, 3]]", (), "<stdin>:1:6: expected an integer from 0 to 2147483647, not 2.5"),
    ("5 " + "x" * 10**6, WEIGHTS, "<stdin>:1:3: expected tokens per expert, whole numbers, not '" +
     "x" * 37 + "...'\n"),
    ("-" + "9" * 10**6 + " 2 3", (), "<stdin>:1:1: a size must be an integer from 0 to 2147483647, "
     "not -" + "9" * 36 + "...\n"),
    ("1 2 3", ("--n", "8"), "--n and --k go together"),
    ("0 8x8x8", WEIGHTS, "<stdin>:1:3: this is a shape with an N and K of its own; leave out --n"),
    ("5 -1", WEIGHTS, "<stdin>:1:3: expected tokens per expert, whole numbers, not '-1'"),
    ("[5, 1.5]", WEIGHTS, "<stdin>:1:5: expected an integer from 0 to 2147483647"),
    (npy([1.5]), WEIGHTS, "<stdin> holds 1 of float64; save integers, with one axis or two"),
    (npy([[[1]]]), WEIGHTS, "<stdin> holds 1x1x1 of int64; save integers"),
    (npy([1, -2]), WEIGHTS, "<stdin> holds -2; a size is an integer from 0 to 2147483647"),
    (npy([[1, 2]]), (), "<stdin> has rows of 2 numbers, not of M, N and K; if they are"),
    (npy([1])[:20], WEIGHTS, "<stdin> is no array that numpy can read"),
    (npy([1]) + npy([2]), WEIGHTS, "<stdin> goes on behind its array; save one array in a file"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "args", "told"), WRONG, ids=[case[2][:60] for case in WRONG])
def test_what_cannot_be_imported_is_told_with_its_place(
    data: str | bytes, args: tuple[str, ...], told: str
) -> None:
    done = CliRunner().invoke(app, ["gen", "import", "-", *args], input=data)
    assert isinstance(done.exception, UsageError)
    assert done.exception.exit_code == 2
    assert done.stdout == ""
    assert told in str(done.exception)


def test_shapes_in_place_of_the_tokens_that_a_routing_counts_are_told(gemmctl: Command) -> None:
    done = gemmctl(
        "gen", "moe", "--model", "mixtral-8x7b", "--routing", "counts:-", stdin="3\n4x5x6"
    )
    assert (done.returncode, done.stdout) == (2, "")
    told = "<stdin>:2:1: this is a shape with an N and K of its own, not tokens per expert"
    assert done.stderr.splitlines()[0] == told


def test_an_array_of_an_old_numpy_is_read_without_a_word_of_numpys(
    gemmctl: Command, tmp_path: Path
) -> None:
    header = "{'descr': '<i8', 'fortran_order': False, 'shape': (2L, 3L), }"  # of Python 2
    rows = np.array([[1, 2, 3], [4, 5, 6]]).tobytes()
    (tmp_path / "old.npy").write_bytes(
        b"\x93NUMPY\x01\x00v\x00" + header.ljust(117).encode() + b"\n" + rows
    )
    done = gemmctl("gen", "import", "old.npy")
    assert (done.returncode, done.stderr) == (0, "")
    assert "m: 4, n: 5, k: 6" in done.stdout


def test_brackets_with_something_else_behind_them_are_refused_however_many_there_are(
    gemmctl: Command,
) -> None:
    done = gemmctl("gen", "import", "-", stdin="[8x8x8] " * 1000 + "8x8x8\n")
    assert (done.returncode, done.stdout) == (2, "")
    told = "expected [MxNxK][MxNxK]..., with commas between problems"
    assert done.stderr.splitlines()[0] == f"<stdin>:1:1: {told}"


def test_which_error_is_told_does_not_depend_on_hashes(gemmctl: Command) -> None:
    told = {
        gemmctl("gen", "random", "--dtype", "f32,bf17,f64,f8", PYTHONHASHSEED=seed).stderr
        for seed in ("1", "2", "3", "4")
    }
    assert len(told) == 1


@pytest.mark.parametrize("character", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_lines_are_counted_as_editors_count_them(character: str) -> None:
    text = f"# a{character}b\n\r\n4 5 6\r7 8\n"
    done = CliRunner().invoke(app, ["gen", "import", "-"], input=text)
    assert str(done.exception).startswith("<stdin>:4:1: expected M N K")


def test_help_promises_rows_in_json_and_lines_without_brackets(gemmctl: Command) -> None:
    told = " ".join(gemmctl("gen", "import", "--help").stdout.split())
    assert "lines M N K or MxNxK;" in told
    assert "rows [M, N, K] in JSON or .npy" in told


def test_a_file_whose_name_cannot_be_a_problems_asks_for_one(
    gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / "x\x07.txt").write_text("1 2 3\n")
    done = gemmctl("gen", "import", "x\x07.txt")
    assert (done.returncode, done.stdout) == (2, "")
    told = "no problem can be called 'x\\x07': U+0007 in it cannot be shown; choose a --name"
    assert done.stderr == f"gemmctl: {told}\n"
    assert gemmctl("gen", "import", "x\x07.txt", "--name", "x").returncode == 0


STRANGE = [
    "-x",
    "--",
    "a\tb",
    "a\t1",
    "a\nb",
    "a\xa0b",
    "q'\\\u200b9",
    "$(a)",
    "é 1'",
    os.fsdecode(b"x\xff7"),
]


@pytest.mark.parametrize("name", STRANGE)
def test_the_command_in_a_list_runs_again_whatever_its_file_is_called(
    name: str, gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("1 2 3\n")
    done = gemmctl("gen", "import", "--name", "mine", "--", name)
    assert done.returncode == 0
    command = done.stdout.splitlines()[0].removeprefix("# ")
    assert command.isprintable()
    script = f'gemmctl() {{ {shlex.quote(sys.executable)} -m gemmctl "$@"; }}\n{command}'
    again = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment(),
        check=True,
    )  # fmt: skip
    assert again.stdout == done.stdout


def test_a_file_that_is_not_there_is_told(gemmctl: Command) -> None:
    done = gemmctl("gen", "import", "nope.txt")
    assert done.returncode == 2
    assert done.stderr == (
        "gemmctl: cannot read nope.txt: No such file or directory; check the path\n"
    )


class Touch:
    """An object that makes a file where a pickle of it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


def test_what_an_array_of_objects_would_run_is_not_run(gemmctl: Command, tmp_path: Path) -> None:
    rows = np.array([[Touch(tmp_path / "touched"), 2, 3]], dtype=object)
    np.save(tmp_path / "bad.npy", rows, allow_pickle=True)
    done = gemmctl("gen", "import", "bad.npy")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gemmctl: bad.npy is no array that numpy can read: ")
    assert not (tmp_path / "touched").exists()


# Headers of .npy files: one that numpy's parser chokes on, and one that promises too much.
HEADERS = ["'shape': (" + 30 * "(" + "3", "'shape': (1000000000000, 3)", "'shape': 3", "'"]


@pytest.mark.parametrize("args", [("import", "bad.npy"), ("import", "bad.npy", *WEIGHTS),
                                  ("moe", *WEIGHTS, "--experts", "2", "--topk", "1", "--routing",
                                   "counts:bad.npy")])  # fmt: skip
def test_an_array_with_a_damaged_header_is_a_bad_file(
    args: tuple[str, ...], gemmctl: Command, tmp_path: Path
) -> None:
    for header in HEADERS:
        text = f"{{'descr': '<i8', 'fortran_order': False, {header}, }}".ljust(117).encode() + b"\n"
        (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + text + bytes(48))
        done = gemmctl("gen", *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("gemmctl: bad.npy is no array that numpy can read: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "args"),
    [("{} 2 3", ()), ("1x2x{}", ()), ("0 {}x2x3", ()), ("[{}x8x8]", ()), ("5 {}", WEIGHTS)],
)
def test_a_number_of_very_many_digits_is_told_with_its_place(
    text: str, args: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(app, ["gen", "import", "-", *args], input=text.format("9" * 5000))
    assert isinstance(done.exception, ListError)
    told = "a number of 5000 digits is too long; write a shorter one"
    assert re.match(rf"<stdin>:1:\d+: {told}\n", str(done.exception))


parts = ["[", "]", "{", "}", "- ", "1", "8x8x8", " ", ",", "\n", "M: ", "x", "#", ":"]


@settings(max_examples=300)
@given(st.text() | st.lists(st.sampled_from(parts)).map("".join), st.booleans())
def test_any_text_is_a_list_or_an_error_in_a_sentence(text: str, tokens: bool) -> None:
    source = Source("-", text.encode(errors="surrogateescape"))
    try:
        found = importing.counts(source) if tokens else importing.shapes(source, BF16)[1]
        assert isinstance(found, list)
    except (ListError, UsageError) as error:
        assert re.match(r"<stdin>", str(error))
