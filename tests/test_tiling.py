"""The tile list: every element of every D once, whatever the shapes, the kernel and the cut."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gemmctl.kernels import cubins
from gemmctl.kernels.constants import (
    FINE_FROM,
    FINE_STEP,
    FINE_TO,
    FUSED_NARROW,
    FUSED_STEP,
    K_TILE,
    RECORDS,
    REDUCED_ROWS,
    TILE_ADDED,
    TILE_BACKWARD,
    TILE_BIAS,
    TILE_C_FIRST,
    TILE_EIGHTS,
    TILE_FUSED,
    TILE_GATED,
    TILE_ONCE,
    TILE_RELU,
    TILE_RESIDUES,
    TILE_WORDS,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import plan, tables, tail
from gemmctl.planning.tiling import (
    ADDED_K,
    ADDED_SHARE,
    H200,
    LONG_K,
    LONG_SHARE,
    MANY_UNTIL,
    MIN_SPLIT_K_TILES,
    MIXED_K,
    MOST_PARTS,
    ONCE_ROWS,
    PANEL_ROWS,
    TILE,
    TURNING_K,
    Choice,
    Launch,
    Machine,
    choices,
    cut,
    grid,
    seen,
)
from sources import members, size, text
from support import cut_as, make_problem, takes_all

KERNELS = cubins.manifest().kernels
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # busy machines

Cut = tuple[Problem, Launch]


def kernel(name: str, output: str = "bf16") -> Kernel:
    return next(k for k in KERNELS if (k.name, k.operand, k.output) == (name, "bf16", output))


def launch_of(some: Problem, with_kernel: Kernel, width: int = 0, splits: int = 1) -> Launch:
    """All groups cut for one kernel; without a width, its own."""
    choice = Choice(with_kernel.name, width or with_kernel.max_width, splits)
    return cut_as(some, np.arange(len(some.groups)), with_kernel, choice)


def drawn_problem(draw: st.DrawFn, of: Kernel, k: st.SearchStrategy[int]) -> Problem:
    """Groups that a kernel takes."""
    extent = st.one_of(st.integers(1, 40), st.integers(1, 600))
    scalars, columns = ["", ", alpha: 0.5", ", alpha: 0", ", beta: 2"], extent
    if not takes_all(of):
        scalars, columns = scalars[:-1], st.integers(1, 75).map(lambda words: 8 * words)
    return make_problem(
        *(
            f"m: {draw(extent)}, n: {draw(columns)}, k: {draw(k)}{draw(st.sampled_from(scalars))}"
            for _ in range(draw(st.integers(1, 4)))
        )
    )


def drawn_choice(draw: st.DrawFn, of: Kernel, least_splits: int = 1) -> Choice:
    width = WIDTH_STEP * draw(st.integers(1, of.max_width // WIDTH_STEP))
    return Choice(of.name, width, draw(st.integers(least_splits, 9)))


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Some groups of a problem in any order, cut for any kernel in any way."""
    of = draw(st.sampled_from(KERNELS))
    some = drawn_problem(draw, of, st.integers(0, 3000))
    order = draw(st.permutations(range(len(some.groups))))
    groups = np.array(order[: draw(st.integers(1, len(order)))])
    return some, cut_as(some, groups, of, drawn_choice(draw, of))


@st.composite
def joined_cuts(draw: st.DrawFn) -> Cut:
    """Cuts in which a group's last columns of tiles have another width than its first."""
    of = draw(st.sampled_from(KERNELS))
    some = drawn_problem(draw, of, st.integers(0, 3000))
    choice, other = (drawn_choice(draw, of) for _ in range(2))
    one, two = (
        grid(some, np.arange(len(some.groups)), of, width, H200)
        for width in (choice.width, other.width)
    )
    taken = np.array([draw(st.integers(0, wide)) for wide in one.wide.tolist()])
    return some, cut(some, tail.joined(one, two, taken), choice)


@st.composite
def split_cuts(draw: st.DrawFn) -> Cut:
    """Cuts in which the sum over K of one tile at least is split."""
    of = draw(st.sampled_from(KERNELS))
    some = drawn_problem(draw, of, st.one_of(st.integers(1024, 6000), st.integers(0, 6000)))
    launch = cut_as(some, np.arange(len(some.groups)), of, drawn_choice(draw, of, 2))
    assume(launch.slots)
    return some, launch


def parts(launch: Launch) -> npt.NDArray[np.void]:
    return launch.tiles[(launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] > 0)]


def sums(launch: Launch) -> npt.NDArray[np.void]:
    """The entries that add up parts."""
    return launch.tiles[(launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] == 0)]


def stores(launch: Launch) -> npt.NDArray[np.void]:
    """The entries that write to D."""
    return launch.tiles[(launch.tiles["splits"] == 0) | (launch.tiles["k_tiles"] == 0)]


