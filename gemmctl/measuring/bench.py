"""Time a plan: warm up, take samples until the median is steady, keep everything that was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from gemmctl.device.base import Device, Sample, Session, Setup, Telemetry
from gemmctl.errors import DeviceFailed
from gemmctl.judging.manner import Manner
from gemmctl.measuring import ratio
from gemmctl.measuring.blocks import Sustained
from gemmctl.measuring.ratio import Ratio
from gemmctl.measuring.rest import Rest
from gemmctl.measuring.turns import Contestant, take_turns
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Launching, Plan

MIN_SAMPLES = 10  # fewer say nothing about their own spread
BATCH_S = 0.05  # seconds of samples between two looks at the clock; an H200 slows down after it
WARMUP_SHARE = 0.25  # of max_time_s at most
LONG_S = 1.0  # seconds of a run that need no warm-up, if there is no time for another
TURNS = 3  # at least that each of several takes, so that what changes between turns shows in all

Pace = Literal["burst", "sustained"]
MAX_TIME_S: dict[Pace, float] = {"burst": 3.0, "sustained": 30.0}  # unless a user says otherwise


@dataclass(frozen=True)
class Settings:
    """How to run and to sample; stored with every result.

    At most ``runs`` samples are taken and ``max_time_s`` seconds spent on a problem, warm-up
    included (but one sample is always taken); fewer once the spread of at least MIN_SAMPLES is
    below ``max_noise``. Each baseline that is timed beside a problem takes as many samples and as
    long again. Of a sustained pace a sample is a block of runs; see sustained.py.
    """

    warmup: int = 3
    runs: int = 50
    max_time_s: float = 3.0
    max_noise: float = 0.005
    cache: Literal["cold", "warm"] = "cold"
    data: DataSpec = field(default_factory=lambda: DataSpec("normal", 0))
    launch: Launching = "grouped"
    pace: Pace = "burst"

    @property
    def timer(self) -> Literal["cold", "warm", "sustained"]:
        """How samples are taken, by the names of Facts.timers."""
        return "sustained" if self.pace == "sustained" else self.cache


class Timed(Protocol):
    """What can be sampled: a session, or a baseline on its operands."""

    def time(self, count: int, *, cold: bool) -> list[Sample]:
        """So many samples; cold: the L2 is flushed before every one."""

    def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
        """Samples back to back for so many seconds; ``watch`` is called meanwhile."""


Form = Literal["graph", "calls"]


@dataclass(frozen=True)
class Rival:
    """A baseline on one problem: its samples, in seconds, or why it has none.

    n/a: it cannot run the problem; wrong: it gave another result than gemmctl. form says whether a
    sample is a CUDA graph or the library's own calls, None if it was not timed; ``reason`` why it
    was not timed, or why only that form could be. manner is how it does more than alpha A B.
    host_bound is the share of the samples that may hold the host's time.
    """

    name: str
    verdict: Literal["ok", "n/a", "wrong"] = "ok"
    reason: str = ""
    samples: tuple[float, ...] = ()
    form: Form | None = None
    host_bound: float = 0.0
    manner: Manner = ""
    sustained: Sustained | None = None

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
    telemetry: tuple[Telemetry, ...]  # one reading after every turn; empty where there are none
    bound_s: float | None  # the roofline's time; None where percent of bound has no meaning
    rivals: tuple[Rival, ...] = ()
    host_bound: float = 0.0  # share of the samples that may hold the host's time
    sustained: Sustained | None = None  # None at the pace of bursts

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

    @cached_property
    def ratios(self) -> dict[str, Ratio | None]:
        """Our time over each baseline's: below 1 if gemmctl is faster; None if it was not timed."""
        return {rival.name: ratio.ratio(self.samples, rival.samples) for rival in self.rivals}

    @property
    def best(self) -> Rival | None:
        """The baseline with the smallest median; None if none was timed."""
        timed = [rival for rival in self.rivals if self.ratios[rival.name]]
        return min(timed, key=lambda rival: rival.median_s or 0.0, default=None)

    @property
    def best_ratio(self) -> Ratio | None:
        """Our time over that of the fastest baseline; None if none was timed."""
        return self.ratios[self.best.name] if self.best else None


def spread(samples: Sequence[float] | npt.NDArray[np.float64]) -> float | None:
    """Half the interquartile range over the median; 0 if all are 0, None for a single one.

    Equal to the relative median absolute deviation where samples lie evenly around the median;
    but that is 0 for clocks that jump between two modes, as those of a GPU at its power limit do.
    """
    if len(samples) < 2:
        return None
    low, median, high = np.percentile(samples, [25, 50, 75])
    return float((high - low) / 2 / median) if median else 0.0


