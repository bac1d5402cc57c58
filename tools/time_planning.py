"""Time reading and planning of problem lists, and what answers without a list.

    python tools/time_planning.py [problems/hetero64.yaml 10000x4096 ...]

Prints a table of medians, in Markdown. COUNTxHIGHEST stands for one problem of so many different
groups, whose M, N and K are random from 16 to HIGHEST, N and K in multiples of 8. The planning is
what ``plan_s`` says, together and with a launch for each group; the last column is the command from
its start to its end: it reads, plans and reports. Below stands what asking for the version and for
help takes.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import tabulate

from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.planning import plan
from gemmctl.planning.plan import Launching

LISTS = ("problems/hetero64.yaml", "10000x4096", "10000x256", "100000x512")
TITLES = ("list", "groups", "tiles", "planned ms", "planned serial ms", "gemmctl plan, s")
REPEATS = 5
ASKED = ("--version", "--help")
FEW = 20_000  # groups, up to which a plan with a launch for each is timed, too


def random_list(count: int, highest: int) -> str:
    """The text of a list of random groups, the same every time."""
    draw = random.Random(count)

    def group() -> str:
        m, n, k = draw.randint(16, highest), *(8 * draw.randint(2, highest // 8) for _ in "nk")
        return f"      - {{m: {m}, n: {n}, k: {k}}}\n"

    groups = "".join(group() for _ in range(count))
    return f"gemmctl: 1\nproblems:\n  - name: random\n    groups:\n{groups}"


def shown(seconds: Callable[[], float], unit: float = 1) -> str:
    """The median of some calls, in units of so many seconds."""
    return f"{median(seconds() for _ in range(REPEATS)) / unit:.3g}"


def command_s(*args: str) -> float:
    """Seconds that a command takes from its start to its end."""
    started = perf_counter()
    subprocess.run([sys.executable, "-m", "gemmctl", *args], check=True, capture_output=True)
    return perf_counter() - started


def row(name: str, path: str) -> list[str]:
    """What is printed of one list."""
    kernels = cubins.manifest().kernels

    def plan_s(launch: Launching) -> float:
        problems = reading.load([path], io.StringIO())
        return sum(made.plan_s for made in plan.make(problems, kernels, launch=launch))

    made = plan.make(reading.load([path], io.StringIO()), kernels)
    groups = sum(len(one.problem.groups) for one in made)
    return [
        name,
        str(groups),
        str(sum(one.tiles for one in made)),
        shown(partial(plan_s, "grouped"), unit=1e-3),
        shown(partial(plan_s, "serial"), unit=1e-3) if groups <= FEW else "-",
        shown(partial(command_s, "plan", path)),
    ]


def main() -> None:
    """Make, time, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lists", nargs="*", default=LISTS, help="files, or COUNTxHIGHEST")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in parser.parse_args().lists:
            path = name
            if shape := re.fullmatch(r"(\d+)x(\d+)", name):
                path = str(Path(folder, f"{name}.yaml"))
                Path(path).write_text(random_list(*map(int, shape.groups())))
            rows.append(row(name, path))
    asked = [[f"gemmctl {option}", shown(partial(command_s, option))] for option in ASKED]
    for table, titles in ((rows, TITLES), (asked, ("command", "s"))):
        print(tabulate.tabulate(table, titles, "github", disable_numparse=True), end="\n\n")


if __name__ == "__main__":
    main()
