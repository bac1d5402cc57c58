"""The ways to cut a launch, and what each cut is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuts import KERNELS, Cut, cuts, drawn_problem, joined_cuts, kernel, launch_of
from gemmctl.kernels.constants import (
    FINE_FROM,
    FINE_STEP,
    FINE_TO,
    FUSED_FINER_TO,
    FUSED_NARROW,
    FUSED_STEP,
    K_TILE,
    REDUCED_ROWS,
    TILE_ADDED,
    TILE_C_IN_SUMS,
    TILE_FUSED,
    TILE_PLUS,
    TILE_WORDS,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning.tiles import TILE
from gemmctl.planning.tiling import (
    BEGUN_K,
    H200,
    MANY_GROUPS,
    MIN_SPLIT_K_TILES,
    MOST_PARTS,
    Choice,
    Machine,
    choices,
    seen,
)
from gemmctl.planning.tiling import considered as considered_kernels
from sources import text
from support import cut_as, make_problem

SHARE = MIN_SPLIT_K_TILES * K_TILE  # of K, that a part has at least


@pytest.mark.parametrize(("width", "splits"), [(256, 1), (112, 1), (256, 4)])
def test_with_operands_exchanged_a_product_is_cut_as_that_of_its_operands_the_other_way_round(
    width: int, splits: int
) -> None:
    shapes = [(304, 400, 4096), (24, 8, 100), (1000, 640, 1030), (640, 1000, 1030), (40, 64, 0)]
    some = make_problem(*(f"m: {m}, n: {n}, k: {k}" for m, n, k in shapes))
    turned = make_problem(*(f"m: {n}, n: {m}, k: {k}, ldd: 1000" for m, n, k in shapes))
    # On a GPU of which SMs are idle: of a full wave the last rows of tiles overlap others, but not
    # where operands are exchanged.
    everyone, large = np.arange(len(shapes)), Machine(1000)
    launch, other = (
        cut_as(of, everyone, kernel(name), Choice(name, width, splits), large)
        for of, name in ((some, "128x256-x"), (turned, "128x256"))
    )
    fields = [name for name in TILE.names or () if name != "flags"]
    assert np.array_equal(launch.tiles[fields], other.tiles[fields])
    assert (launch.padded_macs, launch.slots) == (other.padded_macs, other.slots)


@pytest.mark.parametrize(
    ("changes", "m", "widths"),
    [
        ("alpha: 2", 80, 80),
        ("activation: silu", 20, 32),
        ("activation: silu", 80, 128),
        ("bias: n, activation: silu", 200, 192),
        ("bias: n, bias_type: f32", 200, 112),
        ("bias: m, bias_type: f32", 150, 160),  # 152 rows have code for alpha A B alone
        ("bias: m, alpha: 2", 170, 176),  # joins it
        ("beta: 1, activation: relu", 80, 128),
        ("activation: relu", 80, 80),
        ("beta: 1", 500, 192),
        ("beta: 1, ldc: 65", 500, 192),
        ("beta: 1, gate: halves", 20, 32),
    ],
)
def test_what_is_behind_the_sums_has_fewer_widths(changes: str, m: int, widths: int) -> None:
    some = make_problem(f"m: {m}, n: 64, k: 64, {changes}")
    launch = launch_of(some, kernel("128x192-c2p"))
    assert set(launch.boxes.tolist()) == set(launch.widths.tolist()) == {widths}


@pytest.mark.parametrize(("m", "width"), [(FUSED_NARROW, FUSED_NARROW), (FUSED_NARROW + 1, 64)])
def test_among_them_is_a_narrow_one_for_all_rows_that_it_has(m: int, width: int) -> None:
    launch = launch_of(make_problem(f"m: {m}, n: 64, k: 64, activation: silu"), kernel("128x256"))
    assert launch.widths.tolist() == [width]


@pytest.mark.parametrize(
    ("name", "layouts", "m", "widest", "width"),
    [
        ("128x256", ("row", "col"), 384, 96, 96),
        ("128x256-c2", ("row", "col"), 384, 112, 96),
        ("128x256-c2", ("row", "row"), 200, 128, 112),
        ("128x256", ("row", "col"), 384, 256, 256),
        ("128x256", ("row", "col"), 50, 256, 64),
        ("128x256-c2", ("col", "col"), 384, 96, 64),
        ("128x192-c2p", ("row", "col"), 384, 96, 64),
        ("64x256", ("row", "col"), 384, 96, 64),
    ],
)
def test_where_warpgroups_share_tiles_what_is_fused_has_narrow_ones_in_all_steps(
    name: str, layouts: tuple[str, str], m: int, widest: int, width: int
) -> None:
    a_layout, b_layout = layouts
    lie = f"a_layout: {a_layout}, b_layout: {b_layout}"
    some = make_problem(f"m: {m}, n: 2056, k: 64, activation: silu, {lie}")
    assert launch_of(some, kernel(name, layouts=layouts), widest).widths.tolist() == [width]


@pytest.mark.parametrize(
    ("rows", "n", "widths"),
    [((80, 80), 2056, [80, 80]), ((80, 96), 2056, [128, 128]), ((80, 80), 2048, [128, 128])],
)
def test_but_only_where_a_quarter_of_the_sms_has_tiles_and_all_are_as_wide(
    rows: tuple[int, ...], n: int, widths: list[int]
) -> None:
    groups = [f"m: {m}, n: {n}, k: 64" for m in rows]
    some = make_problem(*groups, defaults="activation: silu")
    assert launch_of(some, kernel("128x256")).widths.tolist() == widths


@pytest.mark.parametrize(
    ("changes", "m", "width", "rows"),
    [
        ("activation: silu", 1, 32, 16),
        ("activation: silu", 17, 32, 32),
        ("activation: silu", 33, 64, 48),
        ("activation: silu", 80, 128, 80),
        ("beta: 1, ldc: 65", 33, 64, 48),
        ("activation: silu", 300, 256, 256),  # two tiles, which share a tensor map
        ("", 33, 48, 48),
    ],
)
def test_of_a_single_row_of_tiles_no_more_is_loaded_than_is_there(
    changes: str, m: int, width: int, rows: int
) -> None:
    launch = launch_of(make_problem(f"m: {m}, n: 64, k: 64, {changes}"), kernel("128x256-c2"))
    assert set(launch.widths.tolist()) == {width} and launch.loaded.tolist() == [rows]
    assert set(launch.tiles["box"].tolist()) == {rows}
    assert launch.boxes.tolist() == [width]  # what stages have room for


@pytest.mark.parametrize(
    ("name", "bias", "widths"),
    [
        ("128x256", "m", {128, 192}),
        ("128x256", "n", {80, 144, 176}),  # it comes with alpha
        ("128x192-c2p", "m", {80, 144, 176}),
        ("128x192-c2p", "n", {80, 144, 176}),
    ],
)
def test_behind_a_bias_there_are_fewer_widths_where_it_neither_joins_sums_nor_comes_with_alpha(
    name: str, bias: str, widths: set[int]
) -> None:
    groups = [f"m: {m}, count: 40" for m in (70, 140, 170)]
    some = make_problem(*groups, defaults=f"n: 64, k: 64, bias: {bias}")
    assert set(launch_of(some, kernel(name)).tiles["width"].tolist()) == widths


@pytest.mark.parametrize("more", ["activation: silu", "bias: m", "beta: 1, alpha: 2", "ldd: 65"])
def test_parts_of_a_sum_have_every_width_whatever_comes_behind_it(more: str) -> None:
    some = make_problem(f"m: 70, n: 64, k: 4096, {more}")
    whole, split = (launch_of(some, kernel("128x256"), splits=parts) for parts in (1, 4))
    assert (whole.widths.tolist(), split.widths.tolist()) == ([128], [80])
    assert set(split.tiles["width"][split.tiles["k_tiles"] > 0].tolist()) == {80}


def test_there_the_last_tiles_are_as_narrow_as_fits_and_load_as_much_as_all() -> None:
    launch = launch_of(
        make_problem("m: 400, n: 200, k: 64, activation: silu"), kernel("128x192-c2p")
    )
    tiles = np.sort(launch.tiles, order=["m0", "n0"])
    assert tiles["width"].tolist() == [192, 192, 32]
    assert tiles["box"].tolist() == [192, 192, 192]
    assert launch.padded_macs == (192 + 192 + 32) * 256 * 64


@pytest.mark.parametrize(
    ("changes", "m", "name", "width", "box"),
    [
        ("", 150, "128x192-c2p", 152, 160),
        ("alpha: 2", 150, "128x256", 152, 160),
        ("", 152, "128x192-c2p", 152, 160),
        ("", 153, "128x192-c2p", 160, 160),
        ("", 97, "128x192-c2p", 104, 112),
        ("", 96, "128x192-c2p", 96, 96),
        ("", 88, "128x192-c2p", 96, 96),
        ("", 300, "128x192-c2p", 152, 160),
        ("", 64, "128x192-c2px", 104, 112),  # of 200 columns
        ("", 200, "128x256", 208, 208),
        ("ldd: 201", 150, "128x192-c2p", 160, 160),
        ("beta: 1", 150, "128x192-c2p", 160, 160),
    ],
)
def test_wide_tiles_of_nothing_but_alpha_a_b_multiply_fewer_rows_than_they_load(
    changes: str, m: int, name: str, width: int, box: int
) -> None:
    launch = launch_of(make_problem(f"m: {m}, n: 200, k: 640, {changes}"), kernel(name))
    assert set(launch.tiles["width"].tolist()) == set(launch.widths.tolist()) == {width}
    assert set(launch.tiles["box"].tolist()) == set(launch.boxes.tolist()) == {box}
    assert sorted(set(launch.tiles["m0"].tolist()))[-1] % width == 0


@pytest.mark.parametrize(
    ("changes", "name", "widths"),
    [
        (f"k: {BEGUN_K}", "128x192-c2p", [160, 160]),
        (f"k: {BEGUN_K}, bias: n, activation: relu", "128x192-c2p", [160, 160]),
        (f"k: {BEGUN_K - 1}", "128x192-c2p", [192, 128]),
        (f"k: {BEGUN_K}, activation: silu", "128x192-c2p", [192, 128]),
        (f"k: {BEGUN_K}, alpha: 2", "128x192-c2p", [192, 128]),  # which would multiply C, too
        (f"k: {BEGUN_K}", "128x256-c2", [192, 128]),
    ],
)
def test_long_sums_that_begin_with_c_have_tiles_of_equal_height(
    changes: str, name: str, widths: list[int]
) -> None:
    some = make_problem(f"m: 300, n: 256, beta: 1, {changes}")
    tiles = np.sort(launch_of(some, kernel(name), 192).tiles, order="m0")
    assert tiles["width"].tolist() == widths


def test_where_k_lies_across_a_sums_that_begin_with_c_have_few_widths_however_long() -> None:
    some = make_problem(f"m: 150, n: 256, k: {BEGUN_K}, beta: 1, a_layout: col")
    of = kernel("128x192-c2p", layouts=("col", "col"))
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 192))
    assert launch.tiles["flags"].tolist() == [TILE_WORDS | TILE_C_IN_SUMS]
    assert launch.widths.tolist() == [192]


def test_widths_in_finer_steps_have_to_save_more_than_their_code_costs() -> None:
    """Of 64 groups of 98 and as many of 130 rows, each eight rows."""
    for k, widths in ((640, {112, 144}), (4096, {104, 136})):
        some = make_problem(*(f"m: {m}, n: 256, k: {k}" for m in (98, 130) for _ in range(64)))
        assert set(launch_of(some, kernel("128x192-c2p")).widths.tolist()) == widths


def test_parts_of_a_sum_have_whole_steps() -> None:
    of = kernel("128x192-c2p")
    some = make_problem("m: 150, n: 200, k: 1024")
    split = cut_as(some, np.arange(1), of, Choice(of.name, 192, 2))
    assert set(split.tiles["width"].tolist()) == {160, REDUCED_ROWS}


def test_where_k_lies_across_a_whole_boxes_are_loaded_and_no_more_is_multiplied() -> None:
    some = make_problem("m: 300, n: 200, k: 640, a_layout: col")
    of = kernel("128x192-c2p", layouts=("col", "col"))
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 192))
    assert launch.boxes.tolist() == [192]
    assert (launch.widths.tolist(), launch.last.tolist()) == ([160], [144])


@given(cuts() | joined_cuts())
def test_every_tile_has_a_width_that_its_kernel_has_code_for(drawn: Cut) -> None:
    some, launch = drawn
    tiles = launch.tiles[launch.tiles["k_tiles"] > 0]
    fine = tiles["width"] % WIDTH_STEP > 0
    finer = np.arange(FINE_FROM + FINE_STEP, FINE_TO, FINE_STEP)
    assert np.isin(tiles["width"][fine], finer).all() and fine.any() <= launch.kernel.finer
    assert (tiles["flags"][fine] & (TILE_WORDS | TILE_FUSED | TILE_ADDED) == TILE_WORDS).all()
    assert (tiles["splits"][fine] == 0).all()
    assert (tiles["box"] % launch.kernel.box_step == 0).all()
    rows = seen(some, launch.kernel).m[launch.groups][tiles["group"]] - tiles["m0"]
    assert (np.minimum(rows, tiles["width"]) <= tiles["box"]).all()
    assert (tiles["box"] <= launch.boxes[tiles["group"]]).all()
    assert (launch.boxes <= launch.kernel.max_width).all()
    short = (tiles["k_tiles"] * K_TILE < BEGUN_K) & (not launch.kernel.begins_plain)
    short |= not launch.kernel.begins_finer
    few = (tiles["flags"] & TILE_FUSED > 0) | (tiles["flags"] & TILE_C_IN_SUMS > 0) & short
    if not launch.kernel.light_finer:
        few |= tiles["flags"] & TILE_PLUS > 0
        few |= tiles["flags"] & (TILE_WORDS | TILE_ADDED) == 0
    few &= tiles["splits"] == 0
    fused = tiles["width"][few]
    finer = launch.kernel.fuses_finer & (fused > FUSED_STEP) & (fused < FUSED_FINER_TO)
    assert ((fused % FUSED_STEP == 0) | (fused == FUSED_NARROW) | finer).all()


@given(cuts())
def test_tiles_are_as_few_as_their_width_allows_and_no_wider_than_that_takes(drawn: Cut) -> None:
    some, launch = drawn
    columns = seen(some, launch.kernel)
    plain = (columns.depth[launch.groups] > 0) & (columns.beta[launch.groups] == 0)
    plain &= some.columns.whole_words[launch.groups] | launch.kernel.light_finer
    m, widths = columns.m[launch.groups][plain], launch.widths[plain]
    high = -(-m // launch.choice.width)  # tiles on top of each other
    assert (launch.widths <= max(launch.choice.width, FUSED_NARROW)).all()
    assert (launch.widths % FINE_STEP == 0).all()
    assert (launch.boxes % launch.kernel.box_step == 0).all()
    assert (-(-m // widths) <= high).all()
    assert ((-(-widths // WIDTH_STEP) - 1) * WIDTH_STEP * high < m).all()


def test_tiles_with_too_little_k_stay_whole_beside_split_ones() -> None:
    some = make_problem(f"m: 64, n: 64, k: {4 * SHARE}", f"m: 64, n: 64, k: {2 * SHARE - K_TILE}")
    launch = launch_of(some, kernel("64x128"), splits=4)
    assert launch.tiles[["group", "splits"]].tolist() == [(0, 4)] * 4 + [(1, 0)] + [(0, 4)] * 4


def test_the_longest_sum_has_as_many_parts_as_chosen_and_shorter_ones_fewer_in_proportion() -> None:
    shares = [30, 60, 90, 120, 119, 29]
    some = make_problem(*(f"m: 64, n: 64, k: {share * SHARE}" for share in shares))
    launch = launch_of(some, kernel("64x128"), splits=4)
    assert launch.parts.tolist() == [1, 2, 3, 4, 3, 1]


def test_a_sum_out_of_proportion_is_split_whatever_its_neighbours_do() -> None:
    giant, small = f"m: 64, n: 64, k: {64 * SHARE}", f"m: 64, n: 64, k: {3 * SHARE}, count: 5000"
    split = [choice.splits for choice in considered(make_problem(small, giant), kernel("64x128"))]
    launch = launch_of(make_problem(small, giant), kernel("64x128"), splits=max(split))
    assert set(launch.parts[:5000].tolist()) == {1}
    assert launch.parts[5000] > 1


def test_a_group_without_k_is_cut_as_finely_as_parts_are_added_up() -> None:
    tiles = launch_of(make_problem("m: 50, n: 100, k: 0"), kernel("128x256")).tiles
    assert tiles[["m0", "width", "k_tiles"]].tolist() == [
        (m0, REDUCED_ROWS, 0) for m0 in range(0, 50, REDUCED_ROWS)
    ]


def considered(
    some: Problem, of: Kernel, machine: Machine = H200, *, alone: bool = True
) -> list[Choice]:
    return choices(some, np.arange(len(some.groups)), of, machine, alone)


@pytest.mark.parametrize("name", ["128x256-c2", "128x256", "128x192-c2p", "64x128"])
def test_widths_from_the_kernels_own_down_to_64_are_considered(name: str) -> None:
    of = kernel(name)
    widths = [choice.width for choice in considered(make_problem("m: 6000, n: 6000, k: 64"), of)]
    assert widths == list(range(of.max_width, 63, -16))


def test_where_tiles_of_64_rows_leave_sms_idle_a_launch_alone_may_have_those_of_32() -> None:
    of = kernel("128x256")
    for m, alone, narrowest in ((64 * 131, True, 32), (64 * 132, True, 64), (64, False, 64)):
        some = make_problem(f"m: {m}, n: 128, k: 64")
        widths = [choice.width for choice in considered(some, of, alone=alone)]
        assert widths == list(range(of.max_width, narrowest - 1, -16))


def test_for_many_groups_every_other_width_is_enough() -> None:
    of = kernel("128x256-c2")
    for count, step in ((MANY_GROUPS, 16), (MANY_GROUPS + 1, 32)):
        ways = considered(make_problem(f"m: 600, n: 600, k: 64, count: {count}"), of)
        assert [way.width for way in ways] == list(range(of.max_width, 63, -step))


@pytest.mark.parametrize(("name", "step"), [("128x256-c2", 16), ("128x192-c2p", 64)])
def test_where_k_lies_across_a_warpgroups_take_turns_at_whole_boxes_alone(
    name: str, step: int
) -> None:
    some = make_problem("m: 6000, n: 6000, k: 64, a_layout: col")
    of = kernel(name, layouts=("col", "col"))
    widths = [choice.width for choice in considered(some, of)]
    assert widths == list(range(of.max_width, 63, -step))


def sharing(k_parts: int) -> Kernel:
    """The kernel of which so many CTAs share the K of a tile."""
    plain = ("bf16", "bf16", "row", "col")
    return next(one for one in KERNELS if one.k_parts == k_parts and one.multiplies == plain)


@pytest.mark.parametrize(("k_parts", "sms", "room"), [(2, 132, 66), (4, 132, 30), (4, 3, 1)])
def test_ctas_that_share_k_are_a_cluster_of_which_fewer_fit_the_larger_it_is(
    k_parts: int, sms: int, room: int
) -> None:
    of = sharing(k_parts)
    assert (of.ctas, of.columns_per_tile) == (k_parts, of.rows)
    some = make_problem("m: 64, n: 640, k: 4096")
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 64), Machine(sms))
    assert (launch.room, len(launch.tiles)) == (room, 10)
    assert launch.tiles["k_tiles"].tolist() == [64] * 10  # of all of them together


@pytest.mark.parametrize("of", [sharing(2), kernel("64x256")], ids=["shares k", "lone"])
def test_kernels_for_few_tiles_are_for_a_launch_alone_of_fewer_groups_than_sms(of: Kernel) -> None:
    both = [of, kernel("64x128")]
    assert list(considered_kernels(both, 131, H200, alone=True)) == both
    for groups, alone in ((132, True), (131, False)):
        assert list(considered_kernels(both, groups, H200, alone)) == both[1:]
        assert list(considered_kernels(both[:1], groups, H200, alone)) == both[:1]  # none else


@pytest.mark.parametrize("of", [sharing(2), kernel("64x256")], ids=["shares k", "lone"])
def test_there_no_sum_is_worth_splitting(of: Kernel) -> None:
    some = make_problem("m: 64, n: 64, k: 65536")
    assert {choice.splits for choice in considered(some, of)} == {1}


def test_a_kernel_is_lone_whose_one_warpgroup_has_an_sm_and_a_tile_to_itself() -> None:
    assert {of.name for of in KERNELS if of.lone} == {"64x256", "64x256-x"}


def test_k_is_split_where_whole_tiles_leave_the_gpu_idle() -> None:
    some = make_problem("m: 256, n: 512, k: 65536")
    split = [choice for choice in considered(some, kernel("128x256-c2")) if choice.splits > 1]
    assert split


def test_k_is_split_into_no_more_parts_than_stay_long_enough() -> None:
    some = make_problem(f"m: 64, n: 64, k: {5 * MIN_SPLIT_K_TILES * K_TILE}")
    assert {choice.splits for choice in considered(some, kernel("128x256-c2"))} == {1, 2, 3, 5}


def test_one_long_sum_among_short_ones_may_be_split() -> None:
    some = make_problem("m: 64, n: 64, k: 65536", "m: 64, n: 64, k: 8")
    assert max(choice.splits for choice in considered(some, kernel("64x128"))) > 1


def test_k_is_split_in_two_as_soon_as_it_has_two_parts_of_enough_length() -> None:
    some = make_problem(f"m: 64, n: 64, k: {2 * MIN_SPLIT_K_TILES * K_TILE}")
    assert {choice.splits for choice in considered(some, kernel("64x128"))} == {1, 2}


def test_k_is_not_split_where_whole_tiles_fill_the_gpu() -> None:
    some = make_problem("m: 4096, n: 4096, k: 65536")
    assert {choice.splits for choice in considered(some, kernel("128x256-c2"))} == {1}


def test_k_is_not_split_where_it_is_short() -> None:
    some = make_problem(f"m: 64, n: 64, k: {(2 * MIN_SPLIT_K_TILES - 1) * K_TILE}")
    assert {choice.splits for choice in considered(some, kernel("64x128"))} == {1}


@given(st.data())
def test_every_choice_is_considered_once_and_has_few_parts_for_each_cluster(
    data: st.DataObject,
) -> None:
    of, machine = data.draw(st.sampled_from(KERNELS)), Machine(data.draw(st.integers(2, 132)))
    some = drawn_problem(data.draw, of, st.integers(0, 20000))
    found = considered(some, of, machine)
    assert len(set(found)) == len(found)
    for choice in found:
        launch = cut_as(some, np.arange(len(some.groups)), of, choice, machine)
        if choice.splits > 1:
            assert 0 < launch.slots <= MOST_PARTS * launch.room


def test_sums_that_begin_with_c_are_in_no_more_parts_for_being_cut_into_other_widths() -> None:
    # Whole or in two parts, which begin with no C: 66 tiles of 112 rows, and not 132 of 64.
    some, of = make_problem("m: 200, n: 8448, k: 65536, beta: 1"), kernel("128x192-c2p")
    found = considered(some, of, Machine(132))
    assert {Choice("128x192-c2p", 112), Choice("128x192-c2p", 112, 2)} <= set(found)
    assert [launch_of(some, of, 112, parts).whole.sum() for parts in (1, 2)] == [66, 66]


@pytest.mark.parametrize(
    ("choice", "written"),
    [(Choice("64x128", 96), "64x128 w96"), (Choice("128x256-c2", 256, 2), "128x256-c2 w256 k/2")],
)
def test_a_choice_is_written_in_one_word_for_each_decision(choice: Choice, written: str) -> None:
    assert str(choice) == written


@pytest.mark.parametrize(("name", "room"), [("128x256-c2", 66), ("128x256", 132), ("64x128", 264)])
def test_an_h200_has_room_for_so_many_clusters(name: str, room: int) -> None:
    assert launch_of(make_problem("m: 1, n: 1, k: 1"), kernel(name)).room == room


def test_padded_work_is_that_of_whole_tiles_and_whole_slices_of_k() -> None:
    launch = launch_of(make_problem("m: 17, n: 65, k: 65"), kernel("64x128"))
    assert launch.padded_macs == 32 * 128 * 128


def test_splitting_k_multiplies_no_more() -> None:
    some, of = make_problem("m: 300, n: 300, k: 4100"), kernel("128x256-c2")
    assert launch_of(some, of, splits=7).padded_macs == launch_of(some, of).padded_macs


def test_a_smaller_gpu_has_less_room() -> None:
    launch = launch_of(make_problem("m: 256, n: 128000, k: 64"), kernel("128x256"))
    assert replace(launch, machine=Machine(78)).clusters == 78


def test_the_kernel_has_a_main_loop_for_every_width() -> None:
    source = text("consume.cuh").partition("#define WIDTHS_ABOVE_128")[0]
    widths = [int(width) for width in re.findall(r"\bWIDTH\((\d+)\)", source)]
    whole = range(WIDTH_STEP, WIDTHS * WIDTH_STEP + 1, WIDTH_STEP)
    assert sorted(widths) == sorted({*whole, *range(FINE_FROM, FINE_TO, FINE_STEP)})


def test_kernels_of_one_warpgroup_have_one_that_takes_c_in_for_every_width() -> None:
    source = text("consume.cuh")
    apart = source.partition("if constexpr (C::c_between) switch (tile.width) {")[2]
    names = re.findall(r"(WIDTHS_\w+)\(WIDTH\)", apart.partition("}")[0])
    widths: list[int] = []
    for name in names:
        (listed,) = re.findall(rf"define {name}\(WIDTH\)[ \\]*\n(.*)\n", source)
        widths += [int(width) for width in re.findall(r"\bWIDTH\((\d+)\)", listed)]
    most = max(of.max_width for of in KERNELS if of.begins_plain)
    assert widths == list(range(WIDTH_STEP, most + 1, WIDTH_STEP))
