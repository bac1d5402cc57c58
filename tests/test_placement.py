"""Clusters that lie beside each other on the chip begin with tiles that stand beside each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.device.cuda import placement

# Two GPCs of four SMs, whose pairs of SMs have numbers by turns.
ALONE = np.array([0, 1, 4, 5, 2, 3, 6, 7])  # CTAs fill one GPC after the other
BY_TURNS = np.array([0, 2, 4, 6])  # clusters of two go to the GPCs by turns


def test_clusters_of_one_gpc_have_neighbouring_places() -> None:
    assert placement.places(ALONE, BY_TURNS).tolist() == [0, 2, 1, 3]


def test_fewer_clusters_than_there_is_room_for_have_places_without_gaps() -> None:
    assert placement.places(ALONE, BY_TURNS[:3]).tolist() == [0, 2, 1]


PLACES = np.array([0, 2, 1, 3])


def test_first_and_second_tiles_go_by_places_and_all_others_stay_in_their_order() -> None:
    order = placement.dealt(10, PLACES, alike=True)
    assert order.tolist() == [0, 2, 1, 3, 4, 6, 5, 7, 8, 9]


@pytest.mark.parametrize(
    ("tiles", "expected"),
    [(4, [0, 2, 1, 3]), (5, [0, 2, 1, 3, 4]), (7, [0, 2, 1, 3, 4, 6, 5])],
)
def test_second_tiles_that_are_not_enough_for_all_go_to_the_first_clusters_in_the_order_of_places(
    tiles: int, expected: list[int]
) -> None:
    assert placement.dealt(tiles, PLACES, alike=True).tolist() == expected


def test_the_longest_of_unequal_tiles_go_to_clusters_without_a_second_one() -> None:
    # Clusters 0 and 1 have a second tile, 4 or 5: neither has one of the longest, 0 and 1, too.
    assert placement.dealt(6, PLACES, alike=False).tolist() == [3, 2, 0, 1, 4, 5]


def test_who_has_a_longer_first_tile_has_a_shorter_second_one() -> None:
    order = placement.dealt(9, PLACES, alike=False)
    pairs = sorted(zip(order[:4].tolist(), order[4:8].tolist(), strict=True))
    assert pairs == [(0, 7), (1, 6), (2, 5), (3, 4)]


@given(st.permutations(range(66)), st.integers(66, 200), st.booleans())
def test_every_tile_is_handed_out_once(places: list[int], tiles: int, alike: bool) -> None:
    assert sorted(placement.dealt(tiles, np.array(places), alike)) == list(range(tiles))
