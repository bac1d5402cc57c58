"""Put two saved runs side by side and say what changed, if the samples can tell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gemmctl.errors import UsageError
from gemmctl.lists.fields import DEFAULTS
from gemmctl.lists.problem import chosen
from gemmctl.measuring.ratio import MIN_SAMPLES, interval, verdict
from gemmctl.showing import changes
from gemmctl.showing.report import Record
from gemmctl.showing.saved import Saved


@dataclass(frozen=True)
class Difference:
    """One problem in both runs, by its samples in seconds."""

    name: str
    old: Sequence[float]
    new: Sequence[float]

    @property
    def old_s(self) -> float:
        """The middle sample of the old run."""
        return float(np.median(self.old))

    @property
    def new_s(self) -> float:
        """The middle sample of the new run."""
        return float(np.median(self.new))

    @property
    def ratio(self) -> float:
        """New median over old: above 1 is slower. 1 if both took no time."""
        if self.old_s:
            return self.new_s / self.old_s
        return math.inf if self.new_s else 1.0

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """What holds the true ratio with 95% confidence; None where too few samples say."""
        if not max(self.old) and not max(self.new):
            return 1.0, 1.0  # there was nothing to do
        return interval(np.array(self.old), np.array(self.new))

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
    gaps: tuple[str, ...]  # why nothing can be said of problems of the old run, a sentence each
    notes: tuple[str, ...]  # what else is in one run only, or changed
    where: str  # in which run, behind what is told; empty where there is one new run only

    @property
    def ratios(self) -> list[float]:
        """The ratios that have a logarithm, and so are in the mean."""
        return [d.ratio for d in self.differences if 0 < d.ratio < math.inf]

    @property
    def mean(self) -> float | None:
        """The geometric mean of the ratios; None if there are none."""
        ratios = self.ratios
        return float(np.exp(np.mean(np.log(ratios)))) if ratios else None

    def failures(self, limit: float) -> list[str]:
        """Why the new run does not pass a limit on slowing down (0.03 is 3%), a sentence each.

        A problem fails if it surely became slower by more than the limit, and if nothing can be
        said of it: a limit cannot be kept by measuring less.
        """
        slower = [
            f"{d.name} became slower by {100 * (d.interval[0] - 1):.1f}% at least{self.where}"
            for d in self.differences
            if d.interval is not None and d.interval[0] > 1 + limit
        ]
        return [*slower, *self.gaps]


def compare(
    old: Saved,
    new: Saved,
    *,
    only: Sequence[str] = (),
    force: bool = False,
    several: bool = False,
) -> Comparison:
    """Match two runs by problem name and shapes, and judge each pair.

    ``only``: of the problems whose names match one of these globs. ``several``: the old run is
    compared with others, too, so that what is told has to say of which. Raises UsageError if the
    runs are of different devices, data or cache states (unless ``force``), have no problem in
    common, or none of a name that is asked for.
    """
    where = f" in {new.path}" if several else ""
    both = f"{old.path} and {new.path}" if several else "they"
    clashes = changes.clashes(old.head, new.head)
    if clashes and not force:
        raise UsageError(
            f"{old.path} and {new.path} differ in {'; '.join(clashes)}: their times do not compare "
            "(--force compares them anyway)"
        )
    before, after = _chosen(old, new, only)
    common = [
        name
        for name, problem in before.items()
        if name in after and _groups(after[name]) == _groups(problem)
    ]
    if not common:
        raise UsageError(f"{old.path} and {new.path} have no problem of one name and shape")
    pairs = [(before[name], after[name]) for name in common]
    differences = [Difference(x["name"], x["samples_s"], y["samples_s"]) for x, y in pairs]
    return Comparison(
        old,
        new,
        tuple(differences),
        gaps=(
            *_unsure(old, new, differences),
            *(
                f"{name} has other groups in {new.path}: not compared"
                if name in after
                else f"{name} is in {old.path}, but not in {new.path}"
                for name in before
                if name not in common
            ),
        ),
        notes=(
            *(f"compared although {both} differ in {clash}" for clash in clashes),
            *_unfinished(old, new),
            *(
                f"{name} is in {new.path}, but not in {old.path}"
                for name in after
                if name not in before
            ),
            *changes.told(old.head, new.head, pairs, where),
        ),
        where=where,
    )


def _chosen(
    old: Saved, new: Saved, only: Sequence[str]
) -> tuple[dict[str, Record], dict[str, Record]]:
    """The problems of both runs that the globs choose; all if there are none."""
    names = old.problems.keys() | new.problems.keys()
    for glob in only:
        if not chosen(names, [glob]):
            raise UsageError(f"no problem is named '{glob}' in {old.path} or {new.path}")
    wanted = chosen(names, only)

    def of(run: Saved) -> dict[str, Record]:
        return {name: problem for name, problem in run.problems.items() if name in wanted}

    return of(old), of(new)


def _groups(problem: Record) -> list[object]:
    """A problem's groups; those of a run before there was a key have what it is by default."""
    return [
        {**DEFAULTS, "c_offset": 0, "bias_type": group.get("d"), **group}
        if isinstance(group, dict)
        else group
        for group in problem["groups"]
    ]


def _unsure(old: Saved, new: Saved, differences: Sequence[Difference]) -> Iterator[str]:
    """Why samples cannot tell whether some problems changed."""
    for difference in differences:
        if difference.interval is not None:
            continue
        for run, times in ((old, difference.old), (new, difference.new)):
            count = len(times)
            samples = "1 sample" if count == 1 else f"{count} samples"
            if count < MIN_SAMPLES:
                yield (
                    f"{difference.name} is UNSURE: {samples} in {run.path}, and {MIN_SAMPLES} are "
                    "needed to tell"
                )
            elif not all(times):
                yield (
                    f"{difference.name} is UNSURE: {times.count(0)} of {samples} in {run.path} "
                    "took no time, so the ratio has no interval"
                )


def _unfinished(*runs: Saved) -> Iterator[str]:
    for run in runs:
        if len(run.problems) < run.total:
            yield (
                f"{run.path} is not complete: {len(run.problems)} of {run.total} problems were "
                "measured; run --resume goes on with it"
            )
