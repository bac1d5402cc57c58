from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.errors import ListError, Mark, UsageError
from gemmctl.lists import problem, reading
from gemmctl.lists.problem import ACTIVATIONS, GATES, LAYOUTS, Group, Problem
from gemmctl.operands import dtypes
from support import Command

ROOT = Path(__file__).parent.parent
LISTS = sorted((ROOT / "problems").glob("*.yaml"))
SCHEMA = ROOT / "gemmctl" / "problem-list.schema.json"

pytestmark = pytest.mark.usefixtures("each_parser")


def load(text: str) -> list[Problem]:
    return reading.load(["-"], io.StringIO(text))


def listed(*groups: str, defaults: str = "{}") -> str:
    """A list with one problem called p; its groups stand on line 6 and below, from column 9."""
    lines = ["gemmctl: 1", f"defaults: {defaults}", "problems:", "  - name: p", "    groups:"]
    return "\n".join(lines + [f"      - {group}" for group in groups])


def groups(*written: str, defaults: str = "{}") -> tuple[Group, ...]:
    [found] = load(listed(*written, defaults=defaults))
    return found.groups


def errors(text: str) -> list[tuple[int, int, str]]:
    """Every error of a list as (line, column, message)."""
    with pytest.raises(ListError) as caught:
        load(text)
    return [(mark.line, mark.column, message) for mark, message in caught.value.errors]


# What a list means


def test_a_group_needs_only_its_sizes() -> None:
    [group] = groups("{m: 17, n: 128, k: 64}")
    assert dataclasses.replace(group, marks={}) == Group(
        m=17, n=128, k=64, a="bf16", b="bf16", c="bf16", d="bf16",
        a_layout="row", b_layout="col", d_layout="row",
        lda=64, ldb=64, ldc=128, ldd=128, a_offset=0, b_offset=0, c_offset=0, d_offset=0,
        alpha=1.0, beta=0.0,
        inplace=False, bias="none", bias_type="bf16", activation="none", gate="none", marks={},
    )  # fmt: skip


def test_a_group_overrides_its_problem_which_overrides_the_file() -> None:
    found = load(
        """
        gemmctl: 1
        defaults: {m: 1, n: 1, k: 1, alpha: 1.5}
        problems:
          - name: first
            defaults: {m: 2, n: 2}
            groups: [{m: 3}]
          - name: second
            groups: [{}]
        """
    )
    assert [(g.m, g.n, g.k, g.alpha) for p in found for g in p.groups] == [
        (3, 2, 1, 1.5),
        (1, 1, 1, 1.5),
    ]


@pytest.mark.parametrize(
    ("written", "types"),
    [
        ("", ("bf16", "bf16", "bf16", "bf16")),
        ("a: f16,", ("f16", "f16", "f16", "f16")),
        ("a: f16, d: f32,", ("f16", "f16", "f32", "f32")),
        ("a: f16, b: bf16, c: f16, d: f32,", ("f16", "bf16", "f16", "f32")),
    ],
)
def test_b_and_d_default_to_a_and_c_to_d(written: str, types: tuple[str, ...]) -> None:
    [group] = groups(f"{{{written} m: 1, n: 1, k: 1}}")
    assert (group.a, group.b, group.c, group.d) == types


@pytest.mark.parametrize(
    ("layouts", "lds"),
    [
        ("a_layout: row, b_layout: row, d_layout: row", (5, 3, 3, 3)),
        ("a_layout: row, b_layout: col, d_layout: row", (5, 5, 3, 3)),
        ("a_layout: col, b_layout: row, d_layout: col", (2, 3, 2, 2)),
        ("a_layout: col, b_layout: col, d_layout: col", (2, 5, 2, 2)),
    ],
)
def test_leading_dimensions_default_to_packed(layouts: str, lds: tuple[int, ...]) -> None:
    [group] = groups(f"{{m: 2, n: 3, k: 5, {layouts}}}")
    assert (group.lda, group.ldb, group.ldc, group.ldd) == lds


def test_empty_matrices_have_a_leading_dimension_of_one() -> None:
    [group] = groups("{m: 0, n: 0, k: 0}")
    assert (group.lda, group.ldb, group.ldc, group.ldd) == (1, 1, 1, 1)


def test_a_count_repeats_the_same_group() -> None:
    once, *many = groups("{m: 1, n: 1, k: 1}", "{m: 2, n: 2, k: 2, count: 10000}")
    assert once.m == 1
    assert len(many) == 10000
    assert all(group is many[0] for group in many)


def test_whole_numbers_may_be_written_as_yaml_1_2_floats() -> None:
    [group] = groups("{m: 1e3, n: 0x10, k: 8.0}")
    assert (group.m, group.n, group.k) == (1000, 16, 8)
    assert type(group.m) is int


