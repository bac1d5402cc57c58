"""``gemmctl plan``: what would run."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmctl.commands.options import Color, Files, Format, KernelName, Only, Verbose
from gemmctl.commands.ready import planned


def plan(
    files: Files,
    format: Format = None,
    kernel: KernelName = None,
    only: Only = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Only check the lists: errors and exit code.")
    ] = False,
    verbose: Verbose = False,
    color: Color = "auto",
) -> None:
    """Say what would run: launches, tiles, waves, padding, kernel, bound. Needs no GPU.

    It is what the cost model chooses for an H200; what tune found on a GPU is not looked at.
    """
    from gemmctl.device import roofline
    from gemmctl.kernels import cubins
    from gemmctl.showing import plan_report
    from gemmctl.showing.output import Output

    plans = planned(files, only, kernel=kernel)
    found = plan_report.report(plans, roofline.H200, cubins.manifest(), verbose=verbose)
    out = Output(format, quiet, verbose, color)
    for record in found.records:
        out.stream(found.head, record)
    out.show(found)
