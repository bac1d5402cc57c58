"""What each command reports: a row for people and a record in base units for programs."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from gemmctl import __version__
from gemmctl.measuring.tune_cache import fingerprint
from gemmctl.showing.formats import Record, Report
from gemmctl.showing.saved import FORMAT

if TYPE_CHECKING:
    from gemmctl.device.base import Facts, Telemetry
    from gemmctl.device.roofline import Roofline
    from gemmctl.judging.reference import Verdict
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.measuring.bench import Result, Rival, Settings
    from gemmctl.measuring.tune import Ranking, Trial
    from gemmctl.measuring.tune import Settings as TuneSettings
    from gemmctl.operands.data import DataSpec
    from gemmctl.planning.plan import Plan
    from gemmctl.showing.comparison import Comparison, Difference

MAX_DETAILS = 10  # bad groups spelled out per problem in a table; json has them all
MAX_NAMES = 5  # problems that a note names one by one
NOISY = 0.05  # relative spread that makes a median doubtful
TUNED_NOTE = "tuned: cut as gemmctl tune found fastest on this device; --no-tune-cache ignores that"
AGAINST_NOTE = (
    "vs is gemmctl's time over the baseline's: below 1 gemmctl is faster; baselines take turns "
    "with it on the same operands, sum in float32 too, and their results agree with its own"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Checked:
    """A problem's verdicts on one kind of data."""

    plan: Plan
    data: DataSpec
    verdicts: Sequence[Verdict]

    @property
    def bad(self) -> list[Verdict]:
        """The verdicts of the groups that are wrong."""
        return [verdict for verdict in self.verdicts if not verdict.ok]

    @property
    def worst(self) -> float:
        """The largest ratio of error to allowance; above 1 is wrong."""
        return max((verdict.worst for verdict in self.verdicts), default=0.0)

    @property
    def folder(self) -> str:
        """A file name of its own, for what is kept of the first wrong group."""
        name = re.sub(r"[^\w.-]", "_", self.plan.problem.name)
        return f"{name}-group{self.bad[0].group}-{self.data.kind}"

    @property
    def methods(self) -> dict[str, int]:
        """How many groups each method judged."""
        return dict(Counter(verdict.method for verdict in self.verdicts))


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: its title, and its cell for one item."""

    title: str
    cell: Callable[[T], str]
    left: bool = False
    verbose: bool = False  # only with -v


def _tabled(
    columns: Sequence[Column[T]], items: Sequence[T], verbose: bool
) -> tuple[list[str], list[list[str]], list[bool]]:
    """Titles, rows and alignment of the columns that are shown."""
    shown = [column for column in columns if verbose or not column.verbose]
    return (
        [column.title for column in shown],
        [[column.cell(item) for column in shown] for item in items],
        [column.left for column in shown],
    )


def number(value: float | None, scale: float = 1.0, digits: int = 4) -> str:
    """A value over ``scale`` with that many significant digits, never fewer before the point."""
    if value is None:
        return "-"
    scaled = value / scale
    if not scaled or not math.isfinite(scaled):
        return str(scaled if scaled else 0)
    return f"{scaled:.{max(0, digits - 1 - math.floor(math.log10(abs(scaled))))}f}"


def _word(text: str) -> str:
    """Text as one cell that programs which split at blanks see as one, too."""
    return text.replace(" ", "-")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _plan_columns() -> tuple[Column[Plan], ...]:
    """What every table says of a problem."""
    return (
        Column("problem", lambda p: p.problem.name, left=True),
        Column("groups", lambda p: str(len(p.problem.groups))),
        Column("dtype", lambda p: p.dtype, left=True),
        Column("MxNxK", lambda p: p.shape, left=True),
        Column("GFLOP", lambda p: number(p.flops, 1e9)),
        Column("MB", lambda p: number(p.bytes, 1e6)),
    )


def run_head(facts: Facts, settings: Settings, cubins: Manifest) -> Record:
    """What is true of a whole run: format, device, cubins, settings."""
    return {
        **_head("run", cubins),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": asdict(facts),
        "settings": asdict(settings),
    }


def run_record(result: Result) -> Record:
    """One problem's times, in base units, with every sample."""
    return {
        **plan_record(result.plan),
        "tuned": result.plan.tuned,
        "median_s": result.median_s,
        "min_s": min(result.samples),
        "p5_s": result.percentile_s(5),
        "p95_s": result.percentile_s(95),
        "spread": result.spread,
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


def _setup_note(facts: Facts, settings: Settings) -> str:
    """What set-up us counts, and whether the time measured holds it, too."""
    if facts.kind == "cpu":
        return "set-up us is host time, not part of the time measured"
    if settings.launch == "graph":
        return "set-up us is host + GPU time; the GPU's is part of the time measured, too"
    return "set-up us is host + GPU time, not part of the time measured"


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
        "best_ratio": result.best_ratio,
        "against": {
            rival.name: {
                "verdict": rival.verdict,
                "reason": rival.reason or None,
                "median_s": rival.median_s,
                "ratio": result.ratio(rival),
                "samples_s": list(rival.samples),
            }
            for rival in result.rivals
        },
    }