def test_scalars_are_what_float32_holds() -> None:
    [group] = groups("{m: 1, n: 1, k: 1, alpha: 0.1, beta: -2}")
    assert group.alpha == float(np.float32(0.1)) != 0.1
    assert group.beta == -2.0


def test_a_group_remembers_where_its_keys_stand() -> None:
    [group] = groups("{m: 2, k: 8}", defaults="{n: 4, beta: 1}")
    own = "      - {m: 2, k: 8}"
    assert group.where() == Mark("<stdin>", 6, 9, own)
    assert group.where("lda", "k") == Mark("<stdin>", 6, 16, own)
    assert group.where("beta") == Mark("<stdin>", 2, 18, "defaults: {n: 4, beta: 1}")
    assert group.where("lda") == group.where()
    assert "alpha" not in group.marks


def test_groups_that_mean_the_same_are_equal_wherever_they_stand() -> None:
    first, second, third = groups("{m: 2, n: 1, k: 1}", "{m: 2, n: 1, k: 1}", "{m: 3, n: 1, k: 1}")
    assert first == second != third
    assert len({first, second, third}) == 2


def test_columns_hold_one_entry_per_group() -> None:
    [found] = load(
        listed(
            "{m: 1, n: 2, k: 3, count: 2}",
            "{m: 4, n: 5, k: 6, a: f16, b: bf16, c: f32, d: f16, d_layout: col, lda: 7, ldb: 8, "
            "ldc: 9, ldd: 10, a_offset: 1, b_offset: 2, c_offset: 3, d_offset: 127, "
            "alpha: 0.5, beta: 2, bias: m, bias_type: f32, activation: silu}",
            "{m: 1, n: 2, k: 3}",
        )
    )
    columns = {key: array.tolist() for key, array in vars(found.columns).items()}
    bf16, f16, f32 = (dtype.code for dtype in (dtypes.BF16, dtypes.F16, dtypes.F32))
    row, col = map(LAYOUTS.index, ("row", "col"))
    assert columns == {
        "m": [1, 1, 4, 1],
        "n": [2, 2, 5, 2],
        "k": [3, 3, 6, 3],
        "a": [bf16, bf16, f16, bf16],
        "b": [bf16, bf16, bf16, bf16],
        "c": [bf16, bf16, f32, bf16],
        "d": [bf16, bf16, f16, bf16],
        "a_layout": [row, row, row, row],
        "b_layout": [col, col, col, col],
        "d_layout": [row, row, col, row],
        "lda": [3, 3, 7, 3],
        "ldb": [3, 3, 8, 3],
        "ldc": [2, 2, 9, 2],
        "ldd": [2, 2, 10, 2],
        "a_offset": [0, 0, 1, 0],
        "b_offset": [0, 0, 2, 0],
        "c_offset": [0, 0, 3, 0],
        "d_offset": [0, 0, 127, 0],
        "alpha": [1, 1, 0.5, 1],
        "beta": [0, 0, 2, 0],
        "inplace": [False, False, False, False],
        "bias": [0, 0, 2, 0],
        "bias_type": [bf16, bf16, f32, bf16],
        "activation": [0, 0, 4, 0],
        "gate": [0, 0, 0, 0],
    }
    assert found.columns.m.dtype == np.int64
    assert [found.columns.sizes[operand].tolist()[2] for operand in "abcd"] == [2, 2, 4, 2]
    assert found.columns is found.columns
    with pytest.raises(ValueError, match="read-only"):
        found.columns.m[0] = 2


def test_each_more_group_is_as_much_more_work_to_read() -> None:
    def calls(count: int) -> int:
        text = listed(*(f"{{m: {i}, n: {i}, k: {i}}}" for i in range(count)))
        called = Counter[str]()
        sys.setprofile(lambda _frame, event, _arg: called.update([event]))
        try:
            [found] = load(text)
        finally:
            sys.setprofile(None)
        assert len(found.groups) == count
        return called.total()

    few, some, many = (calls(count) for count in (100, 200, 1000))
    assert many - some == pytest.approx(8 * (some - few), rel=0.05)


# What is refused


