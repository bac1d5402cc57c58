"""``gemmctl tune``: measure the ways to run each problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmctl.commands.options import (
    Color,
    Columns,
    DeviceName,
    Format,
    Only,
    Quiet,
    Sort,
    Verbose,
)
from gemmctl.commands.ready import ready
from gemmctl.commands.sources import Alpha, Beta, Count, Dtype, Files, Mnk, sources

if TYPE_CHECKING:
    from gemmctl.showing.report import Report


def tune(
    files: Files = None,
    mnk: Mnk = None,
    count: Count = None,
    dtype: Dtype = None,
    alpha: Alpha = None,
    beta: Beta = None,
    format: Format = None,
    device: DeviceName = "auto",
    max_time: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="At most so long for each problem.")
    ] = 30.0,
    all_: Annotated[
        bool, typer.Option("--all", help="Those too that by the cost model cannot win.")
    ] = False,
    only: Only = None,
    columns: Columns = None,
    sort: Sort = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
) -> None:
    """Measure the ways to run each problem and keep the best.

    What was kept before is tried first, then those that promise most, and those that cannot win are
    not; the better half is measured longer, again and again. The best is kept in a cache, where run
    and verify find it; of a CPU nothing is kept.
    """
    from gemmctl.kernels import cubins
    from gemmctl.measuring import tune as tuning
    from gemmctl.measuring.tune_cache import TuneCache, folder
    from gemmctl.showing import tune_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.table import View

    out = Output(format, quiet, color, View(verbose, columns, sort))
    settings = tuning.Settings(max_time, all=all_)
    plans, on = ready(sources(files, mnk, count, dtype, alpha, beta), only, device, out, tuned=True)
    out.view.check(tune_report.columns(on.facts))
    manifest = cubins.manifest()
    cache, kept = TuneCache(on.facts, manifest, out.note), False
    head = tune_report.head(on.facts, settings, manifest)
    rankings: list[tuning.Ranking] = []

    def report() -> Report:
        return tune_report.report(head, rankings, on.facts, out.view)

    def so_far() -> str:
        return f"{len(rankings)} of {len(plans)} problems tuned"

    with out.shown(rankings, report, so_far), out.bar(len(plans)) as bar:
        for plan in plans:
            tick = bar.part(plan.problem.name)
            rankings.append(tuning.measure(plan, on, manifest.kernels, settings, tick))
            best = rankings[-1].best
            if on.facts.kind == "cuda":
                kept |= cache.keep(best.plan, best.median_s)
            for record in tune_report.records(rankings[-1]):
                out.stream(head, record)
    for advice in tune_report.left_out(rankings):
        out.note(advice)
    if kept:
        out.note(f"run and verify use the best from now on; it is kept in {folder()}")
    if on.facts.kind == "cpu":
        out.note("nothing is kept: how fast a CPU walks the tiles says nothing of a GPU")
