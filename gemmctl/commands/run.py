"""``gemmctl run``: time every problem."""

from __future__ import annotations

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
    Verbose,
    percentage,
)
from gemmctl.commands.ready import ready


def run(
    files: Files,
    format: Format = None,
    save: Annotated[
        str | None,
        typer.Option(
            "-o", "--save", metavar="FILE", help="Keep the full result, for gemmctl compare."
        ),
    ] = None,
    device: DeviceName = "auto",
    warmup: Annotated[int, typer.Option(min=0, help="Runs before the first sample.")] = 3,
    runs: Annotated[int, typer.Option(min=1, help="At most so many samples.")] = 50,
    max_time: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="At most so long for each problem.")
    ] = 3.0,
    max_noise: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Enough once the spread is below it; 0 takes all runs."
        ),
    ] = "0.5%",
    cache: Annotated[
        Literal["cold", "warm"],
        typer.Option(help="cold: the L2 is flushed before every sample; warm: back to back."),
    ] = "cold",
    data: Annotated[
        Literal["normal", "int"],
        typer.Option(help="int draws less power than real data does, and runs faster."),
    ] = "normal",
    seed: Seed = 0,
    launch: Annotated[
        Literal["grouped", "graph", "serial", "streams"],
        typer.Option(
            help="grouped: one launch for all groups of the same element types; graph: the same "
            "and the set-up of its tensor maps as one CUDA graph; serial: a launch for each "
            "group, in a CUDA graph; streams: the same over 8 streams."
        ),
    ] = "grouped",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Time other libraries beside: some of cublas, cublas-loop, cublas-streams, "
            "cublaslt, torch, torch-bmm, torch-grouped, deepgemm with commas between, or all. "
            "Needs a GPU.",
        ),
    ] = None,
    kernel: KernelName = None,
    no_tune_cache: NoTuneCache = False,
    only: Only = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
) -> None:
    """Time every problem and print the throughput table."""
    from gemmctl.kernels import cubins
    from gemmctl.measuring import baselines, bench
    from gemmctl.operands.data import DataSpec
    from gemmctl.showing import run_report, saved
    from gemmctl.showing.output import Output
    from gemmctl.showing.progress import Bar

    out = Output(format, quiet, verbose, color)
    settings = bench.Settings(
        warmup, runs, max_time, percentage(max_noise), cache, DataSpec(data, seed), launch
    )
    names = baselines.chosen(against)
    if save is not None:
        saved.check_writable(save)
    tuned = not no_tune_cache
    plans, on = ready(files, only, device, out, launch, kernel=kernel, tuned=tuned)
    baselines.check_device(names, on.facts)
    head = run_report.head(on.facts, settings, cubins.manifest())
    results: list[bench.Result] = []
    try:
        with Bar(len(plans), shown=out.bar) as bar:
            for plan in plans:
                tick = bar.part(plan.problem.name)
                with on.open(plan, settings.data) as session:
                    entries = baselines.enter(
                        names, session, plan, settings.data, cold=cache == "cold"
                    )
                    results.append(bench.measure(session, on, plan, settings, tick, entries))
                out.stream(head, run_report.record(results[-1]))
    finally:
        shown = run_report.report(head, results, on.facts, settings, verbose=verbose)
        if results:
            out.show(shown)
    for advice in (*run_report.exceptions(results), *run_report.noisy(results)):
        out.note(advice)
    if save is not None:
        saved.save(shown, save)