@pytest.mark.parametrize(
    ("group", "column", "message"),
    [
        (
            "{m: -1, n: 1, k: 1}", 13,
            "m must be an integer from 0 to 2147483647, not -1",
        ),
        (
            "{m: 1, n: 2147483648, k: 1}", 19,
            "n must be an integer from 0 to 2147483647, not 2147483648",
        ),
        (
            "{m: 1, n: 1, k: 1.5}", 25,
            "k must be an integer from 0 to 2147483647, not 1.5",
        ),
        (
            "{m: 1, n: 1, k: '64'}", 25,
            "k must be an integer from 0 to 2147483647, not the text '64'",
        ),
        (
            "{m: 1, n: 1, k: true}", 25,
            "k must be an integer from 0 to 2147483647, not true",
        ),
        (
            "{m: 1, n: 1, k: }", 24,
            "k must be an integer from 0 to 2147483647, not nothing",
        ),
        (
            "{m: 1, n: 1, k: 1, count: 0}", 35,
            "count must be an integer from 1 to 1048576, not 0",
        ),
        (
            "{m: 1, n: 1, k: 1, ldd: 0}", 33,
            "ldd must be an integer from 1 to 1099511627775, not 0",
        ),
        (
            "{m: 1, n: 1, k: 1, a: fp16}", 31,
            "a must be one of bf16, f16, not the text 'fp16'; did you mean 'f16'?",
        ),
        (
            "{m: 1, n: 1, k: 1, c: 16}", 31,
            "c must be one of bf16, f16, f32, not 16; did you mean 'f16'?",
        ),
        (
            "{m: 1, n: 1, k: 1, b_layout: column}", 38,
            "b_layout must be one of row, col, not the text 'column'; did you mean 'col'?",
        ),
        (
            "{m: 1, n: 1, k: 1, alpha: .nan}", 35,
            "alpha must be 0 or a number of magnitude 1.4e-45 to 3.4e+38 (float32), not nan",
        ),
        (
            "{m: 1, n: 1, k: 1, beta: 1e39}", 34,
            "beta must be 0 or a number of magnitude 1.4e-45 to 3.4e+38 (float32), not 1e+39",
        ),
        (
            "{m: 1, n: 1, k: 1, beta: 1e-46}", 34,
            "beta must be 0 or a number of magnitude 1.4e-45 to 3.4e+38 (float32), not 1e-46",
        ),
        (
            "{m: 1, n: 1, k: 1, kk: 64}", 28,
            "unknown key 'kk' in a group; did you mean 'k'?",
        ),
        (
            "{m: 1, n: 1, k: 1, K: 64}", 28,
            "unknown key 'K' in a group; did you mean 'k'?",
        ),
        (
            "{m: 1, n: 1, k: 1, transpose: 1}", 28,
            "unknown key 'transpose' in a group; the keys are m, n, k, count, a, b, c, d, "
            "a_layout, b_layout, d_layout, lda, ldb, ldc, ldd, a_offset, b_offset, c_offset, "
            "d_offset, alpha, beta, inplace, bias, bias_type, activation, gate",
        ),
        (
            "{m: 1, n: 1, k: 1, <<: 1}", 28,
            "YAML 1.2 has no merge key '<<'; put what groups share under 'defaults'",
        ),
        (
            "{m: 1, n: 1, k: 1, m: 1}", 28,
            "duplicate key 'm', first on line 6; remove one of the two",
        ),
        (
            "{n: 1}", 9,
            "this group has no m and no k; give it here or in defaults",
        ),
        (
            "8x8x8", 9,
            "a group must be a mapping such as {m: 128, n: 256, k: 64}, not the text '8x8x8'",
        ),
        (
            "{m: 1, n: 1, k: 9, lda: 8}", 28,
            "lda is 8, but k = 9 elements of A lie side by side; write lda: 9 or more",
        ),
        (
            "{m: 1, n: 9, k: 1, ldb: 8, b_layout: row}", 28,
            "ldb is 8, but n = 9 elements of B lie side by side; write ldb: 9 or more",
        ),
        (
            "{m: 9, n: 1, k: 1, ldc: 8, d_layout: col}", 28,
            "ldc is 8, but m = 9 elements of C lie side by side; write ldc: 9 or more",
        ),
        (
            "{m: 1, n: 9, k: 1, ldd: 8}", 28,
            "ldd is 8, but n = 9 elements of D lie side by side; write ldd: 9 or more",
        ),
        (
            "{m: 1, n: 1, k: 1, inplace: 1}", 37,
            "inplace must be true or false, not 1",
        ),
        (
            "{m: 1, n: 1, k: 1, activation: swish}", 40,
            "activation must be one of none, relu, gelu, gelu_tanh, silu, not the text 'swish'",
        ),
        (
            "{m: 1, n: 1, k: 1, bias: true}", 34,
            "bias must be one of none, n, m, not true",
        ),
        (
            "{m: 1, n: 1, k: 1, bias: n, bias_type: fp32}", 48,
            "bias_type must be one of bf16, f16, f32, not the text 'fp32'; did you mean 'f32'?",
        ),
        (
            "{m: 1, n: 1, k: 1, gate: half}", 34,
            "gate must be one of none, halves, pairs, not the text 'half'; did you mean 'halves'?",
        ),
        (
            "{m: 1, n: 3, k: 1, gate: halves}", 16,
            "n is 3, but a gate pairs columns; write n: 2 or n: 4",
        ),
        (
            "{m: 1, n: 2147483647, k: 1, gate: halves}", 16,
            "n is 2147483647, but a gate pairs columns; write n: 2147483646",
        ),
        (
            "{m: 1, n: 8, k: 1, ldd: 3, gate: pairs}", 28,
            "ldd is 3, but n/2 = 4 elements of D lie side by side; write ldd: 4 or more",
        ),
        (
            "{m: 1, n: 8, k: 1, inplace: true, gate: pairs}", 28,
            "D of a gate has half of C's columns and cannot be its memory; leave inplace out",
        ),
        (
            "{m: 1, n: 8, k: 1, inplace: true, c: f32}", 43,
            "c is f32 and d bf16, but in place they are the same; leave c out",
        ),
        (
            "{m: 1, n: 8, k: 1, inplace: true, ldc: 9, ldd: 10}", 43,
            "ldc is 9 and ldd 10, but in place they are the same; leave ldc out",
        ),
        (
            "{m: 1, n: 8, k: 1, inplace: true, c_offset: 1}", 43,
            "c_offset is 1 and d_offset 0, but in place they are the same; leave c_offset out",
        ),
        (
            "{m: 1, n: 8, k: 1, a_offset: 128}", 38,
            "a_offset must be an integer from 0 to 127, not 128",
        ),
        (
            "{m: 2147483647, n: 1, k: 1, lda: 1099511627775}", 9,
            "with this group the problem holds more than 2^62 bytes; make it smaller",
        ),
    ],
)  # fmt: skip
def test_a_wrong_group_is_refused_with_its_place(group: str, column: int, message: str) -> None:
    assert errors(listed(group)) == [(6, column, message)]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "a problem list must be a mapping such as {gemmctl: 1, problems: [...]}"),
        ("- m: 1", 1, 1, "a problem list must be a mapping"),
        ("problems: [{name: p, groups: [{m: 1, n: 1, k: 1}]}]", 1, 1, "add 'gemmctl: 1'"),
        ("gemmctl: 2\nwhatever: 1\nproblems: 3", 1, 10, "gemmctl must be 1"),
        ("command: run\ngemmctl: 0.2.0\nproblems: []", 1, 1, "this is what gemmctl wrote about"),
        ("gemmctl: true\nproblems: []", 1, 10, "gemmctl must be 1, the format read here, not true"),
        ("gemmctl: 1", 1, 1, "'problems' is missing"),
        ("gemmctl: 1\nproblems: []", 2, 11, "problems must be a list of at least one"),
        ("gemmctl: 1\nproblems: {}", 2, 11, "problems must be a list of at least one"),
        ("gemmctl: 1\nproblems: [p]", 2, 12, "a problem must be a mapping such as {name: mine"),
        ("gemmctl: 1\nproblems: [{name: p}]", 2, 12, "'groups' is missing"),
        ("gemmctl: 1\nproblems: [{name: p, groups: }]", 2, 29, "groups must be a list"),
        ("gemmctl: 1\nproblems:\n- groups: [{m: 1, n: 1, k: 1}]", 3, 3, "this problem has no name"),
        ("gemmctl: 1\nproblems:\n- {name: 7, groups: [{m: 1, n: 1, k: 1}]}", 3, 10, "name must be"),
        ("gemmctl: 1\nproblems:\n- {name: ' ', groups: [{m: 1, n: 1, k: 1}]}", 3, 10, "name must"),
        ("gemmctl: 1\nproblems:\n- {name: \"a\\nb\", groups: [{m: 1, n: 1, k: 1}]}", 3, 10,
         "U+000A"),
        ("gemmctl: 1\nproblems:\n- {name: \"a\\u0378\", groups: [{m: 1, n: 1, k: 1}]}", 3, 10,
         "name must be text that can be shown, and U+0378 in it cannot; leave it out"),
        ("gemmctl: 1\nproblms: 1\nproblems: [{name: p, groups: [{m: 1, n: 1, k: 1}]}]", 2, 1,
         "unknown key 'problms' in a problem list; did you mean 'problems'?"),
        ("gemmctl: 1\ndefaults: [a]\nproblems: [{name: p, groups: [{m: 1, n: 1, k: 1}]}]", 2, 11,
         "defaults must be a mapping such as {a: bf16, d: f32}, not a list"),
        ("gemmctl: 1\nproblems: [", 2, 12, "expected the node content"),
    ],
)  # fmt: skip
def test_a_wrong_list_is_refused_with_its_place(
    text: str, line: int, column: int, message: str
) -> None:
    [(got_line, got_column, got)] = errors(text)
    assert message in got
    assert (got_line, got_column) == (line, column)


