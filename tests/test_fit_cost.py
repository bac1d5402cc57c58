from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.measuring import tune_cache
from gemmctl.measuring.tune import candidates
from gemmctl.planning import cost, plan, tiling
from gemmctl.planning.cost import Constants
from gemmctl.planning.plan import Plan
from support import ROOT, Command, as_module, make_plans

SCRIPT = ROOT / "tools" / "fit_cost.py"
LIST = """\
gemmctl: 1
problems:
  - name: square
    groups: [{m: 2048, n: 2048, k: 512}]
  - name: long
    groups: [{m: 256, n: 256, k: 16384}]
"""
# And one of which no cut is a single wave, whose form has few of the constants.
LONGER = LIST + "  - {name: tall, groups: [{m: 8192, n: 1024, k: 512}]}\n"
TRUE = replace(cost.FITTED, tile_latency=4000.0, feed_bytes=25.0, exposed_feed=0.3)
MEASURED = 40  # of a problem, where constants are fitted: more are for the tests of what is read
FAMILY = ("decode-001", "decode-002", "decode-002-beta", "decode-003", "lora-001", "lora-002")


@pytest.fixture(scope="module")
def fit_cost() -> ModuleType:
    return as_module(SCRIPT)


def seconds(made: Plan, constants: Constants) -> float:
    return made.cycles(constants) / cost.CLOCK_HZ


@cache
def ways(text: str) -> list[Plan]:
    """All candidates of a list's problems."""
    return [
        candidate
        for made in make_plans(text)
        for launch in range(len(made.launches))
        for candidate in candidates(made, cubins.manifest().kernels, launch)
    ]


def measured(
    time_s: Callable[[Plan], float], text: str = LIST, most: int | None = None
) -> list[dict[str, str]]:
    """What measure_cuts.py would print of a GPU that takes so long, if it evened ends.

    Of each problem the ``most`` candidates that promise most, or all.
    """
    rows = [
        {
            "name": candidate.problem.name,
            "problem_sha256": tune_cache.fingerprint(candidate.problem),
            "choice": "+".join(map(str, candidate.choices)),
            "tiles": str(candidate.tiles),
            "median_s": str(time_s(candidate)),
            "cubin_sha256": cubins.manifest().sha256,
            "device.uuid": "GPU-0",
            "device.sm_count": "132",
        }
        for _, own in groupby(ways(text), key=lambda one: one.problem.name)
        for candidate in sorted(own, key=lambda one: one.estimate_s)[:most]
    ]
    return sorted(rows, key=lambda row: (row["name"], float(row["median_s"])))


def read(fit_cost: ModuleType, rows: list[dict[str, str]], text: str = LIST) -> list[Any]:
    return list(fit_cost.read(rows, [made.problem for made in make_plans(text)]))


def test_the_fit_finds_a_model_that_explains_the_measurements(fit_cost: ModuleType) -> None:
    rows = measured(lambda made: seconds(made, TRUE), LONGER, MEASURED)
    sheet = fit_cost.Sheet(read(fit_cost, rows, LONGER))
    found = fit_cost.fit(sheet)
    assert sheet.loss(found.constants) < sheet.loss(cost.FITTED) / 10


def test_constants_that_are_right_stay_about_as_they_are(fit_cost: ModuleType) -> None:
    # Not quite: choices that are close are moved apart.
    rows = measured(lambda made: seconds(made, cost.FITTED), most=MEASURED)
    sheet = fit_cost.Sheet(read(fit_cost, rows))
    assert asdict(fit_cost.fit(sheet).constants) == pytest.approx(asdict(cost.FITTED), rel=0.25)


def test_the_fit_is_to_what_a_plan_estimates(fit_cost: ModuleType) -> None:
    groups = (
        "{m: 2048, n: 4096, k: 512, beta: 1}, {m: 100, n: 1000, k: 16384}",
        "{m: 5, n: 80, k: 101, activation: gelu, gate: halves}, {m: 64, n: 64, k: 640, d: f32}",
        "{m: 4096, n: 4096, k: 64, bias: n, count: 9}, {m: 8, n: 9, k: 0}",
        "{m: 512, n: 512, k: 64, count: 3}, {m: 512, n: 512, k: 64, activation: gelu, count: 19}",
    )
    text = "gemmctl: 1\nproblems:\n" + "".join(
        f"  - {{name: p{number}, groups: [{written}]}}\n" for number, written in enumerate(groups)
    )
    problems = read(fit_cost, measured(lambda made: 1.0, text), text)
    sheet = fit_cost.Sheet(problems)
    made = [
        plan.make([one.problem], cubins.manifest().kernels, chosen={one.name: choices})[0]
        for one in problems
        for choices in one.choices
    ]
    assert sheet.estimates(TRUE) == pytest.approx([seconds(one, TRUE) for one in made])


