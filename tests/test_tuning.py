from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gemmctl.device.base import Facts, Sample
from gemmctl.device.cpu import CpuDevice
from gemmctl.kernels import cubins
from gemmctl.measuring import rest, tune
from gemmctl.measuring.rest import REST_S
from gemmctl.measuring.tune import Settings, candidates, measure
from gemmctl.measuring.tune_cache import TuneCache
from gemmctl.operands.data import DataSpec
from gemmctl.planning import cost, plan, tiling
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice
from gemmctl.showing import tune_report
from gemmctl.showing.report import FORMAT
from gemmctl.showing.table import View
from support import TWO_PROBLEMS, Clock, Command, make_plans

KERNELS = cubins.manifest().kernels
ALL_NAMES = list(dict.fromkeys(kernel.name for kernel in KERNELS))
UNALIGNED = {kernel.name for kernel in KERNELS if kernel.b_unaligned}
OF_SQUARE = dict.fromkeys(of.name for of in KERNELS if of.multiplies[2:] == ("row", "col"))
NAMES = [name for name in OF_SQUARE if name not in UNALIGNED]
SQUARE = "{gemmctl: 1, problems: [{name: p, groups: [{m: 512, n: 512, k: 512}]}]}"
MIXED = """\
gemmctl: 1
problems:
  - name: p
    groups: [{m: 2049, n: 8, k: 16}, {m: 300, n: 264, k: 512, d: f32}]
"""
# One launch with a long sum that is worth splitting, and one of so many tiles that split sums of
# theirs would take 100 GB.
FEW_AND_MANY = """\
gemmctl: 1
problems:
  - name: p
    groups: [{m: 128, n: 256, k: 65536}, {m: 65536, n: 16384, k: 8192, d: f32}]
"""
FOREVER = Settings(max_time_s=1e9, all=True)


def planned(text: str) -> Plan:
    (made,) = make_plans(text)
    return made


# Candidates


def test_every_choice_of_every_kernel_that_fits_is_a_candidate() -> None:
    made = planned(SQUARE)
    (launch,) = made.launches
    worth = {
        choice
        for kernel in KERNELS
        if kernel.multiplies == ("bf16", "bf16", "row", "col") and not kernel.b_unaligned
        for choice in tiling.choices(made.problem, launch.groups, kernel, tiling.H200, alone=True)
    }
    work = {tune._work(candidate) for candidate in candidates(made, KERNELS, 0)}
    assert {choice.kernel for choice in worth} == set(NAMES)
    for choice in worth:
        (same,) = plan.make([made.problem], KERNELS, chosen={"p": [choice]})
        assert tune._work(same) in work


@pytest.mark.parametrize(
    ("group", "exchanging"), [("n: 128", True), ("n: 127", False), ("n: 128, gate: pairs", False)]
)
def test_kernels_that_exchange_operands_are_candidates_where_they_compute_d(
    group: str, exchanging: bool
) -> None:
    text = f"{{gemmctl: 1, problems: [{{name: p, groups: [{{m: 64, k: 64, {group}}}]}}]}}"
    names = {candidate.kernel for candidate in candidates(planned(text), KERNELS, 0)}
    those = {kernel.name for kernel in KERNELS if kernel.d_across}
    assert names == (set(NAMES) if exchanging else set(NAMES) - those)


def test_beside_a_b_that_stays_where_it_lies_there_are_no_other_candidates() -> None:
    made = planned("{gemmctl: 1, problems: [{name: p, groups: [{m: 16, n: 4096, k: 8191}]}]}")
    found = candidates(made, KERNELS, 0)
    assert {candidate.kernel for candidate in found} == UNALIGNED
    assert len({candidate.choices for candidate in found}) == len(found) > 1


def test_beside_what_was_tuned_the_plan_of_the_model_is_a_candidate_of_the_first_launch() -> None:
    made = planned(MIXED)
    chosen = {"p": (Choice("128x256", 80), Choice("128x256-c2", 144))}
    (tuned,) = plan.make([made.problem], KERNELS, chosen=chosen)
    assert not set(made.choices) & set(tuned.choices)
    for launch, there in ((0, True), (1, False)):
        found = [one.choices for one in candidates(tuned, KERNELS, launch)]
        assert (made.choices in found, tuned.choices in found) == (there, True)