def by_flag(launch: Launch) -> list[tuple[Any, Any]]:
    """The parts and the sums of every split tile."""
    added, adding = parts(launch), sums(launch)
    flags = np.unique(added["flag"])
    return [(added[added["flag"] == f], adding[adding["flag"] == f]) for f in flags]


# Every D


@pytest.mark.parametrize(("width", "splits"), [(256, 1), (112, 1), (256, 4)])
def test_with_operands_exchanged_a_product_is_cut_as_that_of_its_operands_the_other_way_round(
    width: int, splits: int
) -> None:
    shapes = [(304, 400, 4096), (24, 8, 100), (1000, 640, 1030), (640, 1000, 1030), (40, 64, 0)]
    some = make_problem(*(f"m: {m}, n: {n}, k: {k}" for m, n, k in shapes))
    turned = make_problem(*(f"m: {n}, n: {m}, k: {k}, ldd: 1000" for m, n, k in shapes))
    launch = launch_of(some, kernel("128x256-x"), width, splits)
    other = launch_of(turned, kernel("128x256"), width, splits)
    fields = [name for name in TILE.names or () if name != "flags"]
    assert np.array_equal(launch.tiles[fields], other.tiles[fields])
    assert (launch.padded_macs, launch.slots) == (other.padded_macs, other.slots)


@patient
@given(cuts() | joined_cuts())
def test_every_element_of_every_d_lies_in_exactly_one_tile(drawn: Cut) -> None:
    some, launch = drawn
    columns = seen(some, launch.kernel)
    written = {
        index: np.zeros((columns.m[index], columns.n[index]), int)
        for index in launch.groups.tolist()
    }
    for tile in stores(launch):
        m0, n0, width = (int(tile[name]) for name in ("m0", "n0", "width"))
        whole = written[int(launch.groups[tile["group"]])]
        inside = whole[m0 : m0 + width, n0 : n0 + launch.kernel.columns_per_tile]
        assert inside.size, "a tile outside of D"
        inside += 1
    assert all((times == 1).all() for times in written.values())


@given(cuts() | joined_cuts())
def test_an_entry_has_the_scalars_of_its_group(drawn: Cut) -> None:
    some, launch = drawn
    of = launch.groups[launch.tiles["group"]]
    assert np.array_equal(launch.tiles["alpha"], some.columns.alpha[of].astype(np.float32))
    assert np.array_equal(launch.tiles["beta"], some.columns.beta[of].astype(np.float32))


