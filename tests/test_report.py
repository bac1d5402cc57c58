from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from gemmctl.device import roofline
from gemmctl.device.base import Facts, Setup, Telemetry
from gemmctl.judging.reference import Verdict
from gemmctl.kernels import cubins
from gemmctl.measuring.bench import Result, Rival, Settings
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Launching
from gemmctl.showing import info_report, plan_report, report, run_report, verify_report
from gemmctl.showing.formats import Report, render
from gemmctl.showing.report import number
from gemmctl.showing.table import View
from support import TWO_PROBLEMS, make_plans

CPU = Facts("cpu", "a cpu", 1 << 30)
TIMERS = {"cold": "each sample is one run", "warm": "each sample is twenty"}
GPU = Facts("cuda", "a gpu", 1 << 37, "580.1", 132, roofline.H200, TIMERS)
READING = Telemetry(sm_hz=1.5e9, power_w=650.0, throttle=("power cap",))


def results(facts: Facts = GPU) -> list[Result]:
    """Two problems that took 50 us and 20 us."""
    on_gpu = facts.kind == "cuda"
    setup = Setup(1.25e-3, 3e-5 if on_gpu else None)
    readings = (READING,) if on_gpu else ()
    bound_s = 25e-6 if on_gpu else None
    return [
        Result(plan, setup, (median, median * 0.8, median * 1.2), readings, bound_s)
        for plan, median in zip(make_plans(TWO_PROBLEMS), (50e-6, 20e-6), strict=True)
    ]


def throughput(
    facts: Facts = GPU,
    *,
    verbose: bool = False,
    launch: Launching = "grouped",
    replay_s: float | None = None,
) -> Report:
    settings = Settings(launch=launch)
    head = run_report.head(facts, settings, cubins.manifest())
    shown = [replace(r, setup=replace(r.setup, replay_s=replay_s)) for r in results(facts)]
    return run_report.report(head, shown, facts, settings, view=View(verbose))


def rows(found: Report) -> list[dict[str, str]]:
    """A table's cells by their titles."""
    return [dict(zip(found.table.titles, row, strict=True)) for row in found.table.rows]


def cells(text: str) -> list[list[str]]:
    """A plain table's cells; columns are at least two blanks apart."""
    return [
        [cell for cell in line.replace("  ", "\t").split("\t") if cell]
        for line in text.splitlines()
    ]


def test_the_throughput_table_has_the_columns_of_the_contract() -> None:
    header = cells(render(throughput(), "plain"))[0]
    assert [title.strip() for title in header] == [
        "problem", "groups", "dtype", "MxNxK", "GFLOP", "MB", "kernel", "time us (cold)",
        "TFLOP/s", "GB/s", "% of bound", "spread %", "set-up us",
    ]  # fmt: skip


def test_a_graph_shows_what_a_replay_takes_the_host() -> None:
    shown = throughput(launch="graph", replay_s=4.2e-6)
    assert rows(shown)[0]["replay us"] == "4.200"
    assert shown.records[0]["replay_s"] == 4.2e-6
    assert "the GPU's is part of the time measured, too; replay us is host time" in shown.notes[0]


def test_verbose_adds_padding_waves_clocks_power_and_throttling() -> None:
    titles = throughput(verbose=True).table.titles
    assert {"padding %", "waves", "SM MHz", "power W", "throttle"} <= set(titles)


def test_plain_is_a_header_and_one_line_per_problem() -> None:
    lines = render(throughput(), "plain").splitlines()
    assert [line.split()[0] for line in lines] == ["problem", "one", "two"]


def test_every_cell_of_a_plain_table_is_one_word() -> None:
    _, one, _ = render(throughput(), "plain").splitlines()
    kernel = results()[0].plan.kernel
    assert one.split() == [
        "one", "3", "bf16", "64x128x64", "0.003146", "0.1229", kernel, "50.00",
        "0.06291", "2.458", "50.0", "10.0", "1250+30.00",
    ]  # fmt: skip


def test_what_the_cpu_ran_is_labelled_and_has_no_bound() -> None:
    found = throughput(CPU)
    row = rows(found)[0]
    assert row["kernel"].startswith("cpu:")
    assert row["% of bound"] == "-"
    assert "bound" not in " ".join(found.notes)