def test_what_several_gpus_measured_is_scaled_to_the_first_and_averaged(
    fit_cost: ModuleType,
) -> None:
    times = {"GPU-0": {"a": 1.0, "b": 2.0, "c": 4.0}, "GPU-1": {"a": 1.1, "b": 2.2, "c": 4.84}}
    times["GPU-1"]["d"] = 11.0  # the first has not measured it
    rows = [
        {"device.uuid": gpu, "choice": choice, "median_s": str(seconds)}
        for gpu, own in times.items()
        for choice, seconds in own.items()
    ]
    found = {row["choice"]: seconds for row, seconds in fit_cost.over_gpus(rows)}
    assert found == pytest.approx({"a": 1.0, "b": 2.0, "c": 4.0 * math.sqrt(1.1), "d": 10.0})


def test_candidates_with_an_evened_end_are_left_out(fit_cost: ModuleType) -> None:
    """By which constants it was evened is not known."""
    text = "{gemmctl: 1, problems: [{name: p, groups: [{m: 384, n: 14080, k: 4096}]}]}"
    rows = measured(lambda made: 1.0, text)
    (one,) = read(fit_cost, rows, text)
    evened = set()
    for made in make_plans(text):
        for candidate in candidates(made, cubins.manifest().kernels, 0):
            (launch,), (choice,) = candidate.launches, candidate.choices
            whole = tiling.grid(
                made.exchanged, np.arange(1), launch.kernel, choice.width, launch.machine
            )
            if choice.splits == 1 and launch.whole.sum() != whole.whole.sum():
                evened.add(str(choice))
    assert evened
    kept = {str(*choices) for choices in one.choices}
    assert kept == {row["choice"] for row in rows} - evened


def test_candidates_of_a_kernel_that_is_for_such_a_layout_no_more_are_left_out(
    fit_cost: ModuleType,
) -> None:
    text = "{gemmctl: 1, problems: [{name: p, groups: [{m: 64, n: 512, k: 4096, b_layout: row}]}]}"
    rows = measured(lambda made: 1.0, text)
    assert "64x128-k4x" in {kernel.name for kernel in cubins.manifest().kernels}
    gone = {**rows[0], "choice": "64x128-k4x w64"}
    (one,) = read(fit_cost, [*rows, gone], text)
    assert {str(*choices) for choices in one.choices} <= {row["choice"] for row in rows}


def test_regret_is_the_time_of_the_choice_over_the_best(fit_cost: ModuleType) -> None:
    problems = read(fit_cost, measured(lambda made: 1.0))
    estimates = fit_cost.Sheet(problems).estimates(cost.FITTED)
    assert fit_cost.Sheet(problems).regrets(estimates).tolist() == [0, 0]
    problems[0].seconds[estimates[: len(problems[0].seconds)].argmin()] = 1.03
    assert fit_cost.Sheet(problems).regrets(estimates).tolist() == [pytest.approx(0.03), 0]


def test_an_error_that_all_candidates_share_matters_little(fit_cost: ModuleType) -> None:
    one, both = (
        fit_cost.Sheet(
            read(fit_cost, measured(lambda made, by=by: by * seconds(made, cost.FITTED)))
        )
        for by in (1.0, 1.2)
    )
    shared = fit_cost.SHIPPED_WEIGHT * fit_cost.SHARED_WEIGHT * math.log(1.2) ** 2
    assert both.loss(cost.FITTED) - one.loss(cost.FITTED) == pytest.approx(shared)


def test_candidates_come_in_the_order_of_the_plan_not_of_their_times(fit_cost: ModuleType) -> None:
    fast_last = read(fit_cost, measured(lambda made: seconds(made, cost.FITTED)))
    slow_last = read(fit_cost, measured(lambda made: 1 / seconds(made, cost.FITTED)))
    for one, other in zip(fast_last, slow_last, strict=True):
        assert one.choices == other.choices


