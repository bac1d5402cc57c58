"""Fit the constants of gemmctl/planning/cost.py to what tools/measure_cuts.py measured.

    python tools/fit_cost.py docs/cuts-h200.csv.xz problems/*.yaml FAMILY/*.yaml
    python tools/fit_cost.py docs/cuts-h200.csv.xz problems/*.yaml FAMILY/*.yaml --halves 1

Prints the constants and what the model's choices cost with those of today and with the fitted
ones; writes nothing. A choice's regret is its measured time over the best one's, less one.

--halves fits to one half of the lists, drawn at random from each kind, beginning with powers of
two, and prints the regrets of both. All that is named like one list of the family (decode-008,
decode-008-beta) is in one half.
--leave-one-out prints what the choice for each list that ships costs by constants that were
fitted without it: those of the fit, less a Gauss-Newton step's share of that list.
"""

from __future__ import annotations

import argparse
import csv
import io
import lzma
import math
import multiprocessing
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

import numpy as np
import tabulate

from gemmctl.kernels import cubins
from gemmctl.lists import reading, shipped
from gemmctl.lists.problem import Problem
from gemmctl.measuring import tune_cache
from gemmctl.planning import cost, plan, playing, tiling
from gemmctl.planning.arena import lay_out
from gemmctl.planning.arrays import Flags, Floats, Ints
from gemmctl.planning.cost import Constants
from gemmctl.planning.exchange import exchanged, swapped
from gemmctl.planning.packing import pack
from gemmctl.planning.queue import Queue, side_by_side
from gemmctl.planning.tiling import Choice, Grid, Machine, machine_of
from gemmctl.planning.work import Work, asked_of, work_of

# The choice is between candidates of one problem, so an error that all of them share matters
# little; nor does it matter how slow exactly a slow one is.
SHARED_WEIGHT = 0.1
SHIPPED_WEIGHT = 10.0  # of a list that ships, where another's is 1; of one launch only, since
# those of several say more of how launches go side by side
VARIANT_WEIGHT = 4.0  # of a variant of such a list
SLOWNESS_POWER = 8
# Regrets are what counts, but jump; so the fit takes what a choice costs on the average if
# estimates err by about so much.
ERROR = 0.03
REGRET_WEIGHT = 5.0
# What the measurements say little of stays near where the fit began.
PRIOR_WEIGHT = 0.6
STEP = 0.03  # of the logarithm of a constant, for the slope
MOST_STEP = 0.7  # of the fit, likewise
FIRST_DAMPING, LAST_DAMPING = 1e-2, 1e2  # of its steps; it ends when even short ones do not help,
GAIN = 2e-3  # or the loss shrinks by less than this share
WORST = 40  # problems that are listed
SHIPPED = shipped.names()

Row = dict[str, str]  # a candidate, and how it was measured
READ = {"name", "problem_sha256", "choice", "tiles", "median_s"}  # the columns that are needed
READ |= {"cubin_sha256", "device.uuid", "device.sm_count"}


@dataclass(frozen=True)
class Measured:
    """A problem's candidates, in the order in which the plan considers them, and their times."""

    problem: Problem
    exchanged: Problem
    choices: tuple[tuple[Choice, ...], ...]
    launches: tuple[tuple[Grid, ...], ...]
    packed_bytes: int
    seconds: Floats

    @property
    def name(self) -> str:
        """The problem's."""
        return self.problem.name

    @cached_property
    def base(self) -> str:
        """The list of the family, or that ships, that it is or is a variant of; else its name."""
        found = re.match(r".+-\d{3}(?=-|$)", self.name)
        if found:
            return found.group()
        ships = (name for name in SHIPPED if f"{self.name}-".startswith(f"{name}-"))
        return max(ships, key=len, default=self.name)

    @property
    def kind(self) -> str:
        """Of the family; ``shipped`` of what is not of it."""
        return self.base[:-4] if self.of_family else "shipped"

    @property
    def of_family(self) -> bool:
        """Whether gemmctl gen family made it, or it is a variant of one that it made."""
        return re.fullmatch(r".+-\d{3}", self.base) is not None

    @property
    def weight(self) -> float:
        """Of its errors and its regret."""
        if self.kind != "shipped" or len(self.choices[0]) > 1:
            return 1.0
        return SHIPPED_WEIGHT if self.name == self.base else VARIANT_WEIGHT