def test_a_wrong_default_is_told_once_where_it_stands() -> None:
    text = listed("{m: 1, n: 1, k: 1}", "{m: 2, n: 2, k: 2}", defaults="{a: f61, ld: 3}")
    assert [(line, column) for line, column, _ in errors(text)] == [(2, 15), (2, 20)]


def test_a_default_that_does_not_fit_a_group_names_the_group() -> None:
    text = listed("{m: 1, n: 1, k: 8}", "{m: 1, n: 1, k: 20}", defaults="{lda: 16}")
    [(line, column, message)] = errors(text)
    assert (line, column) == (2, 12)
    assert "in the group on line 7; write lda: 20" in message


def test_a_default_that_cannot_be_in_place_names_the_group() -> None:
    text = listed(
        "{m: 1, n: 8, k: 8}", "{m: 1, n: 8, k: 8, gate: pairs}", defaults="{inplace: yes}"
    )
    [(line, column, message)] = errors(text.replace("yes", "true"))
    assert (line, column) == (2, 12)
    assert "half of C's columns in the group on line 7 and cannot be its memory" in message


def test_a_gated_d_has_half_of_the_columns_and_c_has_all() -> None:
    row, col = groups(
        "{m: 3, n: 8, k: 1, gate: halves}", "{m: 3, n: 8, k: 1, gate: pairs, d_layout: col}"
    )
    assert (row.d_columns, row.ldc, row.ldd) == (4, 8, 4)
    assert (col.d_columns, col.ldc, col.ldd) == (4, 3, 3)