def test_choices_that_come_to_the_same_are_one_candidate() -> None:
    made = planned("{gemmctl: 1, problems: [{name: p, groups: [{m: 16, n: 16, k: 64}]}]}")
    found = [candidate.kernel for candidate in candidates(made, KERNELS, 0)]
    assert sorted(found) == sorted(NAMES)


def test_the_most_promising_candidate_comes_first_and_is_what_the_plan_chose() -> None:
    made = planned(SQUARE)
    found = candidates(made, KERNELS, 0)
    estimates = [candidate.estimate_s for candidate in found]
    assert estimates == sorted(estimates)
    assert found[0].estimate_s == made.estimate_s
    assert any(candidate is made for candidate in found)


def test_the_candidates_of_a_launch_leave_all_others_as_they_are() -> None:
    made = planned(MIXED)
    for launch, other in ((0, 1), (1, 0)):
        found = candidates(made, KERNELS, launch)
        assert len({candidate.choices[launch] for candidate in found}) == len(found) > len(NAMES)
        assert {candidate.choices[other] for candidate in found} == {made.choices[other]}


def test_the_candidates_of_a_launch_are_what_is_worth_considering_for_its_own_groups() -> None:
    made = planned(MIXED)
    few = [kernel for kernel in KERNELS if kernel.name == NAMES[1] or kernel.output == "bf16"]
    (made,) = plan.make([made.problem], few)
    kernels = [{one.choices[i].kernel for one in candidates(made, few, i)} for i in range(2)]
    alone = {kernel.name for kernel in KERNELS if kernel.for_few_tiles}
    assert kernels == [set(NAMES) - alone, {NAMES[1]}]


def test_no_candidate_asks_for_more_memory_than_two_tiles_of_sums_for_each_cluster() -> None:
    made = planned(FEW_AND_MANY)
    split = 0
    for launch in range(len(made.launches)):
        for candidate in candidates(made, KERNELS, launch):
            for one in candidate.launches:
                tile_bytes = one.kernel.columns_per_tile * one.kernel.max_width * 4
                assert one.workspace_bytes <= 2 * one.room * tile_bytes
                split += one.slots > 0
    assert split


def test_a_problem_without_work_has_one_trial(clock: Clock) -> None:
    made = planned("{gemmctl: 1, problems: [{name: p, groups: [{m: 0, n: 8, k: 8}]}]}")
    ranking = measure(made, FakeDevice(clock, lambda made: 1e-6), KERNELS, FOREVER)
    assert [trial.plan for trial in ranking.trials] == [made]


def test_a_plan_is_cut_as_it_was_chosen() -> None:
    mixed = planned(MIXED)
    wanted = (Choice(NAMES[1], 128), Choice(NAMES[0], 192, 2))
    (made,) = plan.make([mixed.problem], KERNELS, chosen={"p": wanted})
    assert made.choices == wanted
    assert made.tuned
    assert [launch.kernel.name for launch in made.launches] == NAMES[1::-1]
    assert not mixed.tuned


# Measuring, by a clock that only passes when something sleeps or runs


@dataclass
class FakeDevice:
    """Runs take ``wall_s`` of the clock, and as long as ``seconds`` says by their samples."""

    clock: Clock
    seconds: Callable[[Plan], float]
    facts: Facts = field(default_factory=lambda: Facts("cpu", "a cpu", 1 << 30))
    wall_s: float = 0.0049
    bursts: list[tuple[str, int, bool]] = field(default_factory=list)

    @contextmanager
    def open(self, made: Plan, data: DataSpec) -> Iterator[Any]:
        device = self

        class Session:
            def time(self, count: int, *, cold: bool) -> list[Sample]:
                device.bursts.append((" ".join(map(str, made.choices)), count, cold))
                device.clock.now += count * device.wall_s
                return [Sample(device.seconds(made))] * count

        yield Session()

    def telemetry(self) -> None:
        return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tune, "monotonic", clock.monotonic)
    monkeypatch.setattr(rest, "sleep", clock.sleep)
    return clock


