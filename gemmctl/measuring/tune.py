"""Measure the ways to cut a problem that are worth considering, and rank them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np

from gemmctl.device.base import Device
from gemmctl.kernels.cubins import Kernel
from gemmctl.measuring.bench import BATCH_S, spread
from gemmctl.measuring.rest import Rest
from gemmctl.operands.data import DataSpec
from gemmctl.planning import apart, fitting, plan, tiling
from gemmctl.planning.arrays import Ints
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice, Machine

BURST = 15  # samples at most between two rests; fewer where they take longer than BATCH_S
WARMUP = 2  # runs before every burst
FINALISTS = 2  # that are measured longest
# What the model expects to take so many times as long as the best so far cannot win: of the cuts of
# 415 problems (docs/cuts-h200.csv.xz) a quarter is left out so, and what is lost is 0.1% on the
# average: 20 and 15% on two lists of several launches, 4% at most on all others.
HOPELESS = 1.3


@dataclass(frozen=True)
class Settings:
    """How long to measure each problem, and on what; stored with the results."""

    max_time_s: float = 30.0
    data: DataSpec = field(default_factory=lambda: DataSpec("normal", 0))
    all: bool = False  # candidates, those that by the model cannot win, too


@dataclass(frozen=True)
class Trial:
    """One way to run a problem, with its cold samples in seconds."""

    plan: Plan
    samples: tuple[float, ...]
    rounds: int  # that it was in

    @property
    def choice(self) -> str:
        """How its launches are cut, each way once."""
        return "+".join(dict.fromkeys(map(str, self.plan.choices))) or "none"

    @property
    def median_s(self) -> float:
        """The middle sample."""
        return float(np.median(self.samples))

    @property
    def spread(self) -> float | None:
        """How far the samples lie apart, as a share of the median; None for a single one."""
        return spread(self.samples)


@dataclass(frozen=True)
class Ranking:
    """A problem's trials, the best first."""

    trials: tuple[Trial, ...]
    untried: int  # candidates that there was no time for
    hopeless: int  # candidates that could not win

    @property
    def best(self) -> Trial:
        """The winner."""
        return self.trials[0]

    def ratio(self, trial: Trial) -> float | None:
        """A trial's time over the winner's; None if that took none."""
        return trial.median_s / self.best.median_s if self.best.median_s else None


def candidates(made: Plan, kernels: Sequence[Kernel], launch: int) -> list[Plan]:
    """Plans that differ in how one launch is cut; those first that promise most.

    They are the plan as it was made, and one for each choice that is worth considering for that
    launch; all other launches stay as they are. Where they begin with what was tuned, the plan that
    the model makes is among those of the first launch. With the first launch of a list whose few
    rows may be apart (apart.py) come those of the other form, in one launch or in two. None splits
    sums into more parts than MOST_PARTS for each cluster, so that none asks for much memory.
    """
    machine, different = made.launches[launch].machine.giving(0), {_work(made): made}
    ways = [{made.problem.name: choices} for choices in _ways(made, kernels, launch)]
    for chosen in [{}, *ways] if made.tuned and launch == 0 else ways:
        (other,) = plan.make([made.problem], kernels, machine, chosen=chosen)
        different.setdefault(_work(other), other)
    return sorted(different.values(), key=lambda candidate: candidate.estimate_s)


def _ways(made: Plan, kernels: Sequence[Kernel], launch: int) -> Iterator[Sequence[Choice]]:
    """The choices of those plans: for every launch one."""
    own, work = made.launches[launch], made.exchanged
    before, behind = made.choices[:launch], made.choices[launch + 1 :]
    able = [
        kernel
        for kernel in kernels
        if kernel.multiplies == own.kernel.multiplies
        and kernel.b_unaligned == own.kernel.b_unaligned
    ]

    def considered(
        groups: Ints, some: Sequence[Kernel], machine: Machine, alone: bool
    ) -> Iterator[Choice]:
        for kernel in tiling.considered(some, len(groups), machine, alone):
            if fitting.takes(kernel, work, groups):
                yield from tiling.choices(work, groups, kernel, machine, alone)

    if not made.apart:
        alone = len(made.launches) == 1
        for choice in considered(own.groups, able, own.machine, alone=alone):
            yield [*before, choice, *behind]
        if alone:
            yield from apart.ways(work, own.groups, able, own.machine)
        return
    for choice in considered(own.groups, apart.sharing(able), own.machine, alone=False):
        if choice.splits == 1:
            yield [*before, replace(choice, sms=made.choices[launch].sms), *behind]
    if launch == 0:
        groups = np.concatenate([launch.groups for launch in made.launches])
        whole = own.machine.giving(0)
        yield from ([choice] for choice in considered(groups, able, whole, alone=True))


