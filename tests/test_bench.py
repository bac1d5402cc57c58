from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pytest

from gemmctl.device.base import Facts, Sample, Setup, Telemetry
from gemmctl.device.roofline import Roofline
from gemmctl.errors import DeviceFailed
from gemmctl.measuring import bench, rest
from gemmctl.measuring.bench import Entry, Result, Rival, Settings, measure
from gemmctl.measuring.rest import REST_S
from gemmctl.planning.plan import Plan
from support import Clock, make_plans

ALL_RUNS = Settings(warmup=0, runs=40, max_time_s=1e9, max_noise=0)


@dataclass
class FakeSession:
    """Runs that take ``wall_s`` of the clock and report the next of ``times``, over and over."""

    clock: Clock
    times: list[float]
    wall_s: float
    setup: Setup = field(default_factory=lambda: Setup(1e-3, 5e-5))
    batches: list[tuple[int, bool]] = field(default_factory=list)
    taken: int = 0
    name: str = "ours"
    turns: list[str] = field(default_factory=list)  # shared by those that take turns
    host_bound: tuple[bool, ...] = (False,)  # over and over
    digest: tuple[int, ...] = (7,)  # of the only group's D, one call after the other, over and over
    asked: int = 0
    events: list[str] = field(default_factory=list)  # turns and digests, in order

    def run(self) -> None:
        self.events.append("run")

    def digests(self) -> npt.NDArray[np.uint64]:
        self.asked += 1
        self.events.append("digests")
        return np.array([self.digest[(self.asked - 1) % len(self.digest)]], np.uint64)

    def time(self, count: int, *, cold: bool) -> list[Sample]:
        self.batches.append((count, cold))
        self.turns.append(self.name)
        self.events.append(self.name)
        self.clock.now += count * self.wall_s
        self.taken += count
        indices = range(self.taken - count, self.taken)
        return [
            Sample(self.times[i % len(self.times)], self.host_bound[i % len(self.host_bound)])
            for i in indices
        ]


@dataclass
class FakeDevice:
    facts: Facts
    reading: Telemetry | None = None

    def telemetry(self) -> Telemetry | None:
        return self.reading


CPU = FakeDevice(Facts("cpu", "a cpu", 1 << 30))
GPU = FakeDevice(
    Facts("cuda", "a gpu", 1 << 30, "580", 132, Roofline("a roof", 1e12, 1e9)),
    Telemetry(1.5e9, 400.0, ("power cap",)),
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bench, "monotonic", clock.monotonic)
    monkeypatch.setattr(rest, "sleep", clock.sleep)
    return clock


@pytest.fixture(scope="module")
def plan() -> Plan:
    (made,) = make_plans("{gemmctl: 1, problems: [{name: p, groups: [{m: 128, n: 64, k: 32}]}]}")
    return made


def test_takes_as_many_samples_as_asked_when_nothing_stops_it(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0, 2.0, 3.0], wall_s=0.01)
    assert len(measure(session, CPU, plan, ALL_RUNS).samples) == 40


def test_stops_when_the_samples_are_steady(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0], wall_s=0.05)
    settings = replace(ALL_RUNS, max_noise=0.01)
    assert len(measure(session, CPU, plan, settings).samples) == bench.MIN_SAMPLES


def test_goes_on_while_the_spread_is_above_the_noise_allowed(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0, 1.1], wall_s=0.05)
    settings = replace(ALL_RUNS, max_noise=0.01)
    assert len(measure(session, CPU, plan, settings).samples) == 40


def test_stops_when_the_time_is_up(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0, 2.0], wall_s=1.0)
    settings = replace(ALL_RUNS, max_time_s=5.0)
    assert len(measure(session, CPU, plan, settings).samples) == 5


def test_takes_one_sample_even_if_that_takes_too_long(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [99.0], wall_s=99.0)
    settings = replace(ALL_RUNS, warmup=3, max_time_s=1.0)
    assert measure(session, CPU, plan, settings).samples == (99.0,)


