"""Measure how lists are cut best: what tools/fit_cost.py fits the model's constants to.

    gemmctl gen family FAMILY
    python tools/vary_lists.py problems FAMILY VARIANTS
    python tools/measure_cuts.py problems/*.yaml FAMILY/*.yaml VARIANTS/*.yaml > cuts.csv

Of each problem those cuts that the model finds most promising, the longer a run the fewer. Each is
measured twice, there and back through all of them, in a burst of a few samples; between two bursts
is a rest of twice the first one's time. Ends are not evened: by which constants they were, nobody
could tell later. But a launch that is alone has as few clusters as when it runs. 421 problems take
three and a half minutes on an H100; what several GPUs printed may be joined into one file.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import numpy as np

from gemmctl.commands.ready import DEVICE_VARIABLE, opened
from gemmctl.device.base import Device
from gemmctl.errors import GemmctlError
from gemmctl.kernels import cubins
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists import reading
from gemmctl.lists.problem import Problem
from gemmctl.measuring import tune, tune_cache
from gemmctl.measuring.rest import Rest
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan, tail, tiles, tiling
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Machine

WITHIN = 1.5  # times the least estimate: what promises less is not measured
# Of runs up to so many seconds by the model: the most cuts, and samples of a burst.
EFFORT = ((250e-6, 26, 8), (700e-6, 16, 5), (inf, 9, 3))
REST_SHARE, REST_S = 2, 0.15  # between bursts: of the time of one, and at most
COLUMNS = ("name", "problem_sha256", "choice", "tiles", "median_s", "samples", "cubin_sha256")
COLUMNS += ("date", "device.name", "device.uuid", "device.sm_count")


def cuts(made: Plan, kernels: Sequence[Kernel]) -> list[Plan]:
    """A problem cut in all ways that are worth considering, the most promising first."""
    found = {
        tuple(one.choices): one
        for launch in range(len(made.launches))
        for one in tune.candidates(made, kernels, launch)
    }
    return sorted(map(not_evened, found.values()), key=lambda one: one.estimate_s)


def not_evened(made: Plan) -> Plan:
    """The same with the ends of its launches as wide as the rest."""
    launches = []
    for one in made.launches:
        groups = np.unique(one.groups)
        whole = tiling.grid_of(made.exchanged, groups, one.kernel, one.choice, one.machine)
        if len(made.launches) == 1:
            whole = tail.in_rounds(whole)
        launches.append(tiles.cut(made.exchanged, whole, one.choice))
    return replace(made, launches=tuple(launches))


def measure(
    problem: Problem, device: Device, rest: Rest, kernels: Sequence[Kernel], machine: Machine
) -> list[tuple[Plan, list[float]]]:
    """What is worth measuring of a problem, and the samples of each in seconds."""
    (made,) = plan.make([problem], kernels, machine)
    ways = cuts(made, kernels)
    if not ways:
        return []
    least = ways[0].estimate_s
    most, count = next((most, count) for until, most, count in EFFORT if least < until)
    ways = [way for way in ways[:most] if way.estimate_s <= WITHIN * least]
    samples: list[list[float]] = [[] for _ in ways]
    for index in [*range(len(ways)), *reversed(range(len(ways)))]:
        rest.take()
        with device.open(ways[index], DataSpec("normal", 0)) as session:
            _, *taken = (sample.seconds for sample in session.time(count + 1, cold=True))
        samples[index] += taken
        rest.after(sum(taken))
    return list(zip(ways, samples, strict=True))


def main() -> None:
    """Read, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lists", nargs="+", help="problem lists")
    parser.add_argument("--device", default=os.environ.get(DEVICE_VARIABLE, "auto"))
    arguments = parser.parse_args()
    manifest = cubins.manifest()
    try:
        problems = reading.load(arguments.lists, sys.stdin)
        device, _ = opened(arguments.device)
        facts = device.facts
        machine = tiling.machine_of(facts.sm_count)
        rest = Rest(device, share=REST_SHARE, most_s=REST_S)
        rows = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        rows.writeheader()
        for problem in problems:
            for way, samples in measure(problem, device, rest, manifest.kernels, machine):
                row = {
                    "name": problem.name,
                    "problem_sha256": tune_cache.fingerprint(problem),
                    "choice": "+".join(map(str, way.choices)),
                    "tiles": way.tiles,
                    "median_s": f"{np.median(samples):.4g}",
                    "samples": len(samples),
                    "cubin_sha256": manifest.sha256,
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                    "device.name": facts.name,
                    "device.uuid": facts.uuid,
                    "device.sm_count": facts.sm_count,
                }
                rows.writerow(row)
            sys.stdout.flush()
    except GemmctlError as error:
        sys.exit(f"measure_cuts.py: {error}")


if __name__ == "__main__":
    main()
