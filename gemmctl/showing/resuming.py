"""Go on with a run that was saved before it was complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gemmctl.device.base import Setup, Telemetry
from gemmctl.errors import UsageError
from gemmctl.measuring.bench import Result, Rival
from gemmctl.measuring.blocks import Block, Sustained
from gemmctl.showing import plan_report, recorded
from gemmctl.showing.formats import compact
from gemmctl.showing.report import Record
from gemmctl.showing.saved import Saved

if TYPE_CHECKING:
    from gemmctl.planning.plan import Plan

_ALIKE = ("format", "device", "cubin_sha256", "settings")  # of the heads
_CUT = ("groups", "choices", "launches", "tuned")  # of each problem


def results(
    saved: Saved, head: Record, plans: Sequence[Plan], rivals: Sequence[str]
) -> dict[str, Result]:
    """What the saved run measured of these plans, by problem name.

    Raises UsageError unless it was measured as this run, with this head, would measure it: the
    same device, settings, data, cubins, groups, kernels and baselines.
    """
    now = json.loads(compact(head))  # as it will be read back
    different = [
        change for key in _ALIKE for change in _different(key, saved.head.get(key), now[key])
    ]
    if different:
        raise UsageError(
            f"cannot resume {saved.path}: it differs from this run in {'; '.join(different)}; "
            "run it as it was, or save to another file"
        )
    return {
        made.problem.name: _result(saved, made, rivals)
        for made in plans
        if made.problem.name in saved.problems
    }


def _different(what: str, before: Any, now: Any) -> Iterator[str]:
    """Where two values differ, mappings entry by entry."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            yield from _different(f"{what}.{key}", before.get(key), now.get(key))
    elif before != now:
        yield f"{what} ({before} and {now})"


def _result(saved: Saved, made: Plan, rivals: Sequence[str]) -> Result:
    """A problem's result from its record."""
    found, planned = saved.problems[made.problem.name], plan_report.record(made)
    where = f"cannot resume {saved.path}: problem '{made.problem.name}'"
    for key in _CUT:
        now = made.tuned if key == "tuned" else planned[key]
        if found.get(key) != now:
            raise UsageError(f"{where} ran with other {key} than it has now; save to another file")
    for field, value in recorded.wrong(found):
        told = f"{where} has {json.dumps(value)[:40]} as its {field}"
        raise UsageError(f"{told}, which no run writes; save to another file")
    if list(found.get("against", ())) != list(rivals):
        raise UsageError(f"{where} ran against other baselines; save to another file")
    try:
        return Result(
            plan=made,
            setup=Setup(found["setup_host_s"], found["setup_device_s"], found["replay_s"]),
            samples=tuple(found["samples_s"]),
            telemetry=tuple(
                Telemetry(**{**reading, "throttle": tuple(reading["throttle"])})
                for reading in found["telemetry"]
            ),
            bound_s=found["bound_s"],
            rivals=tuple(
                Rival(
                    name,
                    rival["verdict"],
                    rival["reason"] or "",
                    tuple(rival["samples_s"]),
                    rival["form"],
                    rival["host_bound"],
                    rival["manner"] or "",
                    _sustained(rival),
                )
                for name, rival in found.get("against", {}).items()
            ),
            host_bound=found["host_bound"],
            sustained=_sustained(found),
        )
    except (KeyError, TypeError, AttributeError):
        raise UsageError(f"{where} lacks some of what was measured; save to another file") from None


def _sustained(record: Record) -> Sustained | None:
    """What a record has of a sustained pace; None at another."""
    if "sustained" not in record:
        return None
    found = record["sustained"]
    names = [field.name for field in fields(Block)]
    blocks = tuple(Block(**{name: block[name] for name in names}) for block in found["blocks"])
    return Sustained(blocks, found["settled"], tuple(found["burst_samples_s"]))