@given(cuts() | joined_cuts())
def test_what_is_not_split_sums_all_of_k(drawn: Cut) -> None:
    some, launch = drawn
    whole = launch.tiles[launch.tiles["splits"] == 0]
    k = some.columns.depth[launch.groups[whole["group"]]]
    assert not whole["k0"].any()
    assert np.array_equal(whole["k_tiles"], -(-k // K_TILE))


WORDS, FUSED, GATED = TILE_WORDS, TILE_FUSED, TILE_GATED


@pytest.mark.parametrize(
    ("changes", "output", "flags"),
    [
        ("n: 64", "bf16", WORDS),
        ("n: 64, alpha: 2", "bf16", WORDS),
        ("n: 64, beta: 1", "bf16", WORDS | FUSED),
        ("n: 60, ldd: 64", "bf16", 0),
        ("n: 64, ldd: 68", "bf16", 0),
        ("n: 60, ldd: 68", "f32", WORDS),
        ("n: 62, ldd: 68", "f32", 0),
        ("n: 60, ldd: 70", "f32", 0),
        ("n: 64, bias: n", "bf16", WORDS | TILE_BIAS),
        ("n: 63, bias: m", "bf16", TILE_BIAS),
        ("n: 64, bias: n, beta: 1", "bf16", WORDS | FUSED),
        ("n: 64, bias: n, activation: silu", "bf16", WORDS | FUSED),
        ("n: 64, bias: n, gate: halves", "bf16", WORDS | FUSED | GATED | TILE_EIGHTS),
        ("n: 64, activation: relu", "bf16", WORDS | TILE_RELU),
        ("n: 63, activation: relu, alpha: 2", "f32", TILE_RELU),
        ("n: 64, activation: relu, beta: 1", "bf16", WORDS | FUSED),
        ("n: 64, activation: relu, bias: n", "bf16", WORDS | TILE_RELU | TILE_BIAS),
        ("n: 64, activation: relu, gate: halves", "bf16", WORDS | FUSED | GATED | TILE_EIGHTS),
        ("n: 64, activation: gelu", "bf16", WORDS | FUSED),
        ("n: 64, gate: halves", "bf16", WORDS | FUSED | GATED | TILE_EIGHTS),
        ("n: 60, gate: pairs", "bf16", FUSED | GATED),
        ("n: 64, beta: 1, ldc: 65", "bf16", WORDS | FUSED | TILE_RESIDUES),
        ("n: 63, beta: 1, inplace: true", "bf16", FUSED | TILE_RESIDUES),
        ("n: 64, beta: 1, ldc: 72", "bf16", WORDS | FUSED),
        ("n: 64, beta: 1, ldc: 65, gate: pairs", "bf16", WORDS | FUSED | GATED | TILE_EIGHTS),
        (f"n: 64, beta: 1, ldc: {2**36 - 1}", "bf16", WORDS | FUSED | TILE_RESIDUES),
        (f"n: 64, beta: 1, ldc: {2**36 + 1}", "bf16", WORDS | FUSED),  # 2^40 bytes to the next
        ("n: 64, ldc: 65", "bf16", WORDS),
    ],
)
def test_a_tile_says_whether_d_has_whole_16_byte_words_and_what_comes_behind_alpha_a_b(
    changes: str, output: str, flags: int
) -> None:
    some = make_problem(f"m: 64, k: 64, d: {output}, {changes}")
    launch = launch_of(some, kernel("64x128", output))
    assert launch.tiles["flags"].tolist() == [flags]


IN_PLACE = {"d": "f32", "beta": 1, "inplace": "true", "k": ADDED_K, "n": 64}


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, TILE_ADDED),
        ({"alpha": -2, "n": 60, "ldd": 68}, TILE_ADDED),
        ({"k": ADDED_K - 1}, WORDS | FUSED),  # the L2 adds more slowly than memory moves D
        ({"beta": 2}, WORDS | FUSED),
        ({"beta": 0}, WORDS),
        ({"alpha": 0}, WORDS | FUSED),  # of no depth
        ({"inplace": "false"}, WORDS | FUSED),
        ({"d": "bf16"}, WORDS | FUSED),  # its sum is rounded once
        ({"n": 62, "ldd": 64}, FUSED),  # TMA adds whole words
        ({"ldd": 66}, FUSED | TILE_RESIDUES),
        ({"bias": "n"}, WORDS | FUSED),
        ({"activation": "relu"}, WORDS | FUSED),
    ],
    ids=str,
)
def test_long_sums_of_32_bits_are_added_to_d_where_it_lies(
    changes: dict[str, object], flags: int
) -> None:
    told = ", ".join(f"{key}: {value}" for key, value in (IN_PLACE | changes).items())
    some = make_problem(f"m: 64, {told}")
    output = some.groups[0].d
    launch = launch_of(some, kernel("128x256", output))
    assert set(launch.tiles["flags"].tolist()) == {flags}
    from_ring = flags & FUSED and changes.get("alpha") != 0
    assert launch.tiles["c_stages"].any() == bool(from_ring)
    (made,) = plan.make([some], KERNELS)
    assert tables.build(launch, made, 0).added.tolist() == [int(flags == TILE_ADDED)]


def f32_in_place(m: int, k: int) -> str:
    return f"m: {m}, n: 256, k: {k}, d: f32, beta: 1, inplace: true"


@pytest.mark.parametrize(
    ("groups", "added"),
    [
        ([(64, ADDED_K - 1)], [0]),  # it would wait for the L2
        ([(64, MIXED_K - 1), *[(64, 8)] * 9], [0] * 10),
        ([(64, MIXED_K), *[(64, 8)] * 9], [1] + [0] * 9),
        ([(64, 8 * i) for i in range(70, 80)], [0] * 6 + [1] * 4),  # the longest
        ([(64, 640)] * 10, [1] * 4 + [0] * 6),
        (
            [(320, 800), (64, 720), *[(64, 8)] * 5],
            [0] * 7,
        ),  # what comes after too long a one waits, too
        ([(640, ADDED_K), (64, 720), *[(64, 8)] * 3], [1, 0, 0, 0, 0]),
    ],
    ids=str,
)
def test_beside_others_shorter_sums_are_added_up_to_a_share_of_d(
    groups: list[tuple[int, int]], added: list[int]
) -> None:
    assert ADDED_SHARE == 0.4
    launch = launch_of(
        make_problem(*(f32_in_place(m, k) for m, k in groups)), kernel("128x256", "f32")
    )
    flags = {int(tile["group"]): bool(tile["flags"] & TILE_ADDED) for tile in launch.tiles}
    assert [flags[group] for group in range(len(groups))] == added


def test_tiles_that_the_l2_adds_are_spread_evenly_among_others() -> None:
    some = make_problem(f32_in_place(2560, 1024), f32_in_place(5120, 64))
    launch = launch_of(some, kernel("128x256", "f32"))
    added = (launch.tiles["flags"] & TILE_ADDED > 0).tolist()
    assert added == [False, True, False] * 20


