from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from gemmctl.device import roofline
from gemmctl.device.base import Facts, Setup, Telemetry
from gemmctl.errors import UsageError
from gemmctl.kernels import cubins
from gemmctl.measuring.bench import Result, Rival, Settings
from gemmctl.measuring.blocks import Block, Sustained
from gemmctl.showing import resuming, run_report
from gemmctl.showing.formats import compact
from gemmctl.showing.report import Record
from gemmctl.showing.saved import Saved
from support import TWO_PROBLEMS, make_plans

GPU = Facts("cuda", "a gpu", 1 << 37, "580.1", 132, roofline.H200, {"cold": "one run"})
PLANS = make_plans(TWO_PROBLEMS)
RIVALS = ("cublas", "torch")


def measured() -> list[Result]:
    """What a run may have measured, with everything in it that there can be."""
    return [
        Result(
            plan,
            Setup(1.25e-3, 3e-5, 4e-6),
            samples=(50e-6, 40e-6, 1 / 3e4),
            telemetry=(Telemetry(1.5e9, 650.0, ("power cap",), 2.6e9),),
            bound_s=25e-6,
            rivals=(
                Rival("cublas", samples=(6e-5,), form="graph", host_bound=0.25),
                Rival("torch", "n/a", "not installed"),
            ),
            host_bound=0.5,
        )
        for plan in PLANS
    ]


def sustained(burst_s: float, **block: Any) -> Sustained:
    known = Block(1 / 3e4, 1.4e9, 693.5, host_bound=0.125)
    return Sustained((known, replace(known, **block)), settled=False, burst=(burst_s, 1 / 7e4))


def at_the_sustained_pace() -> list[Result]:
    return [
        replace(
            result,
            sustained=sustained(3e-5),
            rivals=(
                replace(result.rivals[0], manner="copied", sustained=sustained(5e-5, sm_hz=None)),
                *result.rivals[1:],
            ),
        )
        for result in measured()
    ]


def head(facts: Facts = GPU, **settings: Any) -> Record:
    return run_report.head(facts, Settings(**settings), cubins.manifest())


def kept(results: list[Result], head: Record) -> Saved:
    """A saved run, through JSON."""
    records = [json.loads(compact(run_report.record(result))) for result in results]
    return Saved("x.json", json.loads(compact(head)), {one["name"]: one for one in records})


@pytest.mark.parametrize("results", [measured(), at_the_sustained_pace()])
def test_what_was_measured_comes_back_as_it_was(results: list[Result]) -> None:
    found = resuming.results(kept(results, head()), head(), PLANS, RIVALS)
    assert list(found.values()) == results


def test_only_what_was_measured_comes_back() -> None:
    found = resuming.results(kept(measured()[:1], head()), head(), PLANS, RIVALS)
    assert list(found) == ["one"]


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (head(runs=10), "settings.runs (50 and 10)"),
        (head(cache="warm"), "settings.cache (cold and warm)"),
        (head(pace="sustained"), "settings.pace (burst and sustained)"),
        (head(replace(GPU, name="another")), "device.name (a gpu and another)"),
        (head(replace(GPU, driver="590")), "device.driver (580.1 and 590)"),
        ({**head(), "cubin_sha256": "f"}, "cubin_sha256"),
    ],
)
def test_a_run_that_was_measured_otherwise_is_refused(now: Record, what: str) -> None:
    with pytest.raises(UsageError) as error:
        resuming.results(kept(measured(), head()), now, PLANS, RIVALS)
    assert str(error.value).startswith("cannot resume x.json: it differs from this run in ")
    assert what in str(error.value)


def test_a_setting_that_only_one_of_both_runs_knows_is_another() -> None:
    more = {**head(), "settings": {**head()["settings"], "more": 1}}
    for before, now in ((more, head()), (head(), more)):
        with pytest.raises(UsageError, match=r"settings\.more"):
            resuming.results(kept(measured(), before), now, PLANS, RIVALS)


@pytest.mark.parametrize("key", ["groups", "choices", "launches", "tuned"])
def test_a_problem_that_ran_in_another_way_is_refused(key: str) -> None:
    earlier = kept(measured(), head())
    earlier.problems["two"][key] = "other"
    with pytest.raises(UsageError, match=f"problem 'two' ran with other {key}"):
        resuming.results(earlier, head(), PLANS, RIVALS)


def test_a_problem_that_met_other_baselines_is_refused() -> None:
    with pytest.raises(UsageError, match="problem 'one' ran against other baselines"):
        resuming.results(kept(measured(), head()), head(), PLANS, ())


def test_a_block_without_what_blocks_have_is_refused() -> None:
    earlier = kept(at_the_sustained_pace(), head())
    del earlier.problems["one"]["sustained"]["blocks"][0]["sm_hz"]
    with pytest.raises(UsageError, match="problem 'one' lacks some of what was measured"):
        resuming.results(earlier, head(), PLANS, RIVALS)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("host_bound", None), ("host_bound", "x"), ("setup_host_s", [None]), ("setup_device_s", ""),
        ("median_s", math.nan), ("median_s", math.inf), ("median_s", [[1]]), ("median_s", None),
        ("flop", -1), ("flop", {"a": 1}), ("tiles", True), ("kernel", 5), ("telemetry", None),
        ("telemetry.0.power_w", None), ("telemetry.0.throttle", "cap"), ("against", 5),
        ("against.cublas", 5), ("against.cublas.verdict", 5), ("against.torch.reason", 5),
        ("against.cublas.samples_s", "x"), ("against.cublas.manner", []), ("sustained", 5),
        ("sustained.settled", 5), ("sustained.burst_samples_s", []),
        ("sustained.blocks.1.seconds", "x"),
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_refused_by_name(path: str, value: Any) -> None:
    earlier = kept(at_the_sustained_pace(), head())
    *outer, last = path.split(".")
    inner: Any = earlier.problems["two"]
    for key in outer:
        inner = inner[int(key) if key.isdecimal() else key]
    inner[last] = value
    field = ".".join(key for key in path.split(".") if not key.isdecimal())
    told = f"problem 'two' has {json.dumps(value)[:40]} as its {field}, which no run writes"
    with pytest.raises(UsageError, match=re.escape(told)):
        resuming.results(earlier, head(), PLANS, RIVALS)


@pytest.mark.parametrize("key", ["telemetry", "setup_host_s", "bound_s"])
def test_a_problem_without_what_a_result_has_is_refused(key: str) -> None:
    earlier = kept(measured(), head())
    del earlier.problems["one"][key]
    with pytest.raises(UsageError, match="problem 'one' lacks some of what was measured"):
        resuming.results(earlier, head(), PLANS, RIVALS)