def test_in_place_c_is_d() -> None:
    [group] = groups("{m: 3, n: 8, k: 1, d: f32, ldd: 11, d_offset: 5, inplace: true}")
    assert (group.c, group.ldc, group.c_offset) == ("f32", 11, 5)


def test_each_operand_has_an_offset_of_its_own() -> None:
    [group] = groups("{m: 3, n: 8, k: 1, b_offset: 1, d_offset: 5}")
    assert (group.a_offset, group.b_offset, group.c_offset, group.d_offset) == (0, 1, 0, 5)


def test_a_bias_has_the_type_of_d_and_as_many_numbers_as_its_side() -> None:
    along_n, along_m, none = groups(
        "{m: 3, n: 8, k: 1, d: f16, bias: n}", "{m: 3, n: 8, k: 1, bias: m, bias_type: f32}",
        "{m: 3, n: 8, k: 1}",
    )  # fmt: skip
    assert [(g.bias_type, g.bias_length) for g in (along_n, along_m, none)] == [
        ("f16", 8), ("f32", 3), ("bf16", 0),
    ]  # fmt: skip


def test_what_an_alias_repeats_is_told_once() -> None:
    assert len(errors(listed("&g {m: -1, n: 1, k: 1}", "*g", "*g"))) == 1


def test_a_problem_holds_at_most_2_to_the_20_groups() -> None:
    legal = groups("{m: 1, n: 1, k: 1, count: 1048575}", "{m: 2, n: 1, k: 1}")
    assert len(legal) == 1 << 20
    text = listed("{m: 1, n: 1, k: 1, count: 1048576}", "{m: 2, n: 1, k: 1}", "{m: 3, n: 1, k: 1}")
    [(line, _, message)] = errors(text)
    assert line == 7
    assert "more than 1048576 groups" in message


def test_bytes_are_summed_over_groups_and_counts() -> None:
    one = "m: 2147483647, n: 1, k: 1, lda: 268435456"  # 2^60 bytes, in A nearly all
    assert len(groups(f"{{{one}, count: 3}}")) == 3
    [(line, column, _)] = errors(listed(f"{{{one}, count: 4}}"))
    assert (line, column) == (6, 53)
    [(line, column, _)] = errors(listed(*[f"{{{one}}}"] * 5))
    assert (line, column) == (9, 9)


def test_all_errors_of_all_files_come_together_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(listed("{m: 1, n: 1, k: -1, kk: 1}", "{m: 1, n: 1, k: 1, m: 2, a: x}"))
    second.write_text("gemmctl: 1\nproblems: [")
    with pytest.raises(ListError) as caught:
        reading.load([str(first), "-", str(second)], io.StringIO(listed("{m: x, n: 1, k: 1}")))
    places = [(mark.file, mark.line, mark.column) for mark, _ in caught.value.errors]
    assert places == [
        (str(first), 6, 25),
        (str(first), 6, 29),
        (str(first), 7, 28),
        (str(first), 7, 37),
        ("<stdin>", 4, 11),
        ("<stdin>", 6, 13),
        (str(second), 2, 12),
    ]
    assert str(caught.value).startswith(f"{first}:6:25: k must be an integer from 0 to 2147483647")


# Files


def test_several_files_are_one_long_list(tmp_path: Path) -> None:
    for name in ("x", "y"):
        text = listed("{m: 1, n: 1, k: 1}").replace("name: p", f"name: {name}")
        (tmp_path / name).write_text(text)
    stdin = io.StringIO(listed("{m: 1, n: 1, k: 1}"))
    found = reading.load([str(tmp_path / "y"), "-", str(tmp_path / "x")], stdin)
    assert [p.name for p in found] == ["y", "p", "x"]
    assert found[1].mark.file == "<stdin>"