class Sheet:
    """All candidates of some problems, and what does not depend on the constants."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        self.measured = measured
        self.seconds = np.concatenate([one.seconds for one in measured])
        counts = [len(one.seconds) for one in measured]
        self.starts = np.cumsum([0, *counts[:-1]])
        self.of = np.repeat(np.arange(len(measured)), counts)  # the problem of each candidate
        packed = [one.packed_bytes for one in measured for _ in one.seconds]
        self._packed = np.array(packed, dtype=np.float64)
        launches = np.repeat([len(one.choices[0]) for one in measured], counts)
        self._single, self._several = np.flatnonzero(launches == 1), np.flatnonzero(launches > 1)
        self._alone = Alone([one for one in measured if len(one.choices[0]) == 1])
        self._beside = Beside([one for one in measured if len(one.choices[0]) > 1])
        self.best = np.minimum.reduceat(self.seconds, self.starts)[self.of]
        weights = (self.best / self.seconds) ** SLOWNESS_POWER
        self._matters = np.sqrt([one.weight for one in measured])
        self._weights = weights / np.add.reduceat(weights, self.starts)[self.of]

    def estimates(self, constants: Constants) -> Floats:
        """Seconds of every candidate by the model: what the plan chooses by."""
        cycles = np.empty_like(self.seconds)
        cycles[self._single] = self._alone.cycles(constants)
        cycles[self._several] = self._beside.cycles(constants)
        for packed in np.unique(self._packed[self._packed > 0]):
            cycles[self._packed == packed] += cost.copying(int(packed), tiling.H200, constants)
        return cycles / cost.CLOCK_HZ

    def regrets(self, estimates: Floats) -> Floats:
        """For each problem, what it costs to run the candidate that the plan takes."""
        chosen = [
            self.seconds[start:end][estimates[start:end].argmin()]
            for start, end in zip(self.starts, [*self.starts[1:], len(self.seconds)], strict=True)
        ]
        return np.array(chosen) / self.best[self.starts] - 1

    def errors(self, estimates: Floats) -> tuple[Floats, Floats]:
        """Weighted errors of candidates less what they share, and what those of a problem share."""
        errors = np.log(estimates / self.seconds)
        shared = np.add.reduceat(self._weights * errors, self.starts)
        return np.sqrt(self._weights) * (errors - shared[self.of]), shared

    def residuals(self, constants: Constants) -> Floats:
        """What the fit makes small, squared: errors of estimates, and regrets of choices."""
        estimates = self.estimates(constants)
        own, shared = self.errors(estimates)
        least = np.minimum.reduceat(estimates, self.starts)[self.of]
        chances = np.exp(-np.log(estimates / least) / ERROR)
        chances /= np.add.reduceat(chances, self.starts)[self.of]
        regrets = np.add.reduceat(chances * (self.seconds / self.best - 1), self.starts)
        return np.concatenate(
            [
                own * self._matters[self.of],
                math.sqrt(SHARED_WEIGHT) * shared * self._matters,
                REGRET_WEIGHT * regrets * self._matters,
            ]
        )

    @property
    def of_residuals(self) -> Ints:
        """The problem of every residual."""
        each = np.arange(len(self.measured))
        return np.concatenate([self.of, each, each])

    def loss(self, constants: Constants) -> float:
        """The sum of squares of the residuals, for each problem."""
        found = self.residuals(constants)
        return float(found @ found) / len(self.measured)


class Alone:
    """Candidates of problems of one launch."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        works, self._played = [], []
        for one in measured:
            for (launch,) in one.launches:
                asked = asked_of(one.exchanged, launch.groups, launch.kernel)
                works.append(work_of(launch, asked))
                exact = playing.exact(launch, asked)
                self._played.append(None if exact else playing.order_of(launch, one.exchanged))
        if works:
            self._work = _joined(works)
            self._ends = np.append(self._work.starts[1:], len(self._work.whole))

    def cycles(self, constants: Constants) -> Floats:
        """What each takes."""
        if not self._played:
            return np.zeros(0)
        times = cost.times_of(self._work, constants)
        busy = playing.least_busy(self._work, times)
        for launch, order in enumerate(self._played):
            if order is not None:
                groups = slice(self._work.starts[launch], self._ends[launch])
                own = playing.Times(*(of[groups] for of in vars(times).values()))
                busy[launch] = playing.makespan(own, order, int(self._work.clusters[launch]))
        return cost.together(self._work, times, busy, constants)


