"""Put two saved runs side by side and say what changed, if the samples can tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmctl.errors import UsageError
from gemmctl.measuring.ratio import interval, verdict
from gemmctl.showing.saved import Saved


@dataclass(frozen=True)
class Difference:
    """One problem in both runs.

    ratio is new over old median; [low, high] holds the true one with 95% confidence, and is
    None where a run has too few samples to say.
    """

    name: str
    old_s: float
    new_s: float
    interval: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        """New median over old: above 1 is slower. 1 if both took no time."""
        if self.old_s:
            return self.new_s / self.old_s
        return float("inf") if self.new_s else 1.0

    @property
    def verdict(self) -> str:
        """SAME, FAST, SLOW, or UNSURE where the samples allow more than one of them."""
        return verdict(self.interval, faster="FAST", slower="SLOW")


@dataclass(frozen=True)
class Comparison:
    """Two runs, matched by problem."""

    old: Saved
    new: Saved
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]  # what could not be matched, what else changed

    def over(self, limit: float) -> bool:
        """Whether any problem is surely slower, and by more than ``limit`` (0.03 is 3%)."""
        return any(d.verdict == "SLOW" and d.ratio > 1 + limit for d in self.differences)


def compare(old: Saved, new: Saved, *, force: bool = False) -> Comparison:
    """Match two runs by problem name and shapes, and judge each pair.

    Raises UsageError if they ran on different devices or with different settings (unless
    ``force``), or have no problem in common.
    """
    clashes = list(_clashes(old.head, new.head))
    if clashes and not force:
        raise UsageError(
            f"{old.path} and {new.path} differ in {'; '.join(clashes)}: their times do not compare "
            "(--force compares them anyway)"
        )
    common = [
        name
        for name, problem in old.problems.items()
        if name in new.problems and new.problems[name]["groups"] == problem["groups"]
    ]
    if not common:
        raise UsageError(f"{old.path} and {new.path} have no problem of one name and shape")
    return Comparison(
        old,
        new,
        tuple(_difference(old.problems[name], new.problems[name]) for name in common),
        (*clashes, *_unmatched(old, new), *_news(old.head, new.head)),
    )


def _clashes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What makes two runs' times mean different things."""
    for what, keys in (
        ("device", ("device", "kind")),
        ("device", ("device", "name")),
        ("cache", ("settings", "cache")),
        ("data", ("settings", "data")),
    ):
        before, after = old, new
        for key in keys:
            before, after = before[key], after[key]
        if before != after:
            yield f"{what} ({before} and {after})"


def _unmatched(old: Saved, new: Saved) -> Iterator[str]:
    for name, problem in old.problems.items():
        if name not in new.problems:
            yield f"{name} is only in {old.path}"
        elif new.problems[name]["groups"] != problem["groups"]:
            yield f"{name} has other groups in {new.path}: not compared"
    yield from (f"{name} is only in {new.path}" for name in new.problems.keys() - old.problems)


def _news(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What changed between the runs and may be why the times did."""
    if old["device"]["driver"] != new["device"]["driver"]:
        yield f"driver {old['device']['driver']} became {new['device']['driver']}"
    before, after = (head["settings"].get("launch", "grouped") for head in (old, new))
    if before != after:
        yield f"launch {before} became {after}"
    if old["cubin_sha256"] != new["cubin_sha256"]:
        yield f"cubins {old['cubin_sha256'][:12]} became {new['cubin_sha256'][:12]}"


def _difference(old: dict[str, Any], new: dict[str, Any]) -> Difference:
    before, after = np.array(old["samples_s"]), np.array(new["samples_s"])
    return Difference(
        name=old["name"],
        old_s=float(np.median(before)),
        new_s=float(np.median(after)),
        interval=interval(before, after),
    )