def measure(
    made: Plan,
    device: Device,
    kernels: Sequence[Kernel],
    settings: Settings,
    progress: Callable[[float], None] = lambda done: None,
) -> Ranking:
    """Rank a problem's candidates by successive halving, those of one launch after another's.

    The candidates of a launch take turns in bursts of samples, the plan as it was made first, which
    may be what was found before. Unless all are to be measured, those that cannot win by the
    model's estimate are left out. In the next round are half as many, those with the smallest
    medians so far, with one burst more for each, and so on until FINALISTS have had theirs or the
    launch's share of the time is up. Who was left out comes back if the others turn out to be
    slower. The one with the smallest median is where the next launch begins.
    A GPU rests before every burst, so that all start at the same power. Raises DeviceFailed or
    DeviceHung.
    """
    launches, begin, rest = max(1, len(made.launches)), monotonic(), Rest(device)
    share_s = settings.max_time_s / launches
    best = _Contestant(made)
    everyone = [best]
    for launch in range(launches):
        if launch >= max(1, len(best.plan.launches)):
            break  # few rows are no longer apart

        def spent(launch: int = launch) -> float:
            """The share of this launch's time; none before the first burst, which is taken."""
            if not any(one.samples for one in everyone):
                return 0.0
            return (monotonic() - begin) / share_s - launch if share_s else 1.0

        def told(done: float, launch: int = launch) -> None:
            progress((launch + done) / launches)

        plans = candidates(best.plan, kernels, launch) if made.launches else [made]
        others = [_Contestant(one) for one in plans if one is not best.plan]
        heat = [best, *others]
        everyone.extend(others)
        _halve(heat, device, settings, rest, spent, told)
        best = min((one for one in heat if one.samples), key=_Contestant.median_s)
    tried = sorted((one for one in everyone if one.samples), key=_Contestant.median_s)
    hopeless = sum(one.hopeless for one in everyone)
    return Ranking(
        tuple(Trial(one.plan, tuple(one.samples), one.rounds) for one in tried),
        untried=len(everyone) - len(tried) - hopeless,
        hopeless=hopeless,
    )


def _halve(
    heat: Sequence[_Contestant],
    device: Device,
    settings: Settings,
    rest: Rest,
    spent: Callable[[], float],
    told: Callable[[float], None],
) -> None:
    """Take bursts of the candidates of one launch, round after round."""
    sizes = _rounds(len(heat))
    bursts, total = 0, sum(number * size for number, size in enumerate(sizes, 1))
    for number, size in enumerate(sizes, 1):
        if spent() >= 1:
            break
        hopeful = [one for one in heat if not one.hopeless]
        left = sorted(hopeful, key=_Contestant.median_s)[:size]
        for one in left:
            one.rounds += 1
        for one in left * number:
            if spent() >= 1:
                break
            if not settings.all and not one.samples and _cannot_win(one, heat):
                one.hopeless = True
                continue
            one.take_burst(device, settings.data, rest)
            bursts += 1
            told(min(1.0, max(bursts / total, spent())))


def _cannot_win(one: _Contestant, heat: Sequence[_Contestant]) -> bool:
    measured = [other for other in heat if other.samples]
    if not measured:
        return False
    best = min(measured, key=_Contestant.median_s)
    return one.plan.estimate_s > HOPELESS * best.plan.estimate_s


class _Contestant:
    """One candidate and its samples."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: list[float] = []
        self.rounds = 0
        self.hopeless = False  # so it was left out

    def take_burst(self, device: Device, data: DataSpec, rest: Rest) -> None:
        """Set up, warm up, rest, and take samples."""
        with device.open(self.plan, data) as session:
            for _ in range(WARMUP):
                started = monotonic()
                session.time(1, cold=True)
                run_s = monotonic() - started
                rest.after(run_s)
                if run_s > BATCH_S:
                    break
            rest.take()
            fitting = int(BATCH_S / run_s) if run_s else BURST
            count = min(max(fitting, 1), BURST)
            self.samples += [sample.seconds for sample in session.time(count, cold=True)]
            rest.after(count * run_s)

    def median_s(self) -> float:
        """The middle sample; 0 before the first."""
        return float(np.median(self.samples)) if self.samples else 0.0


def _rounds(contestants: int) -> list[int]:
    """How many are left in each round."""
    sizes = [contestants]
    while sizes[-1] > FINALISTS:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def _work(made: Plan) -> tuple[tuple[str, int, bytes, bytes, bytes], ...]:
    """How the launches are cut: two choices may come to the same."""
    return tuple(
        (
            launch.kernel.name,
            launch.machine.given,
            launch.widths.tobytes(),
            launch.wide.tobytes(),
            launch.parts.tobytes(),
        )
        for launch in made.launches
    )
