"""``gemmctl compare``: saved runs side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmctl.commands.options import Color, Format, Quiet, percentage


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file that run --save wrote.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another.")],
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit 1 if a problem surely became slower by more than this.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if devices or settings differ.")
    ] = False,
    format: Format = None,
    quiet: Quiet = False,
    color: Color = "auto",
) -> None:
    """Put two saved runs side by side: SAME, FAST, SLOW or UNSURE."""
    from gemmctl.showing import compare_report, saved
    from gemmctl.showing.comparison import compare as compare_runs
    from gemmctl.showing.output import Output

    out = Output(format, quiet, False, color)
    limit = None if fail_over is None else percentage(fail_over)
    comparison = compare_runs(saved.load(old), saved.load(new), force=force)
    for text in comparison.notes:
        out.note(text)
    out.show(compare_report.report(comparison))
    if limit is not None and comparison.over(limit):
        raise typer.Exit(1)
