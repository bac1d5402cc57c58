"""``gemmctl verify``: judge every group."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer

from gemmctl.commands.options import (
    Color,
    DeviceName,
    Files,
    Format,
    KernelName,
    NoTuneCache,
    Only,
    Quiet,
    Seed,
)
from gemmctl.commands.ready import ready


def verify(
    files: Files,
    format: Format = None,
    device: DeviceName = "auto",
    data: Annotated[
        Literal["both", "normal", "int", "special", "all"],
        typer.Option(
            help="int must come back exactly, normal within what the arithmetic allows; both are "
            "these two; special has zeros, subnormals, the largest numbers, infinities and NaNs."
        ),
    ] = "both",
    seed: Seed = 0,
    dump: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Leave the operands of each problem's first wrong group there, "
            "and a list that reproduces it.",
        ),
    ] = None,
    kernel: KernelName = None,
    no_tune_cache: NoTuneCache = False,
    only: Only = None,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="A row for every group.")
    ] = False,
    color: Color = "auto",
) -> None:
    """Run once and check every group against a CPU reference.

    Says which group, row and column is wrong.
    """
    from gemmctl.judging import dump as dumping
    from gemmctl.judging import verify as judging
    from gemmctl.kernels import cubins
    from gemmctl.operands.data import KINDS, DataSpec, Kind
    from gemmctl.showing import verify_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.progress import Bar

    out = Output(format, quiet, verbose, color)
    kinds: tuple[Kind, ...] = KINDS
    if data != "all":
        kinds = ("normal", "int") if data == "both" else (data,)
    plans, on = ready(files, only, device, out, kernel=kernel, tuned=not no_tune_cache)
    head = verify_report.head(on.facts, cubins.manifest())
    checks: list[verify_report.Checked] = []
    try:
        with Bar(len(plans) * len(kinds), shown=out.bar) as bar:
            for plan in plans:
                for spec in (DataSpec(kind, seed) for kind in kinds):
                    tick = bar.part(f"{plan.problem.name} ({spec.kind})")
                    with on.open(plan, spec) as session:
                        session.run()
                        verdicts = judging.verify(
                            plan, session, spec, device=on.facts.kind, progress=tick
                        )
                        checked = verify_report.Checked(plan, spec, verdicts)
                        if checked.bad and dump is not None:
                            folder = os.path.join(dump, checked.folder)
                            dumping.dump(plan, session, checked.bad[0].group, folder, spec)
                            out.note(f"left the operands of the first wrong group in {folder}")
                    checks.append(checked)
                    out.stream(head, verify_report.record(checked))
    finally:
        if checks:
            out.show(verify_report.report(head, checks, on.facts, verbose=verbose))
    if any(checked.bad for checked in checks):
        raise typer.Exit(1)
