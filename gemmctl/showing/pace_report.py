"""What ``run`` reports of a sustained pace: clock, watts, joules a run, and the bursts before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gemmctl.measuring.blocks import BLOCK_S, Sustained
from gemmctl.measuring.sustained import LEAD_S, SETTLED_WITHIN
from gemmctl.showing.report import Record, names, number
from gemmctl.showing.table import Column

if TYPE_CHECKING:
    from gemmctl.device.base import Facts
    from gemmctl.measuring.bench import Result, Settings

NOTE = (
    f"sustained: runs back to back in blocks of {BLOCK_S:g} s, each after {LEAD_S:g} s of the same "
    "that do not count; nothing is flushed between runs"
)
GPU_NOTE = (
    f"blocks count once the clock of each stays within {SETTLED_WITHIN:.0%} of its last one; "
    "settled MHz is the mean SM clock, power W and J/run are the whole board's, by its energy "
    "counter"
)


def record(sustained: Sustained | None) -> Record:
    """Clock, power, energy of a run, every block and the bursts; nothing at another pace."""
    if sustained is None:
        return {}
    return {
        "sustained": {
            "settled": sustained.settled,
            "settled_sm_hz": sustained.sm_hz,
            "power_w": sustained.power_w,
            "energy_j": sustained.energy_j,
            "burst_median_s": sustained.burst_median_s,
            "burst_samples_s": list(sustained.burst),
            "blocks": [{**asdict(block), "energy_j": block.energy_j} for block in sustained.blocks],
        }
    }


def columns(facts: Facts) -> Iterator[Column[Result]]:
    """Clock, power and energy, of which a CPU has none, and the time in bursts."""

    def cell(value: Callable[[Sustained], float | None], scale: float) -> Callable[[Result], str]:
        return lambda r: _cell(r.sustained, value, scale)

    if facts.kind == "cuda":
        yield Column("settled MHz", cell(lambda s: s.sm_hz, 1e6), rank=3)
        yield Column("power W", cell(lambda s: s.power_w, 1), rank=4)
        yield Column("J/run", cell(lambda s: s.energy_j, 1), rank=1)
    yield Column("burst us", cell(lambda s: s.burst_median_s, 1e-6), verbose=True, rank=9)


def rival_columns(i: int, name: str) -> Iterator[Column[Result]]:
    """The same of a baseline, the ``i``-th of a result."""

    def cell(value: Callable[[Sustained], float | None], scale: float) -> Callable[[Result], str]:
        return lambda r: _cell(r.rivals[i].sustained, value, scale)

    yield Column(f"{name} J/run", cell(lambda s: s.energy_j, 1), rank=3)
    yield Column(f"{name} MHz", cell(lambda s: s.sm_hz, 1e6), verbose=True, rank=10)
    yield Column(f"{name} W", cell(lambda s: s.power_w, 1), verbose=True, rank=11)
    yield Column(f"{name} burst us", cell(lambda s: s.burst_median_s, 1e-6), verbose=True, rank=12)


def notes(facts: Facts) -> list[str]:
    """What the columns mean."""
    return [NOTE, *([GPU_NOTE] if facts.kind == "cuda" else [])]


def advice(results: Sequence[Result], facts: Facts, settings: Settings) -> list[str]:
    """What could not be measured, and what to do about it, a line for each; of a GPU only."""
    found = [
        (result.plan.problem.name, sustained)
        for result in results
        for sustained in (result.sustained, *(rival.sustained for rival in result.rivals))
        if sustained and facts.kind == "cuda"
    ]
    told = {
        f"the clock had not settled in half of --max-time {settings.max_time_s:g}; raise it": [
            name for name, sustained in found if sustained.settled is False
        ],
        "NVML does not read the clock of this GPU: whether it settled is not known": [
            name for name, sustained in found if sustained.sm_hz is None
        ],
        "NVML counts no energy of this GPU, so there are no watts and joules": [
            name for name, sustained in found if sustained.power_w is None
        ],
    }
    return [
        f"{names(list(dict.fromkeys(problems)))}: {text}"
        for text, problems in told.items()
        if problems
    ]


def _cell(
    sustained: Sustained | None, value: Callable[[Sustained], float | None], scale: float
) -> str:
    return number(None if sustained is None else value(sustained), scale)
