"""The sustained pace: which blocks count, and what clock, power and energy they tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gemmctl.device.base import Facts, Sample, Setup, Telemetry
from gemmctl.errors import DeviceFailed
from gemmctl.measuring import bench, blocks, rest, sustained
from gemmctl.measuring.bench import Entry, Result, Rival, Settings
from gemmctl.measuring.blocks import BLOCK_S, READ_S, Block, Meter, Sustained
from gemmctl.measuring.rest import REST_S
from gemmctl.measuring.sustained import LEAD_S, MIN_BLOCKS, measure
from gemmctl.planning.plan import Plan
from support import Clock, Command, make_plans

STEP_S = 0.01  # of the clock, in which a GPU runs one sample
BLOCKS_ONLY = Settings(warmup=0, runs=1000, max_time_s=1e9, max_noise=0)


@dataclass
class Board:
    """A GPU whose counter adds up what runs on it use, and shows that now and then."""

    clock: Clock
    facts: Facts = field(default_factory=lambda: Facts("cuda", "a gpu", 1 << 30))
    counts: bool = True
    has_clock: bool = True
    shown_every_s: float = 0.1
    sm_hz: float = 1.98e9
    used_j: float = 0.0
    shown: tuple[int, float] = (-1, 0.0)  # the number of the interval, and the joules in it
    turns: list[str] = field(default_factory=list)  # who ran, in order

    def telemetry(self) -> Telemetry | None:
        return Telemetry(self.sm_hz, 700.0, ("power cap",)) if self.has_clock else None

    def energy_j(self) -> float | None:
        interval = int(self.clock.now / self.shown_every_s + 1e-6)
        if interval != self.shown[0]:
            self.shown = interval, self.used_j
        return self.shown[1] if self.counts else None


@dataclass
class Runs:
    """What runs on the board: bursts of ``burst_s``, and blocks of the next time, clock, power."""

    board: Board
    name: str = "ours"
    burst_s: float = 1e-3
    seconds: Callable[[], float] = lambda: 2e-3
    clocks: Iterator[float] = field(default_factory=lambda: repeat(1.4e9))
    power_w: float = 700.0
    host_bound: bool = False
    digest: int = 7
    setup: Setup = field(default_factory=lambda: Setup(1e-3, None))
    counted: Iterator[bool] = field(default_factory=lambda: cycle((False, True)))

    def time(self, count: int, *, cold: bool) -> list[Sample]:
        self.board.turns.append("cold" if cold else "warm")
        self.board.clock.now += count * self.burst_s
        return [Sample(self.burst_s)] * count

    def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
        counted = next(self.counted)
        self.board.turns.append(self.name if counted else f"before {self.name}")
        assert seconds == (BLOCK_S if counted else LEAD_S)
        if counted:
            self.board.sm_hz = next(self.clocks)
            run_s = self.seconds()
        samples = []
        for _ in range(round(seconds / STEP_S)):
            self.board.clock.now += STEP_S
            self.board.used_j += STEP_S * (self.power_w if counted else 100.0)
            samples.append(Sample(run_s if counted else 9.0, self.host_bound))
            watch()
        return samples

    def run(self) -> None:
        """One that nobody times."""

    def digests(self) -> npt.NDArray[np.uint64]:
        return np.array([self.digest], np.uint64)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    clock = Clock()
    for module in (bench, blocks, sustained):
        monkeypatch.setattr(module, "monotonic", clock.monotonic)
    monkeypatch.setattr(rest, "sleep", clock.sleep)
    return Board(clock)


@pytest.fixture(scope="module")
def plan() -> Plan:
    (made,) = make_plans("{gemmctl: 1, problems: [{name: p, groups: [{m: 128, n: 64, k: 32}]}]}")
    return made


def result_of(
    ours: Runs, plan: Plan, *others: Runs, settings: Settings | None = None, **changes: float
) -> Result:
    """At the sustained pace, by default with eight blocks."""
    settings = settings or replace(BLOCKS_ONLY, **{"runs": 8, **changes})  # type: ignore[arg-type]
    entries = [Entry(Rival(other.name), other) for other in others]
    return measure(ours, ours.board, plan, settings, entries=entries)  # type: ignore[arg-type]


def clocks_of(found: Result) -> list[float | None]:
    assert found.sustained is not None
    return [block.sm_hz for block in found.sustained.blocks]


# What a sample is


def test_a_sample_is_the_mean_of_a_block_and_the_bursts_are_kept_beside(
    board: Board, plan: Plan
) -> None:
    times = iter([5e-3, *np.linspace(2e-3, 3e-3, 8)])
    found = result_of(Runs(board, seconds=lambda: next(times)), plan)
    assert found.samples == pytest.approx(np.linspace(2e-3, 3e-3, 8))
    assert found.median_s == pytest.approx(2.5e-3)
    assert found.sustained is not None
    assert set(found.sustained.burst) == {1e-3}
    assert found.sustained.burst_median_s == 1e-3


def test_a_run_in_a_block_takes_the_mean_of_its_samples(board: Board, plan: Plan) -> None:
    class Uneven(Runs):
        def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
            taken = super().sustain(seconds, watch)
            slow = len(taken) // 4
            return [Sample(1e-3, True)] * (len(taken) - slow) + [Sample(5e-3, False)] * slow

    found = result_of(Uneven(board), plan)
    assert found.samples == pytest.approx([2e-3] * 8)
    assert found.host_bound == pytest.approx(0.75)  # and not that of the bursts


def test_what_is_told_of_all_blocks_and_bursts_is_the_middle() -> None:
    some = [Block(1e-3, hz, watts) for hz, watts in ((1.4e9, 700), (1.5e9, 600), (9e9, 0))]
    told = Sustained(tuple(some), True, (1e-3, 2e-3, 9e-3))
    assert (told.sm_hz, told.power_w, told.burst_median_s) == (1.5e9, 600, 2e-3)
    assert told.energy_j == pytest.approx(0.6)


def test_every_block_has_a_while_of_the_same_before_it_and_bursts_come_first(
    board: Board, plan: Plan
) -> None:
    result_of(Runs(board), plan)
    assert LEAD_S > 0
    bursts = board.turns.count("cold")
    assert board.turns == ["cold"] * bursts + ["before ours", "ours"] * 9


def test_nothing_rests_between_blocks(board: Board, plan: Plan) -> None:
    found = result_of(Runs(board), plan)
    bursts = board.turns.count("cold")
    assert len(board.clock.slept) == bursts
    assert found.sustained is not None
    run_s = len(found.sustained.burst) * 1e-3 + 9 * (LEAD_S + BLOCK_S)
    assert board.clock.now == pytest.approx(sum(board.clock.slept) + run_s)


def test_bursts_have_the_cache_state_asked_for_and_a_tenth_of_the_time(
    board: Board, plan: Plan
) -> None:
    settings = replace(BLOCKS_ONLY, cache="warm", max_time_s=30.0, runs=10**6)
    found = result_of(Runs(board), plan, settings=settings)
    assert "cold" not in board.turns
    assert found.sustained is not None
    rests = sum(board.clock.slept)
    assert rests + len(found.sustained.burst) * 1e-3 == pytest.approx(3.0, abs=REST_S + 0.1)


def test_contestants_take_turns_block_by_block(board: Board, plan: Plan) -> None:
    result_of(Runs(board), plan, Runs(board, "b0"), Runs(board, "b1"))
    blocks_only = [turn for turn in board.turns if turn in ("ours", "b0", "b1")]
    assert blocks_only == ["ours", "b0", "b1"] * 9


def test_baselines_have_samples_clock_and_energy_of_their_own(board: Board, plan: Plan) -> None:
    other = Runs(board, "b0", 3e-3, lambda: 4e-3, repeat(1.3e9), 650.0, host_bound=True)
    found = result_of(Runs(board), plan, other)
    (rival,) = found.rivals
    assert rival.samples == pytest.approx([4e-3] * 8)
    assert (rival.host_bound, found.host_bound) == (1.0, 0.0)
    assert rival.sustained is not None and found.sustained is not None
    assert rival.sustained.burst_median_s == 3e-3
    assert (rival.sustained.sm_hz, found.sustained.sm_hz) == pytest.approx((1.3e9, 1.4e9))
    assert (rival.sustained.energy_j, found.sustained.energy_j) == pytest.approx((2.6, 1.4))


def test_a_baseline_that_cannot_run_keeps_its_reason(board: Board, plan: Plan) -> None:
    missing = Rival("torch", "n/a", "torch is not installed")
    settings = replace(BLOCKS_ONLY, runs=2)
    found = measure(Runs(board), board, plan, settings, entries=[Entry(missing)])  # type: ignore[arg-type]
    assert found.rivals == (missing,)


# From when on blocks count


def falling(*clocks: float, then: float) -> Iterator[float]:
    return chain(clocks, repeat(then))


def test_blocks_count_from_when_the_clock_stays_within_two_percent(
    board: Board, plan: Plan
) -> None:
    clocks = falling(1.9e9, 1.6e9, 1.47e9, 1.43e9, 1.41e9, then=1.39e9)
    found = result_of(Runs(board, clocks=clocks), plan)
    assert clocks_of(found) == pytest.approx([1.41e9, *[1.39e9] * 7])
    assert found.sustained is not None and found.sustained.settled is True
    assert len(found.telemetry) == 8 and found.telemetry[0].sm_hz == 1.41e9


def test_they_count_once_the_clock_of_everyone_has_settled(board: Board, plan: Plan) -> None:
    ours = Runs(board, clocks=falling(1.9e9, 1.5e9, 1.5e9, 1.5e9, then=1.49e9))
    late = Runs(board, "b0", clocks=falling(1.9e9, 1.7e9, 1.5e9, 1.4e9, then=1.4e9))
    found = result_of(ours, plan, late)
    assert clocks_of(found) == pytest.approx([1.49e9] * 8)
    assert len(found.rivals[0].samples) == 8


def test_a_clock_that_does_not_settle_is_told_and_blocks_count_from_half_of_the_time(
    board: Board, plan: Plan
) -> None:
    clocks = (1.9e9 * 0.97**i for i in range(10**6))
    settings = replace(BLOCKS_ONLY, max_time_s=30.0)
    found = result_of(Runs(board, clocks=clocks), plan, settings=settings)
    assert found.sustained is not None and found.sustained.settled is False
    turn_s = LEAD_S + BLOCK_S
    assert 15 - 2 * turn_s <= len(found.samples) * turn_s <= 15 + 2 * turn_s
    assert board.clock.now <= 30


def test_a_clock_that_moves_once_blocks_count_has_settled_all_the_same(
    board: Board, plan: Plan
) -> None:
    clocks = falling(1.9e9, 1.4e9, 1.4e9, 1.4e9, then=1.3e9)
    found = result_of(Runs(board, clocks=clocks), plan, runs=3)
    assert clocks_of(found) == pytest.approx([1.4e9, 1.4e9, 1.3e9])
    assert found.sustained is not None and found.sustained.settled is True


def test_without_a_clock_every_block_counts(board: Board, plan: Plan) -> None:
    board.has_clock = False
    found = result_of(Runs(board), plan)
    assert board.turns.count("ours") == len(found.samples) == 8
    assert found.sustained is not None
    assert (found.sustained.settled, found.sustained.sm_hz, found.telemetry) == (None, None, ())


# When it is enough


def test_six_blocks_are_enough_if_they_are_steady(board: Board, plan: Plan) -> None:
    found = result_of(Runs(board), plan, runs=50, max_noise=0.005)
    assert len(found.samples) == MIN_BLOCKS == 6


def test_it_goes_on_while_one_of_them_is_not_steady(board: Board, plan: Plan) -> None:
    times = chain([2e-3, 3e-3] * 5, repeat(2.5e-3))
    noisy = Runs(board, "b0", seconds=lambda: next(times))
    found = result_of(Runs(board), plan, noisy, runs=50, max_noise=0.005)
    assert 10 < len(found.samples) == len(found.rivals[0].samples) < 50


@pytest.mark.parametrize(("limit_s", "samples"), [(0.0, 1), (8.1, 3), (20.1, 8)])
def test_it_ends_when_the_time_is_up_after_a_block_at_least(
    limit_s: float, samples: int, board: Board, plan: Plan
) -> None:
    board.facts = replace(board.facts, kind="cpu")  # which takes no rests
    settings = replace(BLOCKS_ONLY, max_time_s=limit_s, runs=10**6)
    ours = Runs(board, burst_s=0.1)  # so that the bursts end on time
    found = result_of(ours, plan, settings=settings)
    assert len(found.samples) == samples
    assert board.clock.now <= max(limit_s, LEAD_S + BLOCK_S + 2 * ours.burst_s)


def test_the_time_allowed_is_for_each_of_them(board: Board, plan: Plan) -> None:
    board.facts = replace(board.facts, kind="cpu")
    settings = replace(BLOCKS_ONLY, max_time_s=20.1, runs=10**6)
    ours, other = (Runs(board, name, burst_s=0.1) for name in ("ours", "b0"))
    found = result_of(ours, plan, other, settings=settings)
    assert (len(found.samples), len(found.rivals[0].samples)) == (8, 8)


def test_progress_grows_up_to_the_whole(board: Board, plan: Plan) -> None:
    heard: list[float] = []
    settings = replace(BLOCKS_ONLY, runs=8)
    measure(Runs(board), board, plan, settings, heard.append)  # type: ignore[arg-type]
    assert heard == sorted(heard) and heard[-1] == 1.0


# Energy


def test_joules_of_a_run_are_the_counters_watts_in_a_block_times_its_seconds(
    board: Board, plan: Plan
) -> None:
    found = result_of(Runs(board, power_w=650.0), plan).sustained
    assert found is not None
    for block in found.blocks:
        assert block.power_w == pytest.approx(650.0)  # not the 100 W before it
        assert block.energy_j == pytest.approx(650.0 * 2e-3)
    assert (found.power_w, found.energy_j) == pytest.approx((650.0, 1.3))


def test_without_an_energy_counter_there_are_no_watts_and_no_joules(
    board: Board, plan: Plan
) -> None:
    board.counts = False
    found = result_of(Runs(board), plan).sustained
    assert found is not None
    assert (found.power_w, found.energy_j) == (None, None)
    assert found.sm_hz == pytest.approx(1.4e9)


@pytest.mark.parametrize(("every_s", "known"), [(0.02, True), (0.25, True), (1.4, False)])
def test_a_counter_that_changes_too_seldom_for_a_block_tells_nothing(
    every_s: float, known: bool, board: Board, plan: Plan
) -> None:
    board.shown_every_s = every_s
    found = result_of(Runs(board), plan).sustained
    assert found is not None
    assert [block.power_w is not None for block in found.blocks] == [known] * 8


def test_power_over_less_than_half_a_second_is_not_told(board: Board) -> None:
    meter = Meter(board)  # type: ignore[arg-type]
    for watts in (None, 500.0):
        for _ in range(50):
            board.clock.now += STEP_S
            board.used_j += 500.0 * STEP_S
            meter.read()
        assert meter.power_w == (watts and pytest.approx(watts))


def test_the_clock_is_read_now_and_then_and_not_whenever_a_run_ends(board: Board) -> None:
    meter = Meter(board)  # type: ignore[arg-type]
    for _ in range(1000):
        board.clock.now += READ_S / 10
        meter.read()
    assert 80 <= len(meter.readings) <= 101


def test_the_clock_of_a_block_is_the_mean_of_what_was_read(board: Board) -> None:
    meter = Meter(board)  # type: ignore[arg-type]
    for sm_hz in (1.2e9, 1.3e9, 1.7e9):
        board.sm_hz = sm_hz
        board.clock.now += 2 * READ_S
        meter.read()
    assert meter.sm_hz == pytest.approx(1.4e9)


# D


def test_a_d_that_changes_is_a_failure(board: Board, plan: Plan) -> None:
    class Changing(Runs):
        def digests(self) -> npt.NDArray[np.uint64]:
            return np.array([self.board.turns.count("ours") > 2], np.uint64)

    with pytest.raises(DeviceFailed, match="the same run gave other bits in group 0 of p"):
        result_of(Changing(board), plan)
    assert board.turns.count("ours") == 3  # it is looked at after every block


def test_a_failure_is_passed_on(board: Board, plan: Plan) -> None:
    class Failing(Runs):
        def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
            raise DeviceFailed("the kernel failed")

    with pytest.raises(DeviceFailed, match="the kernel failed"):
        result_of(Failing(board), plan)


# The command

SHORT = """
from gemmctl.__main__ import main
from gemmctl.measuring import sustained
sustained.BLOCK_S, sustained.LEAD_S = 0.03, 0.01
main()
"""
PACED = ("--pace", "sustained", "--max-noise", "0", "--max-time", "2", "--runs", "3")


def test_the_command_runs_at_the_sustained_pace_on_a_cpu_too(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, *PACED, "-v", python=("-c", SHORT))
    assert done.returncode == 0, done.stderr
    header, *found = done.stdout.splitlines()
    assert "time us (sustained)" in header and "burst us" in header
    assert "MHz" not in header and "J/run" not in header
    assert [line.split()[0] for line in found] == ["one", "two"]


def test_the_command_keeps_blocks_and_bursts_and_reads_them_back(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    first = ("run", two_problems, *PACED, "-q", "-o", "x.json", "--only", "one")
    assert gemmctl(*first, python=("-c", SHORT)).returncode == 0
    (one,) = json.loads((tmp_path / "x.json").read_text())["problems"]
    assert [block["seconds"] for block in one["sustained"]["blocks"]] == one["samples_s"]
    assert len(one["samples_s"]) == len(one["sustained"]["burst_samples_s"]) == 3
    assert (one["sustained"]["settled"], one["sustained"]["energy_j"]) == (None, None)
    again = ("run", two_problems, *PACED, "-f", "json", "-o", "x.json", "--resume")
    done = gemmctl(*again, python=("-c", SHORT))
    assert "1 of 2 problems are in x.json already" in done.stderr
    read = json.loads(done.stdout)["problems"][0]
    assert (read["sustained"], read["samples_s"]) == (one["sustained"], one["samples_s"])


def test_runs_at_different_paces_do_not_compare(gemmctl: Command, two_problems: Path) -> None:
    for pace in ("burst", "sustained"):
        options = ("--pace", pace, "--max-time", "0.1", "-q", "-o", f"{pace}.json")
        assert gemmctl("run", two_problems, *options, python=("-c", SHORT)).returncode == 0
    done = gemmctl("compare", "burst.json", "sustained.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "differ in pace (burst and sustained)" in done.stderr


@pytest.mark.parametrize(("pace", "seconds"), [("burst", 3.0), ("sustained", 30.0)])
def test_the_time_for_a_problem_depends_on_the_pace(
    pace: str, seconds: float, gemmctl: Command
) -> None:
    options = ("--mnk", "8x8x8", "--runs", "1", "--pace", pace, "-f", "json")
    done = gemmctl("run", *options, python=("-c", SHORT))
    assert json.loads(done.stdout)["settings"]["max_time_s"] == seconds
