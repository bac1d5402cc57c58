from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmctl.device import roofline
from gemmctl.device.base import Facts, Setup, Telemetry
from gemmctl.judging.verdict import Verdict
from gemmctl.kernels import cubins
from gemmctl.measuring.bench import Result, Rival, Settings
from gemmctl.measuring.blocks import Block, Sustained
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Launching
from gemmctl.showing import (
    against_report,
    info_report,
    plan_report,
    report,
    run_report,
    verify_report,
)
from gemmctl.showing.formats import Report, render
from gemmctl.showing.report import number
from gemmctl.showing.table import View
from support import TWO_PROBLEMS, make_plans

CPU = Facts("cpu", "a cpu", 1 << 30)
TIMERS = {"cold": "each sample is one run", "warm": "each sample is twenty", "sustained": "a mean"}
GPU = Facts("cuda", "a gpu", 1 << 37, "580.1", 132, roofline.H200, TIMERS)
READING = Telemetry(sm_hz=1.5e9, power_w=650.0, throttle=("power cap",), memory_hz=3.2e9)


def results(facts: Facts = GPU) -> list[Result]:
    """Two problems that took 50 us and 20 us."""
    on_gpu = facts.kind == "cuda"
    setup = Setup(1.25e-3, 3e-5 if on_gpu else None)
    readings = (READING,) if on_gpu else ()
    bound_s = 25e-6 if on_gpu else None
    return [
        Result(
            replace(plan, plan_s=2e-3),
            setup,
            (median, median * 0.8, median * 1.2),
            readings,
            bound_s,
        )
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
        "TFLOP/s", "GB/s", "% of bound", "spread %", "plan us", "set-up us",
    ]  # fmt: skip


def test_a_graph_shows_what_a_replay_takes_the_host() -> None:
    shown = throughput(launch="graph", replay_s=4.2e-6)
    assert rows(shown)[0]["replay us"] == "4.200"
    assert shown.records[0]["replay_s"] == 4.2e-6
    assert "the GPU's is part of the time measured, too; replay us is host time" in shown.notes[0]


def test_verbose_adds_padding_waves_clocks_power_and_throttling() -> None:
    titles = throughput(verbose=True).table.titles
    assert {"padding %", "waves", "SM MHz", "power W", "throttle"} <= set(titles)


@pytest.mark.parametrize(
    ("clocks", "shown"), [([], "-"), ([1400, 1980, 1500], "1500"), ([1400, 1500], "1450")]
)
def test_the_clock_of_a_problem_is_the_median_of_its_readings(
    clocks: list[int], shown: str
) -> None:
    readings = tuple(replace(READING, sm_hz=mhz * 1e6) for mhz in clocks)
    found = [replace(one, telemetry=readings) for one in results()]
    head = run_report.head(GPU, Settings(), cubins.manifest())
    report = run_report.report(head, found, GPU, Settings(), view=View(verbose=True))
    assert rows(report)[0]["SM MHz"] == shown


def test_verbose_shows_how_many_launches_go_side_by_side_where_they_do() -> None:
    (row, _), (on_cpu, _) = (rows(throughput(facts, verbose=True)) for facts in (GPU, CPU))
    assert (row["launches"], row["side by side"]) == ("1", "1")
    assert on_cpu["launches"] == "1" and "side by side" not in on_cpu


def test_plain_is_a_header_and_one_line_per_problem() -> None:
    lines = render(throughput(), "plain").splitlines()
    assert [line.split()[0] for line in lines] == ["problem", "one", "two"]