def run(
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
        *map(about_plan, _plan_columns()),
        Column("kernel", lambda r: on_cpu + _kernel(r.plan), left=True),
        Column(f"time us ({settings.cache})", lambda r: number(r.median_s, 1e-6)),
        Column("TFLOP/s", lambda r: number(r.flop_per_s, 1e12)),
        Column("GB/s", lambda r: number(r.bytes_per_s, 1e9)),
        Column("% of bound", lambda r: _percent(r.bound_fraction)),
        Column("spread %", lambda r: _percent(r.spread)),
        Column("set-up us", setup_us),
        *replay,
        Column("samples", lambda r: str(len(r.samples)), verbose=True),
        Column("min us", lambda r: number(min(r.samples), 1e-6), verbose=True),
        Column("p5 us", lambda r: number(r.percentile_s(5), 1e-6), verbose=True),
        Column("p95 us", lambda r: number(r.percentile_s(95), 1e-6), verbose=True),
        Column("tiles", lambda r: str(r.plan.tiles), verbose=True),
        Column("waves", lambda r: number(r.plan.waves, digits=3), verbose=True),
        Column("tile eff. %", lambda r: _percent(r.plan.tile_efficiency), verbose=True),
        Column("SM MHz", telemetry(lambda t: t.sm_hz, 1e6), verbose=True),
        Column("power W", telemetry(lambda t: t.power_w, 1), verbose=True),
        Column("throttle", _throttle, left=True, verbose=True),
        *_against_columns(results),
    )
    titles, rows, left = _tabled(columns, results, verbose)
    return Report(
        head=head,
        items="problems",
        records=[run_record(result) for result in results],
        titles=titles,
        rows=rows,
        left=left,
        notes=[
            f"{facts.name}{f', driver {facts.driver}' if facts.driver else ''}; "
            f"{settings.cache} cache, {settings.data.kind} data, seed {settings.data.seed}; "
            + (f"{facts.timers[settings.cache]}; " if facts.timers else "")
            + _setup_note(facts, settings)
            + ("; replay us is host time per run" if replay else ""),
            *_bound_note(facts.roofline),
            *_tuned_note(result.plan for result in results),
            *([AGAINST_NOTE] if any(result.rivals for result in results) else []),
        ],
    )


def _against_columns(results: Sequence[Result]) -> Iterator[Column[Result]]:
    """Two columns for each baseline, and the ratio to the fastest."""
    rivals = results[0].rivals if results else ()
    for i, rival in enumerate(rivals):

        def time_us(result: Result, i: int = i) -> str:
            median_s = result.rivals[i].median_s
            return result.rivals[i].verdict if median_s is None else number(median_s, 1e-6)

        def ratio(result: Result, i: int = i) -> str:
            return _ratio(result.ratio(result.rivals[i]))

        yield Column(f"{rival.name} us", time_us)
        yield Column(f"vs {rival.name}", ratio)
    if rivals:
        yield Column("vs best", lambda r: _ratio(r.best_ratio))


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def untimed(results: Iterable[Result]) -> list[str]:
    """Why baselines were not timed, a line for each reason."""
    problems: dict[Rival, list[str]] = {}
    for result in results:
        for rival in result.rivals:
            if rival.verdict != "ok":
                problems.setdefault(rival, []).append(result.plan.problem.name)
    return [
        f"{rival.name} is {rival.verdict} on "
        f"{', '.join(names) if len(names) <= MAX_NAMES else f'{len(names)} problems'}: "
        f"{rival.reason}"
        for rival, names in problems.items()
    ]


def noisy(results: Iterable[Result]) -> list[str]:
    """Advice on problems whose spread stayed above NOISY."""
    return [
        f"{r.plan.problem.name}: samples spread by {_percent(r.spread)}%; "
        "raise --max-time and --runs, or quiet the machine"
        for r in results
        if (r.spread or 0) > NOISY
    ]


