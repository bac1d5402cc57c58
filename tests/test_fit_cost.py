from __future__ import annotations

import csv
import importlib.util
import io
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.measuring import tune_cache
from gemmctl.measuring.tune import candidates
from gemmctl.planning import cost
from gemmctl.planning.cost import Constants
from gemmctl.planning.plan import Plan
from support import ROOT, Command, environment, make_plans

SCRIPT = ROOT / "tools" / "fit_cost.py"
LIST = """\
gemmctl: 1
problems:
  - name: square
    groups: [{m: 2048, n: 2048, k: 512}]
  - name: long
    groups: [{m: 256, n: 256, k: 16384}]
"""
TRUE = replace(cost.FITTED, tile_latency=4000.0, feed_bytes=30.0, exposed_feed=0.3)


@pytest.fixture(scope="module")
def fit_cost() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_cost", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit_cost"] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def seconds(made: Plan, constants: Constants) -> float:
    cycles = sum(cost.estimate(launch, made.problem, constants) for launch in made.launches)
    return cycles / cost.CLOCK_HZ


def measured(time_s: Callable[[Plan], float]) -> list[dict[str, str]]:
    """What tune would print of a GPU that takes so long."""
    rows = [
        {
            "name": made.problem.name,
            "problem_sha256": tune_cache.fingerprint(made.problem),
            "choice": "+".join(map(str, candidate.choices)),
            "median_s": str(time_s(candidate)),
            "command": "tune",
            "cubin_sha256": cubins.manifest().sha256,
            "device.sm_count": "132",
        }
        for made in make_plans(LIST)
        for candidate in candidates(made, cubins.manifest().kernels, 0)
    ]
    return sorted(rows, key=lambda row: (row["name"], float(row["median_s"])))


def read(fit_cost: ModuleType, rows: list[dict[str, str]]) -> list[Any]:
    return list(fit_cost.read(rows, [made.problem for made in make_plans(LIST)]))


def test_the_fit_finds_a_model_that_explains_the_measurements(fit_cost: ModuleType) -> None:
    problems = read(fit_cost, measured(lambda made: seconds(made, TRUE)))
    before = fit_cost.loss(problems, cost.FITTED)
    after = fit_cost.loss(problems, fit_cost.fit(problems))
    assert after < before / 20


def test_constants_that_are_right_stay_as_they_are(fit_cost: ModuleType) -> None:
    problems = read(fit_cost, measured(lambda made: seconds(made, cost.FITTED)))
    assert fit_cost.fit(problems) == cost.FITTED


def test_regret_is_the_time_of_the_choice_over_the_best(fit_cost: ModuleType) -> None:
    _, square = read(fit_cost, measured(lambda made: 1.0))
    estimates = square.estimates(cost.FITTED)
    assert square.regret(estimates) == 0
    square.seconds[estimates.argmin()] = 1.03
    assert square.regret(estimates) == pytest.approx(0.03)


def test_an_error_that_all_candidates_share_matters_little(fit_cost: ModuleType) -> None:
    problems = read(fit_cost, measured(lambda made: 1.2 * seconds(made, cost.FITTED)))
    shared = fit_cost.SHARED_WEIGHT * math.log(1.2) ** 2
    assert fit_cost.loss(problems, cost.FITTED) == pytest.approx(shared)
    problems[0].seconds[problems[0].seconds.argmin()] *= 1.2
    assert fit_cost.loss(problems, cost.FITTED) > 1.2 * shared


def test_candidates_come_in_the_order_of_the_plan_not_of_their_times(fit_cost: ModuleType) -> None:
    fast_last = read(fit_cost, measured(lambda made: seconds(made, cost.FITTED)))
    slow_last = read(fit_cost, measured(lambda made: 1 / seconds(made, cost.FITTED)))
    for one, other in zip(fast_last, slow_last, strict=True):
        orders = [[made.choices for made in found.plans] for found in (one, other)]
        assert orders[0] == orders[1]


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
        for made in problem.plans
        for launch in made.launches
    }
    assert machines == {114}


def test_what_tune_prints_as_csv_is_read_whole(
    fit_cost: ModuleType, gemmctl: Command, tmp_path: Path
) -> None:
    two_types = "{m: 64, n: 256, k: 8192}, {m: 96, n: 128, k: 128, d: f32}, {m: 8, n: 8, k: 8}"
    text = f"{{gemmctl: 1, problems: [{{name: mixed, groups: [{two_types}]}}]}}"
    (tmp_path / "mixed.yaml").write_text(text)
    printed = gemmctl("tune", tmp_path / "mixed.yaml", "-f", "csv").stdout
    (tmp_path / "tune.csv").write_text(printed)
    (mixed,) = fit_cost.read(
        fit_cost.load(str(tmp_path / "tune.csv")), [made.problem for made in make_plans(text)]
    )
    assert len(mixed.plans) == len(printed.splitlines()) - 1
    assert {len(made.choices) for made in mixed.plans} == {2}
    said = {"+".join(map(str, made.choices)) for made in mixed.plans}
    assert said == {row["choice"] for row in csv.DictReader(io.StringIO(printed))}
    assert any(" k/" in words for words in said)


def test_the_measurements_that_are_kept_are_of_lists_that_ship(fit_cost: ModuleType) -> None:
    problems = reading.load(sorted(map(str, (ROOT / "problems").glob("*.yaml"))), sys.stdin)
    rows = fit_cost.load(str(ROOT / "docs" / "tune-h200.csv"))
    assert len(list(fit_cost.read(rows, problems))) > 10


def command(tmp_path: Path, rows: list[dict[str, str]]) -> subprocess.CompletedProcess[str]:
    (tmp_path / "list.yaml").write_text(LIST)
    with (tmp_path / "tune.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return subprocess.run(
        [sys.executable, SCRIPT, "tune.csv", "list.yaml"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_prints_every_constant_and_the_regrets_and_writes_nothing(tmp_path: Path) -> None:
    done = command(tmp_path, measured(lambda made: seconds(made, cost.FITTED)))
    assert (done.returncode, done.stderr) == (0, "")
    for name, value in asdict(cost.FITTED).items():
        assert f"    {name}: float = {value}  # now {value}\n" in done.stdout
    table = [line.split() for line in done.stdout.splitlines()[-2:]]
    assert [(row[0], row[-2], row[-1]) for row in table] == [
        ("long", "0.0", "0.0"),
        ("square", "0.0", "0.0"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"list.yaml", "tune.csv"}


def test_what_tune_did_not_print_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "command": "run"} for row in measured(lambda made: 1.0)]
    done = command(tmp_path, rows)
    assert done.returncode != 0
    assert done.stderr == "tune.csv is not what gemmctl tune -f csv printed\n"
