"""What a launch is expected to take; constants that leave one effect alone show each by itself."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cuts import kernel
from gemmctl.kernels import cubins
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import cost, playing
from gemmctl.planning.arrays import ALONE, Ints
from gemmctl.planning.cost import FITTED, LONG_SLICES, Constants
from gemmctl.planning.epilogue import ADDED_K
from gemmctl.planning.order import PANEL_ROWS, come_first
from gemmctl.planning.playing import PLAYED
from gemmctl.planning.queue import in_turn
from gemmctl.planning.tiles import Launch
from gemmctl.planning.tiling import H200, WGMMA_FLOP, Choice, Grid, Machine, grid
from gemmctl.planning.work import L2_BYTES, asked_of, work_of
from support import cut_as, make_problem, takes_all

KERNELS = cubins.manifest().kernels

# Nothing takes time but to multiply.
NOTHING = dict.fromkeys((field.name for field in fields(Constants)), 0.0)
AT_ONCE = dict.fromkeys((name for name in NOTHING if name.endswith("_bytes")), inf)
SHARES = dict.fromkeys(
    (
        "write",
        "lined",
        "shuffled",
        "boxed",
        "gather_memory",
        "gather_across",
        "wave_load_across",
        "wave_long",
    ),
    1.0,
)
IDEAL = Constants(**{**NOTHING, **AT_ONCE, **SHARES})
BOTH = ("128x256", "128x256-c2")  # without clusters and with
SLICE = 2 * 128 * 256 * 64 / WGMMA_FLOP  # cycles to multiply a tile of 128x256 by 64 of K


def launch_of(
    some: Problem, name: str = "128x256", *, splits: int = 1, output: str = "bf16"
) -> Launch:
    """All groups cut for a kernel, with the widest tiles it has."""
    of = kernel(name, output)
    choice = Choice(name, of.max_width, splits)
    return cut_as(some, np.arange(len(some.groups)), of, choice)


def cycles(
    *groups: str,
    name: str = "128x256",
    splits: int = 1,
    output: str = "bf16",
    constants: Constants = IDEAL,
) -> float:
    some = make_problem(*groups)
    return cost.estimate(launch_of(some, name, splits=splits, output=output), some, constants)


def laid(
    name: str, layouts: str, group: str, width: int, constants: Constants, splits: int = 1
) -> float:
    """The same of a group whose A and B lie so (r or c each), cut into tiles of so many rows."""
    a, b = ({"r": "row", "c": "col"}[one] for one in layouts)
    some = make_problem(f"{group}, a_layout: {a}, b_layout: {b}")
    choice = Choice(name, width, splits)
    launch = cut_as(some, np.arange(1), kernel(name, layouts=(a, b)), choice)
    return cost.estimate(launch, some, constants)


def tiles(count: int, k: int = 64) -> str:
    """A group of so many tiles of 128 by 256."""
    return f"m: 256, n: {128 * count}, k: {k}"


# On the SMs


def test_a_tile_takes_what_its_multiplications_take() -> None:
    assert cycles(tiles(1, k=640)) == 10 * SLICE


def test_padding_is_multiplied_too() -> None:
    assert cycles("m: 250, n: 100, k: 600") == 10 * SLICE


def test_what_draws_its_operands_for_longer_than_it_multiplies_takes_that() -> None:
    assert cycles(tiles(1), constants=replace(IDEAL, feed_bytes=1)) == (128 + 256) * 64 * 2


def test_two_ctas_of_a_cluster_draw_half_of_a_each() -> None:
    slow = replace(IDEAL, feed_bytes=1)
    assert cycles(tiles(2), name="128x256-c2", constants=slow) == (128 + 128) * 64 * 2


def test_some_of_the_shorter_of_drawing_and_multiplying_shows() -> None:
    constants = replace(IDEAL, feed_bytes=(128 + 256) * 64 * 2 / (SLICE / 2), exposed_feed=0.1)
    assert cycles(tiles(1), constants=constants) == pytest.approx(SLICE + 0.1 * SLICE / 2)


def test_tiles_that_all_sms_take_at_once_take_as_long_as_one() -> None:
    assert cycles(tiles(132)) == cycles(tiles(1))


def test_one_tile_more_than_sms_takes_another_round() -> None:
    assert cycles(tiles(133)) == 2 * cycles(tiles(132))


def test_a_tile_goes_to_the_sm_that_is_free_first() -> None:
    # 131 SMs are done with the short tiles before the long one is.
    assert cycles("m: 256, n: 128, k: 1280", tiles(131 * 4, k=320)) == 20 * SLICE


def test_a_long_sum_takes_no_longer_where_it_is_listed_last() -> None:
    long, short = tiles(1, k=8192), tiles(263, k=512)
    assert cycles(long, short) == cycles(short, long) == 128 * SLICE


def test_a_sum_that_is_too_short_to_come_first_takes_longer_where_it_is_listed_last() -> None:
    longer, short = tiles(1, k=960), tiles(262, k=512)
    assert cycles(longer, short) == 16 * SLICE
    assert cycles(short, longer) == (8 + 15) * SLICE


LONG = PLAYED * 132  # tiles


@pytest.mark.parametrize("count", [LONG, LONG + 1, LONG + 131, LONG + 132, 3 * LONG])
def test_a_long_list_takes_its_mean_load_to_half_a_tile(count: int) -> None:
    rounds = -(-count // 132)
    assert cycles(tiles(count)) == pytest.approx(rounds * SLICE, abs=SLICE / 2)


def test_the_last_tile_of_a_long_list_may_be_the_longest() -> None:
    long, short = tiles(1, k=960), tiles(LONG)
    assert cycles(long, short) == pytest.approx((15 + LONG) / 132 * SLICE + 15 * SLICE / 2)


@pytest.mark.parametrize(("slices", "takes"), [(100, 100), (16, (LONG + 16) / 132 + 1 / 2)])
def test_a_tile_that_comes_first_in_a_long_list_ends_last_only_if_it_takes_longer_than_all_else(
    slices: int, takes: float
) -> None:
    assert cycles(tiles(LONG), tiles(1, k=64 * slices)) == pytest.approx(takes * SLICE)


@pytest.mark.parametrize(("count", "times"), [(1, 1), (132, 1), (198, 2), (264, 2)])
def test_two_ctas_on_one_sm_share_it(count: int, times: float) -> None:
    alone = cycles("m: 128, n: 64, k: 64", name="64x128")
    assert cycles(f"m: 128, n: {64 * count}, k: 64", name="64x128") == times * alone


@pytest.mark.parametrize(("store", "times"), [(0.0, 2), (2.0, 3.5), (14.0, 15.125)])
def test_one_of_two_ctas_on_an_sm_multiplies_alone_while_the_other_stores(
    store: float, times: float
) -> None:
    """Its K tile takes half as long for the share of the time in which the other stores."""
    alone = cycles("m: 128, n: 64, k: 64", name="64x128")
    storing = replace(IDEAL, shared_latency=store * alone)
    both = cycles(f"m: 128, n: {64 * 264}, k: 64", name="64x128", constants=storing)
    assert both == pytest.approx(times * alone)


def test_a_gpu_of_half_the_sms_takes_twice_as_long() -> None:
    some = make_problem(tiles(132))
    half = replace(launch_of(some), machine=Machine(66))
    assert cost.estimate(half, some, IDEAL) == 2 * cycles(tiles(132))


def test_every_tile_waits_for_its_first_load() -> None:
    constants = replace(IDEAL, tile_latency=1e3)
    assert cycles(tiles(264, k=320), constants=constants) == 2 * (5 * SLICE + 1e3)


def test_both_warpgroups_store_half_of_every_tile() -> None:
    constants = replace(IDEAL, value=0.5)
    assert cycles(tiles(1), constants=constants) == SLICE + 0.5 * 64 * 256


@pytest.mark.parametrize(("output", "size"), [("bf16", 2), ("f32", 4)])
def test_wider_values_take_longer_to_store(output: str, size: int) -> None:
    constants = replace(IDEAL, stored_byte=0.5)
    assert cycles(tiles(1), output=output, constants=constants) == SLICE + 0.5 * size * 64 * 256


@pytest.mark.parametrize(
    ("more", "constant"),
    [
        ("beta: 1", "c2"),
        ("beta: 1, c: f16", "c2"),
        ("beta: 1, c: f32", "c4"),
        ("beta: 1, ldc: 129", "c2"),
        ("bias: m", "bias"),
        ("bias: n, beta: 1", "bias"),
        ("activation: relu", "relu"),
        ("activation: gelu, bias: m", "gelu"),
        ("activation: gelu_tanh", "gelu_tanh"),
        ("activation: silu, beta: 1", "silu"),
        ("ldd: 129", "element"),
    ],
)
def test_every_value_goes_through_what_there_is_behind_the_sums(more: str, constant: str) -> None:
    slow = replace(IDEAL, **{constant: 3.0})
    plain, longer = (f"m: 128, n: 128, k: 64{also}" for also in ("", f", {more}"))
    assert cycles(plain, constants=slow) == SLICE / 2
    assert cycles(longer, constants=slow) == SLICE / 2 + 3 * 64 * 128


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("128x192-c2p", "bias: n"),
        ("128x192-c2p", "bias: m, activation: relu"),
        ("128x192-c2p", "bias: n, ldd: 257"),
        ("128x256", "bias: n, bias_type: f32"),
        ("64x128", "bias: n, activation: silu"),
    ],
)
def test_a_bias_costs_values_nothing_that_joins_sums_or_comes_with_alpha(
    name: str, some: str
) -> None:
    slow = replace(IDEAL, bias=3.0)
    text = f"{PAIR}, {some}"
    assert cycles(text, name=name, constants=slow) == cycles(text, name=name)


def test_a_c_of_32_bits_takes_longer_where_warpgroups_take_turns() -> None:
    """A value takes three cycles more of a tile of 192 rows, which a warpgroup has for itself."""
    slow = replace(IDEAL, c4_beside=3.0)
    plain, longer = (
        cycles(f"m: 192, n: 256, k: 64{also}", name="128x192-c2p", constants=slow)
        for also in ("", ", beta: 1, c: f32")
    )
    assert longer == plain + 3 * 192 * 128


@pytest.mark.parametrize("slices", [1, 4])
def test_but_short_sums_wait_for_one_that_comes_with_alpha(slices: int) -> None:
    slow, some = replace(IDEAL, bias_latency=1e5), f"m: 128, n: 128, k: {64 * slices}, bias: n"
    assert cycles(some, constants=slow) == cycles(some) + 1e5 / slices
    assert cycles(f"{some}, gate: pairs", constants=slow) == cycles(f"{some}, gate: pairs")


@pytest.mark.usefixtures("nothing_held")
def test_values_that_the_l2_adds_to_d_take_longer() -> None:
    slow, tile = replace(IDEAL, added=3.0), "m: 128, n: 128, d: f32, beta: 1, inplace: true"
    short, long = (
        cycles(f"{tile}, k: {k}", output="f32", constants=slow) for k in (ADDED_K - 64, ADDED_K)
    )
    assert (short, long) == (14 * SLICE / 2, 15 * SLICE / 2 + 3 * 64 * 128)


def test_with_a_gate_every_other_value_goes_through_the_activation() -> None:
    slow = replace(IDEAL, silu=3.0)
    gated = cycles("m: 128, n: 64, k: 64, gate: pairs, activation: silu", constants=slow)
    assert gated == SLICE / 2 + 3 / 2 * 64 * 128


def test_a_c_before_a_gate_comes_element_by_element() -> None:
    slow = replace(IDEAL, c_element=3.0)
    longer = cycles(f"{tiles(1)}, gate: halves, beta: 1", constants=slow)
    assert longer == SLICE / 2 + 3 * 64 * 128  # of two tiles, which are at most 128 rows


def test_a_gate_leaves_half_as_much_to_store() -> None:
    slow = replace(IDEAL, stored_byte=0.5)
    gated = f"{tiles(1)}, gate: halves, activation: silu"
    assert cycles(gated, constants=slow) == SLICE + 0.5 * 64 * 256


def test_two_warpgroups_that_share_a_tile_store_after_both_have_multiplied() -> None:
    store = 2 * SLICE
    constants = replace(IDEAL, value=store / (64 * 256))
    many = cycles(tiles(132 * 7, k=64 * 5), constants=constants)
    assert many == pytest.approx(7 * (5 * SLICE + store))


def test_drawing_is_hidden_where_all_sums_are_short_but_for_the_last_two_tiles() -> None:
    constants = replace(IDEAL, draw_latency=6000)
    short, long = (cycles(tiles(132 * 6, k=k), constants=constants) for k in (960, 1024))
    assert short == pytest.approx(6 * 15 * SLICE + 2 * 6000)
    assert long == pytest.approx(6 * 16 * SLICE + 6 * 6000)


def test_rows_that_cross_lines_are_more_to_draw() -> None:
    slow = replace(IDEAL, feed_bytes=1, crossed=0.5)
    within, across = (cycles(tiles(1, k=k), constants=slow) for k in (64, 56))
    assert across == pytest.approx(within * (1 + 0.5 * 7 / 8))


def test_all_sms_together_draw_no_faster_than_the_l2_hands_out() -> None:
    drawn = (128 + 256) * 64 * 2
    rate = drawn / (2 * SLICE)  # half of what all SMs multiply at
    slow = replace(IDEAL, drawn_bytes=rate)
    assert cycles(tiles(132), constants=slow) == pytest.approx(2 * SLICE)
    assert cycles(tiles(66), constants=slow) == pytest.approx(SLICE)
    assert cycles(tiles(33), constants=slow) == pytest.approx(SLICE)


def test_what_a_cluster_shares_is_drawn_once() -> None:
    slow = replace(IDEAL, drawn_bytes=1)
    alone, shared = (cycles(tiles(132), name=name, constants=slow) for name in BOTH)
    assert alone / shared == pytest.approx((128 + 256) / (128 + 128))


def test_rows_that_cross_lines_are_more_to_draw_of_all_sms_too() -> None:
    slow = replace(IDEAL, drawn_bytes=1, crossed=1.0)
    whole, half = (cycles(tiles(132, k=64) + own, constants=slow) for own in ("", ", lda: 96"))
    assert half / whole == pytest.approx((128 + 256 * 1.5) / (128 + 256))


@pytest.mark.parametrize(("lda", "more"), [(96, 0), (80, 0), (72, 0.5), (64, 0)])
def test_rows_that_begin_within_sectors_are_more_to_draw_of_all_sms(lda: int, more: float) -> None:
    """Every 192, 160, 144 or 128 bytes, of which a sector has 32."""
    slow = replace(IDEAL, drawn_bytes=1, within=0.5)
    whole, off = (
        cycles(f"{tiles(132, k=64)}{own}", constants=slow) for own in ("", f", lda: {lda}")
    )
    assert off / whole == pytest.approx((128 + 256 * (1 + more)) / (128 + 256))


def test_rows_of_b_that_many_ctas_draw_at_one_time_come_later() -> None:
    slow = replace(IDEAL, feed_bytes=1, crowded=0.5)
    alone, crowd = (cycles(f"m: {m}, n: 128, k: 64", constants=slow) for m in (256, 256 * 64))
    assert alone == pytest.approx((128 * (1 + 0.5 / 64) + 256) * 128)
    assert crowd == pytest.approx((128 * (1 + 0.5) + 256) * 128)


def test_every_stage_but_that_at_work_hides_latency() -> None:
    constants = replace(IDEAL, stage_latency=40 * SLICE)
    six, eight = (cycles(f"m: {m}, n: 128, k: 640", constants=constants) for m in (128, 64))
    assert (six, eight) == (10 * 40 * SLICE / 5, 10 * 40 * SLICE / 7)


def test_a_seventh_stage_of_each_of_two_ctas_hides_no_more_latency() -> None:
    constants = replace(IDEAL, stage_latency=40 * SLICE)
    six, nine = (
        cycles(f"m: {m}, n: 64, k: 640, count: 264", name="64x128", constants=constants)
        for m in (64, 16)
    )
    assert six == nine == 10 * 40 * SLICE / 5


def test_a_cta_that_has_an_sm_to_itself_hides_latency_with_all_of_its_stages() -> None:
    constants = replace(IDEAL, stage_latency=40 * SLICE)
    taken = cycles("m: 16, n: 64, k: 640, count: 132", name="64x128", constants=constants)
    assert taken == 10 * 40 * SLICE / (9 - 1)  # of 8 KB of B and 2 of A


def test_no_byte_hides_how_long_parts_are_added_up() -> None:
    constants = replace(IDEAL, memory_bytes=1e-3, sum_latency=1000)
    whole, split = (
        cycles("m: 256, n: 128, k: 8192", splits=splits, constants=constants) for splits in (1, 4)
    )
    assert split == pytest.approx(whole + 1000)


def test_parts_end_the_later_the_longer_the_memory_takes() -> None:
    """Up to a limit; what is not split waits for none."""
    late = replace(IDEAL, memory_bytes=1e-3, late_part=0.5)
    some = "m: 256, n: 128, k: 8192"
    whole, split, at_most = (
        cycles(some, splits=splits, constants=replace(late, latest_part=latest))
        for splits, latest in ((1, 1e12), (4, 1e12), (4, 100))
    )
    assert split == pytest.approx(1.5 * whole)
    assert at_most == pytest.approx(whole + 100)


def test_who_adds_up_behind_a_part_of_its_own_takes_longer() -> None:
    """Three parts of 33 sums each and who adds them up are a wave of 132; of 34 they are more."""
    constants = replace(IDEAL, later_sum=1000)
    all_at_once, some_later = (
        cycles(f"m: 16, n: {128 * tiles}, k: 8192", splits=3, constants=constants)
        for tiles in (33, 34)
    )
    assert some_later == pytest.approx(all_at_once + 1000)


def test_a_part_that_is_its_warpgroups_only_one_is_stored_before_it_is_added_up() -> None:
    """Warpgroups that take turns hide what they store, but of the last tile nothing does."""
    some, name = "m: 192, n: 256, k: 8192", "128x192-c2p"
    sooner, later = (
        cycles(some, name=name, splits=4, constants=replace(IDEAL, turn_latency=latency))
        for latency in (0, 1000)
    )
    assert later == pytest.approx(sooner + 1000)


def test_a_stage_that_two_ctas_share_takes_longer_to_fill() -> None:
    constants = replace(IDEAL, joint_latency=40 * SLICE)
    alone, joint = (
        cycles("m: 256, n: 256, k: 640", name=name, constants=constants)
        for name in ("128x256", "128x256-c2")
    )
    assert (alone, joint) == (10 * SLICE, 10 * 40 * SLICE / 3)


def test_the_slowest_clusters_are_waited_for_in_the_last_wave() -> None:
    """Of two tiles for each cluster one is."""
    constants = replace(IDEAL, slow_latency=40 * SLICE)
    one, two = (
        cycles(
            f"m: 256, n: 256, k: 640, count: {66 * waves}", name="128x256-c2", constants=constants
        )
        for waves in (1, 2)
    )
    assert (one, two) == pytest.approx((10 * 40 * SLICE / 3, 2 * 10 * 20 * SLICE / 3))
    alone = cycles(tiles(132, k=640), constants=constants)
    assert alone == 10 * SLICE


def test_of_what_the_l2_has_already_nobody_waits_longer_for_the_slowest_clusters() -> None:
    """Of 4 x 4 tiles each reads as much as the next; of all that, memory is asked for a quarter."""
    constants = replace(IDEAL, slow_latency=40 * SLICE)
    taken = cycles("m: 1024, n: 1024, k: 640", name="128x256-c2", constants=constants)
    assert taken == pytest.approx(10 * 0.25 * 40 * SLICE / 3)


def test_of_exchanged_operands_what_the_l2_has_comes_later_in_the_last_wave() -> None:
    """As above, for what memory is not asked for."""
    constants = replace(IDEAL, exchanged_latency=40 * SLICE)
    name, some = "128x256-c2x", "m: 1024, n: 1024, k: 640"
    taken = cycles(some, name=name, constants=constants)
    assert taken == pytest.approx(10 * 0.75 * 40 * SLICE / 3)
    assert cycles(some, name="128x256-c2", constants=constants) == 10 * SLICE


def test_a_slice_whose_b_is_copied_word_by_word_takes_what_that_takes_and_a_share_more() -> None:
    """Unless it takes longer to multiply alone."""
    slow, quick = (
        cycles(
            "m: 256, n: 256, k: 639",
            name="128x256-c2u",
            constants=replace(IDEAL, unaligned=copying * SLICE, beside_copies=0.5),
        )
        for copying in (2.0, 0.25)
    )
    assert (slow, quick) == pytest.approx((10 * 2.5 * SLICE, 10 * SLICE))


def test_a_wave_of_unequal_tiles_takes_as_long_as_the_widest() -> None:
    alone = cycles("m: 192, n: 128, k: 6400, activation: relu", name="128x256")
    both = cycles("m: 256, n: 128, k: 6400, activation: relu, count: 3", name="128x256")
    assert alone == 100 * SLICE * 192 / 256
    assert both == 100 * SLICE


PAIR = "m: 192, n: 256, k: 64"  # a tile for warpgroups that take turns
TURN = SLICE * 192 / 256


def test_where_warpgroups_take_turns_one_stores_while_the_other_multiplies() -> None:
    constants = replace(IDEAL, value=TURN / (128 * 192) / 2)  # half as long as multiplying
    alone, many = (
        cycles(f"{PAIR}, count: {count}", name="128x192-c2p", constants=constants)
        for count in (1, 66 * 7)
    )
    assert alone == pytest.approx(1.5 * TURN)
    assert many == pytest.approx(7.5 * TURN)


def test_where_warpgroups_take_turns_long_epilogues_take_half_as_long_together() -> None:
    constants = replace(IDEAL, value=3 * TURN / (128 * 192))
    many = cycles(f"{PAIR}, count: {66 * 7}", name="128x192-c2p", constants=constants)
    assert many == pytest.approx((7 * 4 / 2 + 4 / 2) * TURN)


@pytest.mark.parametrize(
    ("name", "constant"),
    [("128x256", "tile_latency"), ("128x256-c2", "tile_latency"), ("64x128", "shared_latency")],
)
def test_every_kernel_waits_for_a_first_load(name: str, constant: str) -> None:
    some = "m: 64, n: 128, k: 64"
    waits = cycles(some, name=name, constants=replace(IDEAL, **{constant: 1e3}))
    assert waits == cycles(some, name=name) + 1e3


@pytest.mark.parametrize(
    ("more", "constant"),
    [
        ("", "turn_latency"),
        (", bias: n", "turn_latency"),  # it joins the sums
        (", activation: relu", "finished_latency"),
        (", bias: n, activation: relu", "finished_latency"),
        (", bias: n, bias_type: f32", "finished_latency"),
        (", bias: n, beta: 1", "finished_latency"),
        (", ldd: 257", "finished_latency"),
        (", ldd: 257, bias: n", "finished_latency"),
    ],
)
def test_turns_have_a_latency_and_another_with_more_than_whole_words_of_alpha_a_b(
    more: str, constant: str
) -> None:
    some = PAIR + more
    waits = cycles(some, name="128x192-c2p", constants=replace(IDEAL, **{constant: 1e5}))
    assert waits == cycles(some, name="128x192-c2p") + 1e5


def test_a_c_that_sums_begin_with_takes_a_time_of_its_own() -> None:
    def takes(name: str, **slow: float) -> float:
        return cycles(f"{PAIR}, beta: 1", name=name, constants=replace(IDEAL, **slow))

    assert takes("128x192-c2p", begun=3.0, c2=5.0) == takes("128x192-c2p") + 3 * 128 * 192
    assert takes("128x256", begun=3.0, c2=5.0) == takes("128x256") + 5 * 64 * 192
    assert takes("64x128", begun=3.0, c2=5.0) == takes("64x128") + 3 * 64 * 96


def test_a_c_that_joins_sums_on_the_way_takes_none() -> None:
    def takes(k: int, **slow: float) -> float:
        constants = replace(IDEAL, **slow)
        return cycles(f"m: 256, n: 128, k: {k}, beta: 1", name="128x256", constants=constants)

    assert takes(640, begun=3.0, c2=5.0) == takes(640)
    assert takes(576, begun=3.0, c2=5.0) == takes(576) + 5 * 64 * 256


def test_a_stage_of_the_ring_takes_a_while_to_fill_however_short_its_multiplication() -> None:
    constants = replace(IDEAL, stage_latency=40 * SLICE)
    assert cycles(tiles(1, k=640), constants=constants) == 10 * 40 * SLICE / 3  # of four stages


def test_narrow_tiles_wait_for_all_of_b_in_shared_memory() -> None:
    narrow, wide = (cycles(f"m: {m}, n: 128, k: 64") for m in (16, 64))
    assert (narrow, wide) == (2 * 4 * (64 + 16) / 4, 2 * 4 * 64 / 2)


def test_a_launch_takes_a_while_whatever_it_does() -> None:
    constants = replace(IDEAL, launch_latency=5e3)
    assert cycles(tiles(1), constants=constants) == SLICE + 5e3


def test_clusters_take_longer_to_start() -> None:
    constants = replace(IDEAL, cluster_latency=4e3)
    assert cycles(tiles(1), constants=constants) == SLICE
    assert cycles(tiles(2), name="128x256-c2", constants=constants) == SLICE + 4e3


# One wave of tiles

WAVE = replace(IDEAL, wave_multiply=1.0)  # a form of its own, by which only multiplying takes time


def test_a_wave_takes_what_the_slices_of_its_longest_tile_take() -> None:
    longest = cycles(tiles(131, k=640), tiles(1, k=1280), constants=WAVE)
    assert longest == pytest.approx(20 * SLICE)


@pytest.mark.parametrize(("count", "waves"), [(132, 1), (133, 2)])
def test_it_has_latencies_of_its_own_where_no_sm_takes_a_second_tile(
    count: int, waves: int
) -> None:
    constants = replace(WAVE, wave_latency=7e6, launch_latency=2e6)
    assert cycles(tiles(count, k=64), constants=constants) == pytest.approx(
        {1: 7e6 + SLICE, 2: 2e6 + 2 * SLICE}[waves]
    )


def test_a_launch_beside_others_is_none_and_one_with_split_sums_neither() -> None:
    constants = replace(WAVE, wave_latency=7e6)
    some = make_problem(tiles(10, k=640))
    assert cost.estimate(launch_of(some), some, constants, beside=True) == 10 * SLICE
    assert cycles(tiles(10, k=8192), splits=2, constants=constants) < 7e6


def test_who_loads_and_who_multiplies_hide_each_other_but_not_quite() -> None:
    alike = replace(WAVE, wave_load=SLICE)
    shown = 2 ** (1 / 3)  # of a mean that is nearly the longer of the two
    assert cycles(tiles(132, k=640), constants=alike) == pytest.approx(10 * SLICE * shown)
    little = replace(WAVE, wave_load=SLICE / 4)
    assert cycles(tiles(132, k=640), constants=little) == pytest.approx(10 * SLICE, rel=0.01)


def test_what_the_memory_reads_shows_where_it_takes_longer() -> None:
    slow = replace(WAVE, memory_bytes=1e-3)
    nbytes = (256 + 132 * 128) * 640 * 2  # of A and B: D is written behind all that
    expected = pytest.approx(nbytes * 1000 / 132)
    assert cycles(tiles(132, k=640), constants=slow) == expected


def test_what_is_stored_comes_behind_what_is_multiplied() -> None:
    slow = replace(WAVE, stored_bytes=1e-3)
    stored = 256 * 132 * 128 * 2 * 1000 / 132
    assert cycles(tiles(132, k=640), constants=slow) == pytest.approx(stored + 10 * SLICE)


@pytest.mark.parametrize(
    ("name", "groups", "drawing"),  # by how many CTAs that draw no faster, of 132 SMs
    [
        ("64x256", ["m: 2048, n: 64"], 0),
        ("64x256", ["m: 2304, n: 64"], 9),
        ("64x256", ["m: 2304, n: 128"], 18),
        ("64x256", ["m: 2304, n: 192"], 0),  # a GPC has tiles that lie in a square
        ("64x256", ["m: 2304, n: 192"] * 2, 0),
        ("64x256", ["m: 2304, n: 192", "m: 2304, n: 256"], 63),
        ("64x256", ["m: 2304, n: 192", "m: 2560, n: 192"], 57),
        ("128x256", ["m: 2304, n: 64"], 0),
    ],
)
def test_lone_warpgroups_whose_tiles_are_a_pile_draw_no_faster_than_all_sms(
    name: str, groups: list[str], drawing: int
) -> None:
    slow = replace(WAVE, wave_multiply=1e-9, drawn_bytes=1e-3)
    taken = cycles(*(f"{group}, k: 640" for group in groups), name=name, constants=slow)
    assert taken == pytest.approx(10 * (256 + 64) * 128 * 1000 * drawing / 132, abs=1)


@pytest.mark.parametrize(
    ("name", "group", "slices", "rows", "ctas"),
    [
        ("128x256", "m: 256, n: 128", 10, 128 + 256, 1),
        ("128x256", "m: 256, n: 8448", 10, 128 + 256, 66),
        ("128x256-c2", "m: 256, n: 8448", 10, 128 + 256 / 2, 66),
        ("64x128-k2", "m: 128, n: 2112", 5, 64 + 128, 66),
        ("64x128", "m: 128, n: 16896", 10, 64 + 128, 264),
    ],
)
def test_rows_that_cross_lines_take_longer_the_more_ctas_draw_some(
    name: str, group: str, slices: int, rows: float, ctas: int
) -> None:
    slow = replace(WAVE, wave_multiply=1e-9, wave_crossed_by_all=1e3)
    taken = cycles(f"{group}, k: 640, lda: 648, ldb: 648", name=name, constants=slow)
    crossing = 7 / 8  # of rows that begin at multiples of 16 bytes
    assert taken == pytest.approx(slices * rows * 128 * crossing * 1000 * ctas / 132)
    assert cycles(f"{group}, k: 640", name=name, constants=slow) == pytest.approx(0, abs=1)


@pytest.mark.parametrize(
    ("name", "slices", "columns", "share"),
    [
        ("128x256-c2x", LONG_SLICES, 128, 0.5),
        ("128x192-c2px", LONG_SLICES, 128, 0.5),
        ("128x256-c2x", LONG_SLICES - 1, 128, 1),
        ("128x256-x", LONG_SLICES, 128, 1),
        ("128x256-c2", LONG_SLICES, 128, 1),
        ("128x256-c2x", LONG_SLICES, 133 * 128, 1),  # several waves
    ],
)
def test_clusters_that_exchange_operands_take_less_of_long_k_in_one_wave(
    name: str, slices: int, columns: int, share: float
) -> None:
    group = f"m: {columns}, n: 128, k: {slices * 64}"
    less = cycles(group, name=name, constants=replace(WAVE, wave_long=0.5))
    assert less == pytest.approx(share * cycles(group, name=name, constants=WAVE))


@pytest.mark.parametrize(
    ("layouts", "rows", "each"),
    # Of 16 of K and 64 columns: multiplying takes half a cycle a row, shared memory 32 bytes of
    # each row and column at 128 a cycle, of columns that K lies across twice.
    [("rc", 64, 32), ("cc", 64, 32), ("rr", 64, 48), ("cr", 64, 48), ("rr", 128, 64)],
)
def test_narrow_tiles_wait_for_a_b_that_k_lies_across(layouts: str, rows: int, each: int) -> None:
    one = laid("128x256-c2", layouts, f"m: {rows}, n: 256, k: 640", rows, WAVE)
    assert one == pytest.approx(10 * 8 * each)
    several = laid("128x256-c2", layouts, f"m: {rows}, n: {67 * 256}, k: 640", rows, WAVE)
    assert several == pytest.approx(2 * 10 * 8 * rows / 2)


@pytest.mark.parametrize(
    ("name", "layouts", "share"),
    [
        ("128x256-c2", "rc", 1),
        ("128x256-c2", "cc", 1),
        ("128x256-c2", "rr", 0.5),
        ("128x256-c2", "cr", 0.5),
        ("128x256-c2x", "rc", 0.5),
    ],
)
def test_rows_that_many_ctas_draw_take_less_where_k_lies_across_b_or_operands_are_exchanged(
    name: str, layouts: str, share: float
) -> None:
    def taken(exchanged: float) -> float:
        crowded = replace(
            WAVE, wave_multiply=1e-9, wave_crowded=7.0, wave_crowded_exchanged=exchanged
        )
        return laid(name, layouts, "m: 2048, n: 2048, k: 640", 256, crowded)

    assert taken(3.5) == pytest.approx(share * taken(7.0))


@pytest.mark.parametrize(
    ("name", "layouts", "share"),
    [
        ("64x256", "rc", 1),
        ("64x256", "rr", 0.5),
        ("64x256", "cc", 0.5),
        ("64x256-x", "cr", 1),
        ("128x256-c2", "cr", 1),
    ],
)
def test_who_loads_for_one_warpgroup_takes_less_of_what_k_lies_across(
    name: str, layouts: str, share: float
) -> None:
    constants = replace(WAVE, wave_multiply=1e-9, wave_load=7000.0, wave_load_across=0.5)
    taken = laid(name, layouts, "m: 128, n: 128, k: 640", 128, constants)
    assert taken == pytest.approx(10 * 7000 * share)


def test_ctas_that_share_k_wait_longer_for_what_it_lies_across() -> None:
    slow = replace(WAVE, memory_bytes=1e-3)
    group = "m: 64, n: 128, k: 640"
    more, same = (
        laid("64x128-k2x", "cr", group, 128, replace(slow, wave_across=share)) for share in (0.5, 0)
    )
    assert more == pytest.approx(1.5 * same, rel=1e-3)


@pytest.mark.parametrize(("width", "off"), [(64, 0), (128, 0), (96, 0.5), (80, 0.75), (16, 0.75)])
def test_boxes_of_an_a_that_k_lies_across_cross_lines_where_tiles_do_not_begin_on_them(
    width: int, off: float
) -> None:
    of = kernel("128x256-c2", layouts=("col", "col"))
    some = make_problem("m: 1024, n: 256, k: 640, a_layout: col")
    launch = cut_as(some, np.arange(1), of, Choice(of.name, width))
    work = work_of(launch, asked_of(some, launch.groups, of))
    boxes = -(-width // 64) * 64 / of.cluster
    assert work.crossed.tolist() == [off * boxes * 128]


@pytest.mark.parametrize(
    ("name", "columns", "warpgroups"),
    [("128x256", 128, 2), ("64x128", 64, 1), ("64x128", 264 * 64, 2), ("64x256", 64, 1)],
)
def test_warpgroups_of_an_sm_compute_at_one_time(name: str, columns: int, warpgroups: int) -> None:
    constants = replace(WAVE, wave_multiply=1e-9, gelu=1000.0)
    taken = cycles(f"m: 64, n: {columns}, k: 64, activation: gelu", name=name, constants=constants)
    assert taken == pytest.approx(64 * 64 * 1000 * warpgroups / 2, rel=1e-3)


def test_a_lone_warpgroup_takes_a_latency_of_its_own_from_tile_to_tile() -> None:
    constants = replace(IDEAL, lone_latency=7e6, tile_latency=2e6)
    assert cycles(f"m: 64, n: {133 * 64}, k: 64", name="64x256", constants=constants) > 14e6
    assert cycles(f"m: 64, n: {133 * 128}, k: 64", constants=constants) < 5e6


# Split sums


def test_parts_of_a_sum_are_multiplied_side_by_side() -> None:
    assert cycles(tiles(1, k=64 * 64), splits=4) == 16 * SLICE


def test_adding_up_twice_as_many_parts_takes_twice_as_long() -> None:
    slow = replace(IDEAL, sum_value=1e6)  # the parts themselves take nothing beside it
    four, eight = (cycles(tiles(1, k=64 * 64), splits=s, constants=slow) for s in (4, 8))
    assert four == pytest.approx(eight / 2, rel=1e-5)


def test_what_adds_up_parts_waits_for_them_even_on_a_gpu_that_is_idle() -> None:
    constants = replace(IDEAL, sum_value=1.0)
    adding = 4 * 64 * 16  # of 16 rows of four parts
    assert cycles(tiles(1, k=64 * 64), splits=4, constants=constants) == 16 * SLICE + adding


@pytest.mark.parametrize("count", [3, LONG])
def test_only_sums_that_are_split_have_parts_to_multiply_and_to_add_up(count: int) -> None:
    constants = replace(IDEAL, sum_value=1.0)
    short, long = tiles(count, k=512), tiles(1, k=64 * 64)
    whole, split = (cycles(short, long, splits=s, constants=constants) for s in (1, 4))
    assert whole == max(64 * SLICE, (8 * count + 64) / 132 * SLICE + 8 * SLICE / 2 * (count > 3))
    adding = 16 * 4 * 64 * 16
    assert split == pytest.approx(
        16 * SLICE + adding / 16
        if count == 3
        else ((8 * count + 64) * SLICE + adding) / 132 + max(8 * SLICE, adding / 16) / 2
    )


def test_ctas_that_add_up_several_sums_wait_for_parts_once() -> None:
    constants = replace(IDEAL, later_sum=1e6)  # of 320 sums on 132 CTAs
    taken = cycles(tiles(20, k=64 * 64), splits=4, constants=constants)
    assert taken == pytest.approx(1e6, rel=0.02)


def test_a_long_sum_alone_on_the_gpu_is_worth_splitting() -> None:
    group = tiles(4, k=65536)
    assert cycles(group, splits=33, constants=FITTED) < cycles(group, constants=FITTED) / 5


def test_sums_that_fill_the_gpu_are_not_worth_splitting() -> None:
    group = tiles(132, k=4096)
    assert cycles(group, splits=2, constants=FITTED) > cycles(group, constants=FITTED)


# Memory

SLOW_MEMORY = replace(IDEAL, memory_bytes=1e-3)  # a byte in a thousand cycles


def moved(*groups: str, output: str = "bf16") -> float:
    """Bytes from and to memory that a launch is charged for."""
    return cycles(*groups, output=output, constants=SLOW_MEMORY) * 132 * SLOW_MEMORY.memory_bytes


def test_a_b_and_d_come_from_memory_once() -> None:
    assert moved("m: 256, n: 128, k: 64") == pytest.approx(2 * (256 * 64 + 128 * 64 + 256 * 128))


def test_every_group_brings_its_own() -> None:
    assert moved(tiles(1), tiles(3)) == pytest.approx(moved(tiles(1)) + moved(tiles(3)))


def test_wider_outputs_are_more_bytes() -> None:
    more = moved(tiles(1), output="f32") - moved(tiles(1))
    assert more == pytest.approx(2 * 256 * 128)


def test_c_is_read_where_beta_is_not_0() -> None:
    assert moved(f"{tiles(1)}, beta: 1") - moved(tiles(1)) == pytest.approx(2 * 256 * 128)


def test_b_comes_again_for_every_panel_of_tiles_if_the_l2_cannot_hold_it() -> None:
    n, k, panel = 8192, 4096, PANEL_ROWS
    of_b = 2 * n * k
    assert of_b > L2_BYTES
    one, three = (moved(f"m: {panel * panels}, n: {n}, k: {k}") for panels in (1, 3))
    rest = 2 * panel * (k + n)
    assert (one, three) == pytest.approx((of_b + rest, 3 * (of_b + rest)))


def test_b_comes_once_if_the_l2_holds_it() -> None:
    n, k, panel = 1024, 1024, PANEL_ROWS
    one, three = (moved(f"m: {panel * panels}, n: {n}, k: {k}") for panels in (1, 3))
    assert three - one == pytest.approx(2 * 2 * panel * (k + n))


def test_what_other_tiles_read_before_counts_in_part() -> None:
    some = make_problem("m: 512, n: 384, k: 640")  # six tiles: A three times, B twice
    once, again = (
        cost.estimate(launch_of(some), some, replace(SLOW_MEMORY, reread=share))
        for share in (0, 0.5)
    )
    extra = (again - once) * 132 * SLOW_MEMORY.memory_bytes
    assert extra == pytest.approx(0.5 * 2 * (2 * 512 * 640 + 384 * 640))


@pytest.mark.parametrize(("n", "k", "share"), [(256, 64, 0.25), (256, 640, 0.5), (64, 64, 0.5)])
def test_a_tile_of_a_d_by_columns_takes_a_share_of_its_latency_and_less_of_it_if_rows_are_shuffled(
    n: int, k: int, share: float
) -> None:
    one, some = f"m: 8, n: {n}, k: {k}", replace(IDEAL, tile_latency=1e6, lined=0.5, shuffled=0.25)
    bare, taken = (
        cycles(one, name="128x256-x", constants=constants) for constants in (IDEAL, some)
    )
    assert taken - bare == pytest.approx(share * 1e6)


# 176 tiles of 192 rows by 256 columns, whose D of 32 bits TMA stores if K is 640.
@pytest.mark.parametrize(("k", "share"), [(640, 0.5), (320, 1.0)])
def test_a_tile_that_tma_stores_takes_a_share_of_its_latency(k: int, share: float) -> None:
    by = {"name": "128x192-c2p", "output": "f32"}
    group, slow = f"m: 3072, n: 2816, k: {k}, d: f32", replace(IDEAL, turn_latency=1e6, boxed=0.5)
    less = replace(IDEAL, turn_latency=share * 1e6)
    assert cycles(group, **by, constants=slow) == cycles(group, **by, constants=less)


@pytest.mark.parametrize(
    ("name", "m", "k", "output", "more"),
    [
        ("128x192-c2p", 1536, 640, "f32", True),
        ("128x192-c2p", 3072, 640, "f32", False),  # TMA stores so many tiles
        ("128x192-c2p", 1536, 320, "f32", False),  # and would not store so short sums
        ("128x192-c2p", 1536, 640, "bf16", False),
        ("128x192-c2px", 3072, 640, "f32", True),
        ("128x192-c2px", 3072, 512, "f32", False),  # rows come shuffled
        ("128x256", 1536, 640, "f32", False),  # nobody multiplies meanwhile
    ],
)
def test_where_warpgroups_take_turns_more_of_what_tma_might_store_shows_where_threads_do(
    name: str, m: int, k: int, output: str, more: bool
) -> None:
    group = f"m: {m}, n: 2816, k: {k}, d: {output}"
    bare, some = (
        cycles(group, name=name, output=output, constants=replace(IDEAL, exposed_unboxed=share))
        for share in (0.0, 0.1)
    )
    assert (some > bare) == more


@pytest.mark.parametrize(
    ("n", "output", "share"),
    [(192, "bf16", 0.5), (208, "bf16", 1.0), (208, "f32", 1.0), (224, "f32", 0.5)],
)
def test_a_tile_of_a_d_by_columns_takes_less_only_if_it_stores_whole_lines(
    n: int, output: str, share: float
) -> None:
    """Of 128 bytes: 64 numbers of 16 bits, 32 of 32."""
    one, some = f"m: 8, n: {n}, k: 640, d: {output}", replace(IDEAL, tile_latency=1e6, lined=0.5)
    bare, taken = (
        cycles(one, name="128x256-x", output=output, constants=constants)
        for constants in (IDEAL, some)
    )
    assert taken - bare == pytest.approx(share * 1e6)


@pytest.mark.parametrize(
    ("name", "more"), [("128x256", 1.0), ("128x192-c2p", 0.5), ("64x128", 0.0)]
)
def test_a_in_boxes_of_many_rows_takes_longer_from_memory(name: str, more: float) -> None:
    some = make_problem("m: 768, n: 128, k: 640")
    flat, tall = (
        cost.estimate(launch_of(some, name), some, replace(SLOW_MEMORY, tall=share))
        for share in (0, 0.25)
    )
    extra = (tall - flat) * 132 * SLOW_MEMORY.memory_bytes
    assert extra == pytest.approx(0.25 * more * 2 * 768 * 640)


def test_what_takes_longer_of_memory_and_sms_counts_and_a_share_of_the_other() -> None:
    alone = replace(IDEAL, memory_bytes=4.0)
    memory = 2 * (256 * 640 + 128 * 640 + 256 * 128) / 132 / 4
    assert memory < 10 * SLICE
    assert cycles(tiles(1, k=640), constants=alone) == 10 * SLICE
    both = replace(alone, exposed_memory=0.25)
    assert cycles(tiles(1, k=640), constants=both) == pytest.approx(10 * SLICE + memory / 4)


# Whatever the launch


def columns_for(kernel: Kernel) -> st.SearchStrategy[int]:
    """Columns of a D that a kernel takes."""
    step = 1 if takes_all(kernel) else 8
    return st.integers(1, 3000 // step).map(lambda words: step * words)


@st.composite
def launches(draw: st.DrawFn) -> tuple[Problem, Launch]:
    kernel = draw(st.sampled_from(KERNELS))
    rows, columns = st.integers(1, 3000), columns_for(kernel)
    some = make_problem(
        *(
            f"m: {draw(rows)}, n: {draw(columns)}, k: {draw(st.integers(0, 9000))}"
            for _ in range(draw(st.integers(1, 4)))
        )
    )
    width = 16 * draw(st.integers(1, kernel.max_width // 16))
    choice = Choice(kernel.name, width, draw(st.integers(1, 5)))
    machine = Machine(draw(st.sampled_from([66, 132])))
    return some, cut_as(some, np.arange(len(some.groups)), kernel, choice, machine)


@given(launches())
def test_no_launch_is_faster_than_its_tensor_cores_or_its_memory(
    drawn: tuple[Problem, Launch],
) -> None:
    some, launch = drawn
    expected, sms = cost.estimate(launch, some), launch.machine.sm_count
    c = some.columns
    nbytes = 2 * int((c.m * c.k + c.n * c.k).sum())
    assert expected >= 2 * launch.padded_macs / WGMMA_FLOP / sms
    share = FITTED.gather_memory if launch.kernel.k_parts > 1 else 1
    assert expected >= share * nbytes / FITTED.memory_bytes / sms


# What shows of a pingpong tile sooner no longer shows at the end: so exposed_turn is none of these,
# and nothing does.
UNEXPOSED = replace(FITTED, exposed_turn=0.0)
SLOWING = [field.name for field in fields(Constants) if field.name != "exposed_turn"]


@given(launches(), st.sampled_from(SLOWING))
def test_whatever_gets_slower_makes_no_launch_faster(
    drawn: tuple[Problem, Launch], name: str
) -> None:
    some, launch = drawn
    slower = 0.5 if name.endswith("_bytes") else 2
    worse = replace(UNEXPOSED, **{name: slower * getattr(UNEXPOSED, name)})
    rounded = 1 + 1e-12  # other numbers are rounded otherwise
    assert cost.estimate(launch, some, worse) * rounded >= cost.estimate(launch, some, UNEXPOSED)


LATENCIES = ("tile_latency", "shared_latency", "lone_latency", "turn_latency", "finished_latency")
LATENCIES += ("sum_latency",)
SIMPLE = replace(IDEAL, **dict.fromkeys(LATENCIES, 7.0))


def played(launch: Launch) -> float:
    """Cycles by SIMPLE of a tile list, from which the CTAs take one entry after another.

    Nothing is added up before all parts are there and stored. Parts of a sum take as long as its
    longest.
    """
    tiles, kernel = launch.tiles, launch.kernel
    part = (tiles["splits"] > 0) & (tiles["k_tiles"] > 0)
    sums = (tiles["splits"] > 0) & (tiles["k_tiles"] == 0)
    k_tiles = tiles["k_tiles"].astype(np.int64)
    k_tiles[part | sums] = -(-launch.k_tiles // launch.parts)[tiles["group"][part | sums]]
    k_tiles = -(-k_tiles // kernel.k_parts)
    sharing = -(-launch.clusters * kernel.ctas // launch.machine.sm_count)
    of_group = launch.rows / launch.high
    columns = np.maximum(of_group / 2, (64 + of_group) / 4)[tiles["group"]]
    multiply = kernel.rows // 64 * 4 * columns * k_tiles
    together = multiply * sharing
    multiply = multiply * (1 + (sharing - 1) * together / (together + 7))
    taken = np.maximum((7 + multiply) / 2, multiply) if kernel.pingpong else 7 + multiply
    ends = 7 + multiply - taken
    end = ends[~sums & ~part].max(initial=0.0)
    stored = ends[part].max(initial=0.0)
    taken = np.where(sums, 7, taken)
    first = come_first(launch)[tiles["group"]]
    long_list = len(taken) > PLAYED * launch.clusters
    free, complete = [0.0] * launch.clusters, 0.0
    for entry in np.flatnonzero(first & ~sums) if long_list else range(len(taken)):
        earliest = free.index(min(free))
        free[earliest] = max(free[earliest], complete if sums[entry] else 0.0) + taken[entry]
        if part[entry]:
            complete = max(free) + stored
    if not long_list:
        return max(free) + end
    longest = taken[sums | ~first].max(initial=0)
    mean = taken.sum() / launch.clusters
    return max(*free, complete + taken[sums].max(initial=0), mean + longest / 2) + end


@given(launches())
def test_a_launch_takes_what_its_tile_list_takes_as_ctas_take_from_it(
    drawn: tuple[Problem, Launch],
) -> None:
    some, launch = drawn
    assume((launch.last == launch.widths).all())  # a wave of unequal tiles ends with the widest
    assert cost.estimate(launch, some, SIMPLE) == pytest.approx(played(launch))


def test_tiles_that_are_spread_among_others_count_in_that_order() -> None:
    some = make_problem("m: 512, n: 1024, k: 64", "m: 640, n: 5248, k: 64")
    launch = launch_of(some)
    in_order = launch.tiles[np.argsort(launch.tiles["group"], kind="stable")]
    assert played(launch) != played(replace(launch, tiles=in_order))
    assert cost.estimate(launch, some, SIMPLE) == pytest.approx(played(launch))


def test_ctas_that_share_k_multiply_a_part_of_it_each_and_add_up_what_the_others_send() -> None:
    gathers = replace(IDEAL, gather_latency=100.0, gather_value=2.0)
    for k, k_parts, slices in ((640, 2, 5), (640, 4, 3), (64, 4, 1)):
        group, name = f"m: 128, n: 64, k: {k}", f"64x128-k{k_parts}"
        assert cycles(group, name=name) == pytest.approx(slices * SLICE / 4)
        more = cycles(group, name=name, constants=gathers) - cycles(group, name=name)
        assert more == pytest.approx(100 + 2 * (k_parts - 1) * 64 * 128)
    whole = "m: 128, n: 64, k: 640"
    assert cycles(whole, name="64x128", constants=gathers) == cycles(whole, name="64x128")


def test_where_ctas_share_k_the_ring_fills_while_all_but_the_first_tiles_are_stored() -> None:
    waits = replace(IDEAL, stage_latency=11e4, gather_latency=100.0, gather_shown=2.0)
    one, four = (f"m: 128, n: {64 * 66 * rounds}, k: 640" for rounds in (1, 4))
    name = "64x128-k2"
    alone = cycles(one, name=name, constants=waits)
    assert alone > 5 * 11e4 / 11
    assert cycles(four, name=name, constants=waits) == pytest.approx(4 * alone - (4 - 1) * 50)


def test_nothing_hides_that_takes_longer_than_the_slices() -> None:
    stores = replace(IDEAL, gather_latency=100.0)
    one, four = (f"m: 128, n: {64 * 66 * rounds}, k: 640" for rounds in (1, 4))
    alone = cycles(one, name="64x128-k2", constants=stores)
    assert cycles(four, name="64x128-k2", constants=stores) == pytest.approx(4 * alone)


def test_the_memory_hands_out_sooner_what_ctas_that_share_k_read() -> None:
    sooner = replace(SLOW_MEMORY, gather_memory=0.5)
    group = "m: 16, n: 6400, k: 640"
    for name, share in (("64x128-k2", 0.5), ("64x128-k4", 0.5), ("64x128", 1.0)):
        expected = share * cycles(group, name=name, constants=SLOW_MEMORY)
        assert cycles(group, name=name, constants=sooner) == pytest.approx(expected)


def test_but_less_so_of_operands_that_k_lies_across() -> None:
    some = make_problem("m: 64, n: 9600, k: 640, b_layout: row")  # more than a wave
    of = kernel("64x128-k2", layouts=("row", "row"))
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 128))
    share = 64 / (64 + 9600)  # of the bytes that are read: A's

    def taken(constants: Constants) -> float:
        return cost.estimate(launch, some, replace(constants, write=0.0))

    sooner = replace(SLOW_MEMORY, gather_memory=0.5, gather_across=0.75)
    expected = (0.5 * share + 0.75 * (1 - share)) * taken(SLOW_MEMORY)
    assert taken(sooner) == pytest.approx(expected)


# Several launches


def together(*groups: str, streams: int, constants: Constants) -> tuple[list[float], float]:
    """What a launch of each group takes by itself, and what all of them take."""
    some = make_problem(*groups)
    kernel = launch_of(some).kernel
    choice = Choice(kernel.name, kernel.max_width)
    launches = [cut_as(some, np.array([i]), kernel, choice) for i in range(len(groups))]
    alone = [cost.estimate(launch, some, constants) for launch in launches]
    return alone, cost.all_together(launches, in_turn(len(groups), streams), some, constants)


STARTING = replace(IDEAL, branch_latency=3000)


@pytest.mark.parametrize("count", [1, 3])
def test_launches_one_after_another_take_the_sum(count: int) -> None:
    alone, all_of_them = together(*[tiles(40, k=640)] * count, streams=1, constants=FITTED)
    assert all_of_them == pytest.approx(sum(alone))


def test_a_large_launch_does_what_a_small_one_before_it_keeps_an_sm_from() -> None:
    alone, all_of_them = together(tiles(1), tiles(132 * 8, k=640), streams=2, constants=IDEAL)
    assert all_of_them == pytest.approx(alone[1] + SLICE / 132)


def test_a_small_launch_behind_a_large_one_waits_for_an_sm() -> None:
    alone, all_of_them = together(tiles(132 * 8, k=640), tiles(1), streams=2, constants=IDEAL)
    assert all_of_them == pytest.approx(sum(alone))


def test_launches_that_fit_on_the_gpu_hide_the_shorter() -> None:
    alone, all_of_them = together(tiles(99, k=64), tiles(33, k=640), streams=2, constants=IDEAL)
    assert all_of_them == pytest.approx(alone[1])


def test_tiles_that_find_no_room_wait_until_others_are_done() -> None:
    alone, all_of_them = together(*[tiles(99, k=640)] * 2, streams=2, constants=IDEAL)
    assert all_of_them == pytest.approx(sum(alone))


def test_launches_side_by_side_begin_when_all_can() -> None:
    alone, all_of_them = together(*[tiles(1)] * 6, streams=6, constants=STARTING)
    assert all_of_them == pytest.approx(5 * 3000 + alone[0])


def test_launches_of_one_stream_add_up_beside_another() -> None:
    alone, all_of_them = together(*[tiles(1, k=64000)] * 3, streams=2, constants=IDEAL)
    assert all_of_them == pytest.approx(2 * alone[0])


def test_ends_that_are_not_the_last_count_a_little() -> None:
    few_early = replace(IDEAL, early_ends=0.2)
    alone, all_of_them = together(tiles(1, k=64), tiles(1, k=640), streams=2, constants=few_early)
    assert all_of_them == pytest.approx(0.8 * alone[1] + 0.2 * sum(alone) / 2)


# How long a launch keeps its SMs


@given(launches())
def test_a_launch_keeps_its_sms_for_as_long_as_it_takes(drawn: tuple[Problem, Launch]) -> None:
    some, launch = drawn
    stay, expected = cost.stay(launch, some), cost.estimate(launch, some, beside=True)
    assert len(stay.leaves) == launch.clusters * launch.kernel.ctas
    assert stay.leaves[0] >= stay.even * (1 - 1e-9)
    assert (np.diff(stay.leaves) <= 0).all()
    if launch.kernel.ctas_per_sm == 1:
        assert stay.leaves[0] == pytest.approx(expected, rel=1e-9)


def test_ctas_with_a_tile_each_leave_behind_it() -> None:
    some = make_problem(tiles(2, k=640), tiles(3, k=64))
    stay = cost.stay(launch_of(some), some, IDEAL)
    assert stay.leaves == pytest.approx(SLICE * np.array([10, 10, 1, 1, 1]))
    assert stay.even == pytest.approx(SLICE * 23 / 5)


def test_ctas_with_parts_of_sums_leave_before_those_that_add_them_up() -> None:
    some = make_problem("m: 64, n: 128, k: 8192")
    stay = cost.stay(launch_of(some, splits=4), some, replace(IDEAL, sum_latency=1000))
    slice_ = SLICE / 2  # half of the rows of A, and shared memory
    parts = stay.leaves[stay.leaves < stay.leaves[0]]
    assert len(parts) == 4
    assert parts == pytest.approx(32 * slice_, rel=0.5)
    assert stay.leaves[0] == pytest.approx(parts[0] + 1000)


def test_two_ctas_on_an_sm_that_end_last_have_it_to_themselves() -> None:
    long, short = "m: 128, n: 64, k: 6400", "m: 128, n: 16832, k: 64"
    some = make_problem(long, short)
    launch = launch_of(some, "64x128")
    assert int(launch.entries.sum()) == 264
    alone = cost.estimate(launch, some, IDEAL)
    assert cost.stay(launch, some, IDEAL).leaves[0] == pytest.approx(alone / 2)


# What a launch costs at least


def least(
    launches: Grid, some: Problem, starts: Ints = ALONE, constants: Constants = FITTED
) -> list[float]:
    asked = asked_of(some, launches.groups, launches.kernel)
    return cost.at_least(launches, asked, starts, constants).tolist()


def played_through(launch: Grid, some: Problem, constants: Constants = FITTED) -> float:
    """What it takes as its tile list is handed out, whatever it takes at least."""
    work = work_of(launch, asked_of(some, launch.groups, launch.kernel))
    times, order = cost.times_of(work, constants), playing.order_of(launch, some)
    busy = np.array([playing.makespan(times, order, int(work.clusters[0]))])
    return float(cost.together(work, times, busy, constants)[0])


@given(launches(), st.sampled_from([FITTED, IDEAL, replace(FITTED, sum_value=90)]))
def test_no_launch_takes_less_than_it_takes_at_least(
    drawn: tuple[Problem, Launch], constants: Constants
) -> None:
    some, launch = drawn
    (bound,) = least(launch, some, constants=constants)
    assert bound <= played_through(launch, some, constants) * (1 + 1e-12)


@given(launches(), st.sampled_from([FITTED, IDEAL, replace(FITTED, crossed=9)]))
def test_what_is_estimated_is_what_playing_the_list_through_gives(
    drawn: tuple[Problem, Launch], constants: Constants
) -> None:
    some, launch = drawn
    expected = played_through(launch, some, constants)
    assert cost.estimate(launch, some, constants) == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 3000), st.integers(0, 9000), st.sampled_from(KERNELS), st.data())
def test_what_a_launch_of_equal_tiles_takes_at_least_is_what_it_takes(
    m: int, k: int, kernel: Kernel, data: st.DataObject
) -> None:
    some = make_problem(*[f"m: {m}, n: {data.draw(columns_for(kernel))}, k: {k}"] * 2)
    launch = cut_as(some, np.arange(2), kernel, Choice(kernel.name, kernel.max_width))
    (bound,) = least(launch, some)
    assert bound == pytest.approx(played_through(launch, some), rel=1e-12)


def test_what_a_long_list_takes_at_least_is_what_it_takes() -> None:
    some = make_problem(tiles(LONG, k=640), tiles(LONG, k=64))
    launch = launch_of(some)
    (bound,) = least(launch, some)
    assert bound == pytest.approx(played_through(launch, some), rel=1e-12)


@pytest.mark.parametrize(
    ("each", "some"),
    [
        ("", "k: 640"),
        ("", "m: 80"),
        ("", "lda: 648"),
        ("", "ldb: 648"),
        ("", "activation: relu"),
        ("bias: n, ", "activation: gelu"),
        ("bias: n, ", "ldd: 513"),
    ],
)
def test_a_list_of_unequal_tiles_is_played_through_if_it_is_short(each: str, some: str) -> None:
    alike = f"{each}m: 128, n: 512, k: 320, lda: 640, ldb: 640"
    unequal = make_problem("count: 100", f"{some}, count: 100", defaults=alike)
    launch = launch_of(unequal, "128x192-c2p")
    assert 4 * launch.room < len(launch.tiles) < 8 * launch.room
    constants = replace(FITTED, memory_bytes=inf, feed_bytes=20)
    (bound,) = least(launch, unequal, constants=constants)
    expected = played_through(launch, unequal, constants)
    assert cost.estimate(launch, unequal, constants) == expected > bound * (1 + 1e-6)


def test_many_launches_take_at_least_what_each_takes_by_itself() -> None:
    some = make_problem(tiles(3), tiles(200, k=640), "m: 17, n: 90, k: 16384", tiles(2000))
    starts = np.array([0, 2, 3])
    widest, splits = np.array([256, 128, 192]), np.array([1, 4, 1])
    together = grid(some, np.arange(4), KERNELS[0], widest, H200, splits, starts)
    expected = [
        bound
        for own, width, parts in (([0, 1], 256, 1), ([2], 128, 4), ([3], 192, 1))
        for bound in least(grid(some, np.array(own), KERNELS[0], width, H200, parts), some)
    ]
    assert least(together, some, starts) == expected