def test_a_run_so_long_that_there_is_no_time_for_another_is_not_run_again(
    clock: Clock, plan: Plan
) -> None:
    session = FakeSession(clock, [99.0], wall_s=99.0)
    measure(session, CPU, plan, replace(ALL_RUNS, warmup=3, max_time_s=1.0))
    assert session.taken == 1


def test_a_short_run_is_warmed_up_though_there_is_no_time_for_two(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [9.0, 1.0, 1.0], wall_s=0.6)
    settings = replace(ALL_RUNS, warmup=3, max_time_s=1.0)
    assert measure(session, CPU, plan, settings).samples == (1.0,)


def test_warm_up_runs_are_no_samples(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [9.0, 9.0, 1.0, 1.0, 1.0], wall_s=0.01)
    settings = replace(ALL_RUNS, warmup=2, runs=3)
    assert measure(session, CPU, plan, settings).samples == (1.0, 1.0, 1.0)


def test_warm_up_ends_early_where_it_would_use_up_the_time(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0], wall_s=2.0)
    settings = replace(ALL_RUNS, warmup=100, max_time_s=10.0)
    samples = measure(session, CPU, plan, settings).samples
    assert session.taken - len(samples) == 2


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_every_run_has_the_cache_state_asked_for(clock: Clock, plan: Plan, cache: str) -> None:
    session = FakeSession(clock, [1.0], wall_s=0.01)
    measure(session, CPU, plan, replace(ALL_RUNS, warmup=2, cache=cache))  # type: ignore[arg-type]
    assert {cold for _, cold in session.batches} == {cache == "cold"}


def test_a_batch_is_about_fifty_milliseconds_of_runs(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0, 2.0], wall_s=0.0049)
    measure(session, CPU, plan, replace(ALL_RUNS, warmup=1))
    assert [count for count, _ in session.batches] == [1, 10, 10, 10, 10]


def test_a_gpu_rests_before_every_batch_and_a_cpu_does_not(clock: Clock, plan: Plan) -> None:
    settings = replace(ALL_RUNS, warmup=1)
    measure(FakeSession(clock, [1.0], wall_s=0.06), GPU, plan, settings)
    assert clock.slept == [REST_S] * 40
    clock.slept.clear()
    measure(FakeSession(clock, [1.0], wall_s=0.0049), CPU, plan, settings)
    assert sum(clock.slept) == 0


def test_clocks_are_read_after_every_batch(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0], wall_s=0.0049)
    result = measure(session, GPU, plan, replace(ALL_RUNS, warmup=1))
    assert result.telemetry == (GPU.reading,) * 4


def test_progress_grows_up_to_the_whole(clock: Clock, plan: Plan) -> None:
    heard: list[float] = []
    session = FakeSession(clock, [1.0, 2.0], wall_s=0.0049)
    measure(session, CPU, plan, replace(ALL_RUNS, warmup=1), heard.append)
    assert heard == [0.25, 0.5, 0.75, 1.0]


def test_the_bound_comes_from_the_devices_roofline(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1e-3], wall_s=0.01)
    result = measure(session, GPU, plan, ALL_RUNS)
    assert result.bound_s == max(2 * 128 * 64 * 32 / 1e12, plan.bytes / 1e9)
    assert result.bound_fraction == result.bound_s / 1e-3


def test_a_device_without_a_roofline_gives_no_bound(clock: Clock, plan: Plan) -> None:
    result = measure(FakeSession(clock, [1.0], wall_s=0.01), CPU, plan, ALL_RUNS)
    assert result.bound_s is None
    assert result.bound_fraction is None


def test_a_percentile_is_the_time_that_such_a_share_of_the_samples_stay_below(plan: Plan) -> None:
    result = Result(plan, Setup(0, None), tuple(range(101)), (), None)
    assert (result.percentile_s(5), result.percentile_s(95)) == (5.0, 95.0)


def test_rates_are_useful_work_over_the_median(plan: Plan) -> None:
    result = Result(plan, Setup(0, None), (1.0, 2.0, 50.0), (), None)
    assert result.flop_per_s == 2 * 128 * 64 * 32 / 2.0
    assert result.bytes_per_s == plan.bytes / 2.0