def check_record(checked: Checked) -> Record:
    """One problem's verdicts on one kind of data."""
    return {
        "name": checked.plan.problem.name,
        "data": asdict(checked.data),
        "choices": list(map(str, checked.plan.choices)),
        "tuned": checked.plan.tuned,
        "group_count": len(checked.verdicts),
        "bad_groups": len(checked.bad),
        "ok": not checked.bad,
        "worst": checked.worst,
        "methods": checked.methods,
        "verdicts": [asdict(verdict) for verdict in checked.verdicts],
    }


def verify_head(facts: Facts, cubins: Manifest) -> Record:
    """What is true of a whole check."""
    return {**_head("verify", cubins), "device": asdict(facts)}


def verify(
    head: Record, checks: Sequence[Checked], facts: Facts, *, verbose: bool = False
) -> Report:
    """A row per problem and kind of data (with ``verbose`` per group), and each wrong group."""
    on_cpu = "cpu:" if facts.kind == "cpu" else ""
    if verbose:
        per_group: tuple[Column[tuple[Checked, Verdict]], ...] = (
            Column("problem", lambda cv: cv[0].plan.problem.name, left=True),
            Column("data", lambda cv: cv[0].data.kind, left=True),
            Column("kernel", lambda cv: on_cpu + _kernel(cv[0].plan), left=True),
            Column("group", lambda cv: str(cv[1].group)),
            Column("MxNxK", lambda cv: _shape(cv[0], cv[1].group), left=True),
            Column("method", lambda cv: _word(cv[1].method), left=True),
            Column("worst", lambda cv: number(cv[1].worst, digits=3)),
            Column("bad", lambda cv: str(cv[1].bad)),
            Column("verdict", lambda cv: "ok" if cv[1].ok else "BAD", left=True),
        )
        pairs = [(checked, verdict) for checked in checks for verdict in checked.verdicts]
        titles, rows, left = _tabled(per_group, pairs, verbose)
    else:
        per_problem: tuple[Column[Checked], ...] = (
            Column("problem", lambda c: c.plan.problem.name, left=True),
            Column("data", lambda c: c.data.kind, left=True),
            Column("kernel", lambda c: on_cpu + _kernel(c.plan), left=True),
            Column("groups", lambda c: str(len(c.verdicts))),
            Column("good", lambda c: str(len(c.verdicts) - len(c.bad))),
            Column("bad", lambda c: str(len(c.bad))),
            Column("method", lambda c: ",".join(map(_word, c.methods)), left=True),
            Column("worst", lambda c: number(c.worst, digits=3)),
            Column("verdict", lambda c: "BAD" if c.bad else "ok", left=True),
        )
        titles, rows, left = _tabled(per_problem, checks, verbose)
    return Report(
        head=head,
        items="checks",
        records=[check_record(checked) for checked in checks],
        titles=titles,
        rows=rows,
        left=left,
        details=[text for checked in checks for text in _wrong(checked)],
        notes=[
            f"{facts.name}: worst is the largest error over what the arithmetic allows; "
            "above 1 is wrong",
            *_tuned_note(checked.plan for checked in checks),
        ],
    )


def plan_record(plan: Plan) -> Record:
    """What would run, in base units."""
    return {
        "name": plan.problem.name,
        "groups": [
            {
                **{f.name: getattr(group, f.name) for f in fields(group) if f.name != "marks"},
                "count": len(list(equal)),
            }
            for group, equal in itertools.groupby(plan.problem.groups)
        ],
        "group_count": len(plan.problem.groups),
        "dtype": plan.dtype,
        "shape": plan.shape,
        "flop": plan.flops,
        "bytes": plan.bytes,
        "arena_bytes": plan.layout.size,
        "kernel": plan.kernel,
        "launches": len(plan.launches),
        "choices": list(map(str, plan.choices)),
        "tiles": plan.tiles,
        "waves": plan.waves,
        "tile_efficiency": plan.tile_efficiency,
    }


