"""What ``run`` reports: times and rates of every problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gemmctl.showing import plan_report
from gemmctl.showing.report import (
    Column,
    Record,
    Report,
    bound_note,
    head_of,
    kernel_cell,
    number,
    percent,
    ratio_cell,
    tabled,
    tuned_note,
)

if TYPE_CHECKING:
    from gemmctl.device.base import Facts, Telemetry
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.measuring.bench import Result, Rival, Settings
    from gemmctl.measuring.ratio import Ratio
    from gemmctl.planning.plan import Plan


MAX_NAMES = 5  # problems that a note names one by one
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


def report(
    head: Record,
    results: Sequence[Result],
    facts: Facts,
    settings: Settings,
    *,
    verbose: bool = False,
) -> Report:
    """The throughput table."""
    on_cpu = "cpu:" if facts.kind == "cpu" else ""

    def about_plan(column: Column[Plan]) -> Column[Result]:
        return Column(column.title, lambda r: column.cell(r.plan), column.left)

    def setup_us(result: Result) -> str:
        device_s = result.setup.device_s
        gpu = "" if device_s is None else f"+{number(device_s, 1e-6)}"
        return number(result.setup.host_s, 1e-6) + gpu

    def telemetry(value: Callable[[Telemetry], float], scale: float) -> Callable[[Result], str]:
        return lambda r: number(_middle(value(reading) for reading in r.telemetry), scale)

    replay = _replay_columns(results)
    columns: tuple[Column[Result], ...] = (
        *map(about_plan, plan_report.about()),
        Column("kernel", lambda r: on_cpu + kernel_cell(r.plan), left=True),
        Column(f"time us ({settings.cache})", _time_us),
        Column("TFLOP/s", lambda r: number(r.flop_per_s, 1e12)),
        Column("GB/s", lambda r: number(r.bytes_per_s, 1e9)),
        Column("% of bound", lambda r: percent(r.bound_fraction)),
        Column("spread %", lambda r: percent(r.spread)),
        Column("plan us", lambda r: number(r.plan.plan_s, 1e-6)),
        Column("set-up us", setup_us),
        *replay,
        Column("samples", lambda r: str(len(r.samples)), verbose=True),
        Column("min us", lambda r: number(min(r.samples), 1e-6), verbose=True),
        Column("p5 us", lambda r: number(r.percentile_s(5), 1e-6), verbose=True),
        Column("p95 us", lambda r: number(r.percentile_s(95), 1e-6), verbose=True),
        Column("tiles", lambda r: str(r.plan.tiles), verbose=True),
        Column("waves", lambda r: number(r.plan.waves, digits=3), verbose=True),
        Column("tile eff. %", lambda r: percent(r.plan.tile_efficiency), verbose=True),
        Column("SM MHz", telemetry(lambda t: t.sm_hz, 1e6), verbose=True),
        Column("power W", telemetry(lambda t: t.power_w, 1), verbose=True),
        Column("throttle", _throttle, left=True, verbose=True),
        *_against_columns(results),
    )
    titles, rows, left = tabled(columns, results, verbose)
    return Report(
        head=head,
        items="problems",
        records=[record(result) for result in results],
        titles=titles,
        rows=rows,
        left=left,
        notes=[
            f"{facts.name}{f', driver {facts.driver}' if facts.driver else ''}; "
            f"{settings.cache} cache, {settings.data.kind} data, seed {settings.data.seed}; "
            + (f"{facts.timers[settings.cache]}; " if facts.timers else "")
            + _setup_note(facts, settings)
            + ("; replay us is host time per run" if replay else ""),
            *bound_note(facts.roofline),
            *tuned_note(result.plan for result in results),
            *([AGAINST_NOTE] if any(result.rivals for result in results) else []),
            *_tally(results),
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


def _replay_columns(results: Sequence[Result]) -> tuple[Column[Result], ...]:
    """What the host spends on a run, if there are runs that are CUDA graphs."""
    if all(result.setup.replay_s is None for result in results):
        return ()
    return (Column("replay us", lambda r: number(r.setup.replay_s, 1e-6)),)


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


def _against_columns(results: Sequence[Result]) -> Iterator[Column[Result]]:
    """Two columns for each baseline, and how gemmctl does beside the fastest."""
    rivals = results[0].rivals if results else ()
    for i, rival in enumerate(rivals):

        def time_us(result: Result, i: int = i) -> str:
            timed = result.rivals[i]
            return timed.verdict if timed.median_s is None else _time_us(timed)

        def ratio(result: Result, name: str = rival.name) -> str:
            found = result.ratios[name]
            return ratio_cell(found.value if found else None)

        yield Column(f"{rival.name} us", time_us)
        yield Column(f"vs {rival.name}", ratio)
    if rivals:
        yield Column("best", lambda r: r.best.name if r.best else "-", left=True)
        yield Column("vs best", lambda r: ratio_cell(r.best_ratio.value if r.best_ratio else None))
        yield Column("95% interval", _interval, verbose=True)
        yield Column("verdict", lambda r: r.best_ratio.verdict if r.best_ratio else "-", left=True)


def _tally(results: Iterable[Result]) -> list[str]:
    """How often each verdict was given, if there are any."""
    counts = Counter(result.best_ratio.verdict for result in results if result.best_ratio)
    told = ", ".join(f"{verdict} on {count}" for verdict, count in sorted(counts.items()))
    return [f"beside the fastest baseline of each problem, gemmctl is {told}"] if told else []


def _interval(result: Result) -> str:
    """Where the ratio to the best baseline lies."""
    found = result.best_ratio.interval if result.best_ratio else None
    return "..".join(f"{end:.3f}" for end in found or ()) or "-"


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
        f"{name} is {told} on "
        f"{', '.join(names) if len(names) <= MAX_NAMES else f'{len(names)} problems'}: "
        f"{reason}"
        for (name, told, reason), names in problems.items()
    ]


def noisy(results: Iterable[Result]) -> list[str]:
    """Advice on problems whose spread stayed above NOISY."""
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