class Beside:
    """Candidates of problems of several launches."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        self._launches: list[tuple[Grid, Problem]] = []  # each way to cut one of them, once
        self._candidates: list[tuple[list[int], Queue]] = []  # of these launches
        for one in measured:
            seen: dict[tuple[int, Choice], int] = {}
            for choices, launches in zip(one.choices, one.launches, strict=True):
                own = []
                for number, (choice, launch) in enumerate(zip(choices, launches, strict=True)):
                    own.append(seen.setdefault((number, choice), len(self._launches)))
                    if own[-1] == len(self._launches):
                        self._launches.append((launch, one.exchanged))
                self._candidates.append((own, side_by_side(launches)))

    def cycles(self, constants: Constants) -> Floats:
        """What each takes."""
        stays = [cost.stay(*launch, constants) for launch in self._launches]
        machines = [launch.machine for launch, _ in self._launches]
        return np.array(
            [
                cost.side_by_side([stays[i] for i in own], queue, machines[own[0]], constants)
                for own, queue in self._candidates
            ]
        )


def _joined(works: Sequence[Work]) -> Work:
    """All launches as if they were of one kernel."""
    sizes = np.array([len(work.whole) for work in works])
    steps = {name: None for work in works for name in work.steps}

    def joined(values: Iterable[object], sizes: Iterable[int]) -> Floats:
        pairs = zip(values, sizes, strict=True)
        return np.concatenate([np.broadcast_to(np.asarray(v), (size,)) for v, size in pairs])

    of_launches = ("entries", "clusters", "sms", "clustered", "one_wave")
    rest = {
        field.name: joined(
            (getattr(work, field.name) for work in works),
            np.ones_like(sizes) if field.name in of_launches else sizes,
        )
        for field in fields(Work)
        if field.name not in ("starts", "steps")
    }
    return Work(
        starts=np.cumsum(sizes) - sizes,
        steps={n: joined((work.steps.get(n, 0.0) for work in works), sizes) for n in steps},
        **rest,
    )


@dataclass(frozen=True)
class Fit:
    """Constants, by their logarithms, and what the fit found there."""

    logarithms: Floats
    residuals: Floats  # of the candidates and problems, and then of each constant
    slopes: Floats  # of each residual, by the logarithm of each constant

    @property
    def constants(self) -> Constants:
        """The constants, to three significant digits: more would say more than is measured."""
        return Constants(*(float(f"{value:.3g}") for value in np.exp(self.logarithms)))

    def step(self, damping: float, used: Flags | slice = slice(None)) -> Floats:
        """Where Levenberg and Marquardt's method goes from here, by the residuals ``used``."""
        slopes, residuals = self.slopes[used], self.residuals[used]
        squares = slopes.T @ slopes
        damped = squares + damping * np.diag(np.diag(squares))
        step: Floats = np.linalg.solve(damped, -slopes.T @ residuals)
        return np.clip(step, -MOST_STEP, MOST_STEP)


