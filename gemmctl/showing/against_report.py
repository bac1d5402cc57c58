"""What ``run`` reports of the baselines that were timed beside gemmctl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gemmctl.showing import pace_report
from gemmctl.showing.report import Record, interval_cell, names, ratio_cell, time_cell
from gemmctl.showing.table import Column

if TYPE_CHECKING:
    from gemmctl.measuring.bench import Result, Settings
    from gemmctl.measuring.ratio import Ratio

NOTE = (
    "vs is gemmctl's time over the baseline's: below 1 gemmctl is faster; the verdict is on the "
    "fastest baseline, with 95% confidence: SAME is within 1%, UNSURE what the samples cannot "
    "tell; baselines take turns with gemmctl on the same operands, sum in float32 too, and their "
    "results agree with its own"
)


MANNERS = {
    "copied": "copied: C is copied to D first, as the library adds to D in place only",
    "fused": "fused: bias and activation are part of the product's kernel",
    "unfused": "unfused: activation, gate or bias are kernels of their own, and what is between "
    "them is rounded to D's type",
}


def record(result: Result) -> Record:
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
                "manner": rival.manner or None,
                "median_s": rival.median_s,
                "host_bound": rival.host_bound,
                **_ratio_record(result.ratios[rival.name]),
                "samples_s": list(rival.samples),
                **pace_report.record(rival.sustained),
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


def columns(rivals: Sequence[str], settings: Settings) -> Iterator[Column[Result]]:
    """Two columns or more for each baseline, and how gemmctl does beside the fastest."""
    for i, name in enumerate(rivals):

        def time_us(result: Result, i: int = i) -> str:
            rival = result.rivals[i]
            if rival.median_s is None:
                return rival.verdict
            manner = f":{rival.manner}" if rival.manner else ""
            return time_cell(rival.median_s, rival.host_bound) + manner

        def ratio(result: Result, name: str = name) -> str:
            found = result.ratios[name]
            return ratio_cell(found.value if found else None)

        yield Column(f"{name} us", time_us, rank=4)
        yield Column(f"vs {name}", ratio, rank=1)
        if settings.pace == "sustained":
            yield from pace_report.rival_columns(i, name)
    if rivals:
        yield Column("best", lambda r: r.best.name if r.best else "-", left=True, rank=2)
        yield Column("vs best", lambda r: ratio_cell(r.best_ratio.value if r.best_ratio else None))
        yield Column("95% interval", _interval, verbose=True, rank=9)
        yield Column("verdict", lambda r: r.best_ratio.verdict if r.best_ratio else "-", left=True)


def notes(results: Sequence[Result]) -> list[str]:
    """What the ratios mean, and how often each verdict was given, if there are any."""
    if not any(result.rivals for result in results):
        return []
    counts = Counter(result.best_ratio.verdict for result in results if result.best_ratio)
    told = ", ".join(f"{verdict} on {count}" for verdict, count in sorted(counts.items()))
    tally = f"beside the fastest baseline of each problem, gemmctl is {told}"
    manners = {rival.manner for result in results for rival in result.rivals if rival.samples}
    explained = [text for manner, text in MANNERS.items() if manner in manners]
    return [NOTE, *explained, *([tally] if told else [])]


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


def _interval(result: Result) -> str:
    """Where the ratio to the best baseline lies."""
    return interval_cell(result.best_ratio.interval if result.best_ratio else None)
