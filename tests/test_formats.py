from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import wcwidth

from gemmctl.showing.formats import Report, render
from gemmctl.showing.table import Table

REPORT = Report(
    head={"format": 1, "device": {"name": "a gpu"}, "tags": ["x"]},
    items="things",
    records=[{"name": "a|b", "time_s": 1 / 3}, {"name": "007", "time_s": None}],
    table=Table(["name", "us"], [["a|b", "3.0"], ["007", "1e5"]], [True, False], [0, 0]),
    details=["a detail"],
    notes=["a note"],
)


def test_plain_is_a_header_the_rows_and_the_details_without_borders() -> None:
    assert [line.split() for line in render(REPORT, "plain").splitlines()] == [
        ["name", "us"],
        ["a|b", "3.0"],
        ["007", "1e5"],
        ["a", "detail"],
    ]


def test_tables_show_cells_as_they_are() -> None:
    # tabulate would read these as numbers.
    assert "007 " in render(REPORT, "table")
    assert " 1e5" in render(REPORT, "table")


def test_the_table_ends_with_details_and_notes() -> None:
    assert render(REPORT, "table").endswith("\n\na detail\n\na note\n")


def test_markdown_escapes_pipes() -> None:
    assert "| a\\|b " in render(REPORT, "markdown")


def test_markdown_escapes_pipes_in_titles() -> None:
    table = replace(REPORT.table, titles=["a|b", "us"])
    assert render(replace(REPORT, table=table), "markdown").startswith("| a\\|b ")


def test_a_title_with_wide_characters_stands_above_its_column() -> None:
    table = replace(REPORT.table, titles=["name", "専門 us"])
    lines = render(replace(REPORT, table=table, details=[]), "plain").splitlines()
    assert len(set(map(wcwidth.wcswidth, lines))) == 1


def test_a_table_without_rows_is_its_header() -> None:
    assert render(
        replace(REPORT, table=replace(REPORT.table, rows=[]), details=[]), "plain"
    ).split() == ["name", "us"]


def test_colour_marks_verdicts_and_leaves_the_rest_alone() -> None:
    verdicts = replace(REPORT, table=replace(REPORT.table, rows=[["ok", "BAD"], ["1", "2"]]))
    colored = render(verdicts, "plain", color=True)
    assert "\x1b[32mok\x1b[0m" in colored
    assert "\x1b[1;31mBAD\x1b[0m" in colored
    bare = colored.replace("\x1b[32m", "").replace("\x1b[1;31m", "").replace("\x1b[0m", "")
    assert bare == render(verdicts, "plain")


def test_json_is_the_head_with_the_records_under_their_name() -> None:
    assert json.loads(render(REPORT, "json")) == {**REPORT.head, "things": REPORT.records}


def test_a_line_of_jsonl_stands_on_its_own() -> None:
    lines = render(REPORT, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == [
        {**REPORT.head, **record} for record in REPORT.records
    ]


def test_csv_holds_every_scalar_unrounded_and_dots_the_nested() -> None:
    first, second = csv.DictReader(io.StringIO(render(REPORT, "csv")))
    assert list(first) == ["name", "time_s", "format", "device.name"]
    assert float(first["time_s"]) == 1 / 3
    assert second["time_s"] == ""


def test_csv_has_what_only_later_records_have_beside_what_the_first_has() -> None:
    records = [{"name": "a", "methods": {"one": 3}}, {"name": "b", "methods": {"two": 4}}]
    header, first, second = render(replace(REPORT, records=records), "csv").splitlines()
    assert header == "name,methods.one,methods.two,format,device.name"
    assert (first, second) == ("a,3,,1,a gpu", "b,,4,1,a gpu")


def test_json_names_infinities_instead_of_breaking() -> None:
    report = replace(REPORT, records=[{"worst": math.inf, "got": (math.nan,)}])
    assert json.loads(render(report, "json"))["things"] == [{"worst": "inf", "got": ["nan"]}]