def fit(sheet: Sheet, start: Constants = cost.FITTED) -> Fit:
    """The constants that make the loss least, in steps that shrink it."""
    prior = np.log(astuple(start))

    def residuals(logarithms: Floats) -> Floats:
        found = sheet.residuals(Constants(*np.exp(logarithms).tolist()))
        return np.concatenate([found, PRIOR_WEIGHT * (logarithms - prior)])

    def at(logarithms: Floats) -> Fit:
        here = residuals(logarithms)
        moved = _in_parallel(residuals, [logarithms + STEP * row for row in np.eye(len(prior))])
        return Fit(logarithms, here, (np.array(moved).T - here[:, None]) / STEP)

    best, damping = at(prior), FIRST_DAMPING
    while damping < LAST_DAMPING:
        least = best.residuals @ best.residuals
        tried = best.logarithms + best.step(damping)
        found = residuals(tried)
        if found @ found < least:
            best, damping = at(tried), damping / 5
        else:
            damping *= 4
        if least * (1 - GAIN) < found @ found <= least:
            break
    return best


_function: Callable[[Floats], Floats]  # that forked processes share


def _in_parallel(function: Callable[[Floats], Floats], values: Sequence[Floats]) -> list[Floats]:
    global _function
    _function = function
    with multiprocessing.get_context("fork").Pool() as pool:
        return pool.map(_call, values)


def _call(value: Floats) -> Floats:
    return _function(value)


def rough(constants: Constants) -> Constants:
    """Powers of two: what one knows of a GPU before anything of its lists is measured."""
    return Constants(*(2.0 ** round(math.log2(value)) for value in astuple(constants)))


