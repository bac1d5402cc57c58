"""The command line: options in, one call per step, exit code out.

Only typer and the errors are imported here, everything else by the command that needs it, so that
--help and --version answer at once.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gemmctl.errors import DeviceFailed

if TYPE_CHECKING:
    from gemmctl.device.base import Device
    from gemmctl.planning.plan import Launching, Plan
    from gemmctl.showing.output import Output

EXIT_CODES = """\
\b
Exit codes:
  0    done, and right
  1    ran, and the answer is no: verify found a mismatch, compare is over its limit
  2    bad usage, a bad problem list, or a file that cannot be used; nothing was run
  3    the device asked for is not usable: driver, chip or cubin
  4    the device failed while it ran: launch error, out of memory, time limit
  70   a bug in gemmctl
  130  interrupted (Ctrl-C)
  141  the reader of the output closed the pipe
"""

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _percentage(text: str) -> float:
    """``3%`` or ``0.03`` as 0.03."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise typer.BadParameter(f"{text!r} is not a percentage; write 3% or 0.03")
    return value


def _print_version(wanted: bool) -> None:
    if wanted:
        from gemmctl import __version__

        typer.echo(f"gemmctl {__version__}")
        raise typer.Exit


Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Problem lists; - is standard input.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="GLOB", help="Only problems of these names; may be repeated."),
]
Format = Annotated[
    Literal["table", "plain", "markdown", "csv", "json", "jsonl"] | None,
    typer.Option(
        "-f",
        "--format",
        help="What goes to stdout. [default: table on a terminal, plain elsewhere]",
    ),
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda|cuda:N",
        envvar="GEMMCTL_DEVICE",
        help="Where to run; auto is the first Hopper GPU, else the CPU.",
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help="Only kernels of this name (gemmctl info lists them), whatever tune found.",
    ),
]
NoTuneCache = Annotated[
    bool,
    typer.Option("--no-tune-cache", help="Let the cost model choose, whatever tune found."),
]
Seed = Annotated[int, typer.Option(help="The same seed means the same data everywhere.")]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="No results and no notes: errors and exit code only.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More columns.")]
Color = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(help="auto: on a terminal, unless NO_COLOR is set or TERM is dumb."),
]


