"""Fit the constants of gemmctl/cost.py to what gemmctl tune measured.

    gemmctl tune problems/*.yaml -f csv > docs/tune-h200.csv
    python tools/fit_cost.py docs/tune-h200.csv problems/*.yaml

Prints the constants and what the model's choices cost with those of today and with the fitted
ones; writes nothing. A choice's regret is its measured time over the best one's, less one.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import tabulate

from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.lists.problem import Problem
from gemmctl.measuring import tune_cache
from gemmctl.planning import cost, plan
from gemmctl.planning.cost import Constants
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice, Floats, machine_of

# The choice is between candidates of one problem, so an error that all of them share matters
# little; nor does it matter how slow exactly a slow one is.
SHARED_WEIGHT = 0.1
SLOWNESS_POWER = 4
FIRST_STEP, LAST_STEP = 0.5, 0.01  # by which a constant is changed, as a share of it

Row = dict[str, str]  # of what tune prints as csv: a candidate, and how all were measured


@dataclass(frozen=True)
class Measured:
    """A problem's candidates, in the order in which the plan considers them, and their times."""

    name: str
    plans: tuple[Plan, ...]
    seconds: Floats

    def estimates(self, constants: Constants) -> Floats:
        """Seconds of every candidate by the model."""
        return np.array([made.cycles(constants) for made in self.plans]) / cost.CLOCK_HZ

    def regret(self, estimates: Floats) -> float:
        """What it costs to run the candidate of the least estimate: 0.03 is 3%."""
        return float(self.seconds[estimates.argmin()] / self.seconds.min() - 1)

    def error(self, estimates: Floats) -> float:
        """Mean square of the relative errors, those that all candidates share taken lightly."""
        weights = (self.seconds.min() / self.seconds) ** SLOWNESS_POWER
        errors = np.log(estimates / self.seconds)
        shared = np.average(errors, weights=weights)
        own = np.average((errors - shared) ** 2, weights=weights)
        return float(own + SHARED_WEIGHT * shared**2)


def loss(measured: Sequence[Measured], constants: Constants) -> float:
    """What the fit makes small: errors of the estimates and regrets of the choices, squared."""
    total = 0.0
    for one in measured:
        estimates = one.estimates(constants)
        total += one.error(estimates) + one.regret(estimates) ** 2
    return total / len(measured)


def fit(measured: Sequence[Measured], start: Constants = cost.FITTED) -> Constants:
    """Change one constant at a time, by less and less, as long as the loss shrinks."""
    best, least, step = start, loss(measured, start), FIRST_STEP
    while step >= LAST_STEP:
        shrunk = False
        for field in fields(Constants):
            for factor in (1 + step, 1 / (1 + step)):
                changed = _rounded(getattr(best, field.name) * factor)
                tried = replace(best, **{field.name: changed})
                found = loss(measured, tried)
                if found < least * (1 - 1e-6):
                    best, least, shrunk = tried, found, True
        if not shrunk:
            step /= 2
    return best


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
        candidates = [
            (choices, float(row["median_s"]))
            for row in tried
            if (choices := _choices(row["choice"]))
            and all(choice.kernel in order for choice in choices)
        ]
        if len(candidates) < 2:
            print(f"skipped {name}: nothing to choose from", file=sys.stderr)
            continue
        candidates.sort(key=lambda candidate: considered(candidate[0]))
        count = tried[0]["device.sm_count"]  # empty of a CPU
        machine = machine_of(int(count) if count else None)
        plans = [
            plan.make([by_name[name]], kernels, machine, chosen={name: choices})[0]
            for choices, _ in candidates
        ]
        yield Measured(name, tuple(plans), np.array([seconds for _, seconds in candidates]))


def load(path: str) -> list[Row]:
    """The rows of what tune printed as csv; ends the program if it is anything else."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or any(row.get("command") != "tune" for row in rows):
        sys.exit(f"{path} is not what gemmctl tune -f csv printed")
    return rows


def _choices(text: str) -> list[Choice]:
    """How every launch was cut, as tune says it: ``64x128 w64+128x256 w256 k/8``."""
    found = []
    for words in (one.split() for one in text.split("+") if text != "none"):
        kernel, width, *parts = words
        splits = int(parts[0].removeprefix("k/")) if parts else 1
        found.append(Choice(kernel, int(width.removeprefix("w")), splits))
    return found


def describe(measured: Sequence[Measured], before: Constants, after: Constants) -> str:
    """The constants to put into cost.py, and each problem's choice before and after."""
    rows = []
    for one in measured:
        row = [one.name, len(one.plans), f"{one.seconds.min() * 1e6:.1f}"]
        for constants in (before, after):
            estimates = one.estimates(constants)
            chosen = one.plans[int(estimates.argmin())]
            row += [
                "+".join(dict.fromkeys(map(str, chosen.choices))),
                f"{100 * one.regret(estimates):.1f}",
                f"{100 * math.sqrt(one.error(estimates)):.1f}",
            ]
        rows.append(row)
    titles = ["problem", "candidates", "best us"]
    titles += ["choice now", "regret %", "error %", "choice fitted", "regret %", "error %"]
    table = tabulate.tabulate(rows, titles, disable_numparse=True)
    names = [field.name for field in fields(Constants)]
    lines = [f"    {n}: float = {getattr(after, n)}  # now {getattr(before, n)}" for n in names]
    return "\n".join([*lines, "", table])


def _rounded(value: float) -> float:
    """Three significant digits: more would say more than the measurements do."""
    return float(f"{value:.3g}")


def main() -> None:
    """Read, fit, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measured", help="what gemmctl tune -f csv printed")
    parser.add_argument("lists", nargs="+", help="the problem lists it was given")
    arguments = parser.parse_args()
    rows = load(arguments.measured)
    measured = list(read(rows, reading.load(arguments.lists, sys.stdin)))
    if not measured:
        sys.exit("nothing is left to fit to")
    print(describe(measured, cost.FITTED, fit(measured)))


if __name__ == "__main__":
    main()
