"""Show a report: tables for people, records in base units for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from gemmctl.showing.report import Record, Report

Format = Literal["table", "plain", "markdown", "csv", "json", "jsonl"]

# Words that stand out in a coloured table, by their SGR code.
STYLES = {
    **{"ok": "32", "BAD": "1;31", "UNSURE": "33"},
    **{"FAST": "32", "FASTER": "32", "SLOW": "1;31", "SLOWER": "1;31"},
}


def render(report: Report, format: Format, *, color: bool = False) -> str:
    """The report as text that ends in a newline."""
    match format:
        case "json":
            whole = {**report.head, report.items: report.records}
            return json.dumps(_plain(whole), indent=1) + "\n"
        case "jsonl":
            return "".join(line(report.head, record) for record in report.records)
        case "csv":
            return _csv([{**report.head, **record} for record in report.records])
    return _text(report, format, color)


def line(head: Record, record: Record) -> str:
    """One record as a line of JSON that stands on its own."""
    return json.dumps(_plain({**head, **record}), separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: infinities and NaN as their names."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _csv(records: Sequence[Record]) -> str:
    """Every scalar of every record; nested ones get dotted names, lists have no column."""
    flat = [dict(_flat(record)) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))
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
            yield prefix + name, value


def _text(report: Report, format: Format, color: bool) -> str:
    import tabulate

    tabulate.MIN_PADDING = 0  # it would widen every column by two blanks
    rows = report.rows
    if format == "markdown":
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    elif color:
        rows = [[_styled(cell) for cell in row] for row in rows]
    table = tabulate.tabulate(
        rows,
        headers=report.titles,
        tablefmt={"table": "simple", "plain": "plain", "markdown": "pipe"}[format],
        colalign=["left" if left else "right" for left in report.left] if rows else None,
        disable_numparse=True,
    )
    notes = () if format == "plain" else report.notes
    blocks = [table, "\n".join(report.details), "\n".join(notes)]
    return ("\n" if format == "plain" else "\n\n").join(filter(None, blocks)) + "\n"


def _styled(cell: str) -> str:
    return f"\x1b[{STYLES[cell]}m{cell}\x1b[0m" if cell in STYLES else cell