def test_where_the_l2_adds_few_tiles_they_come_first() -> None:
    some = make_problem(f32_in_place(256, 1024), f32_in_place(5120, 64))
    launch = launch_of(some, kernel("128x256", "f32"))
    added = (launch.tiles["flags"] & TILE_ADDED > 0).tolist()
    assert added == [True] * 2 + [False] * 40


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ("beta: 1", WORDS | TILE_C_FIRST),
        ("beta: -0.3, inplace: true", WORDS | TILE_C_FIRST),
        ("beta: 1, ldd: 65", TILE_C_FIRST),
        ("beta: 1, activation: relu", WORDS | TILE_RELU | TILE_C_FIRST),
        ("beta: 1, activation: silu", WORDS | FUSED | TILE_C_FIRST),
        ("beta: 1, bias: n", WORDS | TILE_BIAS | TILE_C_FIRST),
        ("beta: 0", WORDS),
        ("beta: 1, alpha: 0.5", WORDS | FUSED),  # which would multiply C, too
        ("beta: 1, c: f32", WORDS | FUSED),
        ("beta: 1, c: f16", WORDS | FUSED),
        ("beta: 1, ldc: 65", WORDS | FUSED | TILE_RESIDUES),
        ("beta: 1, gate: pairs", WORDS | FUSED | GATED | TILE_EIGHTS),
        ("beta: 1, d: f32, c: f32", WORDS | FUSED),  # each multiplication would round C's last bits
    ],
)
def test_pingpong_sums_begin_with_a_c_of_ds_16_bits(changes: str, flags: int) -> None:
    some = make_problem(f"m: 64, n: 64, k: 64, {changes}")
    output = some.groups[0].d
    assert set(launch_of(some, kernel("128x192-c2p", output)).tiles["flags"].tolist()) == {flags}
    others = launch_of(some, kernel("128x256-c2", output)).tiles["flags"]
    assert not (others & TILE_C_FIRST).any()


@pytest.mark.parametrize("more", ["k: 0", "k: 64, alpha: 0", "k: 4096"])
def test_without_a_whole_sum_nothing_can_begin_it(more: str) -> None:
    launch = launch_of(
        make_problem(f"m: 64, n: 64, beta: 1, {more}"), kernel("128x192-c2p"), splits=4
    )
    assert not (launch.tiles["flags"] & TILE_C_FIRST).any()


@pytest.mark.parametrize(
    ("of", "changes", "stages"),
    [
        ("64x128", "beta: 1", 1),
        ("64x128", "beta: 1, c: f32", 2),
        ("128x256", "beta: 1, c: f16", 2),
        ("128x192-c2p", "beta: 1, c: f32", 4),
        ("64x128", "", 0),
        ("64x128", "beta: 1, ldc: 68", 1),  # rows off 16 bytes
        ("64x128", "beta: 1, c: f32, ldc: 68", 2),
        ("64x128", "beta: 1, gate: pairs", 0),  # not in their order
        ("64x128", "beta: 1, alpha: 0", 0),  # nothing is multiplied, and nothing loaded
    ],
)
def test_c_takes_a_stage_of_the_ring_for_every_128_bytes_of_a_tiles_row(
    of: str, changes: str, stages: int
) -> None:
    launch = launch_of(make_problem(f"m: 64, n: 64, k: 64, {changes}"), kernel(of))
    assert set(launch.tiles["c_stages"].tolist()) == {stages}


def test_parts_of_a_sum_have_no_c_in_the_ring() -> None:
    launch = launch_of(make_problem("m: 64, n: 64, k: 4096, beta: 1"), kernel("64x128"), splits=4)
    assert launch.slots == 4
    assert not launch.tiles["c_stages"].any()


@pytest.mark.parametrize(
    ("changes", "m", "widths"),
    [
        ("alpha: 2", 80, 80),
        ("activation: silu", 20, 32),
        ("activation: silu", 80, 128),
        ("bias: n, activation: silu", 200, 192),
        ("bias: n", 200, 112),
        ("bias: m", 150, 160),  # 152 rows have code for alpha A B alone
        ("beta: 1, activation: relu", 80, 128),
        ("activation: relu", 80, 80),
        ("beta: 1", 500, 192),
        ("beta: 1, ldc: 65", 500, 192),
        ("beta: 1, gate: halves", 20, 32),
    ],
)
def test_more_than_a_bias_and_relu_has_fewer_widths(changes: str, m: int, widths: int) -> None:
    some = make_problem(f"m: {m}, n: 64, k: 64, {changes}")
    launch = launch_of(some, kernel("128x192-c2p"))
    assert set(launch.tiles["box"].tolist()) == set(launch.widths.tolist()) == {widths}


