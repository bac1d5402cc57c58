"""Time a plan: warm up, take samples until the median is steady, keep everything that was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic, sleep
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from gemmctl.device.base import Device, Session, Setup, Telemetry
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Launching, Plan

MIN_SAMPLES = 10  # fewer say nothing about their own spread
BATCH_S = 0.05  # seconds of samples between two looks at the clock; an H200 slows down after it
REST_S = 0.3  # idle seconds before every batch on a GPU, so that all start at the same power
WARMUP_SHARE = 0.25  # of max_time_s at most
LONG_S = 1.0  # seconds of a run that need no warm-up, if there is no time for another


@dataclass(frozen=True)
class Settings:
    """How to run and to sample; stored with every result.

    At most ``runs`` samples are taken and ``max_time_s`` seconds spent on a problem, warm-up
    included (but one sample is always taken); fewer once the spread of at least MIN_SAMPLES is
    below ``max_noise``. Each baseline that is timed beside a problem takes as many samples and as
    long again.
    """

    warmup: int = 3
    runs: int = 50
    max_time_s: float = 3.0
    max_noise: float = 0.005
    cache: Literal["cold", "warm"] = "cold"
    data: DataSpec = field(default_factory=lambda: DataSpec("normal", 0))
    launch: Launching = "grouped"


class Timed(Protocol):
    """What can be sampled: a session, or a baseline on its operands."""

    def time(self, count: int, *, cold: bool) -> list[float]:
        """Seconds of each of ``count`` runs; cold: the L2 is flushed before every one."""


@dataclass(frozen=True)
class Rival:
    """A baseline on one problem: its samples, in seconds, or why it has none.

    n/a: it cannot run the problem; wrong: it gave another result than gemmctl.
    """

    name: str
    verdict: Literal["ok", "n/a", "wrong"] = "ok"
    reason: str = ""
    samples: tuple[float, ...] = ()

    @cached_property
    def median_s(self) -> float | None:
        """The middle sample; None if it was not timed."""
        return float(np.median(self.samples)) if self.samples else None


@dataclass(frozen=True)
class Entry:
    """A baseline before it is timed; ``timed`` is None if ``rival`` says why it will not be."""

    rival: Rival
    timed: Timed | None = None


@dataclass(frozen=True)
class Result:
    """A plan's samples, in seconds, and what the device was like while they were taken."""

    plan: Plan
    setup: Setup
    samples: tuple[float, ...]
    telemetry: tuple[Telemetry, ...]  # one reading after every batch; empty where there are none
    bound_s: float | None  # the roofline's time; None where percent of bound has no meaning
    rivals: tuple[Rival, ...] = ()

    @cached_property
    def median_s(self) -> float:
        """The time that every rate is computed from."""
        return float(np.median(self.samples))

    @cached_property
    def spread(self) -> float | None:
        """How far the samples lie apart, as a share of the median; None for a single one."""
        return spread(self.samples)

    def percentile_s(self, percent: float) -> float:
        """The time that ``percent`` of the samples stay below."""
        return float(np.percentile(self.samples, percent))

    @property
    def flop_per_s(self) -> float | None:
        """Useful floating-point operations per second; None if no time passed."""
        return self.plan.flops / self.median_s if self.median_s else None

    @property
    def bytes_per_s(self) -> float | None:
        """Useful bytes per second; None if no time passed."""
        return self.plan.bytes / self.median_s if self.median_s else None

    @property
    def bound_fraction(self) -> float | None:
        """The roofline's time over the measured one; None without a roofline."""
        return self.bound_s / self.median_s if self.bound_s and self.median_s else None

    def ratio(self, rival: Rival) -> float | None:
        """Our time over a baseline's: below 1 if gemmctl is faster; None if it was not timed."""
        return self.median_s / rival.median_s if rival.median_s else None

    @property
    def best_ratio(self) -> float | None:
        """Our time over that of the fastest baseline; None if none was timed."""
        ratios = [ratio for rival in self.rivals if (ratio := self.ratio(rival)) is not None]
        return max(ratios, default=None)


