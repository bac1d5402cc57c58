"""What ``run`` reports: times and rates of every problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gemmctl.measuring.ratio import MIN_SAMPLES
from gemmctl.showing import plan_report
from gemmctl.showing.report import (
    Record,
    Report,
    bound_note,
    head_of,
    interval_cell,
    kernel_cell,
    names,
    number,
    percent,
    ratio_cell,
    tuned_note,
)
from gemmctl.showing.table import DEFAULT, Column, View

if TYPE_CHECKING:
    from gemmctl.device.base import Facts, Telemetry
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.measuring.bench import Result, Rival, Settings
    from gemmctl.measuring.ratio import Ratio
    from gemmctl.planning.plan import Plan


NOISY = 0.05  # relative spread that makes a median doubtful
HOST_BOUND = 0.1  # share of samples; fewer move a median by a seventh of a standard deviation
AGAINST_NOTE = (
    "vs is gemmctl's time over the baseline's: below 1 gemmctl is faster; the verdict is on the "
    "fastest baseline, with 95% confidence: SAME is within 1%, UNSURE what the samples cannot "
    "tell; baselines take turns with gemmctl on the same operands, sum in float32 too, and their "
    "results agree with its own"
)
HOST_NOTE = (
    "*: the GPU had begun before the host had queued all of it, in a tenth of the samples or "
    "more: that time may hold the host's"
)


def head(facts: Facts, settings: Settings, cubins: Manifest) -> Record:
    """What is true of a whole run: format, device, cubins, settings."""
    return {
        **head_of("run", cubins),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": asdict(facts),
        "settings": asdict(settings),
    }


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
        **_against_record(result),
    }


def columns(facts: Facts, settings: Settings, rivals: Sequence[str]) -> tuple[Column[Result], ...]:
    """What the table says of every problem; ``rivals`` are the baselines' names."""

    def about_plan(column: Column[Plan]) -> Column[Result]:
        return Column(column.title, lambda r: column.cell(r.plan), column.left, rank=column.rank)

    def setup_us(result: Result) -> str:
        device_s = result.setup.device_s
        gpu = "" if device_s is None else f"+{number(device_s, 1e-6)}"
        return number(result.setup.host_s, 1e-6) + gpu

    def telemetry(value: Callable[[Telemetry], float], scale: float) -> Callable[[Result], str]:
        return lambda r: number(_middle(value(reading) for reading in r.telemetry), scale)

    replay: Column[Result] = Column("replay us", lambda r: number(r.setup.replay_s, 1e-6), rank=11)
    return (
        *map(about_plan, plan_report.about()),
        Column("kernel", lambda r: kernel_cell(r.plan, facts), left=True, rank=3),
        Column(f"time us ({settings.cache})", _time_us),
        Column("TFLOP/s", lambda r: number(r.flop_per_s, 1e12)),
        Column("GB/s", lambda r: number(r.bytes_per_s, 1e9), rank=2),
        Column("% of bound", lambda r: percent(r.bound_fraction)),
        Column("spread %", lambda r: percent(r.spread), rank=4),
        Column("set-up us", setup_us, rank=10),
        *([replay] if _replays(facts, settings) else []),
        Column("samples", lambda r: str(len(r.samples)), verbose=True, rank=20),
        Column("min us", lambda r: number(min(r.samples), 1e-6), verbose=True, rank=19),
        Column("p5 us", lambda r: number(r.percentile_s(5), 1e-6), verbose=True, rank=18),
        Column("p95 us", lambda r: number(r.percentile_s(95), 1e-6), verbose=True, rank=18),
        Column("tiles", lambda r: str(r.plan.tiles), verbose=True, rank=17),
        Column("waves", lambda r: number(r.plan.waves, digits=3), verbose=True, rank=16),
        Column("padding %", lambda r: percent(1 - r.plan.tile_efficiency), verbose=True, rank=15),
        Column("SM MHz", telemetry(lambda t: t.sm_hz, 1e6), verbose=True, rank=13),
        Column("power W", telemetry(lambda t: t.power_w, 1), verbose=True, rank=14),
        Column("throttle", _throttle, left=True, verbose=True, rank=12),
        *_against_columns(rivals),
    )


def report(
    head: Record,
    results: Sequence[Result],
    facts: Facts,
    settings: Settings,
    rivals: Sequence[str] = (),
    view: View = DEFAULT,
) -> Report:
    """The throughput table."""
    shown = columns(facts, settings, rivals)
    results = view.order(shown, results)
    return Report(
        head=head,
        items="problems",
        records=[record(result) for result in results],
        table=view.table(shown, results),
        notes=[
            f"{facts.name}{f', driver {facts.driver}' if facts.driver else ''}; "
            f"{settings.cache} cache, {settings.data.kind} data, seed {settings.data.seed}; "
            + (f"{facts.timers[settings.cache]}; " if facts.timers else "")
            + _setup_note(facts, settings)
            + ("; replay us is host time per run" if _replays(facts, settings) else ""),
            *bound_note(facts.roofline),
            *tuned_note(result.plan for result in results),
            *([AGAINST_NOTE] if rivals else []),
            *_tally(results),
            *([HOST_NOTE] if any(map(_host_bound, results)) else []),
        ],
    )