def halves(measured: Sequence[Measured], seed: int) -> tuple[list[Measured], list[Measured]]:
    """Half of the lists of each kind, at random, and the others."""
    bases: dict[str, list[str]] = {}
    for one in measured:
        own = bases.setdefault(one.kind, [])
        if one.base not in own:
            own.append(one.base)
    draw, first = random.Random(seed), set[str]()
    for number, own in enumerate(bases.values()):
        draw.shuffle(own)
        first.update(own[: (len(own) + number % 2) // 2])
    return [m for m in measured if m.base in first], [m for m in measured if m.base not in first]


def leave_one_out(sheet: Sheet, found: Fit) -> Iterator[tuple[str, float]]:
    """For each list that ships, the regret by constants that were fitted without it."""
    for index, one in enumerate(sheet.measured):
        if not one.of_family:
            others = np.append(sheet.of_residuals != index, np.ones(len(found.logarithms), bool))
            without = replace(found, logarithms=found.logarithms + found.step(1e-3, others))
            alone = Sheet([one])
            yield one.name, float(alone.regrets(alone.estimates(without.constants))[0])


def read(rows: Sequence[Row], problems: Iterable[Problem]) -> Iterator[Measured]:
    """The measurements of the problems that are in the lists, unchanged since."""
    by_name = {problem.name: problem for problem in problems}
    kernels = cubins.manifest().kernels
    order = {name: i for i, name in enumerate(dict.fromkeys(k.name for k in kernels))}
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row)

    def considered(choices: Sequence[Choice]) -> list[tuple[int, int, int]]:
        return [(order[choice.kernel], -choice.width, choice.splits) for choice in choices]

    if any(row["cubin_sha256"] != cubins.manifest().sha256 for row in rows):
        print("measured with other cubins than these", file=sys.stderr)
    for name, tried in found.items():
        changed = tried[0]["problem_sha256"]
        if name not in by_name or tune_cache.fingerprint(by_name[name]) != changed:
            print(f"skipped {name}: not in the lists as it was measured", file=sys.stderr)
            continue
        count = tried[0]["device.sm_count"]  # empty of a CPU
        machine = machine_of(int(count) if count else None)
        problem, work = by_name[name], exchanged(by_name[name])
        candidates = [
            (choices, launches, seconds)
            for row, seconds in over_gpus(tried)
            if (choices := _choices(row["choice"]))
            # Nor where few rows are apart: what that takes is no fit (gemmctl/planning/apart.py).
            and all(choice.kernel in order and not choice.sms for choice in choices)
            and (launches := _grids(work, choices, machine))
            # Not if its end was evened: by which constants is not known.
            and sum(int(one.entries.sum()) for one in launches) == int(row["tiles"])
        ]
        if len(candidates) < 2:
            print(f"skipped {name}: nothing to choose from", file=sys.stderr)
            continue
        candidates.sort(key=lambda candidate: considered(candidate[0]))
        yield Measured(
            problem=problem,
            exchanged=work,
            choices=tuple(choices for choices, *_ in candidates),
            launches=tuple(launches for _, launches, _ in candidates),
            packed_bytes=_packed(problem, work, candidates[0][1]),
            seconds=np.array([seconds for *_, seconds in candidates]),
        )


def over_gpus(tried: Sequence[Row]) -> list[tuple[Row, float]]:
    """The candidates of one problem, each once, and their seconds.

    Where several GPUs measured one, that is the geometric mean, of times as they would be on the
    first GPU, on which, at the median, the candidates that both measured take as long.
    """
    by_gpu: dict[str, dict[str, float]] = {}
    for row in tried:
        own = by_gpu.setdefault(row["device.uuid"], {})
        own[row["choice"]] = math.log(float(row["median_s"]))
    first, *others = by_gpu.values()
    logarithms = {choice: [own] for choice, own in first.items()}
    for other in others:
        slower = [other[choice] - own for choice, own in first.items() if choice in other]
        shift = float(np.median(slower)) if slower else 0.0
        for choice, own in other.items():
            logarithms.setdefault(choice, []).append(own - shift)
    rows = {row["choice"]: row for row in tried}
    return [(rows[choice], math.exp(fmean(own))) for choice, own in logarithms.items()]


def _grids(work: Problem, choices: Sequence[Choice], machine: Machine) -> tuple[Grid, ...]:
    """How every launch is cut; nothing if a kernel is gone that was there when it was measured."""
    grids = []
    named = {choice.kernel for choice in choices}
    kernels = [of for of in cubins.manifest().kernels if not of.b_unaligned or of.name in named]
    alike = plan.alike(work, kernels)
    for choice, (groups, fitting) in zip(choices, alike, strict=True):
        kernel = next((kernel for kernel in fitting if kernel.name == choice.kernel), None)
        if kernel is None:
            return ()
        grids.append(tiling.grid_of(work, groups, kernel, choice, machine))
    return tuple(grids)


def _packed(problem: Problem, work: Problem, launches: Sequence[Grid]) -> int:
    layout, _ = lay_out(problem)
    unaligned = np.zeros(len(problem.groups), bool)
    for launch in launches:
        unaligned[launch.groups] = launch.kernel.b_unaligned
    return pack(work, *swapped(problem, layout.a, layout.b), layout.size, unaligned).bytes


def load(path: str) -> list[Row]:
    """The rows of what measure_cuts.py printed; ends the program if it is anything else."""
    data = Path(path).read_bytes()
    text = (lzma.decompress(data) if path.endswith(".xz") else data).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if not rows or not rows[0].keys() >= READ:
        sys.exit(f"{path} is not what tools/measure_cuts.py prints")
    return rows


def _choices(text: str) -> tuple[Choice, ...]:
    """How every launch was cut, as tune says it: ``64x128 w64+128x256 w256 k/8``."""
    return tuple(Choice.parsed(one) for one in text.split("+") if text != "none")


def constants_text(before: Constants, after: Constants) -> str:
    """The constants to put into cost.py."""
    names = [field.name for field in fields(Constants)]
    return "\n".join(
        f"    {n}: float = {getattr(after, n)}  # now {getattr(before, n)}" for n in names
    )


def worst(sheet: Sheet, before: Constants, after: Constants) -> str:
    """The problems whose choices cost most by either, with both choices."""
    columns = []
    for constants in (before, after):
        found = sheet.estimates(constants)
        own, _ = sheet.errors(found)
        columns.append((found, sheet.regrets(found), np.add.reduceat(own**2, sheet.starts)))
    rows = []
    for index, one in enumerate(sheet.measured):
        start = sheet.starts[index]
        row = [one.name, len(one.seconds), f"{one.seconds.min() * 1e6:.1f}"]
        for found, regrets, errors in columns:
            chosen = one.choices[int(found[start : start + len(one.seconds)].argmin())]
            row += [
                "+".join(dict.fromkeys(map(str, chosen))),
                f"{100 * regrets[index]:.1f}",
                f"{100 * math.sqrt(errors[index]):.1f}",
            ]
        rows.append((max(regrets[index] for _, regrets, _ in columns), row))
    rows.sort(key=lambda found: -found[0])
    titles = ["problem", "candidates", "best us"]
    titles += ["choice now", "regret %", "error %", "choice fitted", "regret %", "error %"]
    return tabulate.tabulate([row for _, row in rows[:WORST]], titles, disable_numparse=True)


def summary(sheets: Sequence[tuple[str, Sheet, Constants]]) -> str:
    """Regrets by kind: of each sheet with each of its constants."""
    rows = []
    for title, sheet, constants in sheets:
        regrets = 100 * sheet.regrets(sheet.estimates(constants))
        kinds = np.array([one.kind for one in sheet.measured])
        for kind in [*dict.fromkeys(sorted(kinds)), "all"]:
            own = regrets[(kinds == kind) | (kind == "all")]
            numbers = [np.median(own), np.percentile(own, 95), own.max(), own.mean()]
            over = [str((own > limit).sum()) for limit in (4, 10)]
            rows.append([title, kind, len(own), *(f"{x:.2f}" for x in numbers), *over])
    titles = [
        "lists",
        "kind",
        "problems",
        "median %",
        "95th %",
        "worst %",
        "mean %",
        "> 4%",
        "> 10%",
    ]
    return tabulate.tabulate(rows, titles, "github", disable_numparse=True)


def main() -> None:
    """Read, fit, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measured", help="what measure_cuts.py printed, or that as .xz")
    parser.add_argument("lists", nargs="+", help="the problem lists it was given")
    parser.add_argument("--halves", type=int, metavar="SEED", help="fit to one half of the lists")
    parser.add_argument("--leave-one-out", action="store_true", help="of each list that ships")
    arguments = parser.parse_args()
    rows = load(arguments.measured)
    measured = list(read(rows, reading.load(arguments.lists, sys.stdin)))
    if not measured:
        sys.exit("nothing is left to fit to")
    if arguments.halves is not None:
        seen, unseen = map(Sheet, halves(measured, arguments.halves))
        fitted = fit(seen, rough(cost.FITTED)).constants
        print(constants_text(cost.FITTED, fitted), end="\n\n")
        print(summary([("seen", seen, fitted), ("unseen", unseen, fitted)]), end="\n\n")
        print(worst(unseen, cost.FITTED, fitted))
        return
    sheet = Sheet(measured)
    found = fit(sheet)
    fitted = found.constants
    print(constants_text(cost.FITTED, fitted), end="\n\n")
    print(summary([("now", sheet, cost.FITTED), ("fitted", sheet, fitted)]), end="\n\n")
    if arguments.leave_one_out:
        left = leave_one_out(sheet, found)
        print(tabulate.tabulate([[n, f"{100 * r:.1f}"] for n, r in left], ["left out", "regret %"]))
        print()
    print(worst(sheet, cost.FITTED, fitted))


if __name__ == "__main__":
    main()
