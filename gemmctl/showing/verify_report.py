"""What ``verify`` reports: a verdict on every group."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from gemmctl.showing.report import (
    Record,
    Report,
    device_label,
    head_on,
    kernel_cell,
    number,
    tuned_note,
    word,
)
from gemmctl.showing.table import Column, View

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
NAME_PART = 48  # characters of a problem's name in a file's, which has 255 bytes at most
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
        """A file name of its own, for what is kept of the first wrong group.

        It has the problem's name in it; a hash tells apart those that had to be changed for that.
        """
        problem = self.plan.problem.name
        name = re.sub(r"^[.-]|[^\w.-]", "_", problem[:NAME_PART])
        if name != problem:
            name += f"-{hashlib.sha256(problem.encode()).hexdigest()[:8]}"
        return f"{name}-group{self.bad[0].group}-{self.data.kind}"

    @property
    def methods(self) -> dict[str, int]:
        """How many groups each method judged."""
        return dict(Counter(verdict.method for verdict in self.verdicts))


@dataclass(frozen=True)
class Judged:
    """One group's verdict, and the check that it is of."""

    checked: Checked
    verdict: Verdict


def head(facts: Facts, data: str, seed: int, repeat: int, launch: str, cubins: Manifest) -> Record:
    """What is true of a whole check: format, device, cubins, and the options of that name."""
    settings = {"data": data, "seed": seed, "repeat": repeat, "launch": launch}
    return head_on("verify", cubins, facts, settings)


def record(checked: Checked) -> Record:
    """One problem's verdicts on one kind of data."""
    return {
        "name": checked.plan.problem.name,
        "data": asdict(checked.data),
        "kernel": checked.plan.kernel,
        "choices": list(map(str, checked.plan.choices)),
        "tuned": checked.plan.tuned,
        "group_count": len(checked.verdicts),
        "bad_groups": len(checked.bad),
        "ok": not checked.bad,
        "worst": checked.worst,
        "methods": checked.methods,
        "verdicts": [asdict(verdict) for verdict in checked.verdicts],
    }


def columns(facts: Facts) -> tuple[Column[Checked], ...]:
    """What the table says of a problem and kind of data."""
    return (
        Column("problem", lambda c: c.plan.problem.name, left=True),
        Column("data", lambda c: c.data.kind, left=True),
        Column("kernel", lambda c: kernel_cell(c.plan, facts), left=True, rank=3),
        Column("groups", lambda c: str(len(c.verdicts)), rank=2),
        Column("good", lambda c: str(len(c.verdicts) - len(c.bad)), rank=1),
        Column("bad", lambda c: str(len(c.bad))),
        Column("method", lambda c: ",".join(map(word, c.methods)), left=True, rank=4),
        Column("worst", lambda c: number(c.worst, digits=3)),
        Column("verdict", lambda c: "BAD" if c.bad else "ok", left=True),
    )


def group_columns(facts: Facts) -> tuple[Column[Judged], ...]:
    """What the table says of each group."""
    return (
        Column("problem", lambda j: j.checked.plan.problem.name, left=True),
        Column("data", lambda j: j.checked.data.kind, left=True),
        Column("kernel", lambda j: kernel_cell(j.checked.plan, facts), left=True, rank=3),
        Column("group", lambda j: str(j.verdict.group)),
        Column("MxNxK", lambda j: _shape(j.checked, j.verdict.group), left=True, rank=1),
        Column("method", lambda j: word(j.verdict.method), left=True, rank=2),
        Column("worst", lambda j: number(j.verdict.worst, digits=3)),
        Column("rms", lambda j: number(j.verdict.rms, digits=3), rank=4),
        Column("rms limit", lambda j: number(j.verdict.rms_limit, digits=3), rank=5),
        Column("bad", lambda j: str(j.verdict.bad)),
        Column("verdict", lambda j: "ok" if j.verdict.ok else "BAD", left=True),
    )


def check(facts: Facts, view: View) -> None:
    """Raise UsageError if the view asks for columns that ``report`` would not have."""
    if view.verbose:
        view.check(group_columns(facts))
    else:
        view.check(columns(facts))


def report(head: Record, checks: Sequence[Checked], facts: Facts, view: View) -> Report:
    """A row per problem and kind of data (verbose: per group), and each wrong group."""
    if view.verbose:
        per_group = group_columns(facts)
        judged = [Judged(checked, verdict) for checked in checks for verdict in checked.verdicts]
        judged = view.order(per_group, judged)
        table = view.table(per_group, judged)
        checks = _ordered(judged)
    else:
        checks = view.order(columns(facts), checks)
        table = view.table(columns(facts), checks)
    return Report(
        head=head,
        items="checks",
        records=[record(checked) for checked in checks],
        table=table,
        details=[text for checked in checks for text in _wrong(checked)],
        notes=[
            f"{device_label(facts.kind, facts.name)}: worst is the largest error of an element "
            "over what the arithmetic allows; above 1 is wrong",
            *([RMS_NOTE] if view.verbose else []),
            *tuned_note(checked.plan for checked in checks),
        ],
    )


def _ordered(judged: Sequence[Judged]) -> list[Checked]:
    """The checks, and the verdicts of each, in the order of their rows."""
    found: dict[int, tuple[Checked, list[Verdict]]] = {}
    for row in judged:
        found.setdefault(id(row.checked), (row.checked, []))[1].append(row.verdict)
    return [replace(checked, verdicts=verdicts) for checked, verdicts in found.values()]


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
