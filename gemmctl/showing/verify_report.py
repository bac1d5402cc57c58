"""What ``verify`` reports: a verdict on every group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gemmctl.showing.report import (
    Column,
    Record,
    Report,
    head_of,
    kernel_cell,
    number,
    tabled,
    tuned_note,
    word,
)

if TYPE_CHECKING:
    from gemmctl.device.base import Facts
    from gemmctl.judging.verdict import Verdict
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.operands.data import DataSpec
    from gemmctl.planning.plan import Plan


RMS_NOTE = (
    "rms is the size of a group's errors as a whole over what the arithmetic explains; "
    "above its limit is wrong"
)
MAX_DETAILS = 10  # bad groups spelled out per problem in a table; json has them all


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


def head(facts: Facts, cubins: Manifest) -> Record:
    """What is true of a whole check."""
    return {**head_of("verify", cubins), "device": asdict(facts)}


def record(checked: Checked) -> Record:
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


def report(
    head: Record, checks: Sequence[Checked], facts: Facts, *, verbose: bool = False
) -> Report:
    """A row per problem and kind of data (with ``verbose`` per group), and each wrong group."""
    on_cpu = "cpu:" if facts.kind == "cpu" else ""
    if verbose:
        per_group: tuple[Column[tuple[Checked, Verdict]], ...] = (
            Column("problem", lambda cv: cv[0].plan.problem.name, left=True),
            Column("data", lambda cv: cv[0].data.kind, left=True),
            Column("kernel", lambda cv: on_cpu + kernel_cell(cv[0].plan), left=True),
            Column("group", lambda cv: str(cv[1].group)),
            Column("MxNxK", lambda cv: _shape(cv[0], cv[1].group), left=True),
            Column("method", lambda cv: word(cv[1].method), left=True),
            Column("worst", lambda cv: number(cv[1].worst, digits=3)),
            Column("rms", lambda cv: number(cv[1].rms, digits=3)),
            Column("rms limit", lambda cv: number(cv[1].rms_limit, digits=3)),
            Column("bad", lambda cv: str(cv[1].bad)),
            Column("verdict", lambda cv: "ok" if cv[1].ok else "BAD", left=True),
        )
        pairs = [(checked, verdict) for checked in checks for verdict in checked.verdicts]
        titles, rows, left = tabled(per_group, pairs, verbose)
    else:
        per_problem: tuple[Column[Checked], ...] = (
            Column("problem", lambda c: c.plan.problem.name, left=True),
            Column("data", lambda c: c.data.kind, left=True),
            Column("kernel", lambda c: on_cpu + kernel_cell(c.plan), left=True),
            Column("groups", lambda c: str(len(c.verdicts))),
            Column("good", lambda c: str(len(c.verdicts) - len(c.bad))),
            Column("bad", lambda c: str(len(c.bad))),
            Column("method", lambda c: ",".join(map(word, c.methods)), left=True),
            Column("worst", lambda c: number(c.worst, digits=3)),
            Column("verdict", lambda c: "BAD" if c.bad else "ok", left=True),
        )
        titles, rows, left = tabled(per_problem, checks, verbose)
    return Report(
        head=head,
        items="checks",
        records=[record(checked) for checked in checks],
        titles=titles,
        rows=rows,
        left=left,
        details=[text for checked in checks for text in _wrong(checked)],
        notes=[
            f"{facts.name}: worst is the largest error of an element over what the arithmetic "
            "allows; above 1 is wrong",
            *([RMS_NOTE] if verbose else []),
            *tuned_note(checked.plan for checked in checks),
        ],
    )


def _shape(checked: Checked, index: int) -> str:
    group = checked.plan.problem.groups[index]
    return f"{group.m}x{group.n}x{group.k}"


def _wrong(checked: Checked) -> list[str]:
    """One line for each wrong group, up to MAX_DETAILS."""
    bad = checked.bad
    where = f"{checked.plan.problem.name} ({checked.data.kind})"
    lines = [f"{where}: {verdict.message}" for verdict in bad[:MAX_DETAILS]]
    if len(bad) > MAX_DETAILS:
        lines.append(f"{where}: {len(bad) - MAX_DETAILS} more groups are bad; -f json has them all")
    return lines
