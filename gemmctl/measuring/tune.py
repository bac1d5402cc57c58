"""Measure the ways to cut a problem that are worth considering, and rank them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    @property
    def best(self) -> Trial:
        """The winner."""
        return self.trials[0]

    def ratio(self, trial: Trial) -> float | None:
        """A trial's time over the winner's; None if that took none."""
        return trial.median_s / self.best.median_s if self.best.median_s else None


def candidates(made: Plan, kernels: Sequence[Kernel]) -> list[Plan]:
    """Plans of a problem that differ in how they are cut; those first that promise most.

    They are the plan as it was made, each launch by the cost model, and one choice for all
    launches alike, for each choice that is worth considering for one of them.
    """
    if not made.launches:
        return [made]
    machine = made.launches[0].machine
    fitting = [
        [k for k in kernels if (k.operand, k.output) == (of.operand, of.output)]
        for of in (launch.kernel for launch in made.launches)
    ]
    widest = [{kernel.name: kernel.max_width for kernel in some} for some in fitting]
    choices = {
        choice: None
        for launch, some in zip(made.launches, fitting, strict=True)
        for kernel in some
        for choice in tiling.choices(made.problem, launch.groups, kernel, machine)
        if all(choice.width <= widths.get(choice.kernel, 0) for widths in widest)
    }
    different = {_work(made): made}
    for choice in choices:
        chosen = {made.problem.name: [choice] * len(made.launches)}
        (other,) = plan.make([made.problem], kernels, machine, chosen=chosen)
        different.setdefault(_work(other), other)
    return sorted(different.values(), key=lambda candidate: candidate.estimate_s)


def measure(
    made: Plan,
    device: Device,
    kernels: Sequence[Kernel],
    settings: Settings,
    progress: Callable[[float], None] = lambda done: None,
) -> Ranking:
    """Rank a problem's candidates by successive halving.

    All of them take turns in bursts of samples. In the next round are half as many, those with the
    smallest medians so far, with one burst more for each, and so on until FINALISTS have had theirs
    or the time is up. Who was left out comes back if the others turn out to be slower, so the one
    that is kept has the smallest median of all. A GPU rests before every burst, so that all start
    at the same power. Raises DeviceFailed or DeviceHung.
    """
    everyone = [_Contestant(candidate) for candidate in candidates(made, kernels)]
    rounds = _rounds(len(everyone))
    bursts, total = 0, sum(number * size for number, size in enumerate(rounds, 1))
    begin = monotonic()

    def spent() -> float:
        """The share of the time allowed; none before the first burst, which is always taken."""
        if not bursts:
            return 0.0
        return (monotonic() - begin) / settings.max_time_s if settings.max_time_s else 1.0

    for number, size in enumerate(rounds, 1):
        if spent() >= 1:
            break
        left = sorted(everyone, key=_Contestant.median_s)[:size]
        for contestant in left:
            contestant.rounds += 1
        for contestant in left * number:
            if spent() >= 1:
                break
            contestant.take_burst(device, settings.data)
            bursts += 1
            progress(min(1.0, max(bursts / total, spent())))
    tried = sorted((one for one in everyone if one.samples), key=_Contestant.median_s)
    return Ranking(
        tuple(Trial(one.plan, tuple(one.samples), one.rounds) for one in tried),
        untried=len(everyone) - len(tried),
    )


class _Contestant:
    """One candidate and its samples."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: list[float] = []
        self.rounds = 0

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

    def median_s(self) -> float:
        """The middle sample; 0 before the first."""
        return float(np.median(self.samples)) if self.samples else 0.0


def _rounds(contestants: int) -> list[int]:
    """How many are left in each round."""
    sizes = [contestants]
    while sizes[-1] > FINALISTS:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def _work(made: Plan) -> tuple[tuple[str, bytes], ...]:
    """What the launches do: two choices may come to the same."""
    return tuple((launch.kernel.name, launch.tiles.tobytes()) for launch in made.launches)