def test_the_table_names_the_peak_and_bandwidth_of_its_bound() -> None:
    assert "790 TFLOP/s, 4300 GB/s" in render(throughput(), "table")


def test_the_table_says_which_cache_state_and_data_were_timed() -> None:
    assert "cold cache, normal data, seed 0" in render(throughput(), "table")


def test_the_output_says_how_a_sample_was_taken() -> None:
    assert "seed 0; each sample is one run; set-up" in render(throughput(), "table")


def test_json_holds_device_settings_hash_and_all_samples_in_base_units() -> None:
    found = json.loads(render(throughput(), "json"))
    assert found["format"] == report.FORMAT
    assert found["device"]["driver"] == "580.1"
    assert found["cubin_sha256"] == cubins.manifest().sha256
    assert found["settings"]["cache"] == "cold"
    one = found["problems"][0]
    assert one["median_s"] == 50e-6
    assert one["samples_s"] == [50e-6, 40e-6, 60e-6]
    assert one["flop_per_s"] == 3 * 2 * 64 * 128 * 64 / 50e-6
    assert one["telemetry"] == [{"sm_hz": 1.5e9, "power_w": 650.0, "throttle": ["power cap"]}]


def test_json_gives_every_group_once_with_its_count() -> None:
    one, two = json.loads(render(throughput(), "json"))["problems"]
    assert [(group["m"], group["count"]) for group in one["groups"]] == [(64, 3)]
    assert [(group["m"], group["count"]) for group in two["groups"]] == [(17, 1), (0, 1), (5, 1)]


MISSING = Rival("torch", "n/a", "torch is not installed")
RIVALS = (
    (Rival("cublas", samples=(100e-6,)), Rival("cublas-loop", samples=(62.5e-6,)), MISSING),
    (Rival("cublas", "wrong", "row 1"), Rival("cublas-loop", "n/a", "no"), MISSING),
)


def beside() -> tuple[list[Result], Report]:
    """The two problems, 50 us and 20 us, with three baselines."""
    found = [replace(r, rivals=x) for r, x in zip(results(), RIVALS, strict=True)]
    head = run_report.head(GPU, Settings(), cubins.manifest())
    names = [rival.name for rival in RIVALS[0]]
    return found, run_report.report(head, found, GPU, Settings(), names)


def test_every_baseline_has_its_time_and_the_ratio_and_the_best_ratio_is_last() -> None:
    _, found = beside()
    one, two = rows(found)
    assert found.table.titles[-7:] == [
        "cublas us", "vs cublas", "cublas-loop us", "vs cublas-loop", "torch us", "vs torch",
        "vs best",
    ]  # fmt: skip
    assert (one["cublas us"], one["vs cublas"]) == ("100.0", "0.500")
    assert (one["cublas-loop us"], one["vs cublas-loop"]) == ("62.50", "0.800")
    assert one["vs best"] == "0.800"
    assert (two["cublas us"], two["vs cublas"]) == ("wrong", "-")
    assert (two["torch us"], two["vs torch"], two["vs best"]) == ("n/a", "-", "-")


def test_without_baselines_nothing_is_said_of_them() -> None:
    assert not [title for title in throughput().table.titles if title.startswith("vs")]
    assert "against" not in throughput().records[0]
    assert run_report.AGAINST_NOTE not in throughput().notes


def test_the_table_says_what_a_ratio_means() -> None:
    assert run_report.AGAINST_NOTE in beside()[1].notes


def test_json_has_the_samples_of_every_baseline_or_the_reason_why_not() -> None:
    one, two = json.loads(render(beside()[1], "json"))["problems"]
    assert one["best_ratio"] == 0.8
    assert one["against"]["cublas-loop"] == {
        "verdict": "ok",
        "reason": None,
        "median_s": 62.5e-6,
        "ratio": 0.8,
        "samples_s": [62.5e-6],
    }
    assert two["against"]["cublas"] == {
        "verdict": "wrong",
        "reason": "row 1",
        "median_s": None,
        "ratio": None,
        "samples_s": [],
    }
    assert two["best_ratio"] is None


def test_why_a_baseline_was_not_timed_is_said_once_for_all_problems() -> None:
    assert run_report.untimed(beside()[0]) == [
        "torch is n/a on one, two: torch is not installed",
        "cublas is wrong on two: row 1",
        "cublas-loop is n/a on two: no",
    ]