def spread(samples: Sequence[float] | npt.NDArray[np.float64]) -> float | None:
    """Half the interquartile range over the median; 0 if all are 0, None for a single one.

    Equal to the relative median absolute deviation where samples lie evenly around the median;
    but that is 0 for clocks that jump between two modes, as those of a GPU at its power limit do.
    """
    if len(samples) < 2:
        return None
    low, median, high = np.percentile(samples, [25, 50, 75])
    return float((high - low) / 2 / median) if median else 0.0


def measure(
    session: Session,
    device: Device,
    plan: Plan,
    settings: Settings,
    progress: Callable[[float], None] = lambda done: None,
    entries: Sequence[Entry] = (),
) -> Result:
    """Sample a session by the settings; ``progress`` hears the share done, 0 to 1.

    Baselines take turns with the session, batch by batch, each after the same rest, so that all
    meet the device in the same state; it goes on until every one of them is steady. Raises
    DeviceFailed or DeviceHung.
    """
    rest_s = REST_S if device.facts.kind == "cuda" else 0.0
    ours = _Contestant(session, settings)
    theirs = [_Contestant(entry.timed, settings) if entry.timed else None for entry in entries]
    everyone = [ours, *filter(None, theirs)]
    limit_s = settings.max_time_s * len(everyone)
    telemetry: list[Telemetry] = []
    begin = monotonic()
    for contestant in everyone:
        contestant.warm_up()
    spent = monotonic() - begin
    while not all(contestant.done for contestant in everyone):
        turn_s = sum(contestant.run_s for contestant in everyone)
        if spent + turn_s > limit_s and all(contestant.samples for contestant in everyone):
            break
        for contestant in everyone:
            if len(contestant.samples) == settings.runs:
                continue
            sleep(rest_s)
            contestant.take_batch()
            if contestant is ours and (reading := device.telemetry()) is not None:
                telemetry.append(reading)
        spent = monotonic() - begin
        fewest = min(len(contestant.samples) for contestant in everyone)
        progress(min(1.0, max(fewest / settings.runs, spent / limit_s if limit_s else 1.0)))
    roofline = device.facts.roofline
    return Result(
        plan=plan,
        setup=session.setup,
        samples=tuple(ours.samples),
        telemetry=tuple(telemetry),
        bound_s=None if roofline is None else roofline.bound_s(plan.flops, plan.bytes),
        rivals=tuple(
            replace(entry.rival, samples=tuple(contestant.samples)) if contestant else entry.rival
            for entry, contestant in zip(entries, theirs, strict=True)
        ),
    )


class _Contestant:
    """One of those that take turns, and its samples."""

    def __init__(self, timed: Timed, settings: Settings) -> None:
        self._timed, self._settings = timed, settings
        self._cold = settings.cache == "cold"
        self.run_s = 0.0  # of wall time that the last run took; 0 if there was none
        self.samples: list[float] = []

    def warm_up(self) -> None:
        """Run a few times; a long run that leaves no time for another is the one sample."""
        begin, limit_s = monotonic(), self._settings.max_time_s
        for _ in range(self._settings.warmup):
            samples = self._time(1)
            spent = monotonic() - begin
            if self.run_s > LONG_S and spent + self.run_s > limit_s:
                self.samples = samples
                break
            if spent > limit_s * WARMUP_SHARE:
                break

    def take_batch(self) -> None:
        """Take about BATCH_S seconds of samples, at least one."""
        fitting = int(BATCH_S / self.run_s) if self.run_s else 1
        self.samples += self._time(min(max(fitting, 1), self._settings.runs - len(self.samples)))

    @property
    def done(self) -> bool:
        """Whether there are as many samples as wanted, or enough that are steady."""
        if len(self.samples) == self._settings.runs:
            return True
        found = spread(self.samples)
        steady = found is not None and found < self._settings.max_noise
        return len(self.samples) >= MIN_SAMPLES and steady

    def _time(self, count: int) -> list[float]:
        started = monotonic()
        samples = self._timed.time(count, cold=self._cold)
        self.run_s = (monotonic() - started) / count
        return samples
