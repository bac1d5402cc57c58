"""What ``run`` reports: times and rates of every problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gemmctl.measuring.blocks import BLOCK_S, middle
from gemmctl.measuring.ratio import MIN_SAMPLES
from gemmctl.measuring.sustained import LEAD_S
from gemmctl.showing import against_report, pace_report, plan_report
from gemmctl.showing.report import (
    HOST_BOUND,
    HOST_NOTE,
    Record,
    Report,
    bound_note,
    device_label,
    head_on,
    kernel_cell,
    number,
    percent,
    time_cell,
    tuned_note,
)
from gemmctl.showing.table import DEFAULT, Column, View

if TYPE_CHECKING:
    from gemmctl.device.base import Facts, Telemetry
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.measuring.bench import Result, Settings
    from gemmctl.planning.plan import Plan


PACKED_NOTE = (
    "packed MB (-v shows them) are copied first, and that is part of the time measured; gemmctl "
    "plan says why, and what would make it needless"
)
NOISY = 0.05  # relative spread that makes a median doubtful


def head(facts: Facts, settings: Settings, cubins: Manifest) -> Record:
    """What is true of a whole run: format, device, cubins, settings."""
    return head_on("run", cubins, facts, asdict(settings))


def record(result: Result) -> Record:
    """One problem's times, in base units, with every sample."""
    return {
        **plan_report.record(result.plan),
        "tuned": result.plan.tuned,
        "median_s": result.median_s,
        "min_s": min(result.samples),
        "p5_s": result.percentile_s(5),
        "p95_s": result.percentile_s(95),
        "spread": result.spread,
        "host_bound": result.host_bound,
        "flop_per_s": result.flop_per_s,
        "bytes_per_s": result.bytes_per_s,
        "bound_s": result.bound_s,
        "bound_fraction": result.bound_fraction,
        "setup_host_s": result.setup.host_s,
        "setup_device_s": result.setup.device_s,
        "replay_s": result.setup.replay_s,
        "telemetry": [asdict(reading) for reading in result.telemetry],
        "samples_s": list(result.samples),
        **pace_report.record(result.sustained),
        **against_report.record(result),
    }


def columns(
    facts: Facts, settings: Settings, rivals: Sequence[str], packed: bool = False
) -> tuple[Column[Result], ...]:
    """What the table says of every problem; ``rivals`` are the baselines' names.

    ``packed``: operands of some problem are copied first.
    """

    def about_plan(column: Column[Plan]) -> Column[Result]:
        return Column(column.title, lambda r: column.cell(r.plan), column.left, rank=column.rank)

    def setup_us(result: Result) -> str:
        device_s = result.setup.device_s
        gpu = "" if device_s is None else f"+{number(device_s, 1e-6)}"
        return number(result.setup.host_s, 1e-6) + gpu

    def telemetry(value: Callable[[Telemetry], float], scale: float) -> Callable[[Result], str]:
        return lambda r: number(middle(value(reading) for reading in r.telemetry), scale)

    def packed_mb(result: Result) -> str:
        return number(result.plan.packing.bytes, 1e6)

    beside: Column[Result] = Column(
        "side by side", lambda r: str(r.plan.streams), verbose=True, rank=17
    )
    replay: Column[Result] = Column("replay us", lambda r: number(r.setup.replay_s, 1e-6), rank=11)
    sustained = settings.pace == "sustained"
    clocks: Iterable[Column[Result]] = (
        Column("SM MHz", telemetry(lambda t: t.sm_hz, 1e6), verbose=True, rank=13),
        Column("power W", telemetry(lambda t: t.power_w, 1), verbose=True, rank=14),
    )
    return (
        *map(about_plan, plan_report.about()),
        Column("kernel", lambda r: kernel_cell(r.plan, facts), left=True, rank=3),
        Column(f"time us ({settings.timer})", lambda r: time_cell(r.median_s, r.host_bound)),
        Column("TFLOP/s", lambda r: number(r.flop_per_s, 1e12)),
        Column("GB/s", lambda r: number(r.bytes_per_s, 1e9), rank=2),
        Column("% of bound", lambda r: percent(r.bound_fraction)),
        Column("spread %", lambda r: percent(r.spread), rank=4),
        *(pace_report.columns(facts) if sustained else ()),
        Column("plan us", lambda r: number(r.plan.plan_s, 1e-6), rank=10),
        Column("set-up us", setup_us, rank=10),
        *([replay] if _replays(facts, settings) else []),
        Column("samples", lambda r: str(len(r.samples)), verbose=True, rank=20),
        Column("min us", lambda r: number(min(r.samples), 1e-6), verbose=True, rank=19),
        Column("p5 us", lambda r: number(r.percentile_s(5), 1e-6), verbose=True, rank=18),
        Column("p95 us", lambda r: number(r.percentile_s(95), 1e-6), verbose=True, rank=18),
        Column("launches", lambda r: str(len(r.plan.launches)), verbose=True, rank=17),
        *([beside] if facts.kind == "cuda" else []),
        Column("tiles", lambda r: str(r.plan.tiles), verbose=True, rank=17),
        Column("waves", lambda r: number(r.plan.waves, digits=3), verbose=True, rank=16),
        Column("padding %", lambda r: percent(1 - r.plan.tile_efficiency), verbose=True, rank=15),
        *([Column("packed MB", packed_mb, verbose=True, rank=15)] if packed else []),
        *(() if sustained else clocks),
        Column("throttle", _throttle, left=True, verbose=True, rank=12),
        *against_report.columns(rivals, settings),
    )