def enough(samples: Sequence[float], settings: Settings, least: int) -> bool:
    """Whether there are as many samples as wanted, or ``least`` of them that are steady."""
    if len(samples) == settings.runs:
        return True
    found = spread(samples)
    return len(samples) >= least and found is not None and found < settings.max_noise


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
    meet the device in the same state; it goes on until every one of them is steady, and for TURNS
    turns at least if the time allows. Raises DeviceFailed, also if D changes from run to run, or
    DeviceHung.
    """
    rest = Rest(device)
    turns = TURNS if any(entry.timed for entry in entries) else 1
    ours = _Bursts(session, settings, rest, turns)
    theirs = [
        _Bursts(entry.timed, settings, rest, turns) if entry.timed else None for entry in entries
    ]
    everyone = [ours, *filter(None, theirs)]
    telemetry: list[Telemetry] = []
    result = Unchanged(session, plan)
    begin = monotonic()
    for contestant in everyone:
        contestant.warm_up()
        if contestant is ours and ours.warm:
            result.check()

    def turned(one: Contestant) -> None:
        if one is ours:
            if (reading := device.telemetry()) is not None:
                telemetry.append(reading)
            if len(everyone) > 1:  # others are to write to D
                result.check()

    limit_s = settings.max_time_s * len(everyone)
    take_turns(everyone, settings.runs, lambda: monotonic() - begin, limit_s, turned, progress)
    if len(everyone) == 1:
        result.check()
    # Without a warm-up, what was looked at first may have been the last of the samples.
    if not result.compared and ours.least_s <= LONG_S:
        session.run()
        result.check()
    roofline = device.facts.roofline
    return Result(
        plan=plan,
        setup=session.setup,
        samples=tuple(ours.samples),
        host_bound=ours.host_bound,
        telemetry=tuple(telemetry),
        bound_s=None if roofline is None else roofline.bound_s(plan.flops, plan.bytes),
        rivals=tuple(
            replace(
                entry.rival,
                samples=tuple(contestant.samples),
                host_bound=contestant.host_bound,
            )
            if contestant
            else entry.rival
            for entry, contestant in zip(entries, theirs, strict=True)
        ),
    )


class Unchanged:
    """D as a session's runs leave it, which has to be the same every time.

    Where C is in place, D is what the runs since the last fresh C made of it, however many they
    were; so one more run on a fresh C is looked at.

    compared: whether two of them were.
    """

    def __init__(self, session: Session, plan: Plan) -> None:
        self._session, self._plan = session, plan
        self._accumulates = bool(plan.problem.columns.accumulates.any())
        self._first: npt.NDArray[np.uint64] | None = None
        self.compared = False

    def check(self) -> None:
        """Compare what D is now with what it was at the first call.

        Raises DeviceFailed with the first group that changed.
        """
        if self._accumulates:
            self._session.poison()
            self._session.run()
        now = self._session.digests()
        if self._first is None:
            self._first = now
            return
        self.compared = True
        changed = np.flatnonzero(now != self._first).tolist()
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise DeviceFailed(
                f"the same run gave other bits in group {changed[0]}{more} of "
                f"{self._plan.problem.name}: these times are worth nothing; gemmctl verify says "
                "what is wrong"
            )


class _Bursts:
    """A contestant whose turn is a rest and then a batch of samples."""

    def __init__(self, timed: Timed, settings: Settings, rest: Rest, turns: int) -> None:
        self._timed, self._settings, self._rest, self._turns = timed, settings, rest, turns
        self._cold = settings.cache == "cold"
        self.least_s = 0.0  # of wall time that the last run took; 0 if there was none
        self._taken: list[Sample] = []
        self._batches = 0

    @property
    def warm(self) -> bool:
        """Whether it has run at all."""
        return self.least_s > 0

    @property
    def samples(self) -> list[float]:
        """Seconds of a run, of each sample."""
        return [sample.seconds for sample in self._taken]

    @property
    def host_bound(self) -> float:
        """The share of the samples that may hold the host's time."""
        return sum(sample.host_bound for sample in self._taken) / len(self._taken)

    def warm_up(self) -> None:
        """Run a few times; a long run that leaves no time for another is the one sample."""
        begin, limit_s = monotonic(), self._settings.max_time_s
        for _ in range(self._settings.warmup):
            samples = self._time(1)
            spent = monotonic() - begin
            if self.least_s > LONG_S and spent + self.least_s > limit_s:
                self._taken = samples
                break
            if spent > limit_s * WARMUP_SHARE:
                break

    def take_turn(self) -> None:
        """Take about BATCH_S seconds of samples, at least one; no more than leave enough turns."""
        self._rest.take()
        fitting = int(BATCH_S / self.least_s) if self.least_s else 1
        share = -(-self._settings.runs // self._turns)
        left = self._settings.runs - len(self._taken)
        count = min(max(fitting, 1), share, left)
        self._taken += self._time(count)
        self._rest.after(count * self.least_s)
        self._batches += 1

    @property
    def done(self) -> bool:
        """Whether there are as many samples as wanted, or enough that are steady."""
        least = MIN_SAMPLES if self._batches >= self._turns else self._settings.runs
        return enough(self.samples, self._settings, least)

    def _time(self, count: int) -> list[Sample]:
        started = monotonic()
        samples = self._timed.time(count, cold=self._cold)
        self.least_s = (monotonic() - started) / count
        return samples