def test_a_run_that_takes_no_time_has_no_rate(plan: Plan) -> None:
    result = Result(plan, Setup(0, None), (0.0,), (), 1.0)
    assert (result.flop_per_s, result.bytes_per_s, result.bound_fraction) == (None, None, None)


def test_spread_is_half_the_middle_half_over_the_median() -> None:
    # The middle half of these reaches from 10 to 12; the outlier does not widen it.
    assert bench.spread(np.array([9.0, 10.0, 11.0, 12.0, 1000.0])) == pytest.approx(1 / 11)
    assert bench.spread(np.array([5.0, 5.0])) == 0
    assert bench.spread(np.array([0.0, 0.0])) == 0


def test_a_single_sample_has_no_spread(plan: Plan) -> None:
    assert Result(plan, Setup(0, None), (1.0,), (), None).spread is None


def test_a_time_that_jumps_between_two_modes_is_not_steady() -> None:
    # Their median absolute deviation is 0.
    assert bench.spread(np.array([1.0] * 6 + [1.1] * 5)) == pytest.approx(0.05)


# Baselines


def contest(
    clock: Clock, *others: FakeSession, ours: FakeSession | None = None
) -> tuple[FakeSession, list[Entry]]:
    """A session and its rivals, which write down their turns in one place."""
    session = ours or FakeSession(clock, [1.0, 2.0], wall_s=0.0049)
    entries = []
    for i, other in enumerate(others):
        other.name, other.turns = f"b{i}", session.turns
        entries.append(Entry(Rival(other.name), other))
    return session, entries


def test_baselines_take_turns_with_the_session(clock: Clock, plan: Plan) -> None:
    others = [FakeSession(clock, [3.0, 4.0], wall_s=0.0049) for _ in range(2)]
    session, entries = contest(clock, *others)
    measure(session, GPU, plan, ALL_RUNS, entries=entries)
    assert session.turns == ["ours", "b0", "b1"] * 5


def test_a_rest_is_six_times_the_batch_before_it_whose_ever_that_was(
    clock: Clock, plan: Plan
) -> None:
    ours = FakeSession(clock, [1.0, 2.0], wall_s=1e-4)
    session, entries = contest(clock, FakeSession(clock, [3.0, 4.0], wall_s=4e-4), ours=ours)
    measure(session, GPU, plan, replace(ALL_RUNS, warmup=1, runs=30), entries=entries)
    assert clock.slept == pytest.approx([REST_S, 6e-3, 24e-3, 6e-3, 24e-3, 6e-3])


def test_long_batches_are_followed_by_the_longest_rest(clock: Clock, plan: Plan) -> None:
    session, entries = contest(clock, FakeSession(clock, [3.0, 4.0], wall_s=0.1))
    measure(session, GPU, plan, replace(ALL_RUNS, runs=4), entries=entries)
    assert clock.slept[2::2] == [REST_S] * (len(clock.slept[2::2]))
    assert len(clock.slept) > 4


def test_a_slow_baseline_has_small_batches_of_its_own(clock: Clock, plan: Plan) -> None:
    slow = FakeSession(clock, [3.0, 4.0], wall_s=0.02)
    session, entries = contest(clock, slow)
    measure(session, GPU, plan, replace(ALL_RUNS, warmup=1), entries=entries)
    assert {count for count, _ in slow.batches[1:]} == {2}
    assert session.batches[1:] == [(10, True)] * 4


def test_everyone_is_sampled_until_the_last_is_steady(clock: Clock, plan: Plan) -> None:
    session, entries = contest(
        clock,
        FakeSession(clock, [5.0, 1.0] * 10 + [3.0] * 1000, wall_s=0.05),
        ours=FakeSession(clock, [1.0], wall_s=0.05),
    )
    settings = replace(ALL_RUNS, runs=1000, max_noise=0.01)
    result = measure(session, GPU, plan, settings, entries=entries)
    (rival,) = result.rivals
    assert 20 < len(rival.samples) == len(result.samples) < 1000