def test_names_are_unique_across_files(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(listed("{m: 1, n: 1, k: 1}"))
    with pytest.raises(ListError) as caught:
        reading.load([str(path), "-"], io.StringIO(listed("{m: 1, n: 1, k: 1}")))
    [(mark, message)] = caught.value.errors
    assert (mark.file, mark.line, mark.column) == ("<stdin>", 4, 11)
    assert message == f"the name 'p' is taken by {path}:4; choose another"


def test_a_list_may_not_have_the_name_that_shapes_on_the_command_line_get(
    gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / "list.yaml").write_text(
        listed("{m: 1, n: 1, k: 1}").replace("name: p", "name: 8x8x8")
    )
    done = gemmctl("plan", "list.yaml", "--mnk", "8x8x8")
    assert done.returncode == 2
    assert "--mnk calls its problem '8x8x8', which is taken by list.yaml:4; rename that one" in (
        done.stderr
    )


def test_files_that_cannot_be_read_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        reading.load([str(tmp_path / "none.yaml"), str(tmp_path)], io.StringIO())
    none = f"{tmp_path}/none.yaml"
    assert str(caught.value).splitlines() == [
        f"gemmctl: cannot read {none}: No such file or directory; check the path",
        f"gemmctl: cannot read {tmp_path}: Is a directory; check the path",
    ]


def test_standard_input_can_be_named_once() -> None:
    with pytest.raises(UsageError, match="'-' is given twice"):
        reading.load(["-", "-"], io.StringIO())


def test_a_file_that_is_not_utf_8_is_refused_at_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_bytes(b"gemmctl: 1\n# caf\xe9\n")
    with pytest.raises(ListError) as caught:
        reading.load([str(path)], io.StringIO())
    assert str(caught.value).startswith(f"{path}:2:6: byte 0xe9 is not UTF-8")


def test_standard_input_that_is_not_utf_8_is_refused() -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"gemmctl: \xff"), encoding="utf-8")
    with pytest.raises(UsageError, match="standard input is not UTF-8"):
        reading.load(["-"], stdin)


# As far as it can be read


def test_what_is_right_is_read_beside_what_is_wrong(tmp_path: Path) -> None:
    stdin = io.StringIO(listed("{m: 1, n: 1, k: -1}", "{m: 2, n: 1, k: 8}"))
    found = reading.read(["-", str(tmp_path / "none.yaml")], stdin)
    [only] = found.problems
    assert [group.m for group in only.groups] == [2]
    assert [said.split(" ")[0] for _, said in found.errors] == ["k"]
    assert len(found.unreadable) == 1


def test_errors_of_others_are_told_in_the_order_of_files_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(listed("{m: 1, n: 1, k: 8}").replace("name: p", "name: q"))
    found = reading.read(
        ["-", str(path)], io.StringIO(listed("{m: 1, n: 1, k: x}", "{m: 1, n: 1, k: 8}"))
    )
    first, second = found.problems
    more = [(second.groups[0].where("m"), "second"), (first.groups[0].where("n"), "first")]
    with pytest.raises(ListError) as caught:
        found.check(more)
    assert [said.split(" ")[0] for _, said in caught.value.errors] == ["k", "first", "second"]


def test_lists_without_errors_pass(tmp_path: Path) -> None:
    reading.read(["-"], io.StringIO(listed("{m: 1, n: 1, k: 1}"))).check()


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("{M: 1, N: 1, K: 1}", ["unknown keys 'M', 'N' and 'K' in a group; did you mean 'm', 'n'"]),
        ("{M: 1, n: 1}", ["this group has no k;", "unknown key 'M' in a group; did you mean 'm'?"]),
        ("{m: 1, n: 1, k: 8, ld_a: 4}", ["unknown key 'ld_a' in a group; did you mean 'lda'?"]),
    ],
)
def test_a_slip_of_the_pen_is_told_once(group: str, expected: list[str]) -> None:
    told = sorted(message for _, _, message in errors(listed(group)))
    assert len(told) == len(expected)
    assert all(message.startswith(start) for message, start in zip(told, expected, strict=True))


def test_a_slip_of_the_pen_in_the_defaults_is_not_told_of_every_group() -> None:
    text = listed("{n: 1, k: 1}", "{n: 2, k: 1}", defaults="{M: 8}")
    assert [(line, column) for line, column, _ in errors(text)] == [(2, 12)]


def test_progress_grows_up_to_the_whole_over_all_files(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("x", "y")]
    for path in paths:
        path.write_text(
            listed(*["{m: 1, n: 1, k: 1}"] * 3000).replace("name: p", f"name: {path.name}")
        )
    heard: list[float] = []
    reading.read(list(map(str, paths)), io.StringIO(), progress=heard.append)
    assert heard == sorted(heard)
    assert len(heard) > 4 and 0.5 in heard and heard[-1] == 1


# --only


def named(*names: str) -> list[Problem]:
    mark = Mark("f", 1, 1, "")
    return [Problem(name, (), mark) for name in names]


