"""``gemmctl plan``: what would run."""

from __future__ import annotations

from typing import Annotated

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
from gemmctl.commands.ready import planned
from gemmctl.commands.sources import Alpha, Beta, Count, Dtype, Files, Mnk, sources


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
    from gemmctl.device import roofline
    from gemmctl.kernels import cubins
    from gemmctl.planning.refusals import fused
    from gemmctl.showing import plan_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.table import View

    out = Output(format, quiet, color, View(verbose, columns, sort))
    plans = planned(sources(files, mnk, count, dtype, alpha, beta), only, kernel=kernel)
    for made in plans:
        for mark, why in fused(made.problem)[:1]:
            out.note(f"{mark.file}:{mark.line}: a GPU would refuse {made.problem.name}: {why}")
    report = plan_report.report(plans, roofline.H200, cubins.manifest(), out.view)
    for record in report.records:
        out.stream(report.head, record)
    out.show(report)