@app.callback(epilog=EXIT_CODES)
def gemmctl(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Grouped GEMM on NVIDIA Hopper GPUs: time it, verify it, plan it, compare it."""


@app.command()
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
            help="Time other libraries beside: some of cublas, cublas-loop, cublas-streams, torch, "
            "torch-bmm, torch-grouped with commas between, or all. Needs a GPU.",
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
    from gemmctl.showing import report, saved
    from gemmctl.showing.output import Output
    from gemmctl.showing.progress import Bar

    out = Output(format, quiet, verbose, color)
    settings = bench.Settings(
        warmup, runs, max_time, _percentage(max_noise), cache, DataSpec(data, seed), launch
    )
    names = baselines.chosen(against)
    if save is not None:
        saved.check_writable(save)
    tuned = not no_tune_cache
    plans, on = _ready(files, only, device, out, launch, kernel=kernel, tuned=tuned)
    baselines.check_device(names, on.facts)
    head = report.run_head(on.facts, settings, cubins.manifest())
    results: list[bench.Result] = []
    try:
        with Bar(len(plans), shown=out.bar) as bar:
            for plan in plans:
                tick = bar.part(plan.problem.name)
                with on.open(plan, settings.data) as session:
                    entries = baselines.enter(names, session, plan, settings.data)
                    results.append(bench.measure(session, on, plan, settings, tick, entries))
                out.stream(head, report.run_record(results[-1]))
    finally:
        shown = report.run(head, results, on.facts, settings, verbose=verbose)
        if results:
            out.show(shown)
    for advice in (*report.untimed(results), *report.noisy(results)):
        out.note(advice)
    if save is not None:
        saved.save(shown, save)


@app.command()
def verify(
    files: Files,
    format: Format = None,
    device: DeviceName = "auto",
    data: Annotated[
        Literal["both", "int", "normal"],
        typer.Option(help="int must come back exactly, normal within what the arithmetic allows."),
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
    from gemmctl.judging import reference
    from gemmctl.kernels import cubins
    from gemmctl.operands.data import KINDS, DataSpec
    from gemmctl.showing import report
    from gemmctl.showing.output import Output
    from gemmctl.showing.progress import Bar

    out = Output(format, quiet, verbose, color)
    kinds = KINDS if data == "both" else (data,)
    plans, on = _ready(files, only, device, out, kernel=kernel, tuned=not no_tune_cache)
    head = report.verify_head(on.facts, cubins.manifest())
    checks: list[report.Checked] = []
    try:
        with Bar(len(plans) * len(kinds), shown=out.bar) as bar:
            for plan in plans:
                for spec in (DataSpec(kind, seed) for kind in kinds):
                    tick = bar.part(f"{plan.problem.name} ({spec.kind})")
                    with on.open(plan, spec) as session:
                        session.run()
                        verdicts = reference.verify(
                            plan, session, spec, device=on.facts.kind, progress=tick
                        )
                        checked = report.Checked(plan, spec, verdicts)
                        if checked.bad and dump is not None:
                            folder = os.path.join(dump, checked.folder)
                            reference.dump(plan, session, checked.bad[0].group, folder, spec)
                            out.note(f"left the operands of the first wrong group in {folder}")
                    checks.append(checked)
                    out.stream(head, report.check_record(checked))
    finally:
        if checks:
            out.show(report.verify(head, checks, on.facts, verbose=verbose))
    if any(checked.bad for checked in checks):
        raise typer.Exit(1)


@app.command()
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
    from gemmctl.showing import report
    from gemmctl.showing.output import Output

    plans = _plans(files, only, kernel=kernel)
    found = report.plan(plans, roofline.H200, cubins.manifest(), verbose=verbose)
    out = Output(format, quiet, verbose, color)
    for record in found.records:
        out.stream(found.head, record)
    out.show(found)


@app.command()
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
    from gemmctl.showing import report
    from gemmctl.showing.output import Output
    from gemmctl.showing.progress import Bar

    out = Output(format, quiet, verbose, color)
    settings = tuning.Settings(max_time)
    plans, on = _ready(files, only, device, out)
    manifest = cubins.manifest()
    cache, kept = TuneCache(on.facts, manifest, out.note), False
    head = report.tune_head(on.facts, settings, manifest)
    rankings: list[tuning.Ranking] = []
    try:
        with Bar(len(plans), shown=out.bar) as bar:
            for plan in plans:
                tick = bar.part(plan.problem.name)
                rankings.append(tuning.measure(plan, on, manifest.kernels, settings, tick))
                kept |= cache.keep(rankings[-1].best.plan, rankings[-1].best.median_s)
                for record in report.tune_records(rankings[-1]):
                    out.stream(head, record)
    finally:
        if rankings:
            out.show(report.tune(head, rankings, on.facts, verbose=verbose))
    for advice in report.untried(rankings):
        out.note(advice)
    if kept:
        out.note(f"run and verify use the best from now on; it is kept in {folder()}")


@app.command()
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
    from gemmctl.showing import report, saved
    from gemmctl.showing.comparison import compare as compare_runs
    from gemmctl.showing.output import Output

    out = Output(format, quiet, False, color)
    limit = None if fail_over is None else _percentage(fail_over)
    comparison = compare_runs(saved.load(old), saved.load(new), force=force)
    for text in comparison.notes:
        out.note(text)
    out.show(report.compare(comparison))
    if limit is not None and comparison.over(limit):
        raise typer.Exit(1)


@app.command()
def info(
    format: Format = None,
    device: DeviceName = "auto",
    quiet: Quiet = False,
    color: Color = "auto",
) -> None:
    """Print the GPU, driver, clocks, kernels and versions; check that the cubins are intact."""
    from gemmctl.device import open_device
    from gemmctl.kernels import cubins
    from gemmctl.showing import report
    from gemmctl.showing.output import Output

    manifest = cubins.manifest()
    for file in manifest.files:
        manifest.load(file)  # raises if it is missing or damaged
    on, why_not_gpu = open_device(device)
    found = report.info(on.facts, why_not_gpu, on.telemetry(), manifest)
    Output(format, quiet, False, color).show(found)


@app.command()
def schema() -> None:
    """Print the JSON Schema of problem lists, for editors."""
    import json

    from gemmctl.lists import problem

    typer.echo(json.dumps(problem.schema(), indent=2))


def _plans(
    files: list[str],
    only: list[str] | None,
    launch: Launching = "grouped",
    *,
    kernel: str | None = None,
) -> list[Plan]:
    """Read and plan every problem; every error of every list is raised before anything runs."""
    from gemmctl.kernels import cubins
    from gemmctl.lists import problem
    from gemmctl.planning import plan

    kernels = cubins.manifest().named(kernel)
    problems = problem.select(problem.load(files, sys.stdin), only or ())
    return plan.make(problems, kernels, launch=launch)


def _ready(
    files: list[str],
    only: list[str] | None,
    name: str,
    out: Output,
    launch: Launching = "grouped",
    *,
    kernel: str | None = None,
    tuned: bool = False,
) -> tuple[list[Plan], Device]:
    """The plans and the device they run on.

    The lists are checked before the device is touched, and whether every problem fits into its
    memory before any is run. ``tuned``: what was found fastest on the device goes before what the
    cost model chooses.
    """
    from gemmctl.device import open_device
    from gemmctl.kernels import cubins
    from gemmctl.measuring.tune_cache import TuneCache
    from gemmctl.planning import plan
    from gemmctl.planning.tiling import H200, Machine

    plans = _plans(files, only, launch, kernel=kernel)
    device, why_not_gpu = open_device(name)
    if why_not_gpu:
        out.note(f"{why_not_gpu}; running on the CPU")
    manifest, count = cubins.manifest(), device.facts.sm_count
    machine = H200 if count is None else Machine(count)
    chosen = {}
    if tuned and kernel is None and launch in plan.TOGETHER:
        chosen = TuneCache(device.facts, manifest, out.note).find(plans)
    if chosen or machine != H200:
        problems = [made.problem for made in plans]
        plans = plan.make(problems, manifest.named(kernel), machine, launch, chosen)
    for made in plans:
        if made.layout.size > device.facts.memory_bytes:
            raise DeviceFailed(
                f"the operands of {made.problem.name} take {made.layout.size / 1e9:.3g} GB and "
                f"{device.facts.name} has {device.facts.memory_bytes / 1e9:.3g} GB; "
                "run fewer or smaller groups at a time"
            )
    return plans, device
