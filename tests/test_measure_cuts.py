"""tools/measure_cuts.py: what tools/fit_cost.py fits to."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.planning.plan import Plan
from support import ROOT, Command, as_module, make_plans

SCRIPT = ROOT / "tools" / "measure_cuts.py"
KERNELS = cubins.manifest().kernels
TWO_TYPES = """\
gemmctl: 1
problems:
  - name: mixed
    groups: [{m: 64, n: 64, k: 4096}, {m: 96, n: 128, k: 128, d: f32}, {m: 8, n: 8, k: 8}]
  - name: empty
    groups: [{m: 0, n: 8, k: 8}]
"""
EVENED = "{gemmctl: 1, problems: [{name: p, groups: [{m: 384, n: 14080, k: 4096}]}]}"


@pytest.fixture(scope="module")
def measure_cuts() -> ModuleType:
    return as_module(SCRIPT)


def test_what_it_prints_is_what_the_fit_reads(gemmctl: Command, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(TWO_TYPES)
    done = gemmctl("list.yaml", "--device", "cpu", python=(str(SCRIPT),))
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "cuts.csv").write_text(done.stdout)
    fit_cost = as_module(ROOT / "tools" / "fit_cost.py")
    problems = reading.load([str(tmp_path / "list.yaml")], sys.stdin)
    (mixed,) = fit_cost.read(fit_cost.load(str(tmp_path / "cuts.csv")), problems)
    printed = [row["choice"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert sorted("+".join(map(str, choices)) for choices in mixed.choices) == sorted(printed)
    assert {len(choices) for choices in mixed.choices} == {2}
    assert any(" k/" in choice for choice in printed)


def lasts(made: Plan) -> list[int]:
    """How many entries each launch has for its groups: two where an end is evened."""
    return [len(launch.groups) for launch in made.launches]


def test_ends_are_not_evened(measure_cuts: ModuleType) -> None:
    (made,) = make_plans(EVENED)
    assert lasts(made) == [2]
    ways = measure_cuts.cuts(made, KERNELS)
    assert {count for way in ways for count in lasts(way)} == {1}
    assert made.choices in [way.choices for way in ways]


def test_a_launch_that_is_alone_has_as_few_clusters_as_when_it_runs(
    measure_cuts: ModuleType,
) -> None:
    (made,) = make_plans(
        "gemmctl: 1\nproblems:\n  - {name: p, groups: [{m: 768, n: 768, k: 1024, count: 10}]}\n"
    )
    (launch,) = made.launches
    assert launch.clusters == 60 < launch.room
    (way,) = (way for way in measure_cuts.cuts(made, KERNELS) if way.choices == made.choices)
    assert way.launches[0].clusters == 60


def test_the_most_promising_come_first_each_once(measure_cuts: ModuleType) -> None:
    (made,) = make_plans(EVENED)
    ways = measure_cuts.cuts(made, KERNELS)
    estimates = [way.estimate_s for way in ways]
    assert estimates == sorted(estimates)
    assert len({tuple(way.choices) for way in ways}) == len(ways) > 9


def test_a_list_that_is_wrong_ends_it_with_the_place(gemmctl: Command, tmp_path: Path) -> None:
    wrong = "gemmctl: 1\nproblems:\n  - {name: p, groups: [{m: 8, n: 8}]}\n"
    (tmp_path / "list.yaml").write_text(wrong)
    done = gemmctl("list.yaml", "--device", "cpu", python=(str(SCRIPT),))
    assert done.returncode == 1
    assert "list.yaml:3:24: this group has no k" in done.stderr
    assert "Traceback" not in done.stderr
