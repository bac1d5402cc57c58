"""``gemmctl compare``: saved runs side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmctl.commands.options import Color, Columns, Format, Quiet, Sort, percentage


def _complete_problem(ctx: typer.Context, incomplete: str) -> list[str]:
    """The problems of the runs that stand on the command line."""
    from gemmctl.errors import GemmctlError
    from gemmctl.showing import saved

    try:
        first = next(path for path in (ctx.params.get("old"), *ctx.args) if path not in (None, "-"))
        return list(saved.load(first).problems)
    except (GemmctlError, StopIteration):
        return []


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", hidden=True)],
    new: Annotated[list[str], typer.Argument(metavar="NEW", hidden=True)],
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit 1 if a problem of OLD surely became slower by more than this, or was "
            "measured too little in NEW, or not at all.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if devices or settings differ.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Only problems of these names; may be repeated.",
            autocompletion=_complete_problem,
        ),
    ] = None,
    format: Format = None,
    columns: Columns = None,
    sort: Sort = None,
    quiet: Quiet = False,
    color: Color = "auto",
) -> None:
    """Put saved runs side by side: SAME, FAST, SLOW or UNSURE.

    OLD and NEW are files that run --save wrote, or what run -f json or jsonl printed; - is standard
    input. Two runs have all their figures in the table; of more, each has its ratio to the first.
    """
    from gemmctl.errors import TWICE, UsageError
    from gemmctl.showing import compare_report, saved
    from gemmctl.showing.comparison import compare as compare_runs
    from gemmctl.showing.output import Output
    from gemmctl.showing.table import View

    out = Output(format, quiet, color, View(columns=columns, sort=sort))
    limit = None if fail_over is None else percentage("--fail-over", fail_over)
    if [old, *new].count("-") > 1:
        raise UsageError(TWICE)
    first = saved.load(old)
    several = len(new) > 1
    comparisons = [
        compare_runs(first, saved.load(path), only=only or (), force=force, several=several)
        for path in new
    ]
    report = compare_report.report(comparisons, out.view)
    told = [text for comparison in comparisons for text in comparison.notes]
    if limit is None:
        told += [text for comparison in comparisons for text in comparison.gaps]
    for text in dict.fromkeys(told):  # what is true of OLD is told once
        out.note(text)
    for record in report.records:
        out.stream(report.head, record)
    out.show(report)
    if limit is None:
        return
    failures = [text for comparison in comparisons for text in comparison.failures(limit)]
    for text in dict.fromkeys(failures):
        out.note(f"fails: {text}")
    if failures:
        raise typer.Exit(1)