def test_select_keeps_the_order_of_the_list() -> None:
    problems = named("alpha", "beta", "gamma")
    assert problem.select(problems, ["g*", "a*"]) == [problems[0], problems[2]]
    assert problem.select(problems, ["?????", "beta"]) == problems
    assert problem.select(problems, []) == problems


def test_select_takes_a_name_for_that_name_and_for_no_glob() -> None:
    problems = named("a[1]", "a1", "a2")
    assert problem.select(problems, ["a[1]"]) == problems[:1]
    assert problem.select(problems, ["a[1]", "a[2]"]) == [problems[0], problems[2]]
    assert problem.select(problems[1:], ["a[1]"]) == [problems[1]]


def test_select_refuses_a_glob_that_matches_nothing() -> None:
    with pytest.raises(
        UsageError, match=re.escape("named 'delta' (did you mean beta?); there are alpha, beta")
    ):
        problem.select(named("alpha", "beta"), ["alpha", "delta"])


# Random lists

LEGAL: dict[str, st.SearchStrategy[Any]] = {
    "m": st.integers(0, 5000),
    "n": st.integers(0, 5000),
    "k": st.integers(0, 5000),
    "count": st.integers(1, 20),
    **{key: st.sampled_from(["bf16", "f16", "f32"]) for key in "abcd"},
    **{f"{key}_layout": st.sampled_from(["row", "col"]) for key in "abd"},
    **{f"ld{key}": st.integers(5000, 9000) for key in "abcd"},
    "alpha": st.integers(-5, 5) | st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-30),
    "beta": st.integers(-5, 5),
}
SIZES = {"m", "n", "k"}
legal_group = st.fixed_dictionaries(
    {key: LEGAL[key] for key in SIZES},
    optional={key: LEGAL[key] for key in LEGAL.keys() - SIZES},
)
legal_defaults = st.fixed_dictionaries({}, optional=LEGAL)
ILLEGAL: list[Any] = ["x", "", "64", None, True, 1 << 200, float("inf"), [], {}, [1], {"m": 1}]


def one_problem(defaults: dict[str, Any], written: Sequence[Any]) -> str:
    """A list in JSON, which is YAML too: group i stands on line 4 + i."""
    lines = ['{"gemmctl": 1,', f'"defaults": {json.dumps(defaults)},',
             '"problems": [{"name": "p", "groups": [',
             ",\n".join(json.dumps(group) for group in written), "]}]}"]  # fmt: skip
    return "\n".join(lines)


@given(legal_defaults, st.lists(legal_group, min_size=1, max_size=5))
def test_a_legal_list_means_what_it_says(
    defaults: dict[str, Any], written: list[dict[str, Any]]
) -> None:
    text = one_problem(defaults, written)
    [found] = load(text)
    expected = [group for group in written for _ in range((defaults | group).get("count", 1))]
    assert len(found.groups) == len(expected)
    for group, own in zip(found.groups, expected, strict=True):
        for key, value in (defaults | own).items():
            if key in ("alpha", "beta"):
                assert getattr(group, key) == np.float32(value)
            elif key != "count":
                assert getattr(group, key) == value


@given(st.lists(legal_group, min_size=1, max_size=4), st.data())
def test_a_list_with_one_wrong_value_is_refused_on_its_line(
    written: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(written) - 1))
    key = data.draw(st.sampled_from(sorted(LEGAL)))
    written[at] = written[at] | {key: data.draw(st.sampled_from(ILLEGAL))}
    [(line, _, message)] = errors(one_problem({}, written))
    assert line == 4 + at
    assert message.startswith(f"{key} must be ")


@given(st.lists(legal_group, min_size=1, max_size=4), st.data())
def test_a_list_with_a_missing_size_or_unknown_key_is_refused_on_its_line(
    written: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(written) - 1))
    if data.draw(st.booleans()):
        del written[at][data.draw(st.sampled_from(sorted(SIZES)))]
    else:
        key = data.draw(st.text(st.sampled_from("abcdklmn_x"), max_size=5))
        written[at] = written[at] | {f"z{key}": 1}
    assert [line for line, _, _ in errors(one_problem({}, written))] == [4 + at]


words = [
    "gemmctl",
    "problems",
    "defaults",
    "name",
    "groups",
    *LEGAL,
    "1",
    "64",
    "1e9",
    "bf16",
    "row",
]
marks = [*"{}[]:,-?&*!|>'\"#%@` \n", ": ", "- ", "\n  ", "\n    "]


@given(st.text() | st.lists(st.sampled_from(words + marks)).map("".join))
def test_any_text_is_a_list_or_a_list_error(text: str) -> None:
    try:
        load(text)
    except ListError as error:
        assert str(error).startswith("<stdin>:")


# The lists that ship