@pytest.mark.parametrize(
    ("name", "widths"), [("128x256", {128, 192}), ("128x192-c2p", {80, 144, 176})]
)
def test_behind_a_bias_there_are_more_widths_where_warpgroups_have_their_own_tiles(
    name: str, widths: set[int]
) -> None:
    groups = [f"m: {m}, count: 40" for m in (70, 140, 170)]
    launch = launch_of(make_problem(*groups, defaults="n: 64, k: 64, bias: n"), kernel(name))
    assert set(launch.tiles["width"].tolist()) == widths


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
        ("beta: 1", 150, "128x192-c2p", 192, 192),
    ],
)
def test_wide_tiles_of_nothing_but_alpha_a_b_multiply_fewer_rows_than_they_load(
    changes: str, m: int, name: str, width: int, box: int
) -> None:
    launch = launch_of(make_problem(f"m: {m}, n: 200, k: 640, {changes}"), kernel(name))
    assert set(launch.tiles["width"].tolist()) == set(launch.widths.tolist()) == {width}
    assert set(launch.tiles["box"].tolist()) == set(launch.boxes.tolist()) == {box}
    assert sorted(set(launch.tiles["m0"].tolist()))[-1] % width == 0


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
    wanted = ("128x192-c2p", "bf16", "bf16", "col", "col")
    (of,) = (k for k in KERNELS if (k.name, *k.multiplies) == wanted)
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 192))
    assert launch.boxes.tolist() == [192]
    assert (launch.widths.tolist(), launch.last.tolist()) == ([160], [144])


@given(cuts() | joined_cuts())
def test_every_tile_has_a_width_that_its_kernel_has_code_for(drawn: Cut) -> None:
    _, launch = drawn
    tiles = launch.tiles[launch.tiles["k_tiles"] > 0]
    fine = tiles["width"] % WIDTH_STEP > 0
    finer = np.arange(FINE_FROM + FINE_STEP, FINE_TO, FINE_STEP)
    assert np.isin(tiles["width"][fine], finer).all() and fine.any() <= launch.kernel.finer
    assert (tiles["flags"][fine] & (TILE_WORDS | TILE_FUSED | TILE_ADDED) == TILE_WORDS).all()
    assert (tiles["splits"][fine] == 0).all()
    assert (tiles["box"] % launch.kernel.box_step == 0).all()
    assert (tiles["width"] <= tiles["box"]).all() and (
        tiles["box"] <= launch.kernel.max_width
    ).all()
    few = tiles["flags"] & (TILE_FUSED | TILE_C_FIRST) > 0
    if not launch.kernel.light_finer:
        few |= tiles["flags"] & TILE_BIAS > 0
        few |= tiles["flags"] & (TILE_WORDS | TILE_ADDED) == 0
    fused = tiles["width"][few]
    assert ((fused % FUSED_STEP == 0) | (fused == FUSED_NARROW)).all()


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


# Split sums


@patient
@given(split_cuts())
def test_the_parts_of_a_tile_partition_k(drawn: Cut) -> None:
    some, launch = drawn
    for added, _ in by_flag(launch):
        (group,) = set(launch.groups[added["group"]].tolist())
        ends = added["k0"] + added["k_tiles"]
        assert added["k0"].tolist() == [0, *ends[:-1].tolist()]
        assert ends[-1] == -(-some.groups[group].depth // K_TILE)
        assert set(added["splits"].tolist()) == {len(added)}


@patient
@given(split_cuts())
def test_no_part_is_shorter_than_it_is_worth(drawn: Cut) -> None:
    _, launch = drawn
    assert parts(launch)["k_tiles"].min() >= MIN_SPLIT_K_TILES


@patient
@given(split_cuts())
def test_all_parts_of_a_tile_cover_the_same_rows_and_columns(drawn: Cut) -> None:
    _, launch = drawn
    for added, _ in by_flag(launch):
        assert len({tile.item() for tile in added[["group", "m0", "n0", "width"]]}) == 1


@patient
@given(split_cuts())
def test_the_readers_of_a_tile_partition_its_rows(drawn: Cut) -> None:
    some, launch = drawn
    m = seen(some, launch.kernel).m[launch.groups]
    for added, adding in by_flag(launch):
        tile = added[0]
        rows = min(int(tile["width"]), m[tile["group"]] - tile["m0"])
        assert adding["row"].tolist() == list(range(0, rows, REDUCED_ROWS))
        assert np.array_equal(adding["m0"], tile["m0"] + adding["row"])
        assert set(adding["width"].tolist()) == {REDUCED_ROWS}
        for name in ("group", "n0", "splits"):
            assert set(adding[name].tolist()) == {tile[name]}


@patient
@given(split_cuts())
def test_parts_and_readers_agree_on_how_many_readers_there_are(drawn: Cut) -> None:
    _, launch = drawn
    for added, adding in by_flag(launch):
        assert {*added["readers"].tolist(), *adding["readers"].tolist()} == {len(adding)}


@patient
@given(split_cuts())
def test_what_adds_up_parts_comes_after_everything_that_multiplies(drawn: Cut) -> None:
    _, launch = drawn
    adds_up = (launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] == 0)
    assert adds_up[-adds_up.sum() :].all()


