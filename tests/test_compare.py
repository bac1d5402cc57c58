from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmctl.errors import UsageError
from gemmctl.measuring import ratio
from gemmctl.measuring.ratio import MIN_SAMPLES
from gemmctl.showing import compare_report
from gemmctl.showing.comparison import Comparison, Difference, compare
from gemmctl.showing.formats import render
from gemmctl.showing.saved import Saved
from gemmctl.showing.table import View

STEADY = np.linspace(99.5e-6, 100.5e-6, 21)


def settings(**changes: Any) -> dict[str, Any]:
    """Of a version that knew one way to launch, and one pace."""
    return {"cache": "cold", "data": {"kind": "normal", "seed": 0}, "runs": 50, **changes}


def run(path: str, samples: dict[str, Any], **changes: Any) -> Saved:
    """A saved run with one group per problem."""
    head = {
        "device": {"kind": "cuda", "name": "H200", "driver": "580"},
        "settings": settings(),
        "cubin_sha256": "0" * 64,
    }
    problems = {
        name: {"name": name, "groups": [{"m": 1, "count": 1}], "samples_s": list(times)}
        for name, times in samples.items()
    }
    return Saved(path, {**head, **changes}, problems)


def between(old: Any, new: Any) -> Difference:
    (difference,) = compare(run("old", {"p": old}), run("new", {"p": new})).differences
    return difference


def test_the_same_times_are_the_same() -> None:
    assert between(STEADY, STEADY).verdict == "SAME"


@pytest.mark.parametrize(("old", "new", "ratio"), [(0.0, 1e-6, np.inf), (1e-6, 0.0, 0.0)])
def test_of_a_run_that_took_no_time_and_another_that_did_nothing_can_be_told(
    old: float, new: float, ratio: float
) -> None:
    difference = between([old] * 21, [new] * 21)
    assert (difference.ratio, difference.interval) == (ratio, None)
    assert difference.verdict == "UNSURE"


def test_half_a_percent_is_no_change() -> None:
    assert between(STEADY, STEADY * 1.005).verdict == "SAME"


def test_a_clear_gain_is_fast() -> None:
    difference = between(STEADY, STEADY * 0.9)
    assert difference.verdict == "FAST"
    assert difference.ratio == pytest.approx(0.9)


def test_a_clear_loss_is_slow() -> None:
    assert between(STEADY, STEADY * 1.1).verdict == "SLOW"


def test_noise_wider_than_the_change_is_unsure() -> None:
    noisy = np.random.default_rng(1).uniform(50e-6, 150e-6, 21)
    assert between(noisy, noisy[::-1] * 1.03).verdict == "UNSURE"


def test_too_few_samples_are_unsure_however_alike() -> None:
    few = [1e-4] * (MIN_SAMPLES - 1)
    assert between(few, few).verdict == "UNSURE"
    assert between([*few, 1e-4], [*few, 1e-4]).verdict == "SAME"


def test_the_same_files_always_get_the_same_interval() -> None:
    noisy = np.random.default_rng(1).uniform(50e-6, 150e-6, 21)
    assert between(noisy, STEADY).interval == between(noisy, STEADY).interval


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        old = random.normal(100e-6, 3e-6, 20)
        new = random.normal(105e-6, 3e-6, 20)
        low, high = between(old, new).interval or (0, 0)
        hits += low <= 1.05 <= high
    assert 180 <= hits <= 199


@pytest.mark.parametrize(("slower", "over"), [(1.02, False), (1.05, True)])
def test_the_limit_is_passed_only_by_more_than_it(slower: float, over: bool) -> None:
    comparison = compare(run("old", {"p": STEADY}), run("new", {"p": STEADY * slower}))
    assert bool(comparison.failures(0.03)) is over


def test_noise_does_not_pass_the_limit() -> None:
    noisy = np.random.default_rng(1).uniform(50e-6, 150e-6, 21)
    comparison = compare(run("old", {"p": noisy}), run("new", {"p": noisy[::-1] * 1.05}))
    assert comparison.failures(0.03) == []


