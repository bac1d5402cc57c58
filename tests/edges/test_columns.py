"""Tables in narrow terminals, and what csv and plain have whatever the terminal is.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmctl.errors import UsageError
from gemmctl.showing.report import interval_cell, number, percent, ratio_cell, time_cell
from gemmctl.showing.table import Column, View
from support import PROBLEMS, Command, on_terminal

WIDE = """\
gemmctl: 1
problems:
  - {name: 専門家への割り当てを偏らせた問題, groups: [{m: 8, n: 8, k: 8}]}
  - {name: "\U0001f600", groups: [{m: 8, n: 8, k: 8}]}
  - {name: plain, groups: [{m: 8, n: 8, k: 8}]}
"""
QUICK = ("--max-time", "0.05")
RUN_COLUMNS = [
    "problem", "groups", "dtype", "MxNxK", "GFLOP", "MB", "kernel", "time us (cold)", "TFLOP/s",
    "GB/s", "% of bound", "spread %", "plan us", "set-up us",
]  # fmt: skip


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("command", ["run", "verify", "plan"])
def test_edge_23_a_table_is_no_wider_than_the_terminal_and_names_what_is_left_out(
    command: str, columns: int
) -> None:
    ragged = PROBLEMS / "ragged.yaml"
    options = QUICK if command == "run" else ()
    table, notes = on_terminal("stdout", command, ragged, *options, columns=columns).split(
        "\r\n\r\n"
    )
    words = [
        line for line in notes.splitlines() if " " in line
    ]  # a long word has a line of its own
    assert all(len(line) <= columns for line in words)
    lines = table.replace("\x1b[32m", "").replace("\x1b[0m", "").splitlines()
    assert all(len(line) <= columns for line in lines)
    assert lines[0].startswith("problem")
    if command == "run":
        shown = [title for title in RUN_COLUMNS if title in lines[0]]
        assert {"problem", "time us (cold)", "TFLOP/s", "% of bound"} <= set(shown)
        left_out = [title for title in RUN_COLUMNS if title not in shown]
        said = f"no room for {', '.join(left_out)}:" in " ".join(notes.split())
        assert said == bool(left_out)


def columns_of(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


@pytest.mark.parametrize("format", ["plain", "markdown"])
def test_columns_stand_below_each_other_behind_wide_characters(
    format: str, gemmctl: Command
) -> None:
    shown = gemmctl("plan", "-", "-f", format, "--columns", "problem,dtype", stdin=WIDE).stdout
    titles, *rows = shown.split("\n\n")[0].splitlines()
    place = columns_of(titles.partition("dtype")[0])
    assert {columns_of(row.partition("bf16")[0]) for row in rows if "bf16" in row} == {place}


def test_the_caret_of_an_error_stands_below_its_place_behind_wide_characters(
    gemmctl: Command,
) -> None:
    line = '  - {name: "日本語の名前", groups: [{m: x, n: 8, k: 8}]}'
    done = gemmctl("plan", "-", stdin=f"gemmctl: 1\nproblems:\n{line}\n")
    told, shown, caret = done.stderr.splitlines()
    assert told.startswith(f"<stdin>:3:{line.index('x') + 1}: m must be ")
    assert caret.index("^") == columns_of(shown.partition("x")[0])


def test_a_table_with_wide_characters_is_no_wider_than_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE, encoding="utf-8")
    shown = on_terminal("stdout", "plan", tmp_path / "wide.yaml", columns=60, LC_ALL="C.UTF-8")
    table = shown.partition("\r\n\r\n")[0].splitlines()
    assert len(table) == 5
    assert all(columns_of(line) <= 60 for line in table)


def test_edge_23_without_a_terminal_every_column_is_there(
    gemmctl: Command, two_problems: Path
) -> None:
    header = gemmctl("run", two_problems, *QUICK, COLUMNS="40").stdout.splitlines()[0]
    assert [title for title in RUN_COLUMNS if title not in header] == []


def test_edge_23_columns_are_picked_by_a_word(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("run", two_problems, *QUICK, "--columns", "time,problem,padding,mxnxk")
    assert done.stdout.splitlines()[0].split() == [
        "time", "us", "(cold)", "problem", "padding", "%", "MxNxK",
    ]  # fmt: skip


def test_edge_23_picked_columns_are_shown_in_the_narrowest_terminal(two_problems: Path) -> None:
    shown = on_terminal(
        "stdout", "plan", two_problems, "--columns", "problem,MxNxK,tiles", columns=10
    )
    assert shown.splitlines()[0].split() == ["problem", "MxNxK", "tiles"]
    assert "no room" not in shown


@pytest.mark.parametrize(
    ("sort", "names"), [("groups", ["two", "one"]), ("-groups", ["one", "two"]), ("MB", ["two"])]
)
def test_edge_23_rows_are_sorted_by_a_column(
    sort: str, names: list[str], gemmctl: Command, tmp_path: Path
) -> None:
    groups = {"one": "count: 10", "two": "count: 9, alpha: 2"}
    problems = [
        f"{{name: {name}, groups: [{{m: 8, n: 8, k: 8, {more}}}]}}" for name, more in groups.items()
    ]
    text = f"{{gemmctl: 1, problems: [{', '.join(problems)}]}}"
    shown = gemmctl("plan", "-", "--sort", sort, stdin=text).stdout.splitlines()[1:]
    assert [line.split()[0] for line in shown][: len(names)] == names
    records = csv.DictReader(
        io.StringIO(gemmctl("plan", "-", "--sort", sort, "-f", "csv", stdin=text).stdout)
    )
    assert [record["name"] for record in records][: len(names)] == names


def test_names_are_sorted_by_the_numbers_in_them_however_long_these_are(gemmctl: Command) -> None:
    names = ["a10", "a9", f"a{'9' * 5000}", "a010", "b"]
    rows = [f"{{name: {name}, groups: [{{m: 8, n: 8, k: 8}}]}}" for name in names]
    text = f"{{gemmctl: 1, problems: [{', '.join(rows)}]}}"
    done = gemmctl("plan", "-", "--sort", "problem", "-f", "csv", stdin=text)
    assert done.returncode == 0, done.stderr
    shown = [record["name"] for record in csv.DictReader(io.StringIO(done.stdout))]
    assert shown == ["a9", "a10", "a010", f"a{'9' * 5000}", "b"]


@pytest.mark.parametrize(
    ("sort", "names"),
    [("GFLOP", ["small", "mid", "big"]), ("-GFLOP", ["big", "mid", "small"])],
)
@pytest.mark.parametrize("format", ["plain", "csv", "json"])
def test_rows_are_sorted_by_values_that_look_the_same(
    format: str, sort: str, names: list[str], gemmctl: Command
) -> None:
    rows = {"big": 100004, "small": 100001, "mid": 100002}
    problems = [f"{{name: {name}, groups: [{{m: {m}, n: 16, k: 16}}]}}" for name, m in rows.items()]
    text = f"{{gemmctl: 1, problems: [{', '.join(problems)}]}}"
    shown = gemmctl("plan", "-", "--sort", sort, "-f", format, stdin=text).stdout
    assert re.findall(r"\b(?:big|small|mid)\b", shown) == names


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("MxNxK", [("a", 1), ("b", 0), ("a", 0)]),
        ("-MxNxK", [("a", 0), ("b", 0), ("a", 1)]),
        ("-problem", [("b", 0), ("a", 0), ("a", 1)]),
    ],
)
def test_groups_are_sorted_by_a_column_in_every_format(
    sort: str, order: list[tuple[str, int]], gemmctl: Command
) -> None:
    text = """{gemmctl: 1, problems: [
        {name: a, groups: [{m: 24, n: 8, k: 8}, {m: 8, n: 8, k: 8}]},
        {name: b, groups: [{m: 16, n: 8, k: 8}]}]}"""
    options = ("verify", "-", "-v", "--data", "normal", "--sort", sort)
    rows = [line.split() for line in gemmctl(*options, stdin=text).stdout.splitlines()[1:]]
    assert [(row[0], int(row[3])) for row in rows] == order
    names = list(dict.fromkeys(name for name, _ in order))
    checks = json.loads(gemmctl(*options, "-f", "json", stdin=text).stdout)["checks"]
    assert [check["name"] for check in checks] == names
    for check in checks:
        groups = [verdict["group"] for verdict in check["verdicts"]]
        assert groups == [group for name, group in order if name == check["name"]]
    records = csv.DictReader(io.StringIO(gemmctl(*options, "-f", "csv", stdin=text).stdout))
    assert [record["name"] for record in records] == names


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--columns", "tiem"), "there is no column 'tiem'; did you mean 'time'?"),
        (("--columns", "problem,us"), "which column is 'us'? It may be "),
        (("--sort", "nothing"), "there is no column 'nothing'"),
        (("--columns", "time", "-f", "json"), "json has every field"),
        (("--sort", "time", "-f", "jsonl"), "jsonl gives each when it is there"),
    ],
)
@pytest.mark.parametrize("command", ["run", "tune"])
def test_edge_23_columns_that_there_are_not_are_refused_before_anything_runs(
    command: str, options: tuple[str, ...], complaint: str, gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl(command, two_problems, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


@pytest.mark.parametrize("options", [("--columns", "kernal"), ("--sort", "kernal")])
def test_columns_that_there_are_not_are_refused_before_anything_is_planned(
    options: tuple[str, ...], gemmctl: Command, two_problems: Path
) -> None:
    never = "from gemmctl.planning import plan; plan.make = exit"
    start = f"{never}; from gemmctl.__main__ import main; main()"
    done = gemmctl("plan", two_problems, *options, python=("-c", start))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no column 'kernal'; did you mean 'kernel'?" in done.stderr


def test_edge_35_padding_has_one_name(gemmctl: Command, two_problems: Path) -> None:
    for command in (("run", *QUICK), ("tune", *QUICK), ("plan",)):
        header = gemmctl(*command, two_problems, "-v").stdout.splitlines()[0]
        assert "padding %" in header
        assert "eff" not in header


@pytest.mark.parametrize("command", ["run", "verify", "plan", "tune"])
def test_edge_44_csv_begins_with_the_name_and_has_no_blanks_in_its_header(
    command: str, gemmctl: Command, two_problems: Path
) -> None:
    options = QUICK if command in ("run", "tune") else ()
    header = gemmctl(command, two_problems, "-f", "csv", *options).stdout.splitlines()[0]
    assert header.startswith("name,")
    assert " " not in header


# Views


COLUMNS = (
    Column[tuple[str, str]]("name", lambda item: item[0], left=True),
    Column[tuple[str, str]]("time us", lambda item: item[1]),
)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["a2", "a10", "b"]),
        ("-name", ["b", "a10", "a2"]),
        ("time", ["a10", "a2", "b"]),
        ("-time", ["a2", "a10", "b"]),  # what has no value is last either way
    ],
)
def test_numbers_are_sorted_as_numbers(sort: str, order: list[str]) -> None:
    items = [("a10", "9.5"), ("b", "-"), ("a2", "1559+40.1")]
    assert [name for name, _ in View(sort=sort).order(COLUMNS, items)] == order


@pytest.mark.parametrize(("sort", "order"), [("time", "ca"), ("-time", "ac")])
def test_words_in_place_of_a_number_come_last_either_way(sort: str, order: str) -> None:
    items = [("x", "n/a"), ("a", "9.5"), ("y", "wrong"), ("c", "3"), ("z", "-")]
    assert "".join(name for name, _ in View(sort=sort).order(COLUMNS, items)) == order + "xyz"


@pytest.mark.parametrize(
    "cell",
    [
        lambda value: number(value, 1e-6),
        lambda value: number(value, 1e-6) + "+40.1",
        lambda value: time_cell(value, host_bound=1),
        percent,
        ratio_cell,
        lambda value: interval_cell((value, 1.0)),
    ],
)
def test_numbers_whose_cells_are_the_same_are_sorted_by_what_these_round(
    cell: Callable[[float], str],
) -> None:
    values = [1.00004e-6, 1.00001e-6, 1.00002e-6]
    assert len(set(map(cell, values))) == 1
    assert View(sort="cell").order([Column("cell", cell)], values) == sorted(values)


def test_columns_of_the_highest_rank_leave_first_and_those_of_none_stay() -> None:
    columns = [Column[str](title, str, rank=rank) for title, rank in (("a", 0), ("b", 2), ("c", 1))]
    table = View().table(columns, ["12345"])
    for width, titles in ((19, ["a", "b", "c"]), (18, ["a", "c"]), (11, ["a"]), (1, ["a"])):
        fitted, missing = table.fitted(width)
        assert fitted.titles == titles
        assert sorted([*fitted.titles, *missing]) == ["a", "b", "c"]


def test_a_word_that_two_titles_have_names_neither_of_them() -> None:
    columns = [Column[str](title, str) for title in ("vs cublas", "vs best")]
    with pytest.raises(UsageError, match="It may be vs cublas, vs best"):
        View(columns="vs").check(columns)
    View(columns="vs best,cublas").check(columns)