@patient
@given(split_cuts())
def test_no_two_parts_share_a_slot_and_all_slots_are_counted(drawn: Cut) -> None:
    _, launch = drawn
    assert sorted(parts(launch)["slot"].tolist()) == list(range(launch.slots))


@patient
@given(split_cuts())
def test_a_reader_finds_the_parts_in_the_order_of_k(drawn: Cut) -> None:
    _, launch = drawn
    for added, adding in by_flag(launch):
        (first,) = set(adding["slot"].tolist())
        assert added["slot"].tolist() == list(range(first, first + len(added)))


@patient
@given(split_cuts())
def test_every_split_tile_has_a_flag_of_its_own_and_all_flags_are_counted(drawn: Cut) -> None:
    _, launch = drawn
    places = {tile.item() for tile in parts(launch)[["group", "m0", "n0"]]}
    flags = set(parts(launch)["flag"].tolist())
    assert flags == set(range(len(places))) == set(range(launch.flags))


@patient
@given(split_cuts())
def test_the_workspace_has_room_for_a_tile_of_sums_in_every_slot(drawn: Cut) -> None:
    _, launch = drawn
    tile_bytes = launch.kernel.rows * launch.kernel.cluster * launch.kernel.max_width * 4
    assert launch.workspace_bytes == launch.slots * tile_bytes


SHARE = MIN_SPLIT_K_TILES * K_TILE  # of K, that a part has at least


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


def test_a_launch_without_split_tiles_needs_no_workspace_and_no_flags() -> None:
    launch = launch_of(make_problem("m: 64, n: 64, k: 64"), kernel("64x128"), splits=4)
    assert (launch.slots, launch.flags, launch.workspace_bytes) == (0, 0, 0)


# The order