def test_every_cell_of_a_plain_table_is_one_word() -> None:
    _, one, _ = render(throughput(), "plain").splitlines()
    kernel = results()[0].plan.kernel
    assert one.split() == [
        "one", "3", "bf16", "64x128x64", "0.003146", "0.1229", kernel, "50.00",
        "0.06291", "2.458", "50.0", "10.0", "2000", "1250+30.00",
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
    assert "seed 0; each sample is one run; plan us" in render(throughput(), "table")


def test_json_holds_device_settings_hash_and_all_samples_in_base_units() -> None:
    found = json.loads(render(throughput(), "json"))
    assert found["format"] == report.FORMAT
    assert found["device"]["driver"] == "580.1"
    assert found["cubin_sha256"] == cubins.manifest().sha256
    assert found["settings"]["cache"] == "cold"
    one = found["problems"][0]
    assert one["median_s"] == 50e-6
    assert one["plan_s"] == 2e-3
    assert one["samples_s"] == [50e-6, 40e-6, 60e-6]
    assert one["flop_per_s"] == 3 * 2 * 64 * 128 * 64 / 50e-6
    assert one["telemetry"] == [
        {"sm_hz": 1.5e9, "power_w": 650.0, "throttle": ["power cap"], "memory_hz": 3.2e9}
    ]


def test_json_gives_every_group_once_with_its_count() -> None:
    one, two = json.loads(render(throughput(), "json"))["problems"]
    assert [(group["m"], group["count"]) for group in one["groups"]] == [(64, 3)]
    assert [(group["m"], group["count"]) for group in two["groups"]] == [(17, 1), (0, 1), (5, 1)]


MISSING = Rival("torch", "n/a", "torch is not installed")
STEADY = tuple(np.linspace(0.998, 1.002, 21))


def rival(name: str, median_s: float, **fields: Any) -> Rival:
    return Rival(name, samples=tuple(median_s * x for x in STEADY), **fields)


RIVALS = (
    (
        rival("cublas", 100e-6, form="calls", reason="it cannot be captured", host_bound=0.5),
        rival(
            "cublas-loop",
            62.5e-6,
            form="graph",
            reason="as calls, row 2",
            host_bound=0.09,
            manner="copied",
        ),
        MISSING,
    ),
    (Rival("cublas", "wrong", "row 1"), Rival("cublas-loop", "n/a", "no"), MISSING),
)


def beside(*, verbose: bool = False, host_bound: float = 0.0) -> tuple[list[Result], Report]:
    """The two problems, 50 us and 20 us, with three baselines."""
    found = [
        replace(
            one,
            samples=tuple(one.median_s * x for x in STEADY),
            rivals=rivals,
            host_bound=host_bound,
        )
        for one, rivals in zip(results(), RIVALS, strict=True)
    ]
    head = run_report.head(GPU, Settings(), cubins.manifest())
    names = [rival.name for rival in RIVALS[0]]
    return found, run_report.report(head, found, GPU, Settings(), names, View(verbose))


def test_every_baseline_has_its_time_and_the_ratio_and_the_best_is_judged_last() -> None:
    _, found = beside()
    one, two = rows(found)
    assert found.table.titles[-9:] == [
        "cublas us", "vs cublas", "cublas-loop us", "vs cublas-loop", "torch us", "vs torch",
        "best", "vs best", "verdict",
    ]  # fmt: skip
    assert (one["cublas us"], one["vs cublas"]) == ("100.0*", "0.500")
    assert (one["cublas-loop us"], one["vs cublas-loop"]) == ("62.50:copied", "0.800")
    assert (one["best"], one["vs best"], one["verdict"]) == ("cublas-loop", "0.800", "FASTER")
    assert (two["cublas us"], two["vs cublas"]) == ("wrong", "-")
    assert (two["torch us"], two["vs torch"]) == ("n/a", "-")
    assert (two["best"], two["vs best"], two["verdict"]) == ("-", "-", "-")


def test_verbose_shows_how_far_the_ratio_to_the_best_is_known() -> None:
    one, two = rows(beside(verbose=True)[1])
    low, high = map(float, one["95% interval"].split(".."))
    assert 0.79 < low < 0.8 < high < 0.81
    assert two["95% interval"] == "-"


def test_without_baselines_nothing_is_said_of_them() -> None:
    assert not [title for title in throughput().table.titles if title.startswith("vs")]
    assert not {"best", "verdict"} & set(throughput(verbose=True).table.titles)
    assert not {"against", "best", "best_ratio"} & set(throughput().records[0])
    assert against_report.NOTE not in throughput().notes


def test_the_table_says_what_a_ratio_and_a_verdict_mean() -> None:
    assert against_report.NOTE in beside()[1].notes
    for word in ("below 1 gemmctl is faster", "SAME is within 1%", "UNSURE"):
        assert word in against_report.NOTE


@pytest.mark.parametrize("manner", ["copied", "fused", "unfused"])
def test_a_baseline_that_does_more_than_a_product_says_how_and_that_is_explained(
    manner: str,
) -> None:
    other = rival("torch", 1e-3, manner=manner, host_bound=0.5)
    found = [replace(results()[0], rivals=(other, rival("cublas", 1e-3)))]
    shown = run_report.report({}, found, GPU, Settings(), ["torch", "cublas"])
    (row,) = rows(shown)
    assert (row["torch us"], row["cublas us"]) == (f"1000*:{manner}", "1000")
    explained = [note for note in shown.notes if note in against_report.MANNERS.values()]
    assert explained == [against_report.MANNERS[manner]]
    assert explained[0].startswith(f"{manner}: ")


def test_verdicts_are_counted_over_the_problems() -> None:
    found, shown = beside()
    told = "beside the fastest baseline of each problem, gemmctl is"
    assert f"{told} FASTER on 1" in shown.notes
    slower = replace(found[0], rivals=(rival("cublas", 40e-6),))
    shown = run_report.report({}, [slower, found[0], slower], GPU, Settings())
    assert f"{told} FASTER on 1, SLOWER on 2" in shown.notes
    without = run_report.report({}, [found[1]], GPU, Settings())
    assert not [note for note in without.notes if note.startswith(told)]


@pytest.mark.parametrize(("share", "cell"), [(0.09, "50.00"), (0.1, "50.00*"), (1.0, "50.00*")])
def test_a_time_that_may_hold_the_hosts_is_marked_and_the_mark_explained(
    share: float, cell: str
) -> None:
    found = [replace(results()[0], host_bound=share)]
    shown = run_report.report({}, found, GPU, Settings())
    assert rows(shown)[0]["time us (cold)"] == cell
    assert (report.HOST_NOTE in shown.notes) == cell.endswith("*")


def test_a_baseline_that_is_marked_is_explained_too() -> None:
    assert report.HOST_NOTE in beside()[1].notes
    assert report.HOST_NOTE not in throughput().notes


def test_json_has_the_samples_of_every_baseline_or_the_reason_why_not() -> None:
    found, shown = beside(host_bound=0.25)
    one, two = json.loads(render(shown, "json"))["problems"]
    assert one["host_bound"] == 0.25
    assert (one["best"], one["best_ratio_verdict"]) == ("cublas-loop", "FASTER")
    assert one["best_ratio"] == pytest.approx(0.8)
    low, high = one["best_ratio_interval"]
    assert low < 0.8 < high
    assert one["against"]["cublas-loop"] == {
        "verdict": "ok",
        "reason": "as calls, row 2",
        "form": "graph",
        "manner": "copied",
        "median_s": found[0].rivals[1].median_s,
        "host_bound": 0.09,
        "ratio": one["best_ratio"],
        "ratio_interval": one["best_ratio_interval"],
        "ratio_verdict": "FASTER",
        "samples_s": list(RIVALS[0][1].samples),
    }
    assert one["against"]["cublas"]["form"] == "calls"
    assert one["against"]["cublas"]["reason"] == "it cannot be captured"
    assert two["against"]["cublas"] == {
        "verdict": "wrong",
        "reason": "row 1",
        "form": None,
        "manner": None,
        "median_s": None,
        "host_bound": 0.0,
        "ratio": None,
        "ratio_interval": None,
        "ratio_verdict": None,
        "samples_s": [],
    }
    best = {two[f"best{part}"] for part in ("", "_ratio", "_ratio_interval", "_ratio_verdict")}
    assert best == {None}


def test_why_a_baseline_was_not_timed_or_is_no_graph_is_said_once_for_all_problems() -> None:
    assert against_report.exceptions(beside()[0]) == [
        "cublas is timed as calls on one: it cannot be captured",
        "cublas-loop is timed as a graph on one: as calls, row 2",
        "torch is n/a on one, two: torch is not installed",
        "cublas is wrong on two: row 1",
        "cublas-loop is n/a on two: no",
    ]


def test_many_problems_without_a_baseline_are_counted() -> None:
    many = [replace(results()[0], rivals=(MISSING,))] * 9
    assert against_report.exceptions(many) == ["torch is n/a on 9 problems: torch is not installed"]


# The sustained pace

BLOCK = Block(60e-6, 1.4e9, 690.0)
PACED = Settings(pace="sustained")


def paced(
    facts: Facts = GPU, *, verbose: bool = False, **sustained: Any
) -> tuple[list[Result], Report]:
    """The first problem, 60 us in blocks and 50 us in bursts, and a baseline that takes 80 us."""
    told = {"blocks": (BLOCK,) * 6, "settled": True, "burst": (50e-6,) * 3, **sustained}
    theirs = Block(80e-6, 1.35e9, 650.0)
    other = Rival("cublas", samples=(80e-6,) * 6, form="graph",
                  sustained=Sustained((theirs,) * 6, True, (70e-6,)))  # fmt: skip
    ours = Sustained(**told)
    found = replace(
        results(facts)[0],
        samples=tuple(block.seconds for block in ours.blocks),
        sustained=ours,
        rivals=(other,) if facts.kind == "cuda" else (),
    )
    names = [rival.name for rival in found.rivals]
    head = run_report.head(facts, PACED, cubins.manifest())
    return [found], run_report.report(head, [found], facts, PACED, names, View(verbose))


def test_a_sustained_table_has_clock_watts_and_joules_beside_the_time() -> None:
    _, found = paced()
    (row,) = rows(found)
    assert row["time us (sustained)"] == "60.00"
    assert (row["settled MHz"], row["power W"], row["J/run"]) == ("1400", "690.0", "0.04140")
    assert (row["cublas us"], row["vs cublas"], row["cublas J/run"]) == (
        "80.00",
        "0.750",
        "0.05200",
    )
    assert "burst us" not in row and "cublas MHz" not in row


def test_verbose_shows_both_paces_and_the_clocks_of_baselines() -> None:
    _, found = paced(verbose=True)
    (row,) = rows(found)
    assert (row["time us (sustained)"], row["burst us"]) == ("60.00", "50.00")
    assert (row["cublas MHz"], row["cublas W"], row["cublas burst us"]) == (
        "1350",
        "650.0",
        "70.00",
    )
    assert found.table.titles.count("power W") == 1 and "SM MHz" not in row


def test_a_cpu_has_no_column_for_what_it_does_not_know() -> None:
    _, found = paced(CPU, verbose=True)
    (row,) = rows(found)
    assert (row["time us (sustained)"], row["burst us"]) == ("60.00", "50.00")
    assert not {"settled MHz", "power W", "J/run", "SM MHz"} & set(row)
    assert "joules" not in " ".join(found.notes) and "J/run" not in " ".join(found.notes)


def test_bursts_have_no_columns_of_a_sustained_pace() -> None:
    assert not {"settled MHz", "J/run", "burst us"} & set(throughput(verbose=True).table.titles)
    assert "sustained" not in throughput().records[0]


def test_the_table_says_what_a_sustained_sample_is() -> None:
    text = " ".join(paced()[1].notes)
    assert "sustained, normal data, seed 0; a mean; plan us" in text
    assert "blocks of 1 s, each after 1 s of the same that do not count" in text
    assert "nothing is flushed between runs" in text and "energy counter" in text


def test_json_has_every_block_in_base_units_and_the_bursts_before() -> None:
    found = json.loads(render(paced()[1], "json"))
    assert found["settings"]["pace"] == "sustained"
    (one,) = found["problems"]
    assert one["samples_s"] == [60e-6] * 6 and one["median_s"] == 60e-6
    assert one["sustained"] == {
        "settled": True,
        "settled_sm_hz": 1.4e9,
        "power_w": 690.0,
        "energy_j": 690.0 * 60e-6,
        "burst_median_s": 50e-6,
        "burst_samples_s": [50e-6] * 3,
        "blocks": [
            {
                "seconds": 60e-6,
                "sm_hz": 1.4e9,
                "power_w": 690.0,
                "host_bound": 0.0,
                "energy_j": 690.0 * 60e-6,
            }
        ]
        * 6,
    }
    assert one["against"]["cublas"]["sustained"]["energy_j"] == 650.0 * 80e-6


def test_a_clock_that_did_not_settle_is_told() -> None:
    found, _ = paced(settled=False)
    (told,) = run_report.advice(found, GPU, replace(PACED, max_time_s=9))
    assert told == "one: the clock had not settled in half of --max-time 9; raise it"
    assert run_report.advice(paced()[0], GPU, PACED) == []


def test_why_there_are_no_joules_or_clocks_is_told_and_their_cells_are_empty() -> None:
    found, shown = paced(blocks=(Block(60e-6, 1.4e9, None),) * 6)
    (row,) = rows(shown)
    assert (row["settled MHz"], row["power W"], row["J/run"]) == ("1400", "-", "-")
    (told,) = run_report.advice(found, GPU, PACED)
    assert told == "one: NVML counts no energy of this GPU, so there are no watts and joules"
    found, shown = paced(blocks=(Block(60e-6, None, 690.0),) * 6, settled=None)
    assert rows(shown)[0]["settled MHz"] == "-"
    (told,) = run_report.advice(found, GPU, PACED)
    assert told.startswith("one: NVML does not read the clock of this GPU")
    found, _ = paced(CPU, blocks=(Block(60e-6),) * 6, settled=None)
    assert run_report.advice(found, CPU, PACED) == []


@pytest.mark.parametrize(("max_noise", "told"), [(0.0, True), (0.07, True), (0.1, False)])
def test_samples_that_spread_by_more_than_was_asked_for_are_told(
    max_noise: float, told: bool
) -> None:
    one, _ = results()
    spread = replace(one, samples=tuple(10e-6 * (10 + i % 5) for i in range(50)))
    found = run_report.advice([spread], GPU, Settings(max_noise=max_noise))
    said = "one: samples spread by 8.3%; raise --max-time and --runs, or quiet the machine"
    assert found == [said] * told


def test_too_few_blocks_are_told_with_what_a_block_takes() -> None:
    found, _ = paced(blocks=(BLOCK,) * 3)
    (told,) = run_report.advice(found, GPU, replace(PACED, max_time_s=6))
    assert told.startswith("one: one block takes 2.0 s, so --max-time 6 was enough for 3;")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (None, "-"),
        (12345.6, "12346"),
        (1.0, "1.000"),
        (0.00123449, "0.001234"),
        (-2.5, "-2.500"),
        (2e-9, "0.000000002000"),
        (1e-85, "0.000000000000"),
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
            rms=None,
            rms_limit=None,
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


def test_the_plan_shows_how_many_launches_go_side_by_side() -> None:
    listed = (
        "{m: 64, n: 64, k: 65536}, {m: 64, n: 64, k: 65536, a: f16}, {m: 8, n: 8, k: 8, d: f32}"
    )
    row = plan_row(f"{{gemmctl: 1, problems: [{{name: p, groups: [{listed}]}}]}}")
    assert (row["launches"], row["side by side"]) == ("3", "2")  # two of them split sums


def test_the_plan_of_nothing_but_empty_groups_runs_nothing() -> None:
    row = plan_row("{gemmctl: 1, problems: [{name: p, groups: [{m: 0, n: 8, k: 8}]}]}")
    assert (row["launches"], row["tiles"], row["GFLOP"], row["bound us"]) == ("0", "0", "0", "0")


def test_info_names_device_driver_clocks_and_kernels() -> None:
    found: Any = info_report.report(GPU, None, READING, cubins.manifest())
    text = render(found, "plain")
    assert "cuda: a gpu" in text
    assert "580.1" in text
    assert "1500 MHz, 650.0 W, power cap" in text
    kernels = [line for line in text.splitlines() if line.startswith("kernel ")]
    names = [line.split()[1] for line in kernels]
    assert names == list(dict.fromkeys(of.name for of in cubins.manifest().kernels))
    assert any("128x256-c2 (rcr rrr ccr crr): 4 to 10 stages" in line for line in kernels)
    (types,) = (line.split()[1:] for line in text.splitlines() if line.startswith("types "))
    assert set(types) == {f"{of.operand}->{of.output}" for of in cubins.manifest().kernels}


def test_the_names_of_lists_take_no_wider_rows_than_kernels() -> None:
    found: Any = info_report.report(GPU, None, None, cubins.manifest())
    rows = {title: [row[1] for row in found.table.rows if row[0] == title] for title in
            ("lists", "kernel")}  # fmt: skip
    assert " ".join(rows["lists"]).split() == [f"@{name}" for name in found.head["lists"]]
    assert max(map(len, rows["lists"])) <= max(map(len, rows["kernel"]))