def test_the_shipped_lists_load_as_one_list_named_after_their_files() -> None:
    found = reading.load([str(path) for path in LISTS], io.StringIO())
    assert [p.name for p in found] == [path.stem for path in LISTS]
    assert len(found) == 33


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_a_shipped_list_names_its_schema_and_says_what_it_stands_for(path: Path) -> None:
    modeline, blank, about, *_ = path.read_text().splitlines()
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", modeline)
    assert found
    assert (path.parent / found[1]).samefile(SCHEMA)
    assert blank == "#"
    assert about.startswith("# ")


@pytest.mark.parametrize(("name", "b_layout"), [("seed10", "row"), ("seed10_tn", "col")])
def test_seed10_is_ten_f16_products_written_as_f32(name: str, b_layout: str) -> None:
    [found] = reading.load([str(ROOT / "problems" / f"{name}.yaml")], io.StringIO())
    assert len(found.groups) == 10
    assert {(g.m, g.n, g.k, g.a, g.b, g.d) for g in found.groups} == {
        (768, 768, 1024, "f16", "f16", "f32")
    }
    assert {(g.a_layout, g.b_layout, g.d_layout) for g in found.groups} == {
        ("row", b_layout, "row")
    }


def test_layouts_has_every_layout_with_and_without_odd_sizes_and_c() -> None:
    [found] = reading.load([str(ROOT / "problems" / "layouts.yaml")], io.StringIO())
    kinds = {
        (g.a_layout, g.b_layout, g.d_layout, g.m % 2, g.n % 2, g.k % 2, g.beta != 0)
        for g in found.groups
    }
    for layouts in product(LAYOUTS, repeat=3):
        assert {(*layouts, 1, 1, 1, False), (*layouts, 0, 1, 0, True)} <= kinds
        assert (*layouts, 0, 0, 0, False) in kinds


@pytest.mark.parametrize(
    ("name", "sizes", "layouts"),
    [
        ("moe_forward", "mnk", ("row", "col", "row")),
        ("moe_dgrad", "mkn", ("row", "row", "row")),
        ("moe_wgrad", "kmn", ("col", "row", "row")),
    ],
)
def test_the_passes_of_a_layer_of_experts_have_the_groups_of_qwen3_gu_z(
    name: str, sizes: str, layouts: tuple[str, str, str]
) -> None:
    [found] = reading.load([str(ROOT / "problems" / f"{name}.yaml")], io.StringIO())
    [plain] = reading.load([str(ROOT / "problems" / "qwen3_gu_z.yaml")], io.StringIO())
    for group, forward in zip(found.groups, plain.groups, strict=True):
        assert [getattr(group, key) for key in sizes] == [forward.m, forward.n, forward.k]
        assert (group.a_layout, group.b_layout, group.d_layout) == layouts


def test_ragged_covers_every_pair_of_types_and_every_type_of_c() -> None:
    [found] = reading.load([str(ROOT / "problems" / "ragged.yaml")], io.StringIO())
    every = {"bf16", "f16", "f32"}
    assert {(g.a, g.d) for g in found.groups} == {(a, d) for a in every - {"f32"} for d in every}
    assert {g.c for g in found.groups if g.beta} == every


def test_edge_has_every_kind_of_empty_group() -> None:
    [found] = reading.load([str(ROOT / "problems" / "edge.yaml")], io.StringIO())
    kinds = {(g.m == 0, g.n == 0, g.k == 0, g.beta == 0) for g in found.groups}
    assert {(True, False, False, True), (False, True, False, True), (True, True, True, True),
            (False, False, True, True), (False, False, True, False)} <= kinds  # fmt: skip
    assert any(g.alpha == 0 and g.beta == 1 for g in found.groups)
    assert any(g.m == 1 for g in found.groups)


def test_epilogue_covers_every_activation_bias_and_gate_and_every_pair_of_types() -> None:
    [found] = reading.load([str(ROOT / "problems" / "epilogue.yaml")], io.StringIO())
    gated = {(g.activation, g.gate) for g in found.groups}
    assert {activation for activation, _ in gated} == set(ACTIVATIONS)
    assert {gate for activation, gate in gated if activation == "silu"} == set(GATES)
    assert {(g.bias, g.bias_type) for g in found.groups} >= {
        (bias, type_) for bias in ("n", "m") for type_ in ("bf16", "f32")
    }
    assert any(g.d_columns % 2 for g in found.groups if g.gate == "halves")
    every = {"bf16", "f16", "f32"}
    assert {(g.a, g.d) for g in found.groups} >= {
        (a, d) for a in ("bf16", "f16") for d in every
    } - {("bf16", "f16")}


def test_accumulate_adds_c_apart_and_in_place_in_bf16_and_f32() -> None:
    [found] = reading.load([str(ROOT / "problems" / "accumulate.yaml")], io.StringIO())
    assert all(g.beta for g in found.groups)
    assert {(g.d, g.inplace) for g in found.groups} == {
        (d, inplace) for d in ("bf16", "f32") for inplace in (False, True)
    }