def test_tiles_go_in_panels_of_rows_each_panel_along_all_of_b_and_the_next_one_back() -> None:
    panel, wide, of = PANEL_ROWS // 256, 4, kernel("128x256")
    high = 2 * panel + 3
    some = make_problem(f"m: {256 * high}, n: {of.columns_per_tile * wide}, k: 64")
    tiles = launch_of(some, of).tiles
    places = [(int(t["m0"]) // 256, int(t["n0"]) // of.columns_per_tile) for t in tiles]
    there, back = range(wide), range(wide)[::-1]
    ways = [(range(panel), there), (range(panel, 2 * panel), back), (range(2 * panel, high), there)]
    assert places == [(i, j) for rows, columns in ways for j in columns for i in rows]


@pytest.mark.parametrize("width", [64, 96, 192, 256])
def test_a_panel_of_narrow_tiles_has_more_of_them(width: int) -> None:
    of = kernel("128x256")
    some = make_problem(f"m: {4 * PANEL_ROWS}, n: {2 * of.columns_per_tile}, k: 64")
    tiles = launch_of(some, of, width=width).tiles
    panel = tiles["m0"][: int((tiles["n0"] == 0).argmin())]
    assert PANEL_ROWS <= len(panel) * tiles["width"][0] < PANEL_ROWS + width


def test_every_other_wave_takes_a_long_k_backward() -> None:
    of = kernel("128x256-c2")
    wave = launch_of(make_problem("m: 16, n: 8, k: 8"), of).room
    some = make_problem(f"m: {256 * 5 * wave}, n: {of.columns_per_tile}, k: {TURNING_K}")
    backward = (launch_of(some, of).tiles["flags"] & TILE_BACKWARD).astype(bool).reshape(5, wave)
    assert backward.tolist() == [[turn] * wave for turn in (0, 1, 0, 1, 0)]


@pytest.mark.parametrize("k", [(64, 64), (TURNING_K - 64, TURNING_K - 64), (TURNING_K, 64)])
def test_where_not_all_k_are_long_all_tiles_take_k_forward(k: tuple[int, int]) -> None:
    some = make_problem(*(f"m: 8192, n: 8192, k: {each}" for each in k))
    assert not (launch_of(some, kernel("128x256-c2")).tiles["flags"] & TILE_BACKWARD).any()


def test_a_group_without_k_is_cut_as_finely_as_parts_are_added_up() -> None:
    tiles = launch_of(make_problem("m: 50, n: 100, k: 0"), kernel("128x256")).tiles
    assert tiles[["m0", "width", "k_tiles"]].tolist() == [
        (m0, REDUCED_ROWS, 0) for m0 in range(0, 50, REDUCED_ROWS)
    ]


def test_long_sums_come_first() -> None:
    some = make_problem("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 8192", "m: 64, n: 64, k: 4096")
    assert launch_of(some, kernel("64x128")).tiles["group"].tolist() == [1, 2, 0]


def test_short_sums_stay_in_the_order_of_the_list() -> None:
    some = make_problem("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 256", "m: 64, n: 64, k: 128")
    assert launch_of(some, kernel("64x128")).tiles["group"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("k", "order"), [(LONG_K, [2, 0, 1]), (LONG_K - 64, [0, 1, 2])])
def test_of_short_sums_a_tile_that_takes_much_of_a_clusters_time_comes_first(
    k: int, order: list[int]
) -> None:
    some = make_problem("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 128", f"m: 64, n: 64, k: {k}")
    assert launch_of(some, kernel("64x128")).tiles["group"].tolist() == order


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


@given(cuts())
def test_the_tiles_of_a_group_keep_their_order(drawn: Cut) -> None:
    """That which they have alone, if they are as many there."""

    def places(of: Launch, group: int) -> list[tuple[int, int]]:
        stored = (t for t in stores(of) if t["group"] == group)
        own = [(int(t["m0"] - t["row"]), int(t["n0"])) for t in stored]
        rows = sorted({row for row, _ in own})
        return list(dict.fromkeys((rows.index(row), column) for row, column in own))

    some, launch = drawn
    for entry, group in enumerate(launch.groups):
        alone = cut_as(some, np.array([group]), launch.kernel, launch.choice, launch.machine)
        if launch.high[entry] == alone.high[0]:
            assert places(launch, entry) == places(alone, 0)


@pytest.mark.parametrize("name", ["128x256", "128x192-c2p", "128x256-x", "64x256-px"])
@pytest.mark.parametrize(
    ("group", "once"),
    [
        (f"m: {ONCE_ROWS}, n: 300, k: {LONG_K}", True),
        (f"m: 1, n: 300, k: {LONG_K}", True),
        (f"m: {ONCE_ROWS + 1}, n: 300, k: {LONG_K}", False),
        (f"m: {ONCE_ROWS}, n: 300, k: {LONG_K - K_TILE}", False),
    ],
)
def test_a_b_that_few_rows_read_over_a_long_k_need_not_stay_in_the_l2(
    name: str, group: str, once: bool
) -> None:
    tiles = launch_of(make_problem(group), kernel(name)).tiles
    assert ((tiles["flags"] & TILE_ONCE > 0) == once).all()


def test_a_b_that_several_tiles_read_stays_however_few_their_rows() -> None:
    some, of = make_problem(f"m: {ONCE_ROWS}, n: 128, k: {LONG_K}"), kernel("128x256")
    narrow = launch_of(some, of, width=ONCE_ROWS // 2)
    assert len(narrow.tiles) == 2
    assert not (narrow.tiles["flags"] & TILE_ONCE).any()


def test_where_all_of_a_cluster_share_what_is_read_once_the_l2_is_not_told() -> None:
    some = make_problem(f"m: 1, n: 300, k: {LONG_K}")
    assert not (launch_of(some, kernel("128x256-c2x")).tiles["flags"] & TILE_ONCE).any()


# What is worth considering


def considered(some: Problem, of: Kernel, machine: Machine = H200) -> list[Choice]:
    return choices(some, np.arange(len(some.groups)), of, machine)


@pytest.mark.parametrize("name", ["128x256-c2", "128x256", "128x192-c2p", "64x128"])
def test_widths_from_the_kernels_own_down_to_64_are_considered(name: str) -> None:
    of = kernel(name)
    widths = [choice.width for choice in considered(make_problem("m: 600, n: 600, k: 64"), of)]
    assert widths == list(range(of.max_width, 63, -32))


def test_k_is_split_where_whole_tiles_leave_the_gpu_idle() -> None:
    some = make_problem("m: 256, n: 512, k: 65536")
    split = [choice for choice in considered(some, kernel("128x256-c2")) if choice.splits > 1]
    assert split


def test_k_is_split_into_no_more_parts_than_stay_long_enough() -> None:
    some = make_problem(f"m: 64, n: 64, k: {5 * MIN_SPLIT_K_TILES * K_TILE}")
    assert {choice.splits for choice in considered(some, kernel("128x256-c2"))} == {1, 2, 5}


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


@patient
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


@pytest.mark.parametrize(
    ("choice", "written"),
    [(Choice("64x128", 96), "64x128 w96"), (Choice("128x256-c2", 256, 2), "128x256-c2 w256 k/2")],
)
def test_a_choice_is_written_in_one_word_for_each_decision(choice: Choice, written: str) -> None:
    assert str(choice) == written


# What a launch says of itself


@pytest.mark.parametrize(("name", "room"), [("128x256-c2", 66), ("128x256", 132), ("64x128", 264)])
def test_an_h200_has_room_for_so_many_clusters(name: str, room: int) -> None:
    assert launch_of(make_problem("m: 1, n: 1, k: 1"), kernel(name)).room == room


def test_a_launch_starts_as_many_clusters_as_have_something_to_do() -> None:
    few = launch_of(make_problem("m: 256, n: 1280, k: 64"), kernel("128x256"))
    many = launch_of(make_problem("m: 256, n: 128000, k: 64"), kernel("128x256"))
    assert (few.clusters, many.clusters) == (10, 132)


def test_waves_are_tiles_over_the_clusters_that_fit() -> None:
    launch = launch_of(make_problem("m: 256, n: 25344, k: 64"), kernel("128x256"))
    assert launch.waves == 198 / 132


def test_waves_count_parts_and_not_what_adds_them_up() -> None:
    launch = launch_of(make_problem("m: 256, n: 1280, k: 8192"), kernel("128x256"), splits=4)
    assert launch.waves == 40 / 132


def test_where_every_k_is_short_tiles_are_taken_as_far_ahead_as_there_are_records() -> None:
    short = make_problem("m: 256, n: 256, k: 64", f"m: 256, n: 256, k: {LONG_K - 64}")
    assert launch_of(short, kernel("128x256")).ahead == RECORDS - 1


def test_where_one_k_is_long_only_the_next_tile_is_taken_ahead() -> None:
    mixed = make_problem("m: 256, n: 256, k: 64", f"m: 256, n: 256, k: {LONG_K - 63}")
    assert launch_of(mixed, kernel("128x256")).ahead == 1


def test_padded_work_is_that_of_whole_tiles_and_whole_slices_of_k() -> None:
    launch = launch_of(make_problem("m: 17, n: 65, k: 65"), kernel("64x128"))
    assert launch.padded_macs == 32 * 128 * 128


def test_splitting_k_multiplies_no_more() -> None:
    some, of = make_problem("m: 300, n: 300, k: 4100"), kernel("128x256-c2")
    assert launch_of(some, of, splits=7).padded_macs == launch_of(some, of).padded_macs


def test_a_smaller_gpu_has_less_room() -> None:
    launch = launch_of(make_problem("m: 256, n: 128000, k: 64"), kernel("128x256"))
    assert replace(launch, machine=Machine(78)).clusters == 78


# What stands on both sides


def test_an_entry_is_laid_out_as_the_kernel_reads_it() -> None:
    kinds = {"uint32_t": np.uint32, "float": np.float32}
    declared = [
        (member.name, kinds[member.type], *([member.length] if member.length > 1 else []))
        for member in members("Tile")
    ]
    assert np.dtype(declared) == TILE
    assert TILE.itemsize == size("Tile")


def test_the_kernel_has_a_main_loop_for_every_width() -> None:
    widths = [int(width) for width in re.findall(r"\bWIDTH\((\d+)\)", text("consume.cuh"))]
    whole = range(WIDTH_STEP, WIDTHS * WIDTH_STEP + 1, WIDTH_STEP)
    assert widths == sorted({*whole, *range(FINE_FROM, FINE_TO, FINE_STEP)})


# The ring


@pytest.mark.parametrize(
    ("name", "rows", "stages"),
    [
        ("128x256-c2", 256, 4),
        ("128x256-c2", 128, 6),
        ("128x256-c2", 16, 10),
        ("128x256", 64, 8),
        ("64x128", 128, 4),
        ("64x128", 32, 8),
        ("128x192-c2p", 192, 5),
        ("128x192-c2p", 96, 5),
        ("128x192-c2p", 32, 10),
    ],
)
def test_narrow_tiles_have_more_stages_but_pingpong_ones_only_where_they_are_very_narrow(
    name: str, rows: int, stages: int
) -> None:
    launch = launch_of(make_problem(f"m: {rows}, n: 256, k: 640"), kernel(name))
    assert launch.stages == stages
    assert launch.stages * launch.stage_bytes <= launch.kernel.ring_bytes


def test_the_widest_tile_of_a_launch_says_how_long_its_stages_are() -> None:
    some = make_problem("m: 16, n: 256, k: 640", "m: 256, n: 256, k: 640")
    launch = launch_of(some, kernel("128x256"))
    assert sorted(launch.widths.tolist()) == [16, 256]
    assert launch.stages == 4