@pytest.fixture(scope="module")
def family(fit_cost: ModuleType) -> list[Any]:
    """A few lists that are named like those of the family, and two that are not."""
    named = "".join(f"  - {{name: {n}, groups: [{{m: 64, n: 64, k: 64}}]}}\n" for n in FAMILY)
    return read(fit_cost, measured(lambda made: 1.0, LIST + named, MEASURED), LIST + named)


@pytest.mark.parametrize("seed", range(5))
def test_halves_have_half_of_every_kind(fit_cost: ModuleType, family: list[Any], seed: int) -> None:
    both = fit_cost.halves(family, seed)
    assert sorted(one.name for half in both for one in half) == sorted([*FAMILY, "long", "square"])
    for half in both:
        kinds = Counter(one.kind for one in half if not one.name.endswith("-beta"))
        assert (kinds["shipped"], kinds["lora"]) == (1, 1)
        assert kinds["decode"] in (1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_list_and_its_variants_are_in_one_half(
    fit_cost: ModuleType, family: list[Any], seed: int
) -> None:
    first, _ = fit_cost.halves(family, seed)
    names = {one.name for one in first}
    assert ("decode-002" in names) == ("decode-002-beta" in names)


def test_lists_that_ship_are_left_out_one_at_a_time(
    fit_cost: ModuleType, family: list[Any]
) -> None:
    sheet = fit_cost.Sheet(family)
    left = dict(fit_cost.leave_one_out(sheet, fit_cost.fit(sheet)))
    assert left == {"long": 0, "square": 0}


def test_problems_that_changed_since_are_left_out(
    fit_cost: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measured(lambda made: 1.0)
    changed = make_plans(LIST.replace("k: 16384", "k: 8192"))
    (square,) = fit_cost.read(rows, [made.problem for made in changed])
    assert square.name == "square"
    assert "skipped long: not in the lists as it was measured" in capsys.readouterr().err


def test_measurements_of_other_cubins_are_told(
    fit_cost: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    *rows, last = measured(lambda made: 1.0)
    assert read(fit_cost, [*rows, {**last, "cubin_sha256": "0"}])
    assert "measured with other cubins" in capsys.readouterr().err


def test_every_gpu_is_planned_for_as_large_as_it_is(fit_cost: ModuleType) -> None:
    rows = [{**row, "device.sm_count": "114"} for row in measured(lambda made: 1.0)]
    machines = {
        launch.machine.sm_count
        for problem in read(fit_cost, rows)
        for launches in problem.launches
        for launch in launches
    }
    assert machines == {114}


def test_the_measurements_that_are_kept_are_of_lists_that_ship(fit_cost: ModuleType) -> None:
    problems = reading.load(sorted(map(str, (ROOT / "problems").glob("*.yaml"))), sys.stdin)
    rows = fit_cost.load(str(ROOT / "docs" / "cuts-h200.csv.xz"))
    assert len(list(fit_cost.read(rows, problems))) > 10


def command(
    gemmctl: Command, tmp_path: Path, rows: list[dict[str, str]]
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "list.yaml").write_text(LIST)
    with (tmp_path / "cuts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return gemmctl("cuts.csv", "list.yaml", python=(str(SCRIPT),))


def test_it_prints_every_constant_and_the_regrets_and_writes_nothing(
    gemmctl: Command, tmp_path: Path
) -> None:
    rows = measured(lambda made: seconds(made, cost.FITTED), most=MEASURED)
    done = command(gemmctl, tmp_path, rows)
    assert (done.returncode, done.stderr) == (0, "")
    for name, value in asdict(cost.FITTED).items():
        assert re.search(rf"^    {name}: float = \S+  # now {value}$", done.stdout, re.MULTILINE)
    table = [line.split() for line in done.stdout.splitlines()[-2:]]
    assert [(row[0], row[-2]) for row in table] == [("long", "0.0"), ("square", "0.0")]
    assert {path.name for path in tmp_path.iterdir()} == {"list.yaml", "cuts.csv"}


def test_what_measure_cuts_did_not_print_is_refused(gemmctl: Command, tmp_path: Path) -> None:
    rows = [{"name": row["name"]} for row in measured(lambda made: 1.0)]
    done = command(gemmctl, tmp_path, rows)
    assert done.returncode != 0
    assert done.stderr == "cuts.csv is not what tools/measure_cuts.py prints\n"