def plan(
    plans: Sequence[Plan], roofline: Roofline, cubins: Manifest, *, verbose: bool = False
) -> Report:
    """What would run, and the time that no kernel can beat."""

    def bound_s(plan: Plan) -> float:
        return roofline.bound_s(plan.flops, plan.bytes)

    columns: tuple[Column[Plan], ...] = (
        *_plan_columns(),
        Column("kernel", lambda p: p.kernel, left=True),
        Column("launches", lambda p: str(len(p.launches))),
        Column("tiles", lambda p: str(p.tiles)),
        Column("waves", lambda p: number(p.waves, digits=3)),
        Column("padding %", lambda p: _percent(1 - p.tile_efficiency)),
        Column("bound us", lambda p: number(bound_s(p), 1e-6)),
        Column("estimate us", lambda p: number(p.estimate_s, 1e-6), verbose=True),
        Column("arena MB", lambda p: number(p.layout.size, 1e6), verbose=True),
        Column("tile widths", _widths, left=True, verbose=True),
    )
    titles, rows, left = _tabled(columns, plans, verbose)
    return Report(
        head={**_head("plan", cubins), "roofline": asdict(roofline)},
        items="problems",
        records=[
            {**plan_record(plan), "bound_s": bound_s(plan), "estimate_s": plan.estimate_s}
            for plan in plans
        ],
        titles=titles,
        rows=rows,
        left=left,
        notes=_bound_note(roofline),
    )


def tune_head(facts: Facts, settings: TuneSettings, cubins: Manifest) -> Record:
    """What is true of all measurements: format, device, cubins, settings."""
    return {
        **_head("tune", cubins),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": asdict(facts),
        "settings": asdict(settings),
    }


def tune_records(ranking: Ranking) -> list[Record]:
    """Every way that was tried to run a problem, in base units, with every sample."""
    return [
        {
            "name": trial.plan.problem.name,
            "problem_sha256": fingerprint(trial.plan.problem),
            "rank": rank,
            "choice": trial.choice,
            "choices": [asdict(choice) for choice in trial.plan.choices],
            "tiles": trial.plan.tiles,
            "waves": trial.plan.waves,
            "tile_efficiency": trial.plan.tile_efficiency,
            "estimate_s": trial.plan.estimate_s,
            "median_s": trial.median_s,
            "ratio": ranking.ratio(trial),
            "spread": trial.spread,
            "rounds": trial.rounds,
            "samples_s": list(trial.samples),
        }
        for rank, trial in enumerate(ranking.trials, 1)
    ]


def tune(
    head: Record, rankings: Sequence[Ranking], facts: Facts, *, verbose: bool = False
) -> Report:
    """A row for every way that was tried to run a problem, the best first."""
    on_cpu = "cpu:" if facts.kind == "cpu" else ""
    columns: tuple[Column[tuple[Ranking, int, Trial]], ...] = (
        Column("problem", lambda rit: rit[2].plan.problem.name, left=True),
        Column("rank", lambda rit: str(rit[1])),
        Column("choice", lambda rit: on_cpu + _word(rit[2].choice), left=True),
        Column("tiles", lambda rit: str(rit[2].plan.tiles)),
        Column("waves", lambda rit: number(rit[2].plan.waves, digits=3)),
        Column("padding %", lambda rit: _percent(1 - rit[2].plan.tile_efficiency), verbose=True),
        Column("estimate us", lambda rit: number(rit[2].plan.estimate_s, 1e-6)),
        Column("time us (cold)", lambda rit: number(rit[2].median_s, 1e-6)),
        Column("vs best", lambda rit: _ratio(rit[0].ratio(rit[2]))),
        Column("spread %", lambda rit: _percent(rit[2].spread), verbose=True),
        Column("rounds", lambda rit: str(rit[2].rounds), verbose=True),
        Column("samples", lambda rit: str(len(rit[2].samples)), verbose=True),
    )
    items = [
        (ranking, rank, trial)
        for ranking in rankings
        for rank, trial in enumerate(ranking.trials, 1)
    ]
    titles, rows, left = _tabled(columns, items, verbose)
    return Report(
        head=head,
        items="candidates",
        records=[record for ranking in rankings for record in tune_records(ranking)],
        titles=titles,
        rows=rows,
        left=left,
        notes=[
            f"{facts.name}: choice is kernel, widest tile and parts of K; estimate is the cost "
            "model's; the smallest estimate is what runs where nothing was tuned",
        ],
    )


def untried(rankings: Iterable[Ranking]) -> list[str]:
    """Advice on problems with candidates that there was no time for."""
    return [
        f"{ranking.best.plan.problem.name}: no time for {ranking.untried} of "
        f"{ranking.untried + len(ranking.trials)} candidates; raise --max-time"
        for ranking in rankings
        if ranking.untried
    ]


