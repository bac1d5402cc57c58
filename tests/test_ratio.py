from __future__ import annotations

import math

import numpy as np
import pytest

from gemmctl.measuring.ratio import MIN_SAMPLES, SAME_WITHIN, ratio, verdict

STEADY = tuple(np.linspace(99.5e-6, 100.5e-6, 21))


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ((0.90, 0.95), "FASTER"),
        ((0.98, 0.985), "FASTER"),
        ((0.985, 0.995), "FASTER"),  # surely below 1, and perhaps by more than 1%
        ((0.991, 0.998), "SAME"),  # surely below 1, and surely by less than 1%
        ((0.995, 1.005), "SAME"),
        ((0.985, 1.005), "UNSURE"),
        ((0.995, 1.015), "UNSURE"),
        ((1.005, 1.015), "SLOWER"),
        (None, "UNSURE"),
    ],
)
def test_a_verdict_holds_for_the_whole_interval(
    interval: tuple[float, float] | None, told: str
) -> None:
    assert verdict(interval) == told


def test_a_verdict_can_be_worded_otherwise() -> None:
    told = [verdict(ends, faster="FAST", slower="SLOW") for ends in ((0.8, 0.9), (1.1, 1.2))]
    assert told == ["FAST", "SLOW"]


def test_a_ratio_is_our_median_over_theirs_and_lies_in_its_interval() -> None:
    found = ratio(tuple(0.9 * sample for sample in STEADY), STEADY)
    assert found is not None and found.interval is not None
    assert found.value == pytest.approx(0.9)
    assert found.interval[0] < 0.9 < found.interval[1]
    assert found.verdict == "FASTER"


def test_a_ratio_of_alike_samples_is_the_same() -> None:
    found = ratio(STEADY, STEADY)
    assert found is not None and found.verdict == "SAME"
    assert found.interval is not None
    assert max(abs(end - 1) for end in found.interval) < SAME_WITHIN


def test_a_ratio_is_that_of_medians_whatever_the_other_samples_are() -> None:
    found = ratio((1.0, 2.0, 90.0), (0.1, 4.0, 5.0))
    assert found is not None and found.value == 0.5


def quantile(share: float, count: int) -> int:
    """The least sample, counted from 1, that so many resampled medians are at or below.

    The median of ``count``, which is odd, is at or below the i-th sample where more than half of
    them are, and each of them is so with a chance of i / count.
    """

    def at_or_below(i: int) -> float:
        least = (count + 1) // 2
        return sum(
            math.comb(count, hits) * (i / count) ** hits * (1 - i / count) ** (count - hits)
            for hits in range(least, count + 1)
        )

    return next(i for i in range(1, count + 1) if at_or_below(i) >= share)


@pytest.mark.parametrize(("count", "off"), [(7, 0), (101, 1)])
def test_an_interval_leaves_out_a_fortieth_of_resampled_medians_at_either_end(
    count: int, off: int
) -> None:
    samples, steady = tuple(float(i) for i in range(1, count + 1)), (1.0,) * 7
    low, high = (quantile(share, count) for share in (0.025, 0.975))
    found = ratio(samples, steady)
    assert found is not None and found.interval == pytest.approx((low, high), abs=off)
    turned = ratio(steady, samples)
    assert turned is not None and turned.interval is not None
    assert [1 / end for end in turned.interval] == pytest.approx([high, low], abs=off)


@pytest.mark.parametrize(("ours", "theirs"), [(MIN_SAMPLES - 1, 50), (50, MIN_SAMPLES - 1)])
def test_too_few_samples_have_a_ratio_and_no_verdict(ours: int, theirs: int) -> None:
    found = ratio((0.5,) * ours, (1.0,) * theirs)
    assert found is not None
    assert (found.value, found.interval, found.verdict) == (0.5, None, "UNSURE")


@pytest.mark.parametrize(("ours", "theirs"), [((), (1.0,)), ((1.0,), ()), ((1.0,), (0.0,))])
def test_without_samples_or_time_there_is_no_ratio(
    ours: tuple[float, ...], theirs: tuple[float, ...]
) -> None:
    assert ratio(ours, theirs) is None
