"""What ``compare`` reports: two saved runs side by side, or many beside the first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmctl import __version__
from gemmctl.showing.report import (
    FORMAT,
    Record,
    Report,
    device_label,
    interval_cell,
    number,
    ratio_cell,
)
from gemmctl.showing.table import Column, View

if TYPE_CHECKING:
    from gemmctl.showing.comparison import Comparison, Difference
    from gemmctl.showing.saved import Saved

# A verdict behind a ratio, where there is no room for the word.
SIGNS = {"FAST": "<", "SLOW": ">", "SAME": "=", "UNSURE": "?"}


@dataclass(frozen=True)
class Beside:
    """One problem of the old run, and what it became in the others; None: it is not there."""

    name: str
    old_s: float
    differences: tuple[Difference | None, ...]


def report(comparisons: Sequence[Comparison], view: View) -> Report:
    """A row for each problem; the comparisons are all with the same old run."""
    old = comparisons[0].old
    heads = [old, *(comparison.new for comparison in comparisons)]
    if len(comparisons) == 1:
        (comparison,) = comparisons
        differences = view.order(_PAIR, comparison.differences)
        records = [_record(comparison, difference) for difference in differences]
        table = view.table(_PAIR, differences)
        note = f"old is {old.path}, new is {comparison.new.path}"
    else:
        columns = _beside(comparisons)
        rows = view.order(columns, _rows(comparisons))
        records = [
            _record(comparison, difference)
            for row in rows
            for comparison, difference in zip(comparisons, row.differences, strict=True)
            if difference is not None
        ]
        table = view.table(columns, rows)
        note = (
            f"ratios to {old.path}: < surely faster, > surely slower, = the same within 1%, "
            "? the samples allow more than one of these"
        )
    return Report(
        head={
            "format": FORMAT,
            "command": "compare",
            "gemmctl": __version__,
            "runs": [{"path": run.path, **run.head} for run in heads],
            "geometric_means": [comparison.mean for comparison in comparisons],
        },
        items="problems",
        records=records,
        table=table,
        details=[_means(comparisons)],
        notes=[f"{_devices(heads)}; {note}"],
    )


def _devices(runs: Sequence[Saved]) -> str:
    """The device that all ran on, or that of each."""
    devices = [run.head["device"] for run in runs]
    told = [device_label(device["kind"], device["name"]) for device in devices]
    if len(set(told)) == 1:
        return told[0]
    return "; ".join(f"{run.path}: {name}" for run, name in zip(runs, told, strict=True))


_PAIR: tuple[Column[Difference], ...] = (
    Column("problem", lambda d: d.name, left=True),
    Column("old us", lambda d: number(d.old_s, 1e-6), rank=1),
    Column("new us", lambda d: number(d.new_s, 1e-6)),
    Column("new/old", lambda d: ratio_cell(d.ratio)),
    Column("95% interval", lambda d: interval_cell(d.interval), rank=2),
    Column("verdict", lambda d: d.verdict, left=True),
)


def _beside(comparisons: Sequence[Comparison]) -> tuple[Column[Beside], ...]:
    def ratio(i: int) -> Column[Beside]:
        def cell(row: Beside) -> str:
            difference = row.differences[i]
            if difference is None:
                return "-"
            return ratio_cell(difference.ratio) + SIGNS[difference.verdict]

        return Column(labels[i + 1], cell)

    labels = _labels(comparisons)
    return (
        Column("problem", lambda row: row.name, left=True),
        Column(f"{labels[0]} us", lambda row: number(row.old_s, 1e-6), rank=1),
        *map(ratio, range(len(comparisons))),
    )


def _rows(comparisons: Sequence[Comparison]) -> list[Beside]:
    """The problems that the old run shares with any of the others, in its order."""
    found = [{d.name: d for d in comparison.differences} for comparison in comparisons]
    rows = []
    for name in comparisons[0].old.problems:
        differences = tuple(by_name.get(name) for by_name in found)
        there = next(filter(None, differences), None)
        if there is not None:
            rows.append(Beside(name, there.old_s, differences))
    return rows


def _record(comparison: Comparison, difference: Difference) -> Record:
    low, high = difference.interval or (None, None)
    return {
        "name": difference.name,
        "old": comparison.old.path,
        "new": comparison.new.path,
        "old_device": comparison.old.head["device"]["kind"],
        "new_device": comparison.new.head["device"]["kind"],
        "old_s": difference.old_s,
        "new_s": difference.new_s,
        "ratio": difference.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": difference.verdict,
    }


def _means(comparisons: Sequence[Comparison]) -> str:
    """The geometric mean of each run's ratios, in one line."""
    labels = _labels(comparisons)[1:]
    means = [
        f"{ratio_cell(comparison.mean)} over {count} problem{'s' * (count != 1)}"
        for comparison in comparisons
        for count in [len(comparison.ratios)]
    ]
    if len(means) == 1:
        return f"geometric mean of new/old: {means[0]}"
    told = ", ".join(f"{label} {mean}" for label, mean in zip(labels, means, strict=True))
    return f"geometric means: {told}"


def _labels(comparisons: Sequence[Comparison]) -> list[str]:
    """What the old run and the new ones are called: files without folders and endings.

    With these where names alone do not tell them apart; blanks would look like the end of a cell.
    """
    paths = [comparisons[0].old.path, *(comparison.new.path for comparison in comparisons)]
    short = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    told = short if len(set(short)) == len(short) else paths
    return [label.replace(" ", "-") for label in told]
