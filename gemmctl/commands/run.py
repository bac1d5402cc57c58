"""``gemmctl run``: time every problem."""

from __future__ import annotations

import os
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
    Verbose,
    percentage,
)
from gemmctl.commands.ready import ready
from gemmctl.commands.sources import Alpha, Beta, Count, Dtype, Files, Mnk, sources
from gemmctl.errors import UsageError

if TYPE_CHECKING:
    from gemmctl.showing.report import Report
    from gemmctl.showing.saved import Saved


def _complete_against(incomplete: str) -> list[str]:
    """Names of baselines, also after a comma."""
    from gemmctl.measuring.baselines import BASELINES

    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in (*BASELINES, *([] if before else ["all"]))]


def run(
    files: Files = None,
    mnk: Mnk = None,
    count: Count = None,
    dtype: Dtype = None,
    alpha: Alpha = None,
    beta: Beta = None,
    format: Format = None,
    save: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--save",
            metavar="FILE",
            help="Keep the full result, for gemmctl compare; written after every problem.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only what the file of --save lacks.")
    ] = False,
    device: DeviceName = "auto",
    warmup: Annotated[
        int, typer.Option(min=0, metavar="N", help="Runs before the first sample.")
    ] = 3,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many samples.")] = 50,
    max_time: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="At most so long for each problem. [default: 3, or 30 with --pace sustained]",
        ),
    ] = None,
    max_noise: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Enough once the spread is below it; 0 takes all runs."
        ),
    ] = "0.5%",
    pace: Annotated[
        Literal["burst", "sustained"],
        typer.Option(
            help="burst: 50 ms of samples after every rest; sustained: after that back to back, in "
            "blocks of a second, at the clock that the GPU keeps, with watts and joules a run."
        ),
    ] = "burst",
    cache: Annotated[
        Literal["cold", "warm"],
        typer.Option(
            help="Of bursts; cold: the L2 is flushed before every sample; warm: back to back."
        ),
    ] = "cold",
    data: Annotated[
        Literal["normal", "int"],
        typer.Option(help="int draws less power than real data does, and runs faster."),
    ] = "normal",
    seed: Seed = 0,
    launch: Launch = "grouped",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Time other libraries beside: some of cublas, cublas-loop, cublas-streams, "
            "cublaslt, torch, torch-bmm, torch-grouped, deepgemm with commas between, or all. "
            "Needs a GPU.",
            autocompletion=_complete_against,
        ),
    ] = None,
    kernel: KernelName = None,
    no_tune_cache: NoTuneCache = False,
    only: Only = None,
    columns: Columns = None,
    sort: Sort = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
) -> None:
    """Time every problem and print the throughput table."""
    from gemmctl.kernels import cubins
    from gemmctl.measuring import baselines, bench, sustained
    from gemmctl.operands.data import DataSpec
    from gemmctl.showing import plan_report, resuming, run_report
    from gemmctl.showing.output import Output
    from gemmctl.showing.saving import Saving, whole_head
    from gemmctl.showing.table import View

    out = Output(format, quiet, color, View(verbose, columns, sort))
    noise, spec = percentage("--max-noise", max_noise), DataSpec(data, seed)
    most_s = bench.MAX_TIME_S[pace] if max_time is None else max_time
    settings = bench.Settings(warmup, runs, most_s, noise, cache, spec, launch, pace)
    measure = {"burst": bench.measure, "sustained": sustained.measure}[pace]
    rivals = baselines.chosen(against)
    earlier = _earlier(save, resume)
    found = sources(files, mnk, count, dtype, alpha, beta)
    tuned = not no_tune_cache
    plans, on = ready(found, only, device, out, launch, kernel=kernel, tuned=tuned)
    baselines.check_device(rivals, on.facts)
    packed = any(map(plan_report.packs, plans))
    out.view.check(run_report.columns(on.facts, settings, rivals, packed))
    head = run_report.head(on.facts, settings, cubins.manifest())
    done = {} if earlier is None else resuming.results(earlier, head, plans, rivals)
    if done:
        out.note(f"{len(done)} of {len(plans)} problems are in {save} already")
    saving = Saving(save, head, [plan.problem.name for plan in plans], earlier)
    results: list[bench.Result] = []

    def report() -> Report:
        measured = {result.plan.problem.name for result in results}
        whole = whole_head(head, measured, [plan.problem.name for plan in plans])
        return run_report.report(whole, results, on.facts, settings, rivals, out.view, packed)

    def so_far() -> str:
        return f"{len(results)} of {len(plans)} problems measured{saving.left()}"

    with out.shown(results, report, so_far), out.bar(len(plans)) as bar:
        for plan in plans:
            tick = bar.part(plan.problem.name)
            result = done.get(plan.problem.name)
            if result is None:
                with on.open(plan, settings.data) as session:
                    entries = baselines.enter(
                        rivals, session, plan, settings.data, cold=cache == "cold", pace=pace
                    )
                    result = measure(session, on, plan, settings, tick, entries)
            results.append(result)
            record = run_report.record(result)
            try:
                if plan.problem.name not in done:
                    saving.add(record)
            finally:  # what is measured is shown, whether it can be kept or not
                out.stream(head, record)
    for advice in run_report.advice(results, on.facts, settings):
        out.note(advice)


def _earlier(save: str | None, resume: bool) -> Saved | None:
    """The run to go on with, if there is one; raises UsageError if nothing can be saved there."""
    from gemmctl.showing import saved, saving

    if save is not None:
        saving.check(save)
        if resume and os.path.exists(save) and os.path.getsize(save):
            return saved.load(save)
    elif resume:
        raise UsageError("--resume goes on with a saved run; name its file with --save")
    return None
