"""Launches side by side: which SMs each finds, and when each ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.planning import beside
from gemmctl.planning.beside import Stay
from gemmctl.planning.queue import in_turn

SMS = 4


def alike(ctas: int, cycles: float = 10.0, *, rounds: float = 1.0, halves: bool = False) -> Stay:
    """CTAs that all leave at one time."""
    return Stay(cycles, np.full(ctas, cycles), cycles, rounds, halves)


def ended(*stays: Stay, streams: int = 9, begin: float = 0.0) -> list[float]:
    return beside.ends(stays, in_turn(len(stays), streams), SMS, begin).tolist()


def test_launches_that_find_room_begin_together_and_end_as_if_alone() -> None:
    assert ended(alike(3, 10), alike(1, 30), begin=5) == [15, 35]


def test_what_finds_no_room_waits_until_enough_sms_are_left() -> None:
    short_and_long = Stay(30.0, np.array([30.0, 20.0, 10.0]), 20.0, 1.0, halves=False)
    assert ended(short_and_long, alike(2)) == [30, 20]
    assert ended(short_and_long, alike(3)) == [30, 30]


def test_launches_of_one_stream_follow_each_other_though_there_is_room() -> None:
    assert ended(alike(1, 10), alike(1, 20), alike(1, 30), streams=2) == [10, 20, 40]


def test_two_ctas_of_halves_share_an_sm_once_no_sm_is_empty() -> None:
    assert ended(alike(SMS, halves=True), alike(SMS, halves=True)) == [10, 10]
    assert ended(alike(2, halves=True), alike(2)) == [10, 10]


def test_what_needs_a_whole_sm_waits_for_halves_that_are_spread_over_all() -> None:
    assert ended(alike(SMS, halves=True), alike(1)) == [10, 20]
    assert ended(alike(SMS + 1, halves=True), alike(SMS)) == [10, 20]


def test_an_sm_is_empty_when_both_halves_have_left() -> None:
    assert ended(alike(SMS, halves=True), alike(1, 25, halves=True), alike(SMS)) == [10, 25, 35]


def test_halves_find_no_room_beside_what_needs_a_whole_sm() -> None:
    assert ended(alike(SMS), alike(1, halves=True)) == [10, 20]


def test_what_comes_late_leaves_most_of_many_entries_to_others() -> None:
    many = alike(SMS, 1000, rounds=100)
    assert ended(alike(1, 100), many) == [100, 1025]


def test_what_comes_late_has_its_own_two_entries_to_do_all_the_same() -> None:
    assert ended(alike(1, 100), alike(SMS, 80, rounds=2)) == [100, 180]
    assert ended(alike(1, 100), alike(SMS, 80, rounds=4)) == [100, 140]


def test_what_comes_last_has_the_shortest_entry() -> None:
    """The longest come first, where each has one."""
    unequal = Stay(50.0, np.array([50.0, 40.0, 30.0, 10.0]), 32.5, 1.0, halves=False)
    assert ended(alike(1, 35), unequal) == [35, 50]


def test_second_entries_make_up_for_unequal_first_ones() -> None:
    leaves = np.array([50.0, 40.0, 30.0, 10.0])
    one, two = (Stay(50.0, leaves, 32.5, rounds, halves=False) for rounds in (1.0, 2.0))
    assert ended(alike(1, 35), one) == [35, 50]
    assert ended(alike(1, 35), two) == [35, 67.5]


@st.composite
def stays(draw: st.DrawFn) -> Stay:
    halves = draw(st.booleans())
    count = draw(st.integers(1, SMS * (2 if halves else 1)))
    leaves = np.sort(draw(st.lists(st.floats(1, 100), min_size=count, max_size=count)))[::-1]
    rounds = draw(st.floats(0.1, 40))
    even = min(leaves.mean(), leaves[0])  # a mean of equal numbers may be rounded up
    if rounds > 1:
        even = draw(st.floats(float(even), leaves[0]))
    return Stay(leaves[0], leaves, float(even), rounds, halves)


@given(stays(), st.floats(0, 50))
def test_a_launch_alone_ends_with_the_last_of_its_ctas(one: Stay, begin: float) -> None:
    assert ended(one, begin=begin) == [pytest.approx(begin + one.leaves[0])]


@given(st.lists(stays(), min_size=1, max_size=5))
def test_no_launch_ends_sooner_than_alone_nor_all_later_than_one_after_another(
    some: Sequence[Stay],
) -> None:
    together = ended(*some)
    alone = [one.leaves[0] for one in some]
    assert all(end >= own * (1 - 1e-9) for end, own in zip(together, alone, strict=True))
    assert max(together) <= sum(alone) * (1 + 1e-9)


@given(st.lists(stays(), min_size=1, max_size=5))
def test_no_launch_waits_for_one_behind_it(some: Sequence[Stay]) -> None:
    assert ended(*some)[:-1] == ended(*some[:-1])


@given(stays(), st.lists(st.floats(0, 100), min_size=2 * SMS, max_size=2 * SMS))
def test_all_work_is_done_whenever_ctas_come(one: Stay, times: list[float]) -> None:
    starts = np.sort(times[: len(one.leaves)])
    assert (one.left(starts) - starts).sum() >= len(starts) * one.even * (1 - 1e-9)
