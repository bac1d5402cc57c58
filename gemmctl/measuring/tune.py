"""Measure the ways to cut a problem that are worth considering, and rank them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep

import numpy as np

from gemmctl.device.base import Device
from gemmctl.kernels.cubins import Kernel
from gemmctl.measuring.bench import BATCH_S, REST_S, spread
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan, tiling
from gemmctl.planning.plan import Plan

BURST = 15  # samples at most between two rests; fewer where they take longer than BATCH_S
WARMUP = 2  # runs before every burst
FINALISTS = 2  # that are measured longest


@dataclass(frozen=True)
class Settings:
    """How long to measure each problem, and on what; stored with the results."""

    max_time_s: float = 30.0
    data: DataSpec = field(default_factory=lambda: DataSpec("normal", 0))


@dataclass(frozen=True)
class Trial:
    """One way to run a problem, with its cold samples in seconds.

    ``ratio`` is its time over the winner's, from the rounds in which both were measured; None if
    that took no time. Where a problem has several launches, it may come by way of the best of an
    earlier launch, which was measured beside both.
    """

    plan: Plan
    samples: tuple[float, ...]
    rounds: int  # that it stayed in
    ratio: float | None

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
    """A problem's trials, the best first, by their ratios."""

    trials: tuple[Trial, ...]
    untried: int  # candidates that there was no time for

    @property
    def best(self) -> Trial:
        """The winner."""
        return self.trials[0]


def candidates(made: Plan, kernels: Sequence[Kernel], launch: int) -> list[Plan]:
    """Plans that differ in how one launch is cut; those first that promise most.

    They are the plan as it was made, and one for each choice that is worth considering for that
    launch; all other launches stay as they are.
    """
    own = made.launches[launch]
    choices = [
        choice
        for kernel in kernels
        if (kernel.operand, kernel.output) == (own.kernel.operand, own.kernel.output)
        for choice in tiling.choices(made.problem, own.groups, kernel, own.machine)
    ]
    different = {_work(made): made}
    for choice in choices:
        all_choices = [*made.choices[:launch], choice, *made.choices[launch + 1 :]]
        chosen = {made.problem.name: all_choices}
        (other,) = plan.make([made.problem], kernels, own.machine, chosen=chosen)
        different.setdefault(_work(other), other)
    return sorted(different.values(), key=lambda candidate: candidate.estimate_s)


def measure(
    made: Plan,
    device: Device,
    kernels: Sequence[Kernel],
    settings: Settings,
    progress: Callable[[float], None] = lambda done: None,
) -> Ranking:
    """Rank a problem's candidates by successive halving, those of one launch after another's.

    All of a launch's take turns in bursts of samples; the better half goes on to the next round,
    which has one burst more for each, until FINALISTS have had theirs or the launch's share of the
    time is up. The best is where the next launch begins. A GPU rests before every burst, so that
    all start at the same power. Raises DeviceFailed or DeviceHung.
    """
    launches = max(1, len(made.launches))
    share_s, begin = settings.max_time_s / launches, monotonic()
    best, heats = _Contestant(made), list[_Heat]()
    for launch in range(launches):
        plans = candidates(best.plan, kernels, launch) if made.launches else [made]
        heat = _Heat([best if one is best.plan else _Contestant(one) for one in plans], best)
        heats.append(heat)

        def spent(launch: int = launch) -> float:
            """The share of this launch's time; none before the first burst, which is taken."""
            if not any(heat.bursts for heat in heats):
                return 0.0
            return (monotonic() - begin) / share_s - launch if share_s else 1.0

        def told(done: float, launch: int = launch) -> None:
            progress((launch + done) / launches)

        heat.run(device, settings.data, spent, told)
        best = heat.winner.moved_on()
    return Ranking(
        trials=tuple(_trials(heats)),
        untried=sum(not one.samples for heat in heats for one in heat.contestants),
    )


