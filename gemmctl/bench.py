"""Time a plan: warm up, take samples until the median is steady, keep everything that was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic, sleep
from typing import Literal

import numpy as np
import numpy.typing as npt

from gemmctl.data import DataSpec
from gemmctl.device.base import Device, Session, Setup, Telemetry
from gemmctl.plan import Plan

MIN_SAMPLES = 10  # fewer say nothing about their own spread
BATCH_S = 0.05  # seconds of samples between two looks at the clock; an H200 slows down after it
REST_S = 0.3  # idle seconds before every batch on a GPU, so that all start at the same power
WARMUP_SHARE = 0.25  # of max_time_s at most


@dataclass(frozen=True)
class Settings:
    """How to sample; stored with every result.

    At most ``runs`` samples are taken and ``max_time_s`` seconds spent on a problem (but one
    sample is always taken); fewer once the spread of at least MIN_SAMPLES is below ``max_noise``.
    """

    warmup: int = 3
    runs: int = 50
    max_time_s: float = 3.0
    max_noise: float = 0.005
    cache: Literal["cold", "warm"] = "cold"
    data: DataSpec = field(default_factory=lambda: DataSpec("normal", 0))


@dataclass(frozen=True)
class Result:
    """A plan's samples, in seconds, and what the device was like while they were taken."""

    plan: Plan
    setup: Setup
    samples: tuple[float, ...]
    telemetry: tuple[Telemetry, ...]  # one reading after every batch; empty where there are none
    bound_s: float | None  # the roofline's time; None where percent of bound has no meaning

    @cached_property
    def median_s(self) -> float:
        """The time that every rate is computed from."""
        return float(np.median(self.samples))

    @cached_property
    def spread(self) -> float | None:
        """How far the samples lie apart, as a share of the median; None for a single one."""
        return spread(np.array(self.samples)) if len(self.samples) > 1 else None

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


def spread(samples: npt.NDArray[np.float64]) -> float:
    """Half the interquartile range over the median; 0 if all are 0.

    Equal to the relative median absolute deviation where samples lie evenly around the median;
    but that is 0 for clocks that jump between two modes, as those of a GPU at its power limit do.
    """
    low, median, high = np.percentile(samples, [25, 50, 75])
    return float((high - low) / 2 / median) if median else 0.0


def measure(
    session: Session,
    device: Device,
    plan: Plan,
    settings: Settings,
    progress: Callable[[float], None] = lambda done: None,
) -> Result:
    """Sample a session by the settings; ``progress`` hears the share done, 0 to 1.

    Raises DeviceFailed or DeviceHung.
    """
    cold = settings.cache == "cold"
    rest_s = REST_S if device.facts.kind == "cuda" else 0.0
    begin = monotonic()
    run_s = _warm_up(session, settings, cold)
    samples: list[float] = []
    telemetry: list[Telemetry] = []
    spent = monotonic() - begin
    while not samples or (len(samples) < settings.runs and spent < settings.max_time_s):
        fitting = int(BATCH_S / run_s) if run_s else 1
        batch = min(max(fitting, 1), settings.runs - len(samples))
        sleep(rest_s)
        started = monotonic()
        samples += session.time(batch, cold=cold)
        run_s = (monotonic() - started) / batch
        if (reading := device.telemetry()) is not None:
            telemetry.append(reading)
        if len(samples) >= MIN_SAMPLES and spread(np.array(samples)) < settings.max_noise:
            break
        spent = monotonic() - begin
        progress(min(1.0, max(len(samples) / settings.runs, spent / settings.max_time_s)))
    roofline = device.facts.roofline
    return Result(
        plan=plan,
        setup=session.setup,
        samples=tuple(samples),
        telemetry=tuple(telemetry),
        bound_s=None if roofline is None else roofline.bound_s(plan.flops, plan.bytes),
    )


def _warm_up(session: Session, settings: Settings, cold: bool) -> float:
    """Run a few times; seconds of wall time that the last run took (0 if there was none)."""
    run_s = 0.0
    begin = monotonic()
    for _ in range(settings.warmup):
        started = monotonic()
        session.time(1, cold=cold)
        run_s = monotonic() - started
        if monotonic() - begin > settings.max_time_s * WARMUP_SHARE:
            break
    return run_s
