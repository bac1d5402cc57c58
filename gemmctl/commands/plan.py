"""``gemmctl plan``: what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmctl.commands.options import (
    Color,
    Columns,
    Format,
    KernelName,
    Only,
    Sort,
    Verbose,
)
from gemmctl.commands.ready import checked
from gemmctl.commands.sources import Alpha, Beta, Count, Dtype, Files, Mnk, sources

if TYPE_CHECKING:
    from gemmctl.planning.plan import Plan
    from gemmctl.showing.report import Report


def plan(
    files: Files = None,
    mnk: Mnk = None,
    count: Count = None,
    dtype: Dtype = None,
    alpha: Alpha = None,
    beta: Beta = None,
    format: Format = None,
    kernel: KernelName = None,
    only: Only = None,
    columns: Columns = None,
    sort: Sort = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Only check the lists: errors and exit code.")
    ] = False,
    verbose: Verbose = False,
    color: Color = "auto",
) -> None:
    """Say what would run: launches, tiles, padding, bound. Needs no GPU.

    It is what the cost model chooses for an H200; what tune found on a GPU is not looked at.
    """
    from gemmctl.device.roofline import H200
    from gemmctl.kernels import cubins
    from gemmctl.planning import plan as planning
    from gemmctl.showing import plan_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.table import View

    out = Output(format, quiet, color, View(verbose, columns, sort))
    out.view.check(plan_report.columns(H200))
    manifest = cubins.manifest()
    kernels, head = manifest.named(kernel), plan_report.head(H200, manifest)
    problems = checked(sources(files, mnk, count, dtype, alpha, beta), only, kernels)
    if quiet:
        return  # there is nothing to refuse but what was checked
    plans: list[Plan] = []

    def report() -> Report:
        return plan_report.report(plans, H200, manifest, out.view)

    def so_far() -> str:
        return f"{len(plans)} of {len(problems)} problems planned"

    with out.shown(plans, report, so_far), out.bar(len(problems)) as bar:
        for problem in problems:
            bar.part(problem.name)
            plans += planning.make([problem], kernels)
            out.stream(head, plan_report.bounded(plans[-1], H200))
