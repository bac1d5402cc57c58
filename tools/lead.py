"""Measure the family of generated lists beside other libraries, and say by kind who is ahead.

    python tools/lead.py FILE --measure [--part 2/4] [--seconds 330]
    python tools/lead.py FILE...

With --measure, ``gemmctl run`` times the lists, one process for all, and saves to FILE after every
problem; what FILE holds already is not measured again, so the same command goes on where it was cut
off. The lists come in an order that has all kinds in any beginning of it. A list that fails is left
out, and named.

The table has the ratio of gemmctl's time to the fastest peer's: geometric mean and worst of each
kind, and on how many problems a peer is surely ahead: the 95% interval of the ratio to it lies
above 1.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean
from time import monotonic

import tabulate

from gemmctl.errors import UsageError
from gemmctl.lists import reading
from gemmctl.showing import saved

# 18 samples in three turns of six, the fewest that a ratio has an interval of.
OPTIONS = "--runs 18 --max-noise 0 --max-time 0.2"
TITLES = ("kind", "problems", "geometric mean", "worst", "of", "beside", "a peer surely ahead")
DEVICE_FAILED, BUG = 4, 70  # gemmctl's exit codes that one list may be to blame for
STOPPING_S = 15  # for a run to end by itself when the time is up, before it is killed


@dataclass(frozen=True)
class Standing:
    """How gemmctl does on one problem: its time over the fastest peer's.

    ``ahead`` are the peers that are surely ahead: name, ratio, low and high end of its interval.
    """

    name: str
    ratio: float
    best: str
    ahead: tuple[tuple[str, float, float, float], ...]

    @property
    def kind(self) -> str:
        """Of a list called kind-NNN, whose problem may have more behind it."""
        return kind_of(self.name)


def kind_of(name: str) -> str:
    """What comes before the number."""
    return re.sub(r"-\d{3}(-.*)?$", "", name)


def part_of(files: Sequence[Path], part: tuple[int, int]) -> list[Path]:
    """Every so-many-th list, ordered so that any beginning has about its share of each kind."""
    number, count = part
    taken = sorted(files)[number - 1 :: count]
    places: list[tuple[Fraction, Path]] = []
    for _, some in groupby(taken, lambda path: kind_of(path.stem)):
        alike = list(some)
        places += [(Fraction(2 * i + 1, len(alike)), path) for i, path in enumerate(alike)]
    return [path for _, path in sorted(places)]


def measured(path: str) -> dict[str, saved.Record]:
    """The problems in a saved run by name; none if there is no such file yet."""
    exists = Path(path).exists() and Path(path).stat().st_size
    return saved.load(path).problems if exists else {}


def measure(files: list[Path], save: str, against: str, options: str, limit_s: float) -> None:
    """Run all lists, into a file; goes on without a list that fails, until the time is up."""
    begin = monotonic()
    names = {path: [p.name for p in reading.load([str(path)], io.StringIO())] for path in files}
    total = sum(map(len, names.values()))
    failed: list[Path] = []
    while left := [path for path in files if path not in failed]:
        command = [sys.executable, "-m", "gemmctl", "run", *map(str, left), "-f", "csv"]
        command += ["--save", save, "--resume", *shlex.split(options)]
        command += ["--against", against] if against else []
        code = stopped_after(command, limit_s - (monotonic() - begin))
        if code in (0, None):
            break
        done = measured(save)
        failing = next((path for path in left if not done.keys() >= set(names[path])), None)
        of_a_list = code in (DEVICE_FAILED, BUG) or code < 0  # by a signal
        if not done or failing is None or not of_a_list:
            sys.exit(code)
        print(f"{failing.stem} failed with exit code {code} and is left out", file=sys.stderr)
        failed.append(failing)
    reached = sum(name in measured(save) for some in names.values() for name in some)
    print(f"{reached} of {total} problems reached in {monotonic() - begin:.0f} s", file=sys.stderr)


def stopped_after(command: Sequence[str], limit_s: float) -> int | None:
    """A command's exit code; None if it was interrupted because the time was up."""
    if limit_s <= 0:
        return None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(STOPPING_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return None


def standings(problems: dict[str, saved.Record]) -> Iterator[Standing]:
    """Of the problems that some peer was timed on."""
    for name, problem in problems.items():
        if not problem.get("best"):
            continue
        ahead = [
            (peer, found["ratio"], *found["ratio_interval"])
            for peer, found in problem["against"].items()
            if found["ratio_interval"] and found["ratio_interval"][0] > 1
        ]
        yield Standing(name, problem["best_ratio"], problem["best"], tuple(ahead))


def table(found: Sequence[Standing]) -> str:
    """A line for each kind and one for all, in Markdown."""

    def row(kind: str, some: Sequence[Standing]) -> tuple[str, ...]:
        worst = max(some, key=lambda one: one.ratio)
        mean = geometric_mean(one.ratio for one in some)
        ahead = sum(bool(one.ahead) for one in some)
        numbers = f"{mean:.3f}", f"{worst.ratio:.3f}"
        return kind, str(len(some)), *numbers, worst.name, worst.best, str(ahead)

    kinds = sorted({one.kind for one in found})
    rows = [row(kind, [one for one in found if one.kind == kind]) for kind in kinds]
    right = [place in (1, 2, 3, 6) for place in range(len(TITLES))]
    aligned = ["right" if some else "left" for some in right]
    rows.append(row("all", found))
    return tabulate.tabulate(rows, TITLES, "pipe", disable_numparse=True, colalign=aligned)


def show(paths: Sequence[str]) -> None:
    """Print the table of saved runs; a problem that is in several counts as in the last."""
    problems: dict[str, saved.Record] = {}
    for path in paths:
        run = saved.load(path)
        problems |= run.problems
        device, settings = run.head["device"], run.head["settings"]
        about = (
            f"{device['name']}, driver {device['driver']}, cubins {run.head['cubin_sha256'][:8]}"
        )
        counted = f"{len(run.problems)} of {run.total} problems"
        print(f"{path}: {counted}; {about}; {settings['cache']} cache")
    found = list(standings(problems))
    if not found:
        print("no peer was timed on any problem")
        return
    print(f"\n{table(found)}\n")
    for one in sorted(found, key=lambda one: -one.ratio):
        for peer, ratio, low, high in one.ahead:
            print(f"{one.name}: {peer} is surely ahead, {ratio:.3f}, {low:.3f} to {high:.3f}")
    if not any(one.ahead for one in found):
        print("no peer is surely ahead on any problem")


def part(text: str) -> tuple[int, int]:
    """Two numbers of ``2/4``."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is no part; 2/4 is the second of four")
    return int(found[1]), int(found[2])


def main() -> None:
    """Measure if asked to; print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a run as gemmctl saves it")
    parser.add_argument("--measure", action="store_true", help="add to FILE what it lacks")
    parser.add_argument("--part", type=part, default=(1, 1), help="2/4: the second of four parts")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--against", default="all", help="the peers; '' for none [all]")
    parser.add_argument("--family", type=Path, help="a folder of lists [gemmctl gen family]")
    parser.add_argument("--options", default=OPTIONS, help=f"of gemmctl run [{OPTIONS}]")
    told = parser.parse_args()
    if told.measure and len(told.files) > 1:
        parser.error("--measure saves to one file")
    try:
        if told.measure:
            with tempfile.TemporaryDirectory() as folder:
                if told.family is None:
                    command = [sys.executable, "-m", "gemmctl", "gen", "family", folder]
                    subprocess.run(command, check=True)
                files = part_of(list((told.family or Path(folder)).glob("*.yaml")), told.part)
                if not files:
                    parser.error(f"there are no lists in {told.family}")
                measure(files, told.files[0], told.against, told.options, told.seconds)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may have seen enough
        show(told.files)
    except UsageError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