def test_becoming_faster_does_not_pass_the_limit() -> None:
    comparison = compare(run("old", {"p": STEADY}), run("new", {"p": STEADY / 2}))
    assert comparison.failures(0.0) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"device": {"kind": "cuda", "name": "H100", "driver": "580"}}, "device"),
        ({"device": {"kind": "cpu", "name": "H200", "driver": "580"}}, "device"),
        ({"settings": {"cache": "warm", "data": {"kind": "normal", "seed": 0}}}, "cache"),
        ({"settings": {"cache": "cold", "data": {"kind": "int", "seed": 0}}}, "data"),
        ({"settings": settings(pace="sustained")}, r"pace \(burst and sustained\)"),
    ],
)
def test_runs_that_mean_different_things_are_refused_unless_forced(
    changes: dict[str, Any], what: str
) -> None:
    old, new = run("old", {"p": STEADY}), run("new", {"p": STEADY}, **changes)
    with pytest.raises(UsageError, match=f"differ in {what}"):
        compare(old, new)
    assert compare(old, new, force=True).differences[0].verdict == "SAME"


def test_another_number_of_runs_is_no_other_setting() -> None:
    new = run("new", {"p": STEADY}, settings=settings(runs=10))
    assert compare(run("old", {"p": STEADY}), new).differences


def test_the_cache_state_is_of_bursts_and_does_not_keep_sustained_runs_apart() -> None:
    old, new = (
        run(cache, {"p": STEADY}, settings=settings(pace="sustained", cache=cache))
        for cache in ("cold", "warm")
    )
    assert compare(old, new).differences