def against_the_estimate(made: Plan) -> float:
    """As wrong as a cost model can be: what promises most is slowest."""
    return 1 / made.estimate_s


@pytest.mark.parametrize(("limit_s", "told"), [(0.0, False), (1e9, True)])
def test_what_runs_where_nothing_was_tuned_is_told_where_that_was_measured(
    limit_s: float, told: bool, clock: Clock
) -> None:
    made = planned(SQUARE)
    (tuned,) = plan.make([made.problem], KERNELS, chosen={"p": [Choice("128x256", 144)]})
    device = FakeDevice(clock, lambda one: one.estimate_s)
    ranking = measure(tuned, device, KERNELS, Settings(max_time_s=limit_s))
    (note,) = tune_report.report({}, [ranking], device.facts, View()).notes
    assert note.endswith("the smallest estimate is what runs where nothing was tuned") == told


def test_the_fastest_wins_whatever_the_cost_model_says(clock: Clock) -> None:
    made = planned(SQUARE)
    ranking = measure(made, FakeDevice(clock, against_the_estimate), KERNELS, FOREVER)
    slowest = max(candidates(made, KERNELS, 0), key=lambda found: found.estimate_s)
    assert ranking.best.median_s == 1 / slowest.estimate_s


def test_every_candidate_is_measured(clock: Clock) -> None:
    made = planned(SQUARE)
    ranking = measure(made, FakeDevice(clock, against_the_estimate), KERNELS, FOREVER)
    assert len(ranking.trials) == len(candidates(made, KERNELS, 0))
    assert ranking.untried == 0


def test_what_cannot_win_by_the_model_is_left_out(clock: Clock) -> None:
    made = planned(SQUARE)
    device = FakeDevice(clock, lambda made: made.estimate_s)
    ranking = measure(made, device, KERNELS, replace(FOREVER, all=False))
    everyone = candidates(made, KERNELS, 0)
    hopeful = [one for one in everyone if one.estimate_s <= tune.HOPELESS * made.estimate_s]
    assert 1 < len(hopeful) < len(everyone)
    assert [trial.plan.choices for trial in ranking.trials] == [one.choices for one in hopeful]
    assert (ranking.hopeless, ranking.untried) == (len(everyone) - len(hopeful), 0)


def test_what_is_left_out_depends_on_what_is_best_not_on_what_was_expected_to_be(
    clock: Clock,
) -> None:
    made = planned(SQUARE)
    device = FakeDevice(clock, against_the_estimate)  # each beats those that promised more
    ranking = measure(made, device, KERNELS, replace(FOREVER, all=False))
    steps = [one.estimate_s for one in candidates(made, KERNELS, 0)]
    reached = next(
        (i for i, (a, b) in enumerate(pairwise(steps), 1) if b > tune.HOPELESS * a), len(steps)
    )
    assert len(ranking.trials) == reached


