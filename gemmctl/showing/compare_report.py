"""What ``compare`` reports: two saved runs side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from gemmctl import __version__
from gemmctl.showing.report import FORMAT, Column, Report, number, tabled

if TYPE_CHECKING:
    from gemmctl.showing.comparison import Comparison, Difference


def report(comparison: Comparison) -> Report:
    """Two runs side by side."""
    columns: tuple[Column[Difference], ...] = (
        Column("problem", lambda d: d.name, left=True),
        Column("old us", lambda d: number(d.old_s, 1e-6)),
        Column("new us", lambda d: number(d.new_s, 1e-6)),
        Column("new/old", lambda d: f"{d.ratio:.3f}"),
        Column("95% interval", _interval),
        Column("verdict", lambda d: d.verdict, left=True),
    )
    titles, rows, left = tabled(columns, comparison.differences, verbose=False)
    heads = {"old": comparison.old.head, "new": comparison.new.head}
    return Report(
        head={"format": FORMAT, "command": "compare", "gemmctl": __version__, **heads},
        items="problems",
        records=[
            {**asdict(d), "ratio": d.ratio, "verdict": d.verdict} for d in comparison.differences
        ],
        titles=titles,
        rows=rows,
        left=left,
        notes=[f"{comparison.old.head['device']['name']}; old is {comparison.old.path}, "
               f"new is {comparison.new.path}"],
    )  # fmt: skip


def _interval(difference: Difference) -> str:
    return "..".join(f"{end:.3f}" for end in difference.interval or ()) or "-"