def compare(comparison: Comparison) -> Report:
    """Two runs side by side."""
    columns: tuple[Column[Difference], ...] = (
        Column("problem", lambda d: d.name, left=True),
        Column("old us", lambda d: number(d.old_s, 1e-6)),
        Column("new us", lambda d: number(d.new_s, 1e-6)),
        Column("new/old", lambda d: f"{d.ratio:.3f}"),
        Column("95% interval", _interval),
        Column("verdict", lambda d: d.verdict, left=True),
    )
    titles, rows, left = _tabled(columns, comparison.differences, verbose=False)
    heads = {"old": comparison.old.head, "new": comparison.new.head}
    return Report(
        head={"format": FORMAT, "command": "compare", "gemmctl": __version__, **heads},
        items="problems",
        records=[
            {**asdict(d), "ratio": d.ratio, "verdict": d.verdict} for d in comparison.differences
        ],
        titles=titles,
        rows=rows,
        left=left,
        notes=[f"{comparison.old.head['device']['name']}; old is {comparison.old.path}, "
               f"new is {comparison.new.path}"],
    )  # fmt: skip


def info(
    facts: Facts, why_not_gpu: str | None, telemetry: Telemetry | None, cubins: Manifest
) -> Report:
    """The device, the kernels and the versions."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:  # another distribution brought the module
            return "unknown"

    packages = {name: installed(name) for name in ("cuda-bindings", "numpy")}
    rows = [
        ["gemmctl", __version__],
        ["python", platform.python_version()],
        *([name, text] for name, text in packages.items()),
        ["device", f"{facts.kind}: {facts.name}"],
        ["memory", f"{number(facts.memory_bytes, 1e9)} GB"],
    ]
    if why_not_gpu:
        rows.append(["no GPU", why_not_gpu])
    if facts.driver:
        rows.append(["driver", facts.driver])
    if facts.sm_count:
        rows.append(["SMs", str(facts.sm_count)])
    if facts.roofline:
        rows.append(["roofline", facts.roofline.name])
    if telemetry:
        throttle = ", ".join(telemetry.throttle) or "not throttled"
        clock, power = number(telemetry.sm_hz, 1e6), number(telemetry.power_w)
        rows.append(["now", f"{clock} MHz, {power} W, {throttle}"])
    rows += [
        ["cubins", str(cubins.folder)],
        ["cubin sha256", cubins.sha256],
        ["compiler", cubins.compiler],
        *(
            [
                "kernel",
                f"{k.operand}->{k.output} {k.name}: {k.stages} stages, {k.threads} threads, "
                f"{k.registers} registers, {k.shared_bytes} B shared",
            ]
            for k in cubins.kernels
        ),
    ]
    return Report(
        head={
            **_head("info", cubins),
            "python": platform.python_version(),
            "packages": packages,
            "device": asdict(facts),
            "why_not_gpu": why_not_gpu,
            "telemetry": asdict(telemetry) if telemetry else None,
            "compiler": cubins.compiler,
        },
        items="kernels",
        records=[asdict(kernel) for kernel in cubins.kernels],
        titles=["what", "value"],
        rows=rows,
        left=[True, True],
    )


def _kernel(plan: Plan) -> str:
    """The kernels of a plan as one cell."""
    return ("tuned:" if plan.tuned else "") + plan.kernel


def _tuned_note(plans: Iterable[Plan]) -> list[str]:
    return [TUNED_NOTE] if any(plan.tuned for plan in plans) else []


def _interval(difference: Difference) -> str:
    return "..".join(f"{end:.3f}" for end in difference.interval or ()) or "-"


def _head(command: str, cubins: Manifest) -> Record:
    return {
        "format": FORMAT,
        "command": command,
        "gemmctl": __version__,
        "cubin_sha256": cubins.sha256,
    }


def _bound_note(roofline: Roofline | None) -> list[str]:
    if roofline is None:
        return []
    return [f"bound is max(flops / peak, bytes / bandwidth), {roofline.name}"]


def _middle(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _throttle(result: Result) -> str:
    reasons = {reason: None for reading in result.telemetry for reason in reading.throttle}
    return ",".join(reasons) or "-"


def _shape(checked: Checked, index: int) -> str:
    group = checked.plan.problem.groups[index]
    return f"{group.m}x{group.n}x{group.k}"


def _widths(plan: Plan) -> str:
    widths = sorted({int(width) for launch in plan.launches for width in launch.widths})
    return ",".join(map(str, widths)) or "-"


def _wrong(checked: Checked) -> list[str]:
    """One line for each wrong group, up to MAX_DETAILS."""
    bad = checked.bad
    where = f"{checked.plan.problem.name} ({checked.data.kind})"
    lines = [f"{where}: {verdict.message}" for verdict in bad[:MAX_DETAILS]]
    if len(bad) > MAX_DETAILS:
        lines.append(f"{where}: {len(bad) - MAX_DETAILS} more groups are bad; -f json has them all")
    return lines