def report(
    head: Record,
    results: Sequence[Result],
    facts: Facts,
    settings: Settings,
    rivals: Sequence[str] = (),
    view: View = DEFAULT,
    packed: bool = False,
) -> Report:
    """The throughput table; ``rivals`` and ``packed`` as for ``columns``."""
    sustained = settings.pace == "sustained"
    shown = columns(facts, settings, rivals, packed)
    results = view.order(shown, results)
    return Report(
        head=head,
        items="problems",
        records=[record(result) for result in results],
        table=view.table(shown, results),
        notes=[
            device_label(facts.kind, facts.name)
            + f"{f', driver {facts.driver}' if facts.driver else ''}; "
            f"{settings.timer}{'' if sustained else ' cache'}, {settings.data.kind} data, "
            f"seed {settings.data.seed}; "
            + (f"{facts.timers[settings.timer]}; " if facts.timers else "")
            + _setup_note(facts, settings)
            + ("; replay us is host time per run" if _replays(facts, settings) else ""),
            *(pace_report.notes(facts) if sustained else []),
            *([PACKED_NOTE] if packed else []),
            *bound_note(facts.roofline),
            *tuned_note(result.plan for result in results),
            *against_report.notes(results),
            *([HOST_NOTE] if any(map(_host_bound, results)) else []),
        ],
    )


def _setup_note(facts: Facts, settings: Settings) -> str:
    """What plan us and set-up us count, and whether the time measured holds them, too."""
    if facts.kind == "cpu":
        return "plan us and set-up us are host time, not part of the time measured"
    said = "plan us is host time, set-up us is host + GPU time"
    if settings.launch == "graph":
        return f"{said}; the GPU's is part of the time measured, too"
    return f"{said}, not part of the time measured"


def _replays(facts: Facts, settings: Settings) -> bool:
    """Whether to tell what the host takes to launch a run again: not of grouped launches."""
    return facts.kind == "cuda" and settings.launch != "grouped"


def advice(results: Sequence[Result], facts: Facts, settings: Settings) -> list[str]:
    """What to know of some problems, and what to do about it, a line for each."""
    return [
        *against_report.exceptions(results),
        *pace_report.advice(results, facts, settings),
        *_once(results, settings),
        *_noisy(results, settings),
    ]


def _host_bound(result: Result) -> bool:
    """Whether a median of this problem is marked."""
    shares = result.host_bound, *(rival.host_bound for rival in result.rivals)
    return max(shares) >= HOST_BOUND


def _once(results: Iterable[Result], settings: Settings) -> list[str]:
    """Problems that there was time to run a few times only."""
    what = "block" if settings.pace == "sustained" else "run"
    return [
        f"{r.plan.problem.name}: one {what} takes {number(_turn_s(r), digits=2)} s, so --max-time "
        f"{settings.max_time_s:g} was enough for {len(r.samples)}; raise it to know the spread"
        for r in results
        if len(r.samples) < MIN_SAMPLES and len(r.samples) < settings.runs
    ]


def _turn_s(result: Result) -> float:
    """Seconds that a sample takes."""
    return LEAD_S + BLOCK_S if result.sustained else result.median_s


def _noisy(results: Iterable[Result], settings: Settings) -> list[str]:
    """Problems whose spread stayed above NOISY, and above what was to end sampling."""
    return [
        f"{r.plan.problem.name}: samples spread by {percent(r.spread)}%; "
        "raise --max-time and --runs, or quiet the machine"
        for r in results
        if (r.spread or 0) > max(NOISY, settings.max_noise)
    ]


def _throttle(result: Result) -> str:
    reasons = {reason: None for reading in result.telemetry for reason in reading.throttle}
    return ",".join(reasons) or "-"