def test_many_problems_without_a_baseline_are_counted() -> None:
    many = [replace(results()[0], rivals=(MISSING,))] * 9
    assert run_report.untimed(many) == ["torch is n/a on 9 problems: torch is not installed"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (None, "-"),
        (12345.6, "12346"),
        (1.0, "1.000"),
        (0.00123449, "0.001234"),
        (-2.5, "-2.500"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_digits_and_never_an_exponent(value: float | None, text: str) -> None:
    assert number(value) == text


def checked(*bad: int, groups: int = 3) -> verify_report.Checked:
    (plan, _) = make_plans(TWO_PROBLEMS.replace("count: 3", f"count: {groups}"))
    verdicts = [
        Verdict(
            group=group,
            method="exact full",
            ok=group not in bad,
            bad=7 if group in bad else 0,
            worst=3.5 if group in bad else 0.25,
            first=None,
            unwritten=0,
            outside=0,
            message=f"group {group} says so",
        )
        for group in range(groups)
    ]
    return verify_report.Checked(plan, DataSpec("int", 0), verdicts)


def test_a_right_problem_is_one_ok_row() -> None:
    found = verify_report.report({}, [checked()], GPU, View())
    row = rows(found)[0]
    assert (row["groups"], row["good"], row["bad"], row["verdict"]) == ("3", "3", "0", "ok")
    assert (row["method"], row["worst"]) == ("exact-full", "0.250")
    assert found.details == []


def test_a_wrong_group_is_counted_and_spelled_out() -> None:
    found = verify_report.report({}, [checked(1)], GPU, View())
    row = rows(found)[0]
    assert (row["good"], row["bad"], row["verdict"], row["worst"]) == ("2", "1", "BAD", "3.50")
    assert "one (int): group 1 says so" in render(found, "plain").splitlines()


def test_many_wrong_groups_are_cut_short_with_their_number() -> None:
    found = verify_report.report({}, [checked(*range(100), groups=100)], GPU, View())
    assert len(found.details) == verify_report.MAX_DETAILS + 1
    assert "90 more groups are bad" in found.details[-1]


def test_verbose_verify_has_a_row_for_every_group() -> None:
    found = verify_report.report({}, [checked(1)], GPU, View(verbose=True))
    verdicts = [row["verdict"] for row in rows(found)]
    assert verdicts == ["ok", "BAD", "ok"]


def test_json_has_the_verdict_of_every_group() -> None:
    found = json.loads(render(verify_report.report({}, [checked(1)], GPU, View()), "json"))
    (check,) = found["checks"]
    assert [verdict["ok"] for verdict in check["verdicts"]] == [True, False, True]
    assert check["methods"] == {"exact full": 3}


def plan_row(text: str) -> dict[str, str]:
    (row,) = rows(plan_report.report(make_plans(text), roofline.H200, cubins.manifest(), View()))
    return row


def test_the_plan_shows_launches_tiles_waves_padding_and_bound() -> None:
    row = plan_row("{gemmctl: 1, problems: [{name: p, groups: [{m: 256, n: 256, k: 640}]}]}")
    assert row["launches"] == "1"
    assert row["padding %"] == "0.0"
    flop, moved = 2 * 256 * 256 * 640, 2 * (2 * 256 * 640 + 256 * 256)
    assert row["bound us"] == number(max(flop / 790e12, moved / 4300e9), 1e-6)


def test_the_plan_of_nothing_but_empty_groups_runs_nothing() -> None:
    row = plan_row("{gemmctl: 1, problems: [{name: p, groups: [{m: 0, n: 8, k: 8}]}]}")
    assert (row["launches"], row["tiles"], row["GFLOP"], row["bound us"]) == ("0", "0", "0", "0")


def test_info_names_device_driver_clocks_and_kernels() -> None:
    found: Any = info_report.report(GPU, None, READING, cubins.manifest())
    text = render(found, "plain")
    assert "cuda: a gpu" in text
    assert "580.1" in text
    assert "1500 MHz, 650.0 W, power cap" in text
    assert text.count("\nkernel ") == len(cubins.manifest().kernels)
