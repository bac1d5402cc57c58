"""Blocks of runs back to back: how long a run took in them, at which clock and with what power."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic

import numpy as np

from gemmctl.device.base import Device, Telemetry

# The energy counter is written anew every 100 ms, so a block has ten such intervals; and power is
# taken from the first of its changes to the last, which the host sees within the 5 ms of a reading.
BLOCK_S = 1.0
COUNTED_S = 0.5  # that there have to be from its first change to the last
READ_S = 0.02  # between two readings of the clock


@dataclass(frozen=True)
class Block:
    """About a second of runs back to back."""

    seconds: float  # of one run, the mean over the block
    sm_hz: float | None = None  # mean of the readings; None where there are none
    power_w: float | None = None  # of the whole board, by its energy counter; None without one
    host_bound: float = 0.0  # share of the time that may hold the host's

    @property
    def energy_j(self) -> float | None:
        """Joules of one run; None where no energy is counted."""
        return None if self.power_w is None else self.power_w * self.seconds


@dataclass(frozen=True)
class Sustained:
    """What the samples of a sustained pace were like, and what bursts gave before them."""

    blocks: tuple[Block, ...]  # one for each sample
    settled: bool | None  # whether the clock did not move any more; None if it cannot be read
    burst: tuple[float, ...]  # samples, in seconds

    @property
    def sm_hz(self) -> float | None:
        """The middle of the blocks' clocks."""
        return middle(block.sm_hz for block in self.blocks)

    @property
    def power_w(self) -> float | None:
        """The middle of the blocks' powers."""
        return middle(block.power_w for block in self.blocks)

    @property
    def energy_j(self) -> float | None:
        """The middle of the blocks' energies of a run."""
        return middle(block.energy_j for block in self.blocks)

    @property
    def burst_median_s(self) -> float:
        """The middle sample of the bursts."""
        return float(np.median(self.burst))


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are there; None if none is."""
    found = [value for value in values if value is not None]
    return float(np.median(found)) if found else None


class Meter:
    """The clock and the power of a device over a block."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._energy_j = device.energy_j()
        self._changes: list[tuple[float, float]] = []  # of the counter: when, and to how much
        self._due = -math.inf  # when the clock is to be read again
        self.readings: list[Telemetry] = []

    def read(self) -> None:
        """Look at the energy counter, and at the clock now and then."""
        now, energy_j = monotonic(), self._device.energy_j()
        if energy_j is not None and energy_j != self._energy_j:
            self._energy_j = energy_j
            self._changes.append((now, energy_j))
        if now >= self._due and (reading := self._device.telemetry()) is not None:
            self._due = now + READ_S
            self.readings.append(reading)

    @property
    def sm_hz(self) -> float | None:
        """The mean clock; None where there are no readings."""
        return float(np.mean([x.sm_hz for x in self.readings])) if self.readings else None

    @property
    def power_w(self) -> float | None:
        """The mean power between the first and the last change of the energy counter.

        None where it did not change, or not over enough of the block.
        """
        if not self._changes:
            return None
        (first, from_j), (last, to_j) = self._changes[0], self._changes[-1]
        enough = last - first >= COUNTED_S
        return (to_j - from_j) / (last - first) if enough else None
