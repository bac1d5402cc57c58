"""Time a plan at the clock that a GPU keeps: back to back in blocks, after the bursts of bench.py.

A GPU at its power limit lowers its clock within tenths of a second, and a little for seconds more
while it warms up. So everyone takes blocks by turns until the clock of each stays where it is, and
the blocks from then on are the samples. Nothing rests, and the L2 is not flushed: both would draw
less power than what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

import numpy as np

from gemmctl.device.base import Device, Session, Telemetry
from gemmctl.measuring import bench, ratio
from gemmctl.measuring.bench import Entry, Result, Settings, Timed
from gemmctl.measuring.blocks import BLOCK_S, Block, Meter, Sustained
from gemmctl.measuring.turns import Contestant, take_turns
from gemmctl.planning.plan import Plan

# Before every block, the same for as long as an H200 takes from its highest clock to that of its
# power limit, uncounted: contestants draw different power, and their clocks differ by a third.
LEAD_S = 1.0
# That a contestant's clock moves from block to block. At its limit an H200 lets the clock swing by
# an eighth, with a period of 0.8 s, so that settled blocks still differ by 1.2%; from rest, the
# clock of the first second is 7% above that of the next.
SETTLED_WITHIN = 0.02
SETTLING_SHARE = 0.5  # of max_time_s at most, before blocks count though the clock still moves
BURST_SHARE = 0.1  # of max_time_s at most, for the bursts
MIN_BLOCKS = ratio.MIN_SAMPLES  # fewer say nothing about a ratio


def measure(
    session: Session,
    device: Device,
    plan: Plan,
    settings: Settings,
    progress: Callable[[float], None] = lambda done: None,
    entries: Sequence[Entry] = (),
) -> Result:
    """Sample a session and its baselines as bench.measure does, and then in blocks.

    The result's samples are the means of blocks; at most ``settings.runs`` of each contestant,
    fewer once the spread of MIN_BLOCKS at least is below ``max_noise``, or the time is up: all of
    it takes ``max_time_s`` seconds for each, as far as whole blocks allow. Raises DeviceFailed,
    also if D changes from run to run, or DeviceHung.
    """
    begin = monotonic()
    short = replace(settings, max_time_s=BURST_SHARE * settings.max_time_s)
    told = _part(progress, 0, BURST_SHARE)
    bursts = bench.measure(session, device, plan, short, told, entries)
    ours = _Blocks(session, device, settings)
    theirs = [_Blocks(entry.timed, device, settings) if entry.timed else None for entry in entries]
    everyone = [ours, *filter(None, theirs)]
    result = bench.Unchanged(session, plan)

    def spent_s() -> float:
        return monotonic() - begin

    def turned(one: Contestant) -> None:
        if one is ours:
            result.check()

    limit_s = settings.max_time_s * len(everyone)
    told = _part(progress, BURST_SHARE, SETTLING_SHARE)
    take_turns(everyone, math.inf, spent_s, SETTLING_SHARE * limit_s, turned, told)
    for one in everyone:
        one.count()
    told = _part(progress, SETTLING_SHARE, 1)
    take_turns(everyone, settings.runs, spent_s, limit_s, turned, told)
    return replace(
        bursts,
        samples=tuple(ours.samples),
        host_bound=ours.host_bound,
        telemetry=tuple(ours.readings),
        sustained=ours.found(bursts.samples),
        rivals=tuple(
            replace(
                rival,
                samples=tuple(one.samples),
                host_bound=one.host_bound,
                sustained=one.found(rival.samples),
            )
            if one
            else rival
            for rival, one in zip(bursts.rivals, theirs, strict=True)
        ),
    )


def _part(progress: Callable[[float], None], begin: float, end: float) -> Callable[[float], None]:
    """What hears of a part of the whole, and tells of the whole."""
    return lambda done: progress(begin + (end - begin) * done)


class _Blocks:
    """A contestant whose turn is a block of runs.

    It is done when its clock has settled; and once its blocks count, when they are enough.
    """

    def __init__(self, timed: Timed, device: Device, settings: Settings) -> None:
        self._timed, self._device, self._settings = timed, device, settings
        self._blocks: list[Block] = []
        self._counts = False
        self._settled: bool | None = False
        self.readings: list[Telemetry] = []  # the last of every block, where there are any
        self.least_s = 0.0  # that the last turn took

    @property
    def samples(self) -> list[float]:
        """Seconds of a run, the mean of each block."""
        return [block.seconds for block in self._blocks]

    @property
    def host_bound(self) -> float:
        """The share of the time that may hold the host's."""
        return float(np.mean([block.host_bound for block in self._blocks]))

    @property
    def done(self) -> bool:
        """Whether the clock has settled, or there are as many samples as wanted, and steady."""
        if not self._counts:
            return self._settled is not False
        return bench.enough(self.samples, self._settings, MIN_BLOCKS)

    def take_turn(self) -> None:
        """Run a block, and before it for a while what does not count."""
        begin = monotonic()
        self._timed.sustain(LEAD_S, lambda: None)
        meter = Meter(self._device)
        taken = self._timed.sustain(BLOCK_S, meter.read)
        block = Block(
            seconds=float(np.mean([sample.seconds for sample in taken])),
            sm_hz=meter.sm_hz,
            power_w=meter.power_w,
            host_bound=float(np.mean([sample.host_bound for sample in taken])),
        )
        if not self._counts:
            self._settled = _settled(self._blocks[-1] if self._blocks else None, block)
        self._blocks.append(block)
        self.readings += meter.readings[-1:]
        self.least_s = monotonic() - begin

    def count(self) -> None:
        """From the last block on, they are samples."""
        self._counts = True
        del self._blocks[:-1], self.readings[:-1]

    def found(self, burst: tuple[float, ...]) -> Sustained:
        """What is to be told, beside the samples of ``burst``."""
        return Sustained(tuple(self._blocks), self._settled, burst)


def _settled(before: Block | None, now: Block) -> bool | None:
    """Whether the clock stayed where it was from one block to the next; None if there is none."""
    if now.sm_hz is None:
        return None
    if before is None or before.sm_hz is None:
        return False
    return abs(now.sm_hz / before.sm_hz - 1) <= SETTLED_WITHIN