def test_the_time_allowed_is_for_each_of_them(clock: Clock, plan: Plan) -> None:
    session, entries = contest(
        clock,
        FakeSession(clock, [1.0, 2.0], wall_s=1.0),
        ours=FakeSession(clock, [1.0, 2.0], wall_s=1.0),
    )
    result = measure(session, CPU, plan, replace(ALL_RUNS, max_time_s=5.0), entries=entries)
    assert (len(result.samples), len(result.rivals[0].samples)) == (5, 5)


def test_baselines_are_warmed_up_and_that_is_no_sample(clock: Clock, plan: Plan) -> None:
    session, entries = contest(clock, FakeSession(clock, [9.0, 9.0, 3.0, 3.0], wall_s=0.01))
    settings = replace(ALL_RUNS, warmup=2, runs=2)
    (rival,) = measure(session, CPU, plan, settings, entries=entries).rivals
    assert rival.samples == (3.0, 3.0)


def test_a_baseline_that_cannot_run_keeps_its_reason_and_its_place(
    clock: Clock, plan: Plan
) -> None:
    session, entries = contest(clock, FakeSession(clock, [3.0], wall_s=0.01))
    missing = Rival("torch", "n/a", "torch is not installed")
    found = measure(session, CPU, plan, ALL_RUNS, entries=[Entry(missing), *entries]).rivals
    assert found[0] == missing
    assert (found[1].name, found[1].median_s) == ("b0", 3.0)


def result_of(plan: Plan, ours: tuple[float, ...], *rivals: Rival) -> Result:
    return Result(plan, Setup(0, None), ours, (), None, rivals)


def test_ratios_are_our_median_over_theirs(plan: Plan) -> None:
    slower, faster = Rival("a", samples=(3.0, 4.0, 9.0)), Rival("b", samples=(1.0,))
    result = result_of(plan, (2.0,), slower, faster, Rival("c", "wrong", "because"))
    ratios = {name: found and found.value for name, found in result.ratios.items()}
    assert ratios == {"a": 0.5, "b": 2.0, "c": None}


def test_the_best_baseline_is_the_one_with_the_smallest_median(plan: Plan) -> None:
    often_fast = Rival("a", samples=(0.1, 3.0, 3.0))
    faster = Rival("b", samples=(1.0, 1.0, 1.0))
    result = result_of(plan, (2.0,), often_fast, faster, Rival("c", "n/a", "because"))
    assert result.best is faster
    assert result.best_ratio is not None and result.best_ratio.value == 2.0


def test_one_slow_sample_does_not_cost_a_baseline_its_place(plan: Plan) -> None:
    often_fast = Rival("a", samples=(1.0, 1.0, 90.0))
    result = result_of(plan, (2.0,), often_fast, Rival("b", samples=(2.0, 2.0, 2.0)))
    assert often_fast.median_s == 1.0
    assert result.best is often_fast


def test_a_baseline_that_took_no_time_is_not_the_best(plan: Plan) -> None:
    result = result_of(plan, (2.0,), Rival("a", samples=(0.0,)), Rival("b", samples=(1.0,)))
    assert result.best is not None and result.best.name == "b"


def test_without_a_baseline_that_was_timed_there_is_no_ratio(plan: Plan) -> None:
    result = result_of(plan, (2.0,), Rival("c", "n/a", "because"))
    assert (result.best, result.best_ratio) == (None, None)


@pytest.mark.parametrize(
    ("faster", "verdict"), [(0.9, "FASTER"), (0.996, "SAME"), (1.004, "SAME"), (1.1, "SLOWER")]
)
def test_a_ratio_has_a_verdict_of_its_own(plan: Plan, faster: float, verdict: str) -> None:
    steady = np.linspace(0.998, 1.002, 21)
    result = result_of(plan, tuple(steady * faster), Rival("a", samples=tuple(steady)))
    found = result.best_ratio
    assert found is not None and found.interval is not None
    assert found.interval[0] < faster < found.interval[1]
    assert found.verdict == verdict


def test_clocks_are_read_after_our_batches_and_not_after_a_baselines(
    clock: Clock, plan: Plan
) -> None:
    session, entries = contest(clock, FakeSession(clock, [3.0, 4.0], wall_s=0.0049))
    result = measure(session, GPU, plan, ALL_RUNS, entries=entries)
    assert len(result.telemetry) == session.turns.count("ours") == 5


