"""What run, verify and tune do where things go wrong or take long.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from support import Command, on_terminal

# Every problem has one wrong element.
WRONG = """
from gemmctl.device.cpu import CpuSession
from gemmctl.__main__ import main
right = CpuSession.run
def run(self):
    right(self)
    self._arena[self._plan.layout.d[0] + 1] ^= 0x40
CpuSession.run = run
"""
FULL = """
import numpy
def save(*args):
    raise OSError(28, "No space left on device")
numpy.save = save
"""
# A run takes two seconds of the host's time; the numbers are those of a clock that only runs move.
SLOW = """
import atexit, sys
from gemmctl.__main__ import main
from gemmctl.device.base import Sample
from gemmctl.device.cpu import CpuSession
from gemmctl.measuring import bench
now = 0.0
def time(self, count, *, cold):
    global now
    now += 2.0 * count
    return [Sample(2.0)] * count
CpuSession.time, bench.monotonic = time, lambda: now
atexit.register(lambda: print("spent", now, file=sys.stderr))
main()
"""


def test_edge_16_a_folder_that_cannot_be_dumped_to_is_told_before_anything_runs(
    gemmctl: Command, two_problems: Path
) -> None:
    for place in ("/dev/null/x", "two.yaml", "two.yaml/x", "", "x" * 256):
        done = gemmctl("verify", two_problems, "--dump", place, "-f", "jsonl")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"gemmctl: cannot dump to '{place}'")


def test_edge_16_a_dump_that_fails_does_not_hide_the_verdict(
    gemmctl: Command, two_problems: Path
) -> None:
    full = ("-c", WRONG + FULL + "main()")
    told = "gemmctl: cannot write to dump/one-group0-int: No space left on device\n"
    done = gemmctl("verify", two_problems, "--dump", "dump", python=full)
    assert done.returncode == 1
    assert "one (int): group 0" in done.stdout
    assert told in done.stderr
    done = gemmctl("verify", two_problems, "--dump", "dump", "-q", python=full)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr  # an error, which -q leaves


def test_edge_31_the_lists_that_are_dumped_can_be_read_together(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    gemmctl(
        "verify", two_problems, "--dump", "dump", "--only", "one", python=("-c", WRONG + "main()")
    )
    lists = sorted((tmp_path / "dump").glob("*/problem.yaml"))
    assert len(lists) == 2
    assert gemmctl("verify", *lists).returncode == 0


@pytest.mark.parametrize("chosen", [(), ("--kernel", "64x128")])
def test_a_dumped_list_begins_with_the_command_that_computes_its_group_as_it_was(
    chosen: tuple[str, ...], gemmctl: Command, tmp_path: Path
) -> None:
    # Alone, the second group would have another kernel.
    groups = "{m: 8, n: 4096, k: 64, count: 64}, {m: 700, n: 640, k: 256}"
    text = f"{{gemmctl: 1, problems: [{{name: p, groups: [{groups}]}}]}}"
    (tmp_path / "p.yaml").write_text(text)
    asked = (*chosen, "--data", "int", "--seed", "3", "--repeat", "4", "-f", "json")
    second = WRONG.replace("layout.d[0]", "layout.d[-1]")
    done = gemmctl("verify", "p.yaml", *asked, "--dump", "dump", python=("-c", second + "main()"))
    (kernel,) = {choice.split()[0] for choice in json.loads(done.stdout)["checks"][0]["choices"]}
    (written,) = (tmp_path / "dump").rglob("*.yaml")
    command, *_ = written.read_text().splitlines()
    options = f"--device cpu --kernel {kernel} --data int --seed 3 --repeat 4"
    assert command == f"# gemmctl verify {options} problem.yaml"
    words = shlex.split(command)[2:-1]
    again = gemmctl(*words, written, "-f", "json", GEMMCTL_DEVICE="auto")
    assert again.returncode == 0
    assert json.loads(again.stdout)["checks"][0]["choices"][0].split()[0] == kernel


def test_every_problem_is_dumped_into_a_folder_of_its_own(gemmctl: Command, tmp_path: Path) -> None:
    names = ["a b", "a/b", "a_b", "..", "-x", "n" * 300, "n" * 299, "\N{GRINNING FACE}"]
    named = ", ".join(f"{{name: '{name}', groups: [{{m: 64, n: 64, k: 64}}]}}" for name in names)
    (tmp_path / "p.yaml").write_text(f"{{gemmctl: 1, problems: [{named}]}}", encoding="utf-8")
    options = ("--data", "int", "--dump", "dump")
    done = gemmctl("verify", "p.yaml", *options, python=("-c", WRONG + "main()"))
    assert "cannot write" not in done.stderr
    lists = sorted((tmp_path / "dump").glob("*/problem.yaml"))
    assert len(lists) == len(names) == len(list(tmp_path.rglob("problem.yaml")))
    assert not [path for path in lists if path.parent.name.startswith((".", "-"))]
    read = json.loads(gemmctl("plan", *lists, "-f", "json").stdout)["problems"]
    assert {one["name"] for one in read} == {f"{name} group 0 int" for name in names}


def test_edge_21_tune_keeps_nothing_of_a_cpu(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    done = gemmctl("tune", two_problems, "--max-time", "0.1")
    assert done.returncode == 0
    assert "nothing is kept" in done.stderr
    assert not list(tmp_path.rglob("cache/**/*.json"))


def test_edge_21_the_order_of_what_tune_tried_is_that_of_its_times(
    gemmctl: Command, two_problems: Path
) -> None:
    rows = [line.split() for line in gemmctl("tune", two_problems, "--max-time", "0.2").stdout
            .splitlines()[1:]]  # fmt: skip
    for name in ("one", "two"):
        ratios = [float(row[-1]) for row in rows if row[0] == name]
        assert ratios[0] == 1.0
        assert ratios == sorted(ratios)


def test_edge_26_the_warm_up_is_part_of_the_time_and_one_long_run_is_enough(
    gemmctl: Command, two_problems: Path
) -> None:
    options = ("--only", "one", "--columns", "samples", "--max-noise", "0")
    for limit, samples, spent in (
        ("3", 1, 2),
        ("3.9", 1, 2),
        ("4.1", 1, 4),
        ("7", 2, 6),
        ("0", 1, 2),
    ):
        done = gemmctl("run", two_problems, *options, "--max-time", limit, python=("-c", SLOW))
        assert done.stdout.split() == ["samples", str(samples)]
        assert f"spent {spent}.0\n" in done.stderr
        said = f"one: one run takes 2.0 s, so --max-time {limit} was enough for {samples};"
        assert said in done.stderr


def test_edge_26_the_bar_tells_the_time_left() -> None:
    long = ("--max-noise", "0", "--runs", "1000000", "--max-time", "2", "-f", "csv")
    shown = on_terminal("stderr", "run", "@tiny", "@edge", *long, NO_COLOR="1")
    assert re.search(r"0:00:0\d 0:00:0\d left", shown)
