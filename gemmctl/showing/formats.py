"""Show a report: tables for people, records in base units for programs."""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from gemmctl.showing.report import Record, Report, word
from gemmctl.showing.streams import escaped

Format = Literal["table", "plain", "markdown", "csv", "json", "jsonl"]

# Words and signs that stand out in a coloured table, by their SGR code.
GOOD, WRONG, DOUBTFUL = "32", "1;31", "33"
STYLES = {
    **dict.fromkeys(("ok", "FAST", "FASTER", "<"), GOOD),
    **dict.fromkeys(("BAD", "SLOW", "SLOWER", ">"), WRONG),
    **dict.fromkeys(("UNSURE", "?"), DOUBTFUL),
}


def render(report: Report, format: Format, *, color: bool = False, width: int | None = None) -> str:
    """The report as text that ends in a newline; a table no wider than ``width``, if it can be."""
    match format:
        case "json":
            return document(report.head, report.items, map(compact, report.records))
        case "jsonl":
            return "".join(line(report.head, record) for record in report.records)
        case "csv":
            return _csv(report.records, report.head)
    if format == "table" and width is not None:
        report = _fitted(report, width)
    return _text(report, format, color)


def document(head: Record, items: str, records: Iterable[str]) -> str:
    """A whole JSON document; of the records, which are JSON already, each is a line."""
    top = json.dumps(_plain({**head, items: []}), indent=1).removesuffix("]\n}")
    lines = ",\n  ".join(records)
    return f"{top}\n  {lines}\n ]\n}}\n"


def line(head: Record, record: Record) -> str:
    """One record as a line of JSON that stands on its own."""
    return compact({**head, **record}) + "\n"


def compact(record: Record) -> str:
    """A record as JSON on one line."""
    return json.dumps(_plain(record), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: infinities and NaN as their names."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _csv(records: Sequence[Record], head: Record) -> str:
    """Every scalar of every record, and then those of the head.

    Nested ones get dotted names, lists have no column, and what a record lacks is blank.
    """
    own, shared = [dict(_flat(record)) for record in records], dict(_flat(head))
    flat = [record | shared for record in own]
    names = list(dict.fromkeys(name for record in [*own, shared] for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list | tuple):
            yield word(prefix + name), value


def _fitted(report: Report, width: int) -> Report:
    """The report with the columns that fit, a note that names the others, and notes that fit."""
    table, missing = report.table.fitted(width)
    notes = list(report.notes)
    if missing:
        notes.append(f"no room for {', '.join(missing)}: --columns picks, -f plain has them all")
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return replace(report, table=table, notes=[wrapper.fill(note) for note in notes])


def _text(report: Report, format: Format, color: bool) -> str:
    import tabulate

    tabulate.MIN_PADDING = 0  # it would widen every column by two blanks
    lines = [[escaped(cell) for cell in line] for line in (report.table.titles, *report.table.rows)]
    # 100,000 rows take 13 s instead of 7.5 if every cell's width is asked for (wcwidth 0.9.4).
    tabulate.WIDE_CHARS_MODE = not all(cell.isascii() for line in lines for cell in line)
    if format == "markdown":
        lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    titles, *rows = lines
    if color and format != "markdown":
        rows = [[_styled(cell) for cell in row] for row in rows]
    table = tabulate.tabulate(
        rows,
        headers=titles,
        tablefmt={"table": "simple", "plain": "plain", "markdown": "pipe"}[format],
        colalign=["left" if left else "right" for left in report.table.left] if rows else None,
        disable_numparse=True,
    )
    notes = () if format == "plain" else report.notes
    blocks = [table, escaped("\n".join(report.details)), escaped("\n".join(notes))]
    return ("\n" if format == "plain" else "\n\n").join(filter(None, blocks)) + "\n"


def _styled(cell: str) -> str:
    said = cell.lstrip("0123456789.")  # a ratio may have its verdict behind it
    return f"\x1b[{STYLES[said]}m{cell}\x1b[0m" if said in STYLES else cell
