"""Clusters that lie beside each other on the chip begin with tiles that stand beside each other."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.device.cuda import placement
from sources import text

# Two GPCs of four SMs, whose pairs of SMs have numbers by turns.
ALONE = np.array([0, 1, 4, 5, 2, 3, 6, 7])  # CTAs fill one GPC after the other
BY_TURNS = np.array([0, 2, 4, 6])  # clusters of two go to the GPCs by turns


def test_clusters_of_one_gpc_have_neighbouring_places() -> None:
    assert placement.places(ALONE, BY_TURNS).tolist() == [0, 2, 1, 3]


def test_fewer_clusters_than_there_is_room_for_have_places_without_gaps() -> None:
    assert placement.places(ALONE, BY_TURNS[:3]).tolist() == [0, 2, 1]


PLACES = np.array([0, 2, 1, 3])


def test_first_and_second_tiles_go_by_places_and_all_others_stay_in_their_order() -> None:
    order = placement.dealt(10, PLACES, alike=True, single=False)
    assert order.tolist() == [0, 2, 1, 3, 4, 6, 5, 7, 8, 9]


@pytest.mark.parametrize(
    ("tiles", "expected"),
    [(4, [0, 2, 1, 3]), (5, [0, 2, 1, 3, 4]), (7, [0, 2, 1, 3, 4, 6, 5])],
)
def test_second_tiles_that_are_not_enough_for_all_go_to_the_first_clusters_in_the_order_of_places(
    tiles: int, expected: list[int]
) -> None:
    assert placement.dealt(tiles, PLACES, alike=True, single=False).tolist() == expected


def test_the_longest_of_unequal_tiles_go_to_clusters_without_a_second_one() -> None:
    # Clusters 0 and 1 have a second tile, 4 or 5: neither has one of the longest, 0 and 1, too.
    assert placement.dealt(6, PLACES, alike=False, single=False).tolist() == [3, 2, 0, 1, 4, 5]


def test_who_has_a_longer_first_tile_has_a_shorter_second_one() -> None:
    order = placement.dealt(9, PLACES, alike=False, single=False)
    pairs = sorted(zip(order[:4].tolist(), order[4:8].tolist(), strict=True))
    assert pairs == [(0, 7), (1, 6), (2, 5), (3, 4)]


@given(st.permutations(range(66)), st.integers(66, 200), st.booleans())
def test_every_tile_is_handed_out_once(places: list[int], tiles: int, alike: bool) -> None:
    assert sorted(placement.dealt(tiles, np.array(places), alike, False)) == list(range(tiles))


@given(st.integers(1, 300), st.integers(1, 4), st.booleans())
def test_every_tile_is_handed_out_once_to_single_ctas(
    clusters: int, waves: int, alike: bool
) -> None:
    for tiles in (clusters * waves, clusters * waves + clusters // 3):
        order = placement.dealt(tiles, np.arange(clusters), alike, single=True)
        assert sorted(order) == list(range(tiles))


@given(st.integers(1, 300), st.integers(0, 700))
def test_single_ctas_have_a_second_tile_here_where_they_have_one_in_the_kernel(
    clusters: int, more: int
) -> None:
    count = clusters + more
    order = placement.dealt(count, np.arange(clusters), alike=False, single=True)
    with_two = order[:clusters] >= clusters - min(more, clusters)  # they begin with shorter ones
    places = [second_tile(number, clusters, count) for number in range(clusters)]
    assert with_two.tolist() == [place < count for place in places]
    assert [place for place in places if place < count] == list(
        range(clusters, clusters + min(more, clusters))
    )


def second_tile(number: int, clusters: int, count: int) -> int:
    """What second_tile in schedule.cuh says of a CTA without a cluster."""
    found = re.search(
        r"seconds = (.+?), before = (.+?);\s+return (.+?) \? (.+?) : count;", text("schedule.cuh")
    )
    assert found
    seconds, before, has_one, place = (part.replace("/", "//") for part in found.groups())
    known = {"number": number, "clusters": clusters, "count": count, "min": min}
    known["seconds"] = eval(seconds, known)
    known["before"] = eval(before, known)
    return int(eval(place, known)) if eval(has_one, known) else count


def test_single_ctas_with_a_second_tile_lie_apart_and_have_shorter_first_ones() -> None:
    # Of ten CTAs four have a second tile: one of the first three, of the first five two.
    order = placement.dealt(14, np.arange(10), alike=False, single=True)
    with_two = np.flatnonzero(order[:10] >= 6)
    assert with_two.tolist() == [2, 4, 7, 9]
    assert order[:10][with_two].tolist() == [9, 8, 7, 6] and order[10:].tolist() == [10, 11, 12, 13]


def test_parts_of_sums_lie_apart_where_others_wait_for_them() -> None:
    working = np.array([True] * 3 + [False] * 5)
    assert placement.apart(working, np.arange(6)).tolist() == [0, 3, 1, 4, 2, 5, 6, 7]


def test_parts_lie_apart_by_the_places_of_clusters() -> None:
    # In a row there are clusters 0 and 2 of one GPC, and then 1 and 3: one of each begins to work.
    order = placement.apart(np.array([True, True, False, False]), np.array([0, 2, 1, 3]))
    assert order.tolist() == [0, 1, 2, 3]
    order = placement.apart(np.array([True, True, False, False]), np.array([0, 1, 2, 3]))
    assert order.tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("parts", [64, 66, 90])
def test_parts_for_nearly_all_clusters_stay_in_their_order(parts: int) -> None:
    working = np.arange(120) < parts
    assert placement.apart(working, np.arange(66)).tolist() == list(range(120))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_what_clusters_begin_with_is_the_same_however_it_lies(
    working: list[bool], data: st.DataObject
) -> None:
    clusters = data.draw(st.integers(1, len(working)))
    places = np.array(data.draw(st.permutations(range(clusters))))
    order = placement.apart(np.array(working), places).tolist()
    assert sorted(order[:clusters]) == list(range(clusters))
    assert order[clusters:] == list(range(clusters, len(working)))
