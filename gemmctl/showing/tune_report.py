"""What ``tune`` reports: every way that was tried, ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gemmctl.measuring.tune_cache import fingerprint
from gemmctl.showing.report import (
    Record,
    Report,
    device_label,
    head_on,
    number,
    on_cpu,
    percent,
    ratio_cell,
    word,
)
from gemmctl.showing.table import Column, View

if TYPE_CHECKING:
    from gemmctl.device.base import Facts
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.measuring.tune import Ranking, Trial
    from gemmctl.measuring.tune import Settings as TuneSettings


def head(facts: Facts, settings: TuneSettings, cubins: Manifest) -> Record:
    """What is true of all measurements: format, device, cubins, settings."""
    return head_on("tune", cubins, facts, asdict(settings))


@dataclass(frozen=True)
class Placed:
    """One way that was tried to run a problem, and its place among the others."""

    ranking: Ranking
    rank: int  # from 1
    trial: Trial


def records(ranking: Ranking) -> list[Record]:
    """Every way that was tried to run a problem, in base units, with every sample."""
    return [_record(placed) for placed in _placed(ranking)]


def _placed(ranking: Ranking) -> list[Placed]:
    return [Placed(ranking, rank, trial) for rank, trial in enumerate(ranking.trials, 1)]


def _record(placed: Placed) -> Record:
    trial = placed.trial
    return {
        "name": trial.plan.problem.name,
        "problem_sha256": fingerprint(trial.plan.problem),
        "rank": placed.rank,
        # Of every launch, so that csv, which has no lists, tells all that ``choices`` does.
        "choice": "+".join(map(str, trial.plan.choices)) or "none",
        "choices": [asdict(choice) for choice in trial.plan.choices],
        "tiles": trial.plan.tiles,
        "waves": trial.plan.waves,
        "tile_efficiency": trial.plan.tile_efficiency,
        "estimate_s": trial.plan.estimate_s,
        "median_s": trial.median_s,
        "ratio": placed.ranking.ratio(trial),
        "spread": trial.spread,
        "rounds": trial.rounds,
        "samples_s": list(trial.samples),
    }


def columns(facts: Facts) -> tuple[Column[Placed], ...]:
    """What the table says of every way that was tried."""
    return (
        Column("problem", lambda p: p.trial.plan.problem.name, left=True),
        Column("rank", lambda p: str(p.rank)),
        Column("choice", lambda p: on_cpu(facts.kind) + word(p.trial.choice), left=True),
        Column("tiles", lambda p: str(p.trial.plan.tiles), rank=3),
        Column("waves", lambda p: number(p.trial.plan.waves, digits=3), rank=2),
        Column("padding %", lambda p: percent(1 - p.trial.plan.tile_efficiency), verbose=True,
               rank=4),
        Column("estimate us", lambda p: number(p.trial.plan.estimate_s, 1e-6), rank=1),
        Column("time us (cold)", lambda p: number(p.trial.median_s, 1e-6)),
        Column("vs best", lambda p: ratio_cell(p.ranking.ratio(p.trial))),
        Column("spread %", lambda p: percent(p.trial.spread), verbose=True, rank=5),
        Column("rounds", lambda p: str(p.trial.rounds), verbose=True, rank=6),
        Column("samples", lambda p: str(len(p.trial.samples)), verbose=True, rank=7),
    )  # fmt: skip


def report(head: Record, rankings: Sequence[Ranking], facts: Facts, view: View) -> Report:
    """A row for every way that was tried to run a problem, the best first."""
    about = columns(facts)
    tried = view.order(about, [placed for ranking in rankings for placed in _placed(ranking)])
    untuned = "; the smallest estimate is what runs where nothing was tuned"
    return Report(
        head=head,
        items="candidates",
        records=[_record(placed) for placed in tried],
        table=view.table(about, tried),
        notes=[
            f"{device_label(facts.kind, facts.name)}: choice is kernel, widest tile, parts of K "
            "and, where two launches share the GPU, SMs; estimate is the cost model's"
            + (untuned if all(map(_has_untuned, rankings)) else ""),
        ],
    )


def _has_untuned(ranking: Ranking) -> bool:
    """Whether the plan that the cost model makes was measured."""
    return any(not trial.plan.tuned for trial in ranking.trials)


def left_out(rankings: Iterable[Ranking]) -> list[str]:
    """What is to be said of problems with candidates that were not measured."""
    notes = []
    for ranking in rankings:
        name = ranking.best.plan.problem.name
        of = f"of {ranking.hopeless + ranking.untried + len(ranking.trials)} candidates"
        if ranking.hopeless:
            notes.append(
                f"{name}: {ranking.hopeless} {of} could not win by the cost model and were left "
                "out; --all measures them"
            )
        if ranking.untried:
            notes.append(f"{name}: no time for {ranking.untried} {of}; raise --max-time")
    return notes