def test_the_better_half_is_measured_longer_again_and_again(clock: Clock) -> None:
    device = FakeDevice(clock, against_the_estimate)
    trials = measure(planned(SQUARE), device, KERNELS, FOREVER).trials
    stayed = [sum(trial.rounds >= number for trial in trials) for number in (1, 2, 3, 4)]
    assert len(trials) > 4
    assert stayed == [max(2, -(-len(trials) // halves)) for halves in (1, 2, 4, 8)]
    samples = [len(trial.samples) for trial in trials]
    assert samples == sorted(samples, reverse=True)
    assert samples[0] > 4 * samples[-1]


def test_candidates_take_turns_within_a_round(clock: Clock) -> None:
    device = FakeDevice(clock, against_the_estimate)
    trials = measure(planned(SQUARE), device, KERNELS, FOREVER).trials
    taken = [name for name, count, _ in device.bursts if count > 1]  # less the warm-up runs
    last = taken[-2 * trials[0].rounds :]
    assert {last[0], last[1]} == {" ".join(map(str, trial.plan.choices)) for trial in trials[:2]}
    assert last == last[:2] * trials[0].rounds


def test_every_run_is_cold(clock: Clock) -> None:
    device = FakeDevice(clock, against_the_estimate)
    measure(planned(SQUARE), device, KERNELS, FOREVER)
    assert {cold for _, _, cold in device.bursts} == {True}


@pytest.mark.parametrize(("wall_s", "samples"), [(1e-5, tune.BURST), (0.0049, 10), (9.0, 1)])
def test_a_burst_is_about_fifty_milliseconds_of_runs(
    wall_s: float, samples: int, clock: Clock
) -> None:
    device = FakeDevice(clock, against_the_estimate, wall_s=wall_s)
    trials = measure(planned(SQUARE), device, KERNELS, FOREVER).trials
    assert len(trials[-1].samples) == samples


def test_a_gpu_rests_before_every_burst_and_a_cpu_does_not(clock: Clock) -> None:
    gpu = Facts("cuda", "a gpu", 1 << 30, sm_count=132)
    device = FakeDevice(clock, against_the_estimate, gpu)
    measure(planned(SQUARE), device, KERNELS, FOREVER)
    bursts = sum(count > 1 for _, count, _ in device.bursts)
    assert clock.slept == [REST_S] * bursts
    clock.slept.clear()
    measure(planned(SQUARE), FakeDevice(clock, against_the_estimate), KERNELS, FOREVER)
    assert sum(clock.slept) == 0


def test_a_rest_is_six_times_what_ran_since_the_one_before(clock: Clock) -> None:
    gpu = Facts("cuda", "a gpu", 1 << 30, sm_count=132)
    device = FakeDevice(clock, against_the_estimate, gpu, wall_s=1e-4)
    measure(planned(SQUARE), device, KERNELS, FOREVER)
    first, *others = clock.slept
    assert first == REST_S
    assert others == pytest.approx([6 * (tune.BURST + tune.WARMUP) * 1e-4] * len(others))


def test_when_the_time_is_up_the_most_promising_were_tried(clock: Clock) -> None:
    made = planned(SQUARE)
    device = FakeDevice(clock, lambda made: made.estimate_s, wall_s=1.0)
    ranking = measure(made, device, KERNELS, Settings(max_time_s=5.0))
    everyone = candidates(made, KERNELS, 0)
    tried = [trial.plan.choices for trial in ranking.trials]
    assert tried == [made.choices for made in everyone[:3]]  # a warm-up and a sample each
    assert ranking.untried == len(everyone) - 3


@pytest.mark.parametrize("limit_s", [0.0, 1e-9])
def test_one_candidate_is_measured_even_without_time(limit_s: float, clock: Clock) -> None:
    made = planned(SQUARE)
    device = FakeDevice(clock, against_the_estimate)
    ranking = measure(made, device, KERNELS, Settings(max_time_s=limit_s))
    assert [trial.plan.estimate_s for trial in ranking.trials] == [made.estimate_s]


def test_time_that_ends_within_a_round_does_not_drop_those_whose_turn_it_was_not(
    clock: Clock,
) -> None:
    made = planned(SQUARE)
    count = len(candidates(made, KERNELS, 0))
    device = FakeDevice(clock, against_the_estimate, wall_s=1.0)
    ranking = measure(made, device, KERNELS, Settings(max_time_s=2 * count + 1))
    stayed = [trial for trial in ranking.trials if trial.rounds == 2]
    assert len(stayed) == -(-count // 2)
    assert sorted(len(trial.samples) for trial in stayed)[-2:] == [1, 2]
    assert ranking.best.median_s == min(trial.median_s for trial in ranking.trials)


def test_progress_grows_up_to_the_whole(clock: Clock) -> None:
    heard: list[float] = []
    device = FakeDevice(clock, against_the_estimate)
    measure(planned(SQUARE), device, KERNELS, FOREVER, heard.append)
    assert heard == sorted(heard)
    assert heard[0] > 0
    assert heard[-1] == 1


def test_ratios_are_to_the_winner(clock: Clock) -> None:
    device = FakeDevice(clock, against_the_estimate)
    ranking = measure(planned(SQUARE), device, KERNELS, FOREVER)
    assert ranking.ratio(ranking.best) == 1
    last = ranking.trials[-1]
    assert ranking.ratio(last) == last.median_s / ranking.best.median_s > 1


@pytest.mark.parametrize("text", [SQUARE, MIXED], ids=["one launch", "two launches"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limit_s", [3, 30, 1e9])
def test_however_noisy_the_samples_none_has_a_smaller_median_than_the_winner(
    text: str, seed: int, limit_s: float, clock: Clock
) -> None:
    noise = random.Random(seed)
    device = FakeDevice(clock, lambda made: made.estimate_s * noise.lognormvariate(0, 0.5))
    ranking = measure(planned(text), device, KERNELS, Settings(max_time_s=limit_s))
    ratios = [ranking.ratio(trial) or 0 for trial in ranking.trials]
    assert ratios[0] == 1
    assert ratios == sorted(ratios)
    assert len(ratios) > 1


def test_what_takes_no_time_has_no_ratio(clock: Clock) -> None:
    ranking = measure(planned(SQUARE), FakeDevice(clock, lambda made: 0.0), KERNELS, FOREVER)
    assert ranking.ratio(ranking.best) is None


# Several launches


def by_launch(made: Plan) -> float:
    """The first launch is as slow as its choice promises to be fast, the second as promised."""
    first, second = (cost.estimate(launch, made.problem) for launch in made.launches)
    return 1 / first + second * 1e-9


def test_the_best_cut_of_every_launch_is_found_without_trying_all_of_one_with_all_of_another(
    clock: Clock,
) -> None:
    made = planned(MIXED)
    ranking = measure(made, FakeDevice(clock, by_launch), KERNELS, FOREVER)
    apart = [candidates(made, KERNELS, launch) for launch in range(2)]
    first = max(apart[0], key=lambda one: cost.estimate(one.launches[0], one.problem)).choices[0]
    second = min(apart[1], key=lambda one: cost.estimate(one.launches[1], one.problem)).choices[1]
    assert ranking.best.plan.choices == (first, second)
    assert len(ranking.trials) == len(apart[0]) + len(apart[1]) - 1  # the first's best moves on


def test_the_best_cut_of_a_launch_is_kept_while_the_next_is_tried(clock: Clock) -> None:
    made = planned(MIXED)

    def seconds(made: Plan) -> float:
        """Either launch is as slow as its choice promises to be fast."""
        return sum(1 / cost.estimate(launch, made.problem) for launch in made.launches)

    ranking = measure(made, FakeDevice(clock, seconds), KERNELS, FOREVER)
    for launch in range(2):
        slowest = max(
            (one.launches[launch] for one in candidates(made, KERNELS, launch)),
            key=lambda one: cost.estimate(one, made.problem),
        )
        assert ranking.best.plan.choices[launch] == slowest.choice


def test_every_launch_has_its_share_of_the_time(clock: Clock) -> None:
    made = planned(MIXED)
    device = FakeDevice(clock, by_launch, wall_s=1.0)
    ranking = measure(made, device, KERNELS, Settings(max_time_s=16.0))
    changed = [
        {trial.plan.choices[launch] for trial in ranking.trials} - {made.choices[launch]}
        for launch in range(2)
    ]
    assert all(len(others) >= 2 for others in changed)
    assert clock.now <= 16.0 + 2


def test_progress_grows_up_to_the_whole_over_all_launches(clock: Clock) -> None:
    heard: list[float] = []
    measure(planned(MIXED), FakeDevice(clock, by_launch), KERNELS, FOREVER, heard.append)
    assert heard == sorted(heard)
    assert 0.5 in heard
    assert heard[-1] == 1


# The command


QUICK = ("--max-time", "0.1")

# The CPU device says that it is a GPU, for tune to keep what it finds.
LIKE_A_GPU = """
from dataclasses import replace
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuDevice
made = CpuDevice.__init__
def make(self):
    made(self)
    self.facts = replace(self.facts, kind="cuda")
CpuDevice.__init__ = make
main()
"""

AS_ESTIMATED = """
from gemmctl.__main__ import main
from gemmctl.device.base import Sample
from gemmctl.device.cpu import CpuSession
CpuSession.time = lambda self, count, *, cold: [Sample(self._plan.estimate_s)] * count
main()
"""

CHOSEN = {  # not what the cost model chooses
    "one": (Choice("128x256", 144),),
    "two": (Choice("128x256-c2", 160),),
}


@pytest.fixture
def tuned() -> None:
    """The cache holds CHOSEN for the two problems on this CPU."""
    problems = [made.problem for made in make_plans(TWO_PROBLEMS)]
    cache = TuneCache(CpuDevice().facts, cubins.manifest(), pytest.fail)
    for made in plan.make(problems, KERNELS, chosen=CHOSEN):
        assert cache.keep(made, 1e-3)


def rows(text: str) -> list[list[str]]:
    """A plain table's cells, less the titles; every cell is a word."""
    return [line.split() for line in text.splitlines()[1:]]


def test_tune_prints_the_candidates_of_each_problem_ranked_and_where_the_best_is_kept(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    done = gemmctl("tune", two_problems, *QUICK, python=("-c", LIKE_A_GPU))
    assert done.returncode == 0
    titles = done.stdout.splitlines()[0].split()
    assert titles == [
        "problem", "rank", "choice", "tiles", "waves",
        "estimate", "us", "time", "us", "(cold)", "vs", "best",
    ]  # fmt: skip
    table = rows(done.stdout)
    assert list(dict.fromkeys(row[0] for row in table)) == ["one", "two"]
    for name in ("one", "two"):
        own = [row for row in table if row[0] == name]
        assert [row[1] for row in own] == [str(rank) for rank in range(1, len(own) + 1)]
        assert own[0][-1] == "1.000"
    assert f"it is kept in {tmp_path / 'cache' / 'gemmctl' / 'tune'}" in done.stderr


@pytest.mark.parametrize("format", ["json", "jsonl", "csv"])
def test_every_format_has_a_record_for_each_candidate(
    format: str, gemmctl: Command, two_problems: Path
) -> None:
    text = gemmctl("tune", two_problems, *QUICK, "-f", format).stdout
    if format == "json":
        found = json.loads(text)["candidates"]
    elif format == "jsonl":
        found = [json.loads(line) for line in text.splitlines()]
    else:
        found = list(csv.DictReader(io.StringIO(text)))
    assert [one["rank"] for one in found].count(found[0]["rank"]) == 2
    for one in found:
        assert float(one["ratio"]) * float(found[0]["median_s"]) > 0
        assert one["choice"].startswith(tuple(NAMES))


def test_json_keeps_what_the_fit_needs(gemmctl: Command, two_problems: Path) -> None:
    found = json.loads(gemmctl("tune", two_problems, *QUICK, "-f", "json").stdout)
    assert (found["format"], found["command"]) == (FORMAT, "tune")
    data = {"kind": "normal", "seed": 0, "version": 2}
    assert found["settings"] == {"max_time_s": 0.1, "data": data, "all": False}
    assert found["device"]["kind"] == "cpu"
    assert found["cubin_sha256"] == cubins.manifest().sha256
    one = found["candidates"][0]
    assert one["samples_s"]
    assert one["estimate_s"] > 0
    assert set(one["choices"][0]) == {"kernel", "width", "splits", "sms"}


def test_candidates_without_time_are_told(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("tune", two_problems, "--max-time", "0")
    assert [row[:2] for row in rows(done.stdout)] == [["one", "1"], ["two", "1"]]
    assert "one: no time for 29 of 30 candidates; raise --max-time" in done.stderr


def test_what_was_kept_is_measured_first(gemmctl: Command, two_problems: Path, tuned: None) -> None:
    done = gemmctl("tune", two_problems, "--max-time", "0")
    assert [row[2] for row in rows(done.stdout)] == ["cpu:128x256-w144", "cpu:128x256-c2-w160"]


def test_candidates_that_cannot_win_are_told(gemmctl: Command) -> None:
    line = "could not win by the cost model and were left out; --all measures them"
    some = ["tune", "--mnk", "8x8x1024"]
    assert line in gemmctl(*some, python=("-c", AS_ESTIMATED)).stderr
    assert line not in gemmctl(*some, "--all", python=("-c", AS_ESTIMATED)).stderr


def test_run_uses_what_tune_found(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("tune", two_problems, *QUICK, "-f", "json", python=("-c", LIKE_A_GPU))
    tried = json.loads(done.stdout)["candidates"]
    best = [[one["choice"]] for one in tried if one["rank"] == 1]
    found = json.loads(gemmctl("run", two_problems, "-f", "json").stdout)["problems"]
    assert [one["choices"] for one in found] == best
    assert [one["tuned"] for one in found] == [True, True]


@pytest.mark.usefixtures("tuned")
def test_run_says_what_was_tuned(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("run", two_problems)
    assert [row[6] for row in rows(done.stdout)] == ["cpu:tuned:128x256", "cpu:tuned:128x256-c2"]
    assert done.stderr.count("gemmctl: tuned: cut as gemmctl tune found fastest") == 1


@pytest.mark.usefixtures("tuned")
def test_verify_checks_what_run_runs(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("verify", two_problems, "-f", "json")
    assert done.returncode == 0
    for one in json.loads(done.stdout)["checks"]:
        assert one["choices"] == list(map(str, CHOSEN[one["name"]]))
        assert one["tuned"]


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", ("--no-tune-cache",)),
        ("run", ("--kernel", "64x128")),
        ("run", ("--launch", "serial")),
        ("verify", ("--no-tune-cache",)),
        ("verify", ("--kernel", "64x128")),
    ],
)
def test_what_tune_found_can_be_ignored(
    command: str, options: tuple[str, ...], gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl(command, two_problems, *options)
    assert done.returncode == 0
    assert "tuned" not in done.stdout + done.stderr


@pytest.mark.usefixtures("tuned")
def test_plan_shows_what_the_cost_model_chooses(gemmctl: Command, two_problems: Path) -> None:
    found = json.loads(gemmctl("plan", two_problems, "-f", "json").stdout)["problems"]
    assert [one["choices"] for one in found] == [
        list(map(str, made.choices)) for made in make_plans(TWO_PROBLEMS)
    ]


@pytest.mark.usefixtures("tuned")
def test_only_problems_of_the_same_groups_are_tuned(gemmctl: Command) -> None:
    renamed = TWO_PROBLEMS.replace("one", "uno").replace("m: 17", "m: 18")
    done = gemmctl("run", "-", stdin=renamed)
    assert [row[6].partition(":")[2].startswith("tuned:") for row in rows(done.stdout)] == [
        True,
        False,
    ]


@pytest.mark.usefixtures("tuned")
def test_a_damaged_cache_is_one_note_and_run_goes_on(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    files = list(tmp_path.glob("cache/gemmctl/tune/*.json"))
    assert len(files) == 2
    files[0].write_text(files[0].read_text()[:-20])
    done = gemmctl("run", two_problems)
    assert done.returncode == 0
    assert done.stdout.count("cpu:tuned:") == 1
    assert done.stderr.count(f"ignored {files[0]}") == 1


def test_a_cache_that_cannot_be_written_is_one_note_and_the_ranking_is_printed(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    done = gemmctl("tune", two_problems, *QUICK, python=("-c", LIKE_A_GPU))
    assert done.returncode == 0
    assert {row[0] for row in rows(done.stdout)} == {"one", "two"}
    assert done.stderr.count("cannot keep what was found") == 1
    assert "it is kept in" not in done.stderr
    assert gemmctl("run", two_problems).returncode == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [("run", "128x256"), ("verify", "128x192-c2px"), *(("plan", name) for name in ALL_NAMES)],
)
def test_a_kernel_can_be_forced_by_name(command: str, name: str, gemmctl: Command) -> None:
    text = SQUARE if name in OF_SQUARE else SQUARE.replace("k: 512", "k: 512, a_layout: col")
    done = gemmctl(command, "-", "--kernel", name, "-f", "json", stdin=text)
    found = json.loads(done.stdout)["checks" if command == "verify" else "problems"]
    assert done.returncode == 0
    for one in found:
        assert {choice.split()[0] for choice in one["choices"]} == {name}


def test_an_unknown_kernel_is_refused_with_those_there_are(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("plan", two_problems, "--kernel", "128x265")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gemmctl: there is no kernel '128x265' (did you mean 128x256?); "
        f"there are {', '.join(ALL_NAMES)}\n"
    )
