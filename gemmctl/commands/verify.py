"""``gemmctl verify``: judge every group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gemmctl.commands.options import (
    Color,
    Columns,
    DeviceName,
    Format,
    KernelName,
    Launch,
    NoTuneCache,
    Only,
    Quiet,
    Seed,
    Sort,
)
from gemmctl.commands.ready import ready
from gemmctl.commands.sources import Alpha, Beta, Count, Dtype, Files, Mnk, sources
from gemmctl.errors import UsageError

if TYPE_CHECKING:
    from gemmctl.device.base import Session
    from gemmctl.operands.data import DataSpec
    from gemmctl.planning.plan import Plan
    from gemmctl.showing.report import Report
    from gemmctl.showing.verify_report import Checked


def verify(
    files: Files = None,
    mnk: Mnk = None,
    count: Count = None,
    dtype: Dtype = None,
    alpha: Alpha = None,
    beta: Beta = None,
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
    repeat: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Runs in all: every one has to give the bits of the first, which is judged.",
        ),
    ] = 2,
    dump: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Leave the operands of each problem's first wrong group there, "
            "and a list that reproduces it.",
        ),
    ] = None,
    launch: Launch = "grouped",
    kernel: KernelName = None,
    no_tune_cache: NoTuneCache = False,
    only: Only = None,
    columns: Columns = None,
    sort: Sort = None,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="A row for every group.")
    ] = False,
    color: Color = "auto",
) -> None:
    """Check every group against a CPU reference, twice.

    Says which group, row and column is wrong.
    """
    from gemmctl.judging import verify as judging
    from gemmctl.judging.repeats import repeated
    from gemmctl.kernels import cubins
    from gemmctl.operands.data import KINDS, DataSpec, Kind
    from gemmctl.showing import verify_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.table import View

    if dump is not None:
        _check_folder(dump)
    out = Output(format, quiet, color, View(verbose, columns, sort))
    kinds: tuple[Kind, ...] = KINDS
    if data != "all":
        kinds = ("normal", "int") if data == "both" else (data,)
    specs = [DataSpec(kind, seed) for kind in kinds]
    found = sources(files, mnk, count, dtype, alpha, beta)
    tuned = not no_tune_cache
    plans, on = ready(found, only, device, out, launch, kernel=kernel, tuned=tuned)
    verify_report.check(on.facts, out.view)
    head = verify_report.head(on.facts, data, seed, repeat, launch, cubins.manifest())
    checks: list[verify_report.Checked] = []
    notes: list[str | UsageError] = []
    total = len(plans) * len(specs)
    where = on.facts.kind if device == "auto" else device

    def report() -> Report:
        return verify_report.report(head, checks, on.facts, out.view)

    def so_far() -> str:
        return f"{len(checks)} of {total} checks done"

    def check(plan: Plan, spec: DataSpec, tick: Callable[[float], None]) -> None:
        with on.open(plan, spec) as session:
            session.run()
            verdicts = judging.verify(plan, session, spec, device=on.facts.kind, progress=tick)
            judged, first = verify_report.Checked(plan, spec, verdicts), session.digests()
            # Before anything runs again, so that D is what was judged.
            left = _dumped(dump, session, judged, where, repeat)
            notes.extend(left)
            verdicts = repeated(session, verdicts, first, repeat)
            checks.append(verify_report.Checked(plan, spec, verdicts))
            if not left:
                notes.extend(_dumped(dump, session, checks[-1], where, repeat))

    try:
        with out.shown(checks, report, so_far), out.bar(total) as bar:
            for plan, spec in product(plans, specs):
                check(plan, spec, bar.part(f"{plan.problem.name} ({spec.kind})"))
                out.stream(head, verify_report.record(checks[-1]))
    finally:  # of what ends before its end, too, somebody has to know what it left
        for note in notes:
            if isinstance(note, UsageError):
                print(note.told(), file=sys.stderr)
            else:
                out.note(note)
    if any(checked.bad for checked in checks):
        raise typer.Exit(1)


def _check_folder(path: str) -> None:
    """Raise UsageError if no folder could be made there; leaves nothing behind."""
    there = Path(path)
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        usable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    except OSError:  # a name is too long, a folder may not be searched
        usable = False
    if not path or not usable:
        raise UsageError(f"cannot dump to '{path}': it is no folder that can be written to")


def _dumped(
    dump: str | None, session: Session, checked: Checked, device: str, repeat: int
) -> list[str | UsageError]:
    """Leave a problem's first wrong group in a folder there, and say so, or why that failed."""
    from gemmctl.judging import dump as dumping

    if dump is None or not checked.bad:
        return []
    folder = os.path.join(dump, checked.folder)
    try:
        group = checked.bad[0].group
        dumping.dump(
            checked.plan, session, group, folder, checked.data, device=device, repeat=repeat
        )
    except UsageError as error:  # the verdict is worth more
        return [error]
    return [f"left the operands of the first wrong group in {folder}"]
