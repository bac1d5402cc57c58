"""``gemmctl tune``: measure the ways to run each problem."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmctl.commands.options import Color, DeviceName, Files, Format, Only, Quiet, Verbose
from gemmctl.commands.ready import ready


def tune(
    files: Files,
    format: Format = None,
    device: DeviceName = "auto",
    max_time: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="At most so long for each problem.")
    ] = 30.0,
    only: Only = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
) -> None:
    """Measure the ways to run each problem, print them ranked, keep the best for run and verify.

    Those that promise most are tried first, and the better half is measured longer, again and
    again. The best is kept in a cache for this problem, GPU and cubins.
    """
    from gemmctl.kernels import cubins
    from gemmctl.measuring import tune as tuning
    from gemmctl.measuring.tune_cache import TuneCache, folder
    from gemmctl.showing import tune_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.progress import Bar

    out = Output(format, quiet, verbose, color)
    settings = tuning.Settings(max_time)
    plans, on = ready(files, only, device, out)
    manifest = cubins.manifest()
    cache, kept = TuneCache(on.facts, manifest, out.note), False
    head = tune_report.head(on.facts, settings, manifest)
    rankings: list[tuning.Ranking] = []
    try:
        with Bar(len(plans), shown=out.bar) as bar:
            for plan in plans:
                tick = bar.part(plan.problem.name)
                rankings.append(tuning.measure(plan, on, manifest.kernels, settings, tick))
                kept |= cache.keep(rankings[-1].best.plan, rankings[-1].best.median_s)
                for record in tune_report.records(rankings[-1]):
                    out.stream(head, record)
    finally:
        if rankings:
            out.show(tune_report.report(head, rankings, on.facts, verbose=verbose))
    for advice in tune_report.untried(rankings):
        out.note(advice)
    if kept:
        out.note(f"run and verify use the best from now on; it is kept in {folder()}")
