"""The order in which a launch hands out its tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from cuts import Cut, cuts, f32_in_place, kernel, launch_of, stores
from gemmctl.kernels.constants import K_TILE, TILE_ADDED
from gemmctl.planning.order import (
    FEW_ROWS,
    FEWER_ROWS,
    LONG_K,
    LONG_SHARE,
    MANY_ROWS,
    MANY_UNTIL,
    PANEL_ROWS,
    STEADY_K,
    STEADY_WAVES,
)
from gemmctl.planning.tiles import Launch
from gemmctl.planning.tiling import Choice, Machine
from support import cut_as, make_problem


def added(*groups: str) -> list[bool]:
    """Which tiles the L2 adds, in the order in which they are handed out."""
    launch = launch_of(make_problem(*groups), kernel("128x256", "f32"))
    found: list[bool] = (launch.tiles["flags"] & TILE_ADDED > 0).tolist()
    return found


@pytest.mark.usefixtures("nothing_held")
def test_tiles_that_the_l2_adds_are_spread_evenly_among_others() -> None:
    assert added(f32_in_place(2560, 1024), f32_in_place(5120, 64)) == [False, True, False] * 20


@pytest.mark.usefixtures("nothing_held")
def test_they_are_spread_evenly_whichever_are_listed_first() -> None:
    assert added(f32_in_place(5120, 64), f32_in_place(2560, 1024)) == [False, True, False] * 20


@pytest.mark.usefixtures("nothing_held")
def test_where_the_l2_adds_nearly_all_tiles_the_others_come_last() -> None:
    assert added(f32_in_place(5120, 1024), f32_in_place(256, 64)) == [True] * 40 + [False] * 2


@pytest.mark.usefixtures("nothing_held")
def test_where_the_l2_adds_few_tiles_they_come_first() -> None:
    assert added(f32_in_place(256, 1024), f32_in_place(5120, 64)) == [True] * 2 + [False] * 40


def test_tiles_go_in_panels_of_rows_each_panel_along_all_of_b_and_the_next_one_back() -> None:
    panel, wide, of = PANEL_ROWS // 256, 4, kernel("128x256")
    high = 2 * panel + 3
    some = make_problem(f"m: {256 * high}, n: {of.columns_per_tile * wide}, k: 64")
    tiles = cut_as(some, np.arange(1), of, Choice(of.name, 256), Machine(66)).tiles
    places = [(int(t["m0"]) // 256, int(t["n0"]) // of.columns_per_tile) for t in tiles]
    there, back = range(wide), range(wide)[::-1]
    ways = [(range(panel), there), (range(panel, 2 * panel), back), (range(2 * panel, high), there)]
    assert places == [(i, j) for rows, columns in ways for j in columns for i in rows]


@pytest.mark.parametrize("width", [64, 96, 192, 256])
def test_a_panel_of_narrow_tiles_has_more_of_them(width: int) -> None:
    of = kernel("128x256")
    some = make_problem(f"m: {4 * PANEL_ROWS}, n: {2 * of.columns_per_tile}, k: 64")
    tiles = cut_as(some, np.arange(1), of, Choice(of.name, width), Machine(16)).tiles
    panel = tiles["m0"][: int((tiles["n0"] == 0).argmin())]
    assert PANEL_ROWS <= len(panel) * tiles["width"][0] < PANEL_ROWS + width


# Of 64x256 in a wave: rows and columns of tiles of 128 by 64, and rows of a panel. What 16 of them
# draw together are rows of A and of B, of the panel that draws most.
IN_STEP = [
    (8, 4, 4),  # 4 of 128 and 4 of 64: 768, where 8 and 2 would be 1152
    (8, 16, 4),
    (16, 2, 8),  # 8 and 2, where 16 and 1 would be 2112
    (6, 20, 4),  # 4 and 4, then 2 and 8: 768, where 6 and 3 would be 960
    (5, 24, 5),  # 5 and 4: 896, where 3 and 6 would be 768: too little
]


@pytest.mark.parametrize(("high", "wide", "panel"), IN_STEP)
def test_tiles_of_a_wave_go_in_panels_of_which_a_gpc_draws_least(
    high: int, wide: int, panel: int
) -> None:
    tiles = launch_of(
        make_problem(f"m: {128 * high}, n: {64 * wide}, k: 4096"), kernel("64x256"), width=128
    ).tiles
    column = tiles["m0"][: int((tiles["n0"] == 0).argmin())]
    assert column.tolist() == [128 * i for i in range(panel)]


@pytest.mark.parametrize(("name", "sms"), [("128x256-c2", 132), ("64x256", 20)])
def test_clusters_and_several_waves_keep_their_panels(name: str, sms: int) -> None:
    of = kernel(name)
    some = make_problem(f"m: 1024, n: {4 * of.columns_per_tile}, k: 4096")
    tiles = cut_as(some, np.arange(1), of, Choice(name, 128), Machine(sms)).tiles
    assert tiles["m0"][:8].tolist() == [128 * i for i in range(8)]


def test_long_sums_come_first() -> None:
    some = make_problem("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 8192", "m: 64, n: 64, k: 4096")
    assert launch_of(some, kernel("64x128")).tiles["group"].tolist() == [1, 2, 0]


def test_long_sums_come_first_though_none_of_their_tiles_takes_much_of_a_clusters_time() -> None:
    some = make_problem("m: 12800, n: 6400, k: 2048", "m: 12800, n: 6400, k: 4096")
    assert launch_of(some, kernel("64x128")).tiles["group"][0] == 1


def test_short_sums_stay_in_the_order_of_the_list() -> None:
    some = make_problem("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 256", "m: 64, n: 64, k: 128")
    assert launch_of(some, kernel("64x128")).tiles["group"].tolist() == [0, 1, 2]


def test_however_many_groups_have_the_same_k_they_stay_in_the_order_of_the_list() -> None:
    by_turns = ["m: 64, n: 64, k: 2048", "m: 64, n: 64, k: 4096"] * 50
    order = launch_of(make_problem(*by_turns), kernel("64x128")).tiles["group"].tolist()
    assert order == [*range(1, 100, 2), *range(0, 100, 2)]


def test_sums_are_short_if_those_of_most_tiles_are_be_most_groups_long() -> None:
    long = ["m: 64, n: 64, k: 4096"] * 2
    some = make_problem("m: 64, n: 64000, k: 64", "m: 64, n: 64, k: 128", *long)
    order = launch_of(some, kernel("64x128")).tiles["group"].tolist()
    assert order == [2, 3, *[0] * 1000, 1]


@pytest.mark.parametrize(("k", "order"), [(LONG_K, [2, 0, 1]), (LONG_K - 64, [0, 1, 2])])
def test_of_short_sums_a_tile_that_takes_much_of_a_clusters_time_comes_first(
    k: int, order: list[int]
) -> None:
    some = make_problem("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 128", f"m: 64, n: 64, k: {k}")
    assert launch_of(some, kernel("64x128")).tiles["group"].tolist() == order


def test_of_those_that_come_first_so_the_longest_sum_is_the_very_first() -> None:
    short, long = (
        "m: 64, n: 64000, k: 64",
        [f"m: 64, n: 64, k: {times * LONG_K}" for times in (1, 4)],
    )
    order = launch_of(make_problem(short, *long), kernel("64x128")).tiles["group"].tolist()
    assert order == [2, 1, *[0] * 1000]


def test_a_tile_comes_first_from_an_eighth_of_a_clusters_share_of_all_slices_on() -> None:
    of, slices = kernel("64x128"), LONG_K // K_TILE
    room = launch_of(make_problem("m: 1, n: 1, k: 1"), of).room
    fitting = LONG_SHARE * room * slices - slices - 1  # more than that, and it is not an eighth
    for short, group in ((fitting, 1), (fitting + 1, 0)):
        some = make_problem(f"m: 128, n: {64 * short}, k: 64", f"m: 64, n: 64, k: {LONG_K}")
        assert launch_of(some, of).tiles["group"][0] == group


def test_tiles_of_few_rows_are_spread_evenly_among_those_of_many_which_end_earlier() -> None:
    few, many = "m: 64, n: 5120, k: 64", "m: 1024, n: 5120, k: 64"
    small = launch_of(make_problem(few, many), kernel("128x256")).tiles["group"] == 0
    behind = int(small[::-1].argmin())  # tiles of few rows behind the last one of many
    assert behind == pytest.approx((1 - MANY_UNTIL) * small.sum(), abs=1)
    among = small[: len(small) - behind]
    expected = np.arange(1, len(among) + 1) * among.mean()
    assert 0 < among.sum() < len(among)
    assert np.abs(np.cumsum(among) - expected).max() < 0.75


@pytest.mark.parametrize(("rows", "spread"), [(FEW_ROWS - 1, True), (FEW_ROWS, False)])
def test_few_rows_are_less_than_those_below_which_b_takes_longer_than_to_multiply_it(
    rows: int, spread: bool
) -> None:
    some = make_problem(f"m: {rows}, n: 5120, k: 64", "m: 1024, n: 5120, k: 64")
    few = launch_of(some, kernel("128x256")).tiles["group"] == 0
    assert (not few[: few.sum()].all()) == spread


def test_with_operands_exchanged_groups_of_few_columns_are_spread() -> None:
    some = make_problem("m: 5120, n: 64, k: 64", "m: 5120, n: 1024, k: 64")
    few = launch_of(some, kernel("128x256-x")).tiles["group"] == 0
    assert 0 < few[: few.sum()].sum() < few.sum()


@pytest.mark.parametrize(
    ("k", "rows", "spread"),
    [
        (STEADY_K - K_TILE, FEW_ROWS - 1, True),
        (STEADY_K, FEW_ROWS - 1, False),
        (STEADY_K, FEWER_ROWS + 1, False),
        (STEADY_K, FEWER_ROWS, True),
    ],
)
def test_where_k_is_long_only_groups_of_fewer_rows_are_spread(
    k: int, rows: int, spread: bool
) -> None:
    of = kernel("128x256")
    some = make_problem(f"m: {rows}, n: 25600, k: {k}", f"m: 4096, n: 5120, k: {k}")
    launch = launch_of(some, of)
    assert launch.waves > STEADY_WAVES
    few = launch.tiles["group"] == 0
    assert few[: len(few) // 2].any()
    assert (not few[: few.sum()].all()) == spread


@pytest.mark.parametrize(("rows", "spread"), [(MANY_ROWS - 1, False), (MANY_ROWS, True)])
def test_where_k_is_long_none_are_spread_if_no_group_has_many_rows(rows: int, spread: bool) -> None:
    many, few = f"m: {rows}, n: 25600, k: {STEADY_K}", f"m: 64, n: 51200, k: {STEADY_K}"
    launch = launch_of(make_problem(many, few), kernel("128x256"))
    assert launch.waves > STEADY_WAVES
    small = launch.tiles["group"] == 1
    assert small[: (~small).sum()].any() == spread


def test_in_few_waves_groups_of_few_rows_are_spread_however_long_k_is() -> None:
    some = make_problem(f"m: 300, n: 5120, k: {STEADY_K}", f"m: 1024, n: 5120, k: {STEADY_K}")
    launch = launch_of(some, kernel("128x256"))
    assert launch.waves < STEADY_WAVES
    assert launch.tiles["group"][:4].tolist() != [0] * 4


def test_in_as_many_waves_as_are_steady_they_are_not() -> None:
    many, few = f"m: 1024, n: {128 * 66}, k: {STEADY_K}", f"m: 256, n: {128 * 132}, k: {STEADY_K}"
    launch = launch_of(make_problem(few, many), kernel("128x256"))
    assert launch.waves == STEADY_WAVES
    assert launch.tiles["group"].tolist() == [0] * 132 + [1] * 264


@given(cuts())
def test_the_tiles_of_a_group_keep_their_order(drawn: Cut) -> None:
    """That which they have alone, if they are as many there, and both or neither are a wave."""

    def places(of: Launch, group: int) -> list[tuple[int, int]]:
        stored = (t for t in stores(of) if t["group"] == group)
        own = [(int(t["m0"] - t["row"]), int(t["n0"])) for t in stored]
        rows, step = sorted({row for row, _ in own}), of.kernel.columns_per_tile
        # In a full wave the last column of tiles begins sooner, by less than a tile.
        return list(
            dict.fromkeys((rows.index(row), -(-column // step) * step) for row, column in own)
        )

    def in_step(of: Launch) -> bool:
        return of.waves <= 1 and not of.slots

    some, launch = drawn
    for entry, group in enumerate(launch.groups):
        alone = cut_as(some, np.array([group]), launch.kernel, launch.choice, launch.machine)
        if launch.high[entry] == alone.high[0] and in_step(launch) == in_step(alone):
            assert places(launch, entry) == places(alone, 0)