def two(old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    return compare(run("old", {"p": STEADY, **old}), run("new", {"p": STEADY, **new}))


def test_problems_of_one_run_only_are_told() -> None:
    comparison = two({"gone": STEADY}, {"fresh": STEADY})
    assert comparison.gaps == ("gone is in old, but not in new",)
    assert comparison.notes == ("fresh is in new, but not in old",)
    assert [difference.name for difference in comparison.differences] == ["p"]


def test_a_problem_whose_groups_changed_is_not_compared() -> None:
    old, new = run("old", {"p": STEADY, "q": STEADY}), run("new", {"p": STEADY, "q": STEADY})
    new.problems["q"]["groups"] = [{"m": 2, "count": 1}]
    comparison = compare(old, new)
    assert [difference.name for difference in comparison.differences] == ["p"]
    assert comparison.gaps == ("q has other groups in new: not compared",)


def test_a_run_of_before_there_was_a_key_is_compared_where_that_is_what_it_is_by_default() -> None:
    old, new = run("old", {"p": STEADY, "q": STEADY}), run("new", {"p": STEADY, "q": STEADY})
    old.problems["p"]["groups"] = [{"m": 1, "d": "f16"}]
    new.problems["p"]["groups"] = [{"m": 1, "d": "f16", "d_offset": 0, "bias_type": "f16"}]
    old.problems["q"]["groups"] = [{"m": 1, "d": "f16"}]
    new.problems["q"]["groups"] = [{"m": 1, "d": "f16", "d_offset": 1, "bias_type": "f16"}]
    comparison = compare(old, new)
    assert [difference.name for difference in comparison.differences] == ["p"]
    assert comparison.gaps == ("q has other groups in new: not compared",)


def test_the_mean_is_the_geometric_one_of_the_ratios_that_have_a_logarithm() -> None:
    nothing, some = [0.0] * 21, [1e-6] * 21
    old = {"p": STEADY, "q": STEADY, "lost": some, "new": nothing}
    new = {"p": STEADY * 2, "q": STEADY / 2, "lost": nothing, "new": some}
    assert two(old, new).mean == pytest.approx(1.0)


def test_a_limit_cannot_be_kept_by_measuring_less() -> None:
    old = {"p": STEADY, "few": STEADY, "gone": STEADY, "none": STEADY}
    new = {"p": STEADY, "few": STEADY[:5], "none": [0.0, *STEADY[:5]]}
    assert two(old, new).failures(0.03) == [
        "few is UNSURE: 5 samples in new, and 6 are needed to tell",
        "none is UNSURE: 1 of 6 samples in new took no time, so the ratio has no interval",
        "gone is in old, but not in new",
    ]


def test_a_failure_tells_by_how_much_a_problem_became_slower_at_least() -> None:
    noisy = np.linspace(90e-6, 110e-6, 21)
    comparison = two({"p": noisy}, {"p": noisy * 1.3})
    (difference,) = comparison.differences
    assert difference.interval is not None and difference.interval[0] < 1.28
    least = f"{100 * (difference.interval[0] - 1):.1f}%"
    assert comparison.failures(0.03) == [f"p became slower by {least} at least"]


def test_what_was_compared_by_force_and_a_run_that_is_not_complete_are_told() -> None:
    whole = run("new", {"p": STEADY}, settings=settings(cache="warm"))
    part = replace(run("old", {"p": STEADY}), head={**run("old", {}).head, "problem_count": 2})
    notes = compare(part, whole, force=True).notes
    assert "compared although they differ in cache (cold and warm)" in notes
    assert any(note.startswith("old is not complete: 1 of 2 problems") for note in notes)


def test_every_name_that_is_asked_for_has_to_be_that_of_a_problem() -> None:
    some = run("old", {"p": STEADY})
    with pytest.raises(UsageError, match="no problem is named 'q' in old or new"):
        compare(some, replace(some, path="new"), only=["p", "q"])


def test_runs_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(UsageError, match="no problem of one name and shape"):
        compare(run("old", {"p": STEADY}), run("new", {"q": STEADY}))


def test_a_new_driver_and_new_cubins_are_told() -> None:
    device = {"kind": "cuda", "name": "H200", "driver": "590"}
    new = run("new", {"p": STEADY}, device=device, cubin_sha256="1" * 64)
    notes = compare(run("old", {"p": STEADY}), new).notes
    assert notes == (
        "driver 580 became 590",
        "cubins 000000000000 became 111111111111",
    )


def test_the_table_shows_both_times_ratio_interval_and_verdict() -> None:
    text = render(compare_report.report([two({}, {})], View()), "plain")
    assert text.splitlines()[1].split() == ["p", "100.0", "100.0", "1.000", "0.997..1.003", "SAME"]


def test_many_samples_are_drawn_in_pieces_that_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noisy = np.random.default_rng(1).uniform(50e-6, 150e-6, 60)
    whole = between(noisy, STEADY).interval
    for at_once in (1, 60, 1000):
        monkeypatch.setattr(ratio, "AT_ONCE", at_once)
        assert between(noisy, STEADY).interval == whole


def several(*paths: str) -> str:
    """What is told of runs of these names beside the first."""
    first, *others = (run(path, {"p": STEADY}) for path in paths)
    comparisons = [compare(first, other, several=True) for other in others]
    return render(compare_report.report(comparisons, View()), "plain")


def test_a_run_is_called_the_same_in_the_table_and_behind_it() -> None:
    titles, _, means = several("a.json", "b.json", "c.json").splitlines()
    assert titles.split() == ["problem", "a", "us", "b", "c"]
    assert means == "geometric means: b 1.000 over 1 problem, c 1.000 over 1 problem"


def test_runs_whose_files_are_called_alike_are_called_by_their_paths() -> None:
    titles, _, means = several("a.json", "new one/a.json", "b.json").splitlines()
    assert titles.split() == ["problem", "a.json", "us", "new-one/a.json", "b.json"]
    told = "new-one/a.json 1.000 over 1 problem, b.json 1.000 over 1 problem"
    assert means == f"geometric means: {told}"


def test_times_of_a_cpu_are_labelled() -> None:
    cpu = {"kind": "cpu", "name": "a chip", "driver": None}
    old, new = (run(name, {"p": STEADY}, device=cpu) for name in ("old", "new"))
    report = compare_report.report([compare(old, new)], View())
    assert report.notes[0].startswith("cpu: a chip; ")
    assert [(one["old_device"], one["new_device"]) for one in report.records] == [("cpu", "cpu")]


def test_another_way_to_launch_is_told_and_compared() -> None:
    old = run("old", {"p": STEADY})  # of a version that had only one
    new = run("new", {"p": STEADY}, settings=settings(launch="serial"))
    assert "launch grouped became serial" in compare(old, new).notes
    same = run("new", {"p": STEADY}, settings=settings(launch="grouped"))
    assert compare(old, same).notes == ()