def _trials(heats: Sequence[_Heat]) -> list[Trial]:
    """What all heats measured, the best first; a heat's winner stands in the next one instead."""
    trials, to_last = [], 1.0
    for heat in reversed(heats):
        for one in sorted(heat.contestants, key=_Contestant.rank):
            if one.samples and (heat is heats[-1] or one is not heat.winner):
                ratio = heat.ratio(one) * to_last
                known = None if math.isnan(ratio) else ratio
                trials.append(Trial(one.plan, tuple(one.samples), one.rounds, known))
        to_last *= heat.ratio(heat.seed) if heat.seed.samples else 1.0
    return sorted(trials, key=lambda trial: trial.ratio or 1.0)


class _Contestant:
    """One candidate and its samples."""

    def __init__(self, plan: Plan, samples: Iterable[float] = (), earlier: int = 0) -> None:
        self.plan = plan
        self.samples = list(samples)
        self.taken: list[int] = []  # samples it had after each round of this heat that it was in
        self._earlier = earlier  # rounds, in heats before

    @property
    def rounds(self) -> int:
        """That it was in."""
        return self._earlier + len(self.taken)

    def moved_on(self) -> _Contestant:
        """The same at the beginning of another heat."""
        return _Contestant(self.plan, self.samples, self.rounds)

    def take_burst(self, device: Device, data: DataSpec) -> None:
        """Set up, warm up, rest, and take samples."""
        with device.open(self.plan, data) as session:
            for _ in range(WARMUP):
                started = monotonic()
                session.time(1, cold=True)
                run_s = monotonic() - started
                if run_s > BATCH_S:
                    break
            sleep(REST_S if device.facts.kind == "cuda" else 0)
            fitting = int(BATCH_S / run_s) if run_s else BURST
            taken = session.time(min(max(fitting, 1), BURST), cold=True)
            self.samples += [sample.seconds for sample in taken]

    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return -len(self.taken), float(np.median(self.samples)) if self.samples else 0.0


class _Heat:
    """The candidates of one launch; ``seed`` is the one that the heat before found best."""

    def __init__(self, contestants: list[_Contestant], seed: _Contestant) -> None:
        self.contestants, self.seed = contestants, seed
        self.bursts = 0

    def run(
        self,
        device: Device,
        data: DataSpec,
        spent: Callable[[], float],
        told: Callable[[float], None],
    ) -> None:
        """Take bursts in turns and leave the worse half out of each next round."""
        sizes = _rounds(len(self.contestants))
        total = sum(number * size for number, size in enumerate(sizes, 1))
        left = self.contestants
        for number, size in enumerate(sizes, 1):
            if spent() >= 1:
                break
            left = sorted(left, key=_Contestant.rank)[:size]
            for one in left * number:
                if spent() >= 1:
                    break
                one.take_burst(device, data)
                self.bursts += 1
                told(min(1.0, max(self.bursts / total, spent())))
            for one in left:
                one.taken.append(len(one.samples))

    @property
    def winner(self) -> _Contestant:
        """The best of those that were measured."""
        return min((one for one in self.contestants if one.samples), key=_Contestant.rank)

    def ratio(self, one: _Contestant) -> float:
        """A contestant's time over the winner's after the last round that it was in; NaN if 0 / 0.

        The winner has been in as many rounds, and was no slower after any.
        """
        if not one.taken:
            return 1.0  # the seed, where there was no time for a round
        last = len(one.taken) - 1
        mine, best = (
            float(np.median(each.samples[: each.taken[last]])) for each in (one, self.winner)
        )
        return mine / best if best else math.nan


def _rounds(contestants: int) -> list[int]:
    """How many are left in each round."""
    sizes = [contestants]
    while sizes[-1] > FINALISTS:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def _work(made: Plan) -> tuple[tuple[str, bytes, bytes], ...]:
    """How the launches are cut: two choices may come to the same."""
    return tuple(
        (launch.kernel.name, launch.widths.tobytes(), launch.parts.tobytes())
        for launch in made.launches
    )
