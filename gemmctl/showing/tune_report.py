"""What ``tune`` reports: every way that was tried, ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gemmctl.measuring.tune_cache import fingerprint
from gemmctl.showing.report import (
    Column,
    Record,
    Report,
    head_of,
    number,
    percent,
    ratio_cell,
    tabled,
    word,
)

if TYPE_CHECKING:
    from gemmctl.device.base import Facts
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.measuring.tune import Ranking, Trial
    from gemmctl.measuring.tune import Settings as TuneSettings


def head(facts: Facts, settings: TuneSettings, cubins: Manifest) -> Record:
    """What is true of all measurements: format, device, cubins, settings."""
    return {
        **head_of("tune", cubins),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": asdict(facts),
        "settings": asdict(settings),
    }


def records(ranking: Ranking) -> list[Record]:
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


def report(
    head: Record, rankings: Sequence[Ranking], facts: Facts, *, verbose: bool = False
) -> Report:
    """A row for every way that was tried to run a problem, the best first."""
    on_cpu = "cpu:" if facts.kind == "cpu" else ""
    columns: tuple[Column[tuple[Ranking, int, Trial]], ...] = (
        Column("problem", lambda rit: rit[2].plan.problem.name, left=True),
        Column("rank", lambda rit: str(rit[1])),
        Column("choice", lambda rit: on_cpu + word(rit[2].choice), left=True),
        Column("tiles", lambda rit: str(rit[2].plan.tiles)),
        Column("waves", lambda rit: number(rit[2].plan.waves, digits=3)),
        Column("padding %", lambda rit: percent(1 - rit[2].plan.tile_efficiency), verbose=True),
        Column("estimate us", lambda rit: number(rit[2].plan.estimate_s, 1e-6)),
        Column("time us (cold)", lambda rit: number(rit[2].median_s, 1e-6)),
        Column("vs best", lambda rit: ratio_cell(rit[0].ratio(rit[2]))),
        Column("spread %", lambda rit: percent(rit[2].spread), verbose=True),
        Column("rounds", lambda rit: str(rit[2].rounds), verbose=True),
        Column("samples", lambda rit: str(len(rit[2].samples)), verbose=True),
    )
    items = [
        (ranking, rank, trial)
        for ranking in rankings
        for rank, trial in enumerate(ranking.trials, 1)
    ]
    titles, rows, left = tabled(columns, items, verbose)
    return Report(
        head=head,
        items="candidates",
        records=[record for ranking in rankings for record in records(ranking)],
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