# Turns that are enough to compare by


def test_each_of_several_takes_at_least_three_turns(clock: Clock, plan: Plan) -> None:
    quick = FakeSession(clock, [1.0], wall_s=1e-6)  # all its runs would fit into one batch
    session, entries = contest(clock, quick, ours=FakeSession(clock, [1.0], wall_s=1e-6))
    settings = replace(ALL_RUNS, warmup=1, max_noise=0.01)
    measure(session, GPU, plan, settings, entries=entries)
    sampled = session.turns[2:]  # after the warm-up of both
    assert sampled == ["ours", "b0"] * bench.TURNS


def test_three_turns_are_no_more_samples_than_asked_for(clock: Clock, plan: Plan) -> None:
    quick = FakeSession(clock, [1.0, 2.0], wall_s=1e-6)
    session, entries = contest(clock, quick, ours=FakeSession(clock, [1.0, 2.0], wall_s=1e-6))
    (rival,) = measure(session, GPU, plan, replace(ALL_RUNS, runs=50), entries=entries).rivals
    assert len(rival.samples) == 50
    assert [count for count, _ in quick.batches] == [1, 17, 17, 15]


def test_alone_a_problem_takes_no_more_turns_than_it_needs(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0], wall_s=1e-6)
    measure(session, GPU, plan, replace(ALL_RUNS, warmup=1, max_noise=0.01))
    assert [count for count, _ in session.batches] == [1, 40]


def test_turns_end_when_the_time_is_up(clock: Clock, plan: Plan) -> None:
    slow = FakeSession(clock, [1.0], wall_s=9.0)
    session, entries = contest(clock, slow, ours=FakeSession(clock, [1.0], wall_s=9.0))
    result = measure(session, CPU, plan, replace(ALL_RUNS, max_time_s=5.0), entries=entries)
    assert (len(result.samples), len(result.rivals[0].samples)) == (1, 1)


@pytest.mark.parametrize(("ours_s", "other_s"), [(99.0, 0.01), (0.01, 99.0)])
def test_a_baseline_has_a_sample_though_one_long_run_took_all_of_the_time(
    ours_s: float, other_s: float, clock: Clock, plan: Plan
) -> None:
    ours, other = (FakeSession(clock, [s], wall_s=s) for s in (ours_s, other_s))
    session, entries = contest(clock, other, ours=ours)
    settings = replace(ALL_RUNS, warmup=3, max_time_s=1.0)
    result = measure(session, CPU, plan, settings, entries=entries)
    assert result.samples and result.rivals[0].samples
    assert (ours if ours_s > other_s else other).taken == 1  # a warm-up that counts


# The host's time


def test_the_share_of_samples_that_may_hold_the_hosts_time_is_kept(
    clock: Clock, plan: Plan
) -> None:
    other = FakeSession(clock, [3.0], wall_s=0.01, host_bound=(True, False, False, False))
    ours = FakeSession(clock, [3.0], wall_s=0.01, host_bound=(True, False))
    session, entries = contest(clock, other, ours=ours)
    result = measure(session, CPU, plan, ALL_RUNS, entries=entries)
    assert (result.host_bound, result.rivals[0].host_bound) == (0.5, 0.25)


def test_what_the_host_does_in_the_warm_up_does_not_count(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [3.0], wall_s=0.01, host_bound=(True,) * 3 + (False,) * 1000)
    assert measure(session, CPU, plan, replace(ALL_RUNS, warmup=3)).host_bound == 0.0


# D stays as it is


def test_a_d_that_changes_between_the_warm_up_and_the_last_sample_is_a_failure(
    clock: Clock, plan: Plan
) -> None:
    session = FakeSession(clock, [1.0], wall_s=0.01, digest=(7, 8))
    with pytest.raises(DeviceFailed, match="the same run gave other bits in group 0 of p"):
        measure(session, GPU, plan, Settings(warmup=1, runs=5))