def _setup_note(facts: Facts, settings: Settings) -> str:
    """What set-up us counts, and whether the time measured holds it, too."""
    if facts.kind == "cpu":
        return "set-up us is host time, not part of the time measured"
    if settings.launch == "graph":
        return "set-up us is host + GPU time; the GPU's is part of the time measured, too"
    return "set-up us is host + GPU time, not part of the time measured"


def _replays(facts: Facts, settings: Settings) -> bool:
    """Whether runs are CUDA graphs, which the host launches again and again."""
    return facts.kind == "cuda" and settings.launch != "grouped"


def _against_record(result: Result) -> Record:
    """The baselines by name; nothing if none was asked for."""
    if not result.rivals:
        return {}
    return {
        "best": result.best.name if result.best else None,
        **{f"best_{key}": value for key, value in _ratio_record(result.best_ratio).items()},
        "against": {
            rival.name: {
                "verdict": rival.verdict,
                "reason": rival.reason or None,
                "form": rival.form,
                "median_s": rival.median_s,
                "host_bound": rival.host_bound,
                **_ratio_record(result.ratios[rival.name]),
                "samples_s": list(rival.samples),
            }
            for rival in result.rivals
        },
    }


def _ratio_record(ratio: Ratio | None) -> Record:
    return {
        "ratio": ratio.value if ratio else None,
        "ratio_interval": list(ratio.interval) if ratio and ratio.interval else None,
        "ratio_verdict": ratio.verdict if ratio else None,
    }


def _against_columns(rivals: Sequence[str]) -> Iterator[Column[Result]]:
    """Two columns for each baseline, and how gemmctl does beside the fastest."""
    for i, name in enumerate(rivals):

        def time_us(result: Result, i: int = i) -> str:
            timed = result.rivals[i]
            return timed.verdict if timed.median_s is None else _time_us(timed)

        def ratio(result: Result, name: str = name) -> str:
            found = result.ratios[name]
            return ratio_cell(found.value if found else None)

        yield Column(f"{name} us", time_us, rank=4)
        yield Column(f"vs {name}", ratio, rank=1)
    if rivals:
        yield Column("best", lambda r: r.best.name if r.best else "-", left=True, rank=2)
        yield Column("vs best", lambda r: ratio_cell(r.best_ratio.value if r.best_ratio else None))
        yield Column("95% interval", _interval, verbose=True, rank=9)
        yield Column("verdict", lambda r: r.best_ratio.verdict if r.best_ratio else "-", left=True)


def advice(results: Sequence[Result], settings: Settings) -> list[str]:
    """What to know of some problems, and what to do about it, a line for each."""
    return [*exceptions(results), *_once(results, settings), *_noisy(results)]


def _tally(results: Iterable[Result]) -> list[str]:
    """How often each verdict was given, if there are any."""
    counts = Counter(result.best_ratio.verdict for result in results if result.best_ratio)
    told = ", ".join(f"{verdict} on {count}" for verdict, count in sorted(counts.items()))
    return [f"beside the fastest baseline of each problem, gemmctl is {told}"] if told else []


def _interval(result: Result) -> str:
    """Where the ratio to the best baseline lies."""
    return interval_cell(result.best_ratio.interval if result.best_ratio else None)


def _time_us(timed: Result | Rival) -> str:
    """A median, marked if it may hold the host's time."""
    return number(timed.median_s, 1e-6) + ("*" if timed.host_bound >= HOST_BOUND else "")


def _host_bound(result: Result) -> bool:
    """Whether a median of this problem is marked."""
    shares = result.host_bound, *(rival.host_bound for rival in result.rivals)
    return max(shares) >= HOST_BOUND


def exceptions(results: Iterable[Result]) -> list[str]:
    """Why baselines were not timed, or only in one way; a line for each reason."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        for rival in result.rivals:
            if rival.reason:
                timed = f"timed as {'a graph' if rival.form == 'graph' else 'calls'}"
                told = timed if rival.verdict == "ok" else rival.verdict
                key = rival.name, told, rival.reason
                problems.setdefault(key, []).append(result.plan.problem.name)
    return [
        f"{name} is {told} on {names(found)}: {reason}"
        for (name, told, reason), found in problems.items()
    ]


def _once(results: Iterable[Result], settings: Settings) -> list[str]:
    """Problems that there was time to run a few times only."""
    return [
        f"{r.plan.problem.name}: one run takes {number(r.median_s, digits=2)} s, so --max-time "
        f"{settings.max_time_s:g} was enough for {len(r.samples)}; raise it to know the spread"
        for r in results
        if len(r.samples) < MIN_SAMPLES and len(r.samples) < settings.runs
    ]


def _noisy(results: Iterable[Result]) -> list[str]:
    """Problems whose spread stayed above NOISY."""
    return [
        f"{r.plan.problem.name}: samples spread by {percent(r.spread)}%; "
        "raise --max-time and --runs, or quiet the machine"
        for r in results
        if (r.spread or 0) > NOISY
    ]


def _middle(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _throttle(result: Result) -> str:
    reasons = {reason: None for reading in result.telemetry for reason in reading.throttle}
    return ",".join(reasons) or "-"