def test_without_a_warm_up_d_is_compared_with_that_of_one_more_run(
    clock: Clock, plan: Plan
) -> None:
    session = FakeSession(clock, [1.0], wall_s=0.01)
    assert len(measure(session, GPU, plan, replace(ALL_RUNS, runs=5)).samples) == 5
    assert session.events[-3:] == ["digests", "run", "digests"]
    with pytest.raises(DeviceFailed, match="the same run gave other bits in group 0 of p"):
        measure(FakeSession(clock, [1.0], 0.01, digest=(7, 8)), GPU, plan, ALL_RUNS)


def test_where_turns_were_compared_with_each_other_it_needs_no_more_run(
    clock: Clock, plan: Plan
) -> None:
    session, other = (FakeSession(clock, [1.0], wall_s=0.01, name=name) for name in ("ours", "it"))
    entries = [Entry(Rival("it"), other)]
    measure(session, GPU, plan, replace(ALL_RUNS, runs=20), entries=entries)
    assert session.events.count("digests") > 1 and "run" not in session.events


def test_a_long_run_is_measured_once_and_not_run_again(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [99.0], wall_s=99.0)
    measure(session, GPU, plan, replace(ALL_RUNS, max_time_s=1.0))
    assert (session.taken, session.events.count("run")) == (1, 0)


def test_d_is_looked_at_twice_where_nobody_else_writes_to_it(clock: Clock, plan: Plan) -> None:
    session = FakeSession(clock, [1.0], wall_s=0.01)
    measure(session, GPU, plan, Settings(warmup=2, runs=20, max_noise=0))
    assert session.events[:3] == ["ours", "ours", "digests"]
    assert session.events[-1] == "digests"
    assert session.events.count("digests") == 2


def test_d_is_looked_at_after_every_turn_before_others_write_to_it(
    clock: Clock, plan: Plan
) -> None:
    events: list[str] = []
    session = FakeSession(clock, [1.0], wall_s=0.01, events=events)
    other = FakeSession(clock, [1.0], wall_s=0.01, name="other", events=events)
    entry = Entry(Rival("other"), other)
    measure(session, GPU, plan, Settings(warmup=1, runs=20, max_noise=0), entries=[entry])
    ours = [i for i, event in enumerate(events) if event == "ours"]
    assert len(ours) > 2
    assert {events[i + 1] for i in ours} == {"digests"}


def test_d_is_not_looked_at_before_it_was_written_or_when_others_wrote_to_it(
    clock: Clock, plan: Plan
) -> None:
    for warmup in (0, 1):
        events: list[str] = []
        session = FakeSession(clock, [1.0], wall_s=0.01, events=events)
        other = FakeSession(clock, [1.0], wall_s=0.01, name="other", events=events)
        entry = Entry(Rival("other"), other)
        settings = Settings(warmup=warmup, runs=20, max_noise=0)
        measure(session, GPU, plan, settings, entries=[entry])
        before = ["nothing", *events]
        assert {before[i] for i, event in enumerate(events) if event == "digests"} <= {
            "ours",
            "run",
        }


@dataclass
class InPlace:
    """A session whose D counts its runs since there was a fresh C; each adds one of ``steps``."""

    steps: list[int]
    d: int = 0

    def poison(self) -> None:
        self.d = 0

    def run(self) -> None:
        self.d += self.steps.pop(0)

    def digests(self) -> npt.NDArray[np.uint64]:
        return np.array([self.d], np.uint64)


def test_a_d_that_its_c_is_in_is_looked_at_after_one_run_on_a_fresh_c() -> None:
    text = "m: 128, n: 64, k: 32, beta: 1, inplace: true"
    (made,) = make_plans(f"{{gemmctl: 1, problems: [{{name: p, groups: [{{{text}}}]}}]}}")
    session = InPlace([1] * 9 + [2])
    unchanged = bench.Unchanged(session, made)  # type: ignore[arg-type]
    for runs in (3, 2, 1):
        for _ in range(runs - 1):
            session.run()
        unchanged.check()
    with pytest.raises(DeviceFailed, match="other bits"):
        for _ in range(len(session.steps)):
            unchanged.check()
