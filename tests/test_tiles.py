"""The tile list of a launch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuts import (
    IN_PLACE,
    KERNELS,
    Cut,
    cuts,
    f32_in_place,
    joined_cuts,
    kernel,
    launch_of,
    split_cuts,
    stores,
    uneven_cuts,
)
from gemmctl.kernels.constants import (
    ACTIVATION_NONE,
    BIAS_NONE,
    ELEMENTS_WIDTH,
    FUSED_NARROW,
    K_TILE,
    KIND_ACTIVATION,
    KIND_BIAS,
    KIND_BIAS_TYPE,
    KIND_C_TYPE,
    KIND_GATE,
    MAPS,
    NARROW_ROWS,
    RECORDS,
    REDUCED_ROWS,
    STAGED_BOX,
    STAGED_FROM,
    STAGED_LOW_FROM,
    STAGED_ROWS,
    STAGED_SLICES,
    TILE_ADDED,
    TILE_ALONE,
    TILE_BACKWARD,
    TILE_BIAS_SCALED,
    TILE_BOXED,
    TILE_C_IN_SUMS,
    TILE_EIGHTS,
    TILE_FUSED,
    TILE_GATED,
    TILE_JOINED,
    TILE_JOINED_M,
    TILE_LOADED_BY_TWO,
    TILE_ONCE,
    TILE_PLUS,
    TILE_RELU,
    TILE_RESIDUES,
    TILE_SHUFFLED,
    TILE_WORDS,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES
from gemmctl.operands import dtypes
from gemmctl.planning import plan, tables
from gemmctl.planning.arrays import Ints
from gemmctl.planning.epilogue import (
    ADDED_HELD,
    ADDED_K,
    ADDED_WHOLE,
    BOXED_K,
    MIXED_K,
    SHUFFLED_K,
)
from gemmctl.planning.exchange import exchanged
from gemmctl.planning.order import LONG_K
from gemmctl.planning.tiles import (
    AHEAD_BYTES,
    AMONG_K,
    FULL_WAVE,
    LAST_SLICES,
    LOWER_K_TILES,
    LOWER_WAVES,
    ONCE_AMONG,
    ONCE_ROWS,
    TILE,
    TURNING_K,
    Launch,
)
from gemmctl.planning.tiling import (
    BEGUN_K,
    BOXED_TILES,
    BOXED_WAVES,
    MIN_SPLIT_K_TILES,
    Choice,
    Machine,
    seen,
)
from sources import members, size
from support import cut_as, make_problem

WORDS, FUSED, PLUS, GATED = TILE_WORDS, TILE_FUSED, TILE_PLUS, TILE_GATED
ALONG_M = TILE_JOINED | TILE_JOINED_M
ADDED_GATED = WORDS | FUSED | PLUS | GATED | TILE_EIGHTS


def kinds_of(launch: Launch) -> dict[str, Ints]:
    """What each entry says is behind its sums, by the names of Columns."""
    kinds = launch.tiles["kinds"].astype(int)
    begins = {"bias": KIND_BIAS, "bias_type": KIND_BIAS_TYPE, "gate": KIND_GATE, "c": KIND_C_TYPE}
    two_bits = {name: kinds >> begin & 3 for name, begin in begins.items()}
    return {**two_bits, "activation": kinds >> KIND_ACTIVATION & 7}


def parts(launch: Launch) -> npt.NDArray[np.void]:
    return launch.tiles[(launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] > 0)]


def sums(launch: Launch) -> npt.NDArray[np.void]:
    """The entries that add up parts."""
    return launch.tiles[(launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] == 0)]


def ending(launch: Launch) -> list[int]:
    """What its tiles say of what comes behind, or into, alpha A B; in the order of the list."""
    flags: list[int] = (launch.tiles["flags"] & ~np.uint32(TILE_ALONE)).tolist()
    return flags


def by_flag(launch: Launch) -> list[tuple[Any, Any]]:
    """The parts and the sums of every split tile."""
    added, adding = parts(launch), sums(launch)
    flags = np.unique(added["flag"])
    return [(added[added["flag"] == f], adding[adding["flag"] == f]) for f in flags]


@given(cuts() | joined_cuts() | uneven_cuts())
def test_every_element_of_every_d_lies_in_exactly_one_tile(drawn: Cut) -> None:
    """But what is in reach of a group's last tiles, where these overlap those before them."""
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
    of, share = launch.kernel, len(launch.tiles) / launch.room
    overlaps = not (launch.slots or of.b_unaligned) and FULL_WAVE <= share <= 1
    for index, times in written.items():
        able = overlaps and columns.beta[index] == 0
        rows = launch.widths[launch.groups == index].max()
        reach = rows if able and not (of.d_across or of.a_across) else 0, of.columns_per_tile * able
        in_reach = [
            np.arange(size) >= size - far for size, far in zip(times.shape, reach, strict=True)
        ]
        most = np.multiply.outer(*(1 + some.astype(int) for some in in_reach))
        assert ((times >= 1) & (times <= most)).all()


def columns_of_tiles(launch: Launch) -> list[int]:
    """Where the tiles of its first rows begin."""
    begins: list[int] = np.sort(launch.tiles["n0"][launch.tiles["m0"] == 0]).tolist()
    return begins


def rows_of_tiles(launch: Launch) -> list[tuple[int, int]]:
    """Where the tiles of its first columns begin, and how many rows they have."""
    first = np.sort(launch.tiles[launch.tiles["n0"] == 0], order="m0")
    return list(zip(first["m0"].tolist(), first["width"].tolist(), strict=True))


@pytest.mark.parametrize("name", ["128x256", "64x256"])
def test_where_a_wave_is_full_a_group_s_last_tile_begins_where_all_its_rows_are_there(
    name: str,
) -> None:
    of = kernel(name)
    whole = make_problem(f"m: 160, n: {of.rows * 40}, k: 8192")
    assert rows_of_tiles(launch_of(whole, of, 64)) == [(0, 64), (64, 64), (96, 64)]
    few_widths = make_problem(f"m: 72, n: {of.rows * 50}, k: 512, activation: gelu")
    assert rows_of_tiles(launch_of(few_widths, of, 64)) == [(0, 64), (8, 64)]


@pytest.mark.parametrize(
    "group",
    [
        "m: 160, n: 5120, k: 8192, beta: 1",  # C may lie in D's place
        "m: 160, n: 5120, k: 8192, bias: m",  # it is copied in whole words
        "m: 160, n: 3840, k: 8192",  # 90 tiles: CTAs enough are idle
        "m: 160, n: 5760, k: 8192",  # 135 tiles: more than a wave
    ],
)
def test_elsewhere_it_begins_where_the_one_above_it_ends(group: str) -> None:
    launch = launch_of(make_problem(group), kernel("128x256"), 64)
    assert [begin for begin, _ in rows_of_tiles(launch)] == [0, 64, 128]


@pytest.mark.parametrize(
    ("name", "group", "end"),
    [
        ("128x256", "m: 320, n: 2880, k: 4096", 2880),
        ("128x256", "m: 320, n: 2888, k: 4096, bias: n", 2888),
        ("128x256", "m: 320, n: 2880, k: 4096, gate: pairs", 2880),
        ("128x256-c2", "m: 320, n: 2880, k: 4096", 2880),
        ("128x256-x", "m: 2883, n: 320, k: 4096", 2883),
    ],
)
def test_where_a_wave_is_full_the_last_columns_of_tiles_begin_where_all_their_rows_of_b_are_there(
    name: str, group: str, end: int
) -> None:
    launch = launch_of(make_problem(group), kernel(name), 64)
    step = launch.kernel.columns_per_tile
    *before, last = columns_of_tiles(launch)
    assert before == list(range(0, end - step, step))
    assert last == end - step
    assert not (launch.tiles["flags"] & TILE_ALONE).any()


@pytest.mark.parametrize(
    "group",
    [
        "m: 320, n: 2880, k: 4096, beta: 1",  # C may lie in D's place
        "m: 320, n: 2883, k: 4096",  # rows of D are no whole words
        "m: 320, n: 2884, k: 4096, d: f32",  # of 16 bits they would be none
        "m: 256, n: 2880, k: 4096",  # 92 tiles: CTAs enough are idle
        "m: 384, n: 2880, k: 4096",  # 138 tiles: more than a wave
    ],
)
def test_elsewhere_they_begin_where_those_before_them_end(group: str) -> None:
    output = "f32" if "f32" in group else "bf16"
    launch = launch_of(make_problem(group), kernel("128x256", output), 64)
    assert columns_of_tiles(launch) == list(range(0, 2880, 128))


@pytest.mark.parametrize(("m", "last"), [(2888, 2888 - 128), (2884, 2816)])
def test_where_k_lies_across_b_they_begin_at_whole_words_of_it(m: int, last: int) -> None:
    """From within a word of its innermost dimension TMA loads nothing: such launches fail."""
    some = make_problem(f"m: {m}, n: 320, k: 4096, a_layout: col")
    launch = launch_of(some, kernel("128x256-x", layouts=("col", "col")), 64)
    assert columns_of_tiles(launch)[-1] == last


@pytest.mark.parametrize(
    ("name", "width", "group"),
    [
        ("64x256", 64, "m: 192, n: 2560, k: 2880"),
        ("64x256", 96, "m: 192, n: 2560, k: 1792"),
        ("64x128-k2", 64, "m: 192, n: 1280, k: 2048"),
        ("64x128-k2", 80, "m: 160, n: 1280, k: 2048"),
    ],
)
def test_two_threads_load_where_tiles_of_a_wave_that_lie_on_top_of_each_other_are_low(
    name: str, width: int, group: str
) -> None:
    launch = launch_of(make_problem(group), kernel(name), width)
    assert (launch.tiles["flags"] & TILE_LOADED_BY_TWO > 0).all()


@pytest.mark.parametrize(
    ("name", "width", "groups"),
    [
        ("64x256", 64, ["m: 64, n: 2560, k: 2880"]),  # nobody shares its rows of B
        ("64x256", 112, ["m: 224, n: 2560, k: 2880"]),  # high tiles
        ("64x256", 64, ["m: 192, n: 2560, k: 1728"]),  # a short K
        ("64x256", 64, ["m: 192, n: 3584, k: 2880"]),  # more than a wave
        ("64x256", 64, ["m: 192, n: 1280, k: 2880", "m: 64, n: 1280, k: 2880"]),  # of one group
        ("64x128-k2", 96, ["m: 192, n: 1280, k: 2048"]),
        ("64x128-k4", 32, ["m: 96, n: 640, k: 2048"]),  # kernels that have one loader
        ("128x256", 64, ["m: 192, n: 2560, k: 2880"]),
    ],
)
def test_elsewhere_one_does(name: str, width: int, groups: list[str]) -> None:
    launch = launch_of(make_problem(*groups), kernel(name), width)
    assert not (launch.tiles["flags"] & TILE_LOADED_BY_TWO).any()


@given(cuts() | joined_cuts())
def test_an_entry_has_the_scalars_of_its_group_but_parts_are_not_multiplied(drawn: Cut) -> None:
    some, launch = drawn
    of = launch.groups[launch.tiles["group"]]
    is_part = (launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] > 0)
    alpha = np.where(is_part, 1, some.columns.alpha[of].astype(np.float32))
    assert np.array_equal(launch.tiles["alpha"], alpha)
    assert np.array_equal(launch.tiles["beta"], some.columns.beta[of].astype(np.float32))


@given(cuts() | joined_cuts())
def test_what_is_not_split_sums_all_of_k(drawn: Cut) -> None:
    some, launch = drawn
    whole = launch.tiles[launch.tiles["splits"] == 0]
    k = some.columns.depth[launch.groups[whole["group"]]]
    assert not whole["k0"].any()
    assert np.array_equal(whole["k_tiles"], -(-k // K_TILE))


@pytest.mark.parametrize(
    ("changes", "output", "flags"),
    [
        ("n: 64", "bf16", WORDS),
        ("n: 64, alpha: 2", "bf16", WORDS),
        ("n: 64, beta: 1", "bf16", WORDS | FUSED | PLUS),
        ("n: 60, ldd: 64", "bf16", 0),
        ("n: 64, ldd: 68", "bf16", 0),
        ("n: 60, ldd: 68", "f32", WORDS),
        ("n: 62, ldd: 68", "f32", 0),
        ("n: 60, ldd: 70", "f32", 0),
        ("n: 64, bias: n", "bf16", WORDS | TILE_BIAS_SCALED),
        ("n: 64, bias: m", "bf16", WORDS | PLUS),
        ("n: 63, bias: m", "bf16", PLUS),
        ("n: 64, bias: n, beta: 1", "bf16", WORDS | FUSED | PLUS),
        ("n: 64, bias: n, activation: silu", "bf16", WORDS | FUSED | TILE_BIAS_SCALED),
        ("n: 64, bias: m, activation: silu", "bf16", WORDS | FUSED | PLUS),
        ("n: 64, bias: n, gate: halves", "bf16", ADDED_GATED),
        ("n: 64, activation: relu", "bf16", WORDS | TILE_RELU),
        ("n: 63, activation: relu, alpha: 2", "f32", TILE_RELU),
        ("n: 64, activation: relu, beta: 1", "bf16", WORDS | FUSED | PLUS),
        ("n: 64, activation: relu, bias: n", "bf16", WORDS | TILE_RELU | TILE_BIAS_SCALED),
        ("n: 64, activation: relu, bias: m", "bf16", WORDS | TILE_RELU | PLUS),
        ("n: 64, activation: relu, gate: halves", "bf16", WORDS | FUSED | GATED | TILE_EIGHTS),
        ("n: 64, activation: gelu", "bf16", WORDS | FUSED),
        ("n: 64, gate: halves", "bf16", WORDS | FUSED | GATED | TILE_EIGHTS),
        ("n: 60, gate: pairs", "bf16", FUSED | GATED),
        ("n: 64, beta: 1, ldc: 65", "bf16", WORDS | FUSED | PLUS | TILE_RESIDUES),
        ("n: 63, beta: 1, inplace: true", "bf16", FUSED | PLUS | TILE_RESIDUES),
        ("n: 64, beta: 1, ldc: 72", "bf16", WORDS | FUSED | PLUS),
        ("n: 64, beta: 1, ldc: 65, gate: pairs", "bf16", ADDED_GATED),
        (f"n: 64, beta: 1, ldc: {2**36 - 1}", "bf16", WORDS | FUSED | PLUS | TILE_RESIDUES),
        (f"n: 64, beta: 1, ldc: {2**36 + 1}", "bf16", WORDS | FUSED | PLUS),  # 2^40 bytes a step
        ("n: 64, ldc: 65", "bf16", WORDS),
    ],
)
def test_a_tile_says_whether_d_has_whole_16_byte_words_and_what_comes_behind_alpha_a_b(
    changes: str, output: str, flags: int
) -> None:
    some = make_problem(f"m: 64, k: 64, d: {output}, {changes}")
    launch = launch_of(some, kernel("128x256", output))
    assert launch.tiles["flags"].tolist() == [flags]


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ("alpha: 2", "128x256", ("none", "none", "none")),
        ("bias: m, bias_type: f32", "128x256", ("m", "none", "none")),
        ("bias: n, bias_type: f16, beta: 1, c: f32", "128x256", ("n", "none", "none")),
        ("bias: n", "128x256", ("none", "none", "none")),  # it comes with alpha
        ("bias: m", "128x192-c2p", ("none", "none", "none")),  # it joins the sums
        ("activation: relu", "128x256", ("none", "none", "none")),  # which has a flag
        ("activation: relu, beta: 1", "128x256", ("none", "relu", "none")),
        ("activation: silu, gate: halves", "64x128", ("none", "silu", "halves")),
        ("activation: gelu, gate: pairs, bias: n", "128x192-c2p", ("n", "gelu", "pairs")),
        ("activation: gelu_tanh, d: f32", "64x128-k2", ("none", "gelu_tanh", "none")),
    ],
)
def test_a_tile_says_which_bias_activation_and_gate_are_behind_its_sums(
    changes: str, name: str, said: tuple[str, str, str]
) -> None:
    some = make_problem(f"m: 64, n: 64, k: 64, {changes}")
    (group,) = some.groups
    kinds = kinds_of(launch_of(some, kernel(name, group.d)))
    of = {key: found.item() for key, found in kinds.items()}  # of the one tile
    assert (BIASES[of["bias"]], ACTIVATIONS[of["activation"]], GATES[of["gate"]]) == said
    assert of["bias_type"] == dtypes.BY_NAME[group.bias_type].code
    assert of["c"] == dtypes.BY_NAME[group.c].code


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("name", ["64x128", "128x256", "128x256-c2", "128x192-c2p"])
def test_every_entry_says_so_of_its_own_group(name: str, splits: int) -> None:
    some = make_problem(
        "m: 80, n: 64, k: 4096",
        "m: 80, n: 64, k: 4096, bias: n",
        "m: 80, n: 64, k: 0, bias: m, bias_type: f32, beta: 1",
        "m: 80, n: 64, k: 4096, bias: m, activation: silu",
        "m: 80, n: 64, k: 64, beta: 1, c: f32, activation: relu",
        "m: 80, n: 64, k: 4096, bias: n, bias_type: f16, activation: gelu, gate: pairs",
        "m: 80, n: 64, k: 4096, alpha: 0, bias: n, activation: relu",
        "m: 80, n: 64, k: 4096, bias: m, activation: relu",
    )
    launch = launch_of(some, kernel(name), splits=splits)
    columns, tiles = seen(some, launch.kernel), launch.tiles
    of = launch.groups[tiles["group"]]
    part = (tiles["splits"] > 0) & (tiles["k_tiles"] > 0)
    there = tiles["flags"] & (TILE_JOINED | TILE_BIAS_SCALED) > 0
    kinds = kinds_of(launch)
    for key in ("gate", "c", "bias_type"):
        assert (kinds[key] == getattr(columns, key)[of]).all()
    assert (kinds["bias"] == np.where(there, BIAS_NONE, columns.bias[of])).all()
    light = tiles["flags"] & (TILE_FUSED | TILE_ADDED) == 0
    activation = np.where(light, ACTIVATION_NONE, columns.activation[of])
    assert (kinds["activation"] == activation)[~part].all()


def test_kinds_have_room_for_all_that_there_are() -> None:
    rooms = (KIND_BIAS, KIND_BIAS_TYPE, KIND_ACTIVATION, KIND_GATE, KIND_C_TYPE, 11)
    most = (len(BIASES), len(dtypes.BY_NAME), len(ACTIVATIONS), len(GATES), len(dtypes.BY_NAME))
    for (begin, end), many in zip(pairwise(rooms), most, strict=True):
        assert many <= 1 << end - begin


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, TILE_ADDED),
        ({"m": 62, "alpha": -2, "n": 96, "ldd": 100}, TILE_ADDED),
        ({"m": 63}, TILE_ADDED),
        ({"m": 1}, TILE_ADDED),
        ({"n": 80}, WORDS | FUSED | PLUS),  # TMA takes columns by 32
        # The L2 adds more slowly than memory moves D.
        ({"k": ADDED_K - 1}, WORDS | FUSED | PLUS),
        ({"beta": 2}, WORDS | FUSED | PLUS),
        ({"beta": 0}, WORDS),
        ({"alpha": 0}, WORDS | FUSED | PLUS),  # of no depth
        ({"inplace": "false"}, WORDS | FUSED | PLUS),
        ({"d": "bf16"}, WORDS | TILE_C_IN_SUMS),  # its sum is rounded once
        ({"n": 62, "ldd": 64}, FUSED | PLUS),
        ({"ldd": 66}, FUSED | PLUS | TILE_RESIDUES),  # and whole words
        ({"bias": "n"}, WORDS | FUSED | PLUS),
        ({"activation": "relu"}, WORDS | FUSED | PLUS),
    ],
    ids=str,
)
@pytest.mark.usefixtures("nothing_held")
def test_long_sums_of_32_bits_are_added_to_d_where_it_lies(
    changes: dict[str, object], flags: int
) -> None:
    values: dict[str, object] = {"m": 64} | IN_PLACE | changes
    some = make_problem(", ".join(f"{key}: {value}" for key, value in values.items()))
    output = some.groups[0].d
    launch = launch_of(some, kernel("128x256", output))
    assert set(launch.tiles["flags"].tolist()) == {flags}
    from_ring = flags & FUSED and changes.get("alpha") != 0
    assert launch.tiles["c_stages"].any() == bool(from_ring)
    (made,) = plan.make([some], KERNELS)
    box = WIDTHS if flags & TILE_ADDED else int(launch.loaded[0]) // WIDTH_STEP - 1
    assert tables.build(launch, made, 0).c_box.tolist() == [box]


# 16 by 11 tiles of 192 rows by 256 columns: two and two thirds for each of 66 clusters.
LARGE = {"m": 3072, "n": 2816, "k": 640, "d": "f32"}


def large(**changes: object) -> str:
    return ", ".join(f"{key}: {value}" for key, value in (LARGE | changes).items())


@pytest.mark.parametrize(
    ("name", "changes", "flags"),
    [
        ("128x192-c2p", {}, TILE_BOXED),
        ("128x192-c2p", {"m": 3070, "alpha": -2, "n": 2784, "ldd": 2788}, TILE_BOXED),
        ("128x192-c2p", {"k": BOXED_K[0]}, TILE_BOXED),
        ("128x192-c2p", {"k": BOXED_K[0] - 1}, WORDS),
        ("128x192-c2p", {"k": BOXED_K[-1]}, TILE_BOXED),
        ("128x192-c2p", {"k": BOXED_K[-1] + 1}, WORDS),
        ("128x192-c2p", {"m": 14 * 192}, WORDS),  # two and a third for each cluster
        ("128x192-c2p", {"m": 16 * 184}, WORDS),  # tiles of 184 rows are no whole boxes
        ("128x192-c2p", {"m": 3071}, WORDS),  # TMA takes rows by pairs,
        ("128x192-c2p", {"n": 2800}, WORDS),  # columns by 32,
        ("128x192-c2p", {"n": 2814, "ldd": 2816}, 0),
        ("128x192-c2p", {"ldd": 2818}, 0),  # and whole words,
        ("128x192-c2p", {"ldd": 2**37 - 4}, TILE_BOXED),
        ("128x192-c2p", {"ldd": 2**37}, WORDS),  # and steps no further
        ("128x192-c2p", {"alpha": 0}, WORDS),  # nothing is multiplied
        ("128x192-c2p", {"activation": "relu"}, WORDS | TILE_RELU),
        ("128x192-c2p", {"bias": "n"}, WORDS | PLUS),
        ("128x192-c2p", {"beta": 1}, WORDS | FUSED | PLUS),
        ("128x192-c2p", {"beta": 1, "inplace": "true", "k": ADDED_K}, TILE_ADDED),
        ("128x192-c2p", {"d": "bf16"}, WORDS),
        ("128x192-c2px", {}, WORDS),  # by columns threads store
        ("128x256", {}, WORDS),  # nobody multiplies meanwhile
    ],
    ids=str,
)
@pytest.mark.usefixtures("nothing_held")
def test_tma_stores_sums_of_32_bits_of_some_length_where_warpgroups_take_turns(
    name: str, changes: dict[str, object], flags: int
) -> None:
    some = make_problem(large(**changes))
    launch = launch_of(some, kernel(name, some.groups[0].d))
    assert set(launch.tiles["flags"].tolist()) == {flags}


@pytest.mark.parametrize(("n", "boxed"), [(256 * (BOXED_TILES // 8), True), (1792, False)])
def test_tma_stores_what_has_tiles_enough_for_its_map_to_be_used_again(n: int, boxed: bool) -> None:
    some = make_problem(large(), large(m=8 * 192, n=n))
    launch = launch_of(some, kernel("128x192-c2p", "f32"))
    of, flags = launch.tiles["group"], launch.tiles["flags"]
    assert set(flags[of == 0].tolist()) == {TILE_BOXED}
    assert set(flags[of == 1].tolist()) == {TILE_BOXED if boxed else WORDS}
    assert launch.waves >= BOXED_WAVES


@pytest.mark.parametrize(
    ("groups", "added"),
    [
        ([(64, ADDED_K - 1)], [0]),  # it would wait for the L2
        ([(64, MIXED_K - 1), *[(64, 8)] * 9], [0] * 10),
        ([(64, MIXED_K), *[(64, 8)] * 9], [1] + [0] * 9),
        ([(64, 8 * i) for i in range(70, 80)], [0] * 5 + [1] * 5),  # the longest
        ([(64, 640)] * 10, [1] * 5 + [0] * 5),
        ([(64, 480)] * 10, [1] * 4 + [0] * 6),
        (
            [(832, 800), (64, 720), *[(64, 8)] * 5],
            [0] * 7,
        ),  # what comes after too long a one waits, too
        ([(640, ADDED_K), (64, 720), *[(64, 8)] * 3], [1, 0, 0, 0, 0]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("nothing_held")
def test_beside_others_shorter_sums_are_added_up_to_a_share_of_d_that_their_k_decides(
    groups: list[tuple[int, int]], added: list[int]
) -> None:
    assert ADDED_WHOLE == 1200
    launch = launch_of(
        make_problem(*(f32_in_place(m, k) for m, k in groups)), kernel("128x256", "f32")
    )
    flags = {int(tile["group"]): bool(tile["flags"] & TILE_ADDED) for tile in launch.tiles}
    assert [flags[group] for group in range(len(groups))] == added


@pytest.mark.parametrize("alpha", [1, 0])  # without a product there is nothing to add
@pytest.mark.parametrize(
    ("m", "k", "added"),
    [
        (ADDED_HELD / 4096, 1, True),
        (2 * ADDED_HELD / 4096, ADDED_K / 2, True),
        (2 * ADDED_HELD / 4096, ADDED_K / 2 - 1, False),
        (4 * ADDED_HELD / 4096, 3 * ADDED_K / 4, True),
        (4 * ADDED_HELD / 4096, 3 * ADDED_K / 4 - 1, False),
    ],
)
def test_the_more_of_d_the_l2_holds_the_shorter_are_sums_that_it_adds(
    m: float, k: float, added: bool, alpha: int
) -> None:
    group = f"m: {int(m)}, n: 4096, k: {int(k)}, d: f32, beta: 1, inplace: true, alpha: {alpha}"
    launch = launch_of(make_problem(group), kernel("128x256", "f32"))
    assert set((launch.tiles["flags"] & TILE_ADDED > 0).tolist()) == {added and alpha != 0}


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ("beta: 1", WORDS | TILE_C_IN_SUMS),
        ("beta: -0.3, inplace: true", WORDS | TILE_C_IN_SUMS),
        ("beta: 1, ldd: 65", TILE_C_IN_SUMS),
        ("beta: 1, activation: relu", WORDS | TILE_RELU | TILE_C_IN_SUMS),
        ("beta: 1, activation: silu", WORDS | FUSED | TILE_C_IN_SUMS),
        ("beta: 1, bias: m", WORDS | ALONG_M | TILE_C_IN_SUMS),
        ("beta: 1, bias: n", WORDS | TILE_JOINED | TILE_C_IN_SUMS),
        ("beta: 0", WORDS),
        ("beta: 1, alpha: 0.5", WORDS | FUSED | PLUS),  # which would multiply C, too
        ("beta: 1, c: f32", WORDS | FUSED | PLUS),
        ("beta: 1, c: f16", WORDS | FUSED | PLUS),
        ("beta: 1, ldc: 65", WORDS | FUSED | PLUS | TILE_RESIDUES),
        ("beta: 1, gate: pairs", ADDED_GATED),
        ("beta: 1, d: f32, c: f32", WORDS | FUSED | PLUS),  # multiplying would round C's last bits
    ],
)
def test_pingpong_sums_begin_with_a_c_of_ds_16_bits(changes: str, flags: int) -> None:
    some = make_problem(f"m: 64, n: 64, k: 64, {changes}")
    output = some.groups[0].d
    assert set(ending(launch_of(some, kernel("128x192-c2p", output)))) == {flags}
    others = launch_of(some, kernel("128x256-c2", output)).tiles["flags"]
    assert not (others & TILE_C_IN_SUMS).any()


@pytest.mark.parametrize("name", ["64x128", "64x128-k2", "64x128-k4"])
@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ("beta: 1", WORDS | TILE_C_IN_SUMS),
        ("beta: -0.3, inplace: true, activation: relu", WORDS | TILE_RELU | TILE_C_IN_SUMS),
        ("beta: 1, bias: n", WORDS | TILE_BIAS_SCALED | TILE_C_IN_SUMS),
        ("beta: 1, bias: m", WORDS | FUSED | PLUS),
        ("beta: 1, activation: silu", WORDS | FUSED | PLUS),
        ("beta: 1, ldd: 65", FUSED | PLUS),
        ("beta: 1, alpha: 0.5", WORDS | FUSED | PLUS),
        ("beta: 1, d: f32, c: f32", WORDS | FUSED | PLUS),
    ],
)
def test_so_do_those_of_one_warpgroup_if_the_tile_then_ends_like_a_plain_one(
    name: str, changes: str, flags: int
) -> None:
    some = make_problem(f"m: 64, n: 64, k: 64, {changes}")
    assert set(ending(launch_of(some, kernel(name, some.groups[0].d)))) == {flags}


# Slices of K that both warpgroups have multiplied once C has come, in one piece and in two.
ONE_PIECE, TWO_PIECES = STAGED_LOW_FROM + 2, STAGED_FROM + STAGED_SLICES + 2


@pytest.mark.parametrize(
    ("m", "k_tiles", "in_turn"),
    [
        (STAGED_ROWS, ONE_PIECE + 1, 1),
        (STAGED_ROWS, ONE_PIECE + 2, 2),
        (STAGED_ROWS, ONE_PIECE + 9, LAST_SLICES),
        (256, TWO_PIECES + 1, 1),
        (256, TWO_PIECES + 3, 3),
        (256, 64, LAST_SLICES),
        (NARROW_ROWS, ONE_PIECE + 1, 0),
    ],
)
@pytest.mark.parametrize("name", ["128x256", "128x256-c2"])
def test_where_warpgroups_share_tiles_a_c_of_ds_16_bits_joins_long_sums_on_the_way(
    name: str, m: int, k_tiles: int, in_turn: int
) -> None:
    some = make_problem(f"m: {m}, n: 64, k: {k_tiles * K_TILE}, beta: -0.5")
    launch = launch_of(some, kernel(name))
    (made,) = plan.make([some], [launch.kernel])
    (tile,) = launch.tiles
    assert ending(launch) == [WORDS | TILE_C_IN_SUMS]
    assert (tile["c_stages"], tile["in_turn"]) == (0, in_turn)  # all of the ring is A's and B's
    assert tables.build(launch, made, 0).c_box.tolist() == [STAGED_BOX // WIDTH_STEP - 1]
    assert launch.maps_each == MAPS


def test_so_does_that_of_a_last_tile_of_few_rows() -> None:
    launch = launch_of(make_problem("m: 264, n: 64, k: 1024, beta: 1"), kernel("128x256"))
    assert launch.tiles["width"].tolist() == [256, FUSED_NARROW]
    assert (launch.tiles["flags"] == WORDS | TILE_C_IN_SUMS).all()
    assert launch.tiles["in_turn"].tolist() == [LAST_SLICES, 0]


@pytest.mark.parametrize(
    ("m", "k_tiles"),
    [
        (STAGED_ROWS, ONE_PIECE),  # behind it no slice would be left for a turn
        (STAGED_ROWS + 1, TWO_PIECES),
    ],
)
def test_that_of_shorter_sums_comes_by_the_ring(m: int, k_tiles: int) -> None:
    some = make_problem(f"m: {m}, n: 64, k: {k_tiles * K_TILE}, beta: 1")
    launch = launch_of(some, kernel("128x256-c2"))
    (made,) = plan.make([some], [launch.kernel])
    (tile,) = launch.tiles
    assert (ending(launch), tile["c_stages"]) == ([WORDS | FUSED | PLUS], 2)
    assert tables.build(launch, made, 0).c_box.tolist() == [tile["box"] // WIDTH_STEP - 1]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (", alpha: 2", "128x256-c2"),  # which would multiply C, too
        (", c: f32", "128x256-c2"),
        (", d: f32, c: f32", "128x256-c2"),  # each multiplication would round C's last bits
        (", ldc: 65", "128x256-c2"),
        (", alpha: 2", "64x128"),
    ],
)
def test_any_other_c_is_added_behind_the_sums(more: str, name: str) -> None:
    some = make_problem(f"m: 128, n: 64, k: 4096, beta: 1{more}")
    (tile,) = launch_of(some, kernel(name, some.groups[0].d)).tiles
    assert tile["flags"] & (TILE_C_IN_SUMS | FUSED) == FUSED


@pytest.mark.parametrize("more", ["k: 0", "k: 64, alpha: 0", "k: 4096"])
@pytest.mark.parametrize("name", ["128x192-c2p", "128x256-c2", "64x128"])
def test_without_a_whole_sum_nothing_can_begin_or_join_it(name: str, more: str) -> None:
    launch = launch_of(
        make_problem(f"m: 64, n: 64, beta: 1, bias: n, {more}"), kernel(name), splits=4
    )
    into_sums = TILE_C_IN_SUMS | TILE_JOINED | TILE_BIAS_SCALED
    assert not (launch.tiles["flags"] & into_sums).any()


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ("bias: n", WORDS | TILE_JOINED),
        ("bias: n, activation: relu", WORDS | TILE_RELU | TILE_JOINED),
        ("bias: n, ldd: 65", TILE_JOINED),
        ("bias: n, d: f32, bias_type: bf16", WORDS | TILE_JOINED),
        ("bias: m, d_layout: col", WORDS | TILE_JOINED),  # D^T has it along n
        ("bias: n, n: 63, ldd: 64", TILE_JOINED),
        ("bias: m", WORDS | ALONG_M),
        ("bias: m, activation: relu, ldd: 65", TILE_RELU | ALONG_M),
        ("bias: n, d_layout: col", WORDS | ALONG_M),
        ("bias: n, bias_type: f32", WORDS | PLUS),  # three products of bf16 it would take
        ("bias: n, d: f32", WORDS | PLUS),
        ("bias: n, alpha: 2", WORDS | TILE_JOINED),  # behind which it comes
        ("bias: m, alpha: 2, beta: 1", WORDS | FUSED | PLUS),
        ("bias: n, beta: 1, c: f32", WORDS | FUSED | PLUS),  # C comes first in what is promised
        ("bias: n, activation: silu", WORDS | FUSED | PLUS),
        ("bias: n, gate: pairs", ADDED_GATED),
    ],
)
def test_a_bias_of_the_operands_type_joins_pingpong_sums(changes: str, flags: int) -> None:
    size = "m: 64, k: 64" if "n: 63" in changes else "m: 64, n: 64, k: 64"
    some = exchanged(make_problem(f"{size}, {changes}"))
    output = some.groups[0].d
    assert set(ending(launch_of(some, kernel("128x192-c2p", output)))) == {flags}
    others = launch_of(some, kernel("128x256-c2", output)).tiles["flags"]
    assert not (others & TILE_JOINED).any()


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ("bias: n", WORDS | TILE_BIAS_SCALED),
        ("bias: n, activation: relu", WORDS | TILE_RELU | TILE_BIAS_SCALED),
        ("bias: n, alpha: -2, bias_type: f32", WORDS | TILE_BIAS_SCALED),
        ("bias: n, d: f32, bias_type: f16", WORDS | TILE_BIAS_SCALED),
        ("bias: n, ldd: 65", TILE_BIAS_SCALED),
        ("bias: n, activation: silu", WORDS | FUSED | TILE_BIAS_SCALED),
        ("bias: m, d_layout: col", WORDS | TILE_BIAS_SCALED),  # D^T has it along n
        ("bias: m", WORDS | PLUS),
        ("bias: n, beta: 1, c: f32", WORDS | FUSED | PLUS),  # C comes first in what is promised
        ("bias: n, gate: pairs", ADDED_GATED),
    ],
)
@pytest.mark.parametrize("name", ["64x128", "64x128-k4", "128x256", "128x256-c2"])
def test_elsewhere_a_bias_along_n_comes_with_alpha(name: str, changes: str, flags: int) -> None:
    some = exchanged(make_problem(f"m: 64, n: 64, k: 64, {changes}"))
    launch = launch_of(some, kernel(name, some.groups[0].d))
    assert set(ending(launch)) == {flags}


def test_a_bias_comes_with_alpha_where_c_has_joined_the_sums() -> None:
    some = make_problem("m: 256, n: 256, k: 2048, beta: 1, bias: n")
    launch = launch_of(some, kernel("128x256"))
    assert set(ending(launch)) == {WORDS | TILE_C_IN_SUMS | TILE_BIAS_SCALED}


def test_a_bias_that_would_join_a_whole_sum_comes_behind_parts_that_are_added_up() -> None:
    some = make_problem("m: 80, n: 256, k: 4096, bias: n")
    launch = launch_of(some, kernel("128x192-c2p"), splits=4)
    assert set(parts(launch)["flags"].tolist()) == {WORDS}
    assert set(sums(launch)["flags"].tolist()) == {WORDS | PLUS}


def test_parts_of_a_sum_have_nothing_behind_them() -> None:
    some = make_problem(*(f"m: 80, n: 64, k: 4096, {more}" for more in ("bias: n", "beta: 1")))
    launch = launch_of(some, kernel("128x256"), splits=4)
    assert set(parts(launch)["flags"].tolist()) == {WORDS}
    assert set(sums(launch)["flags"].tolist()) == {WORDS | PLUS, WORDS | FUSED | PLUS}


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


@given(split_cuts())
def test_the_parts_of_a_tile_partition_k(drawn: Cut) -> None:
    some, launch = drawn
    for added, _ in by_flag(launch):
        (group,) = set(launch.groups[added["group"]].tolist())
        ends = added["k0"] + added["k_tiles"]
        assert added["k0"].tolist() == [0, *ends[:-1].tolist()]
        assert ends[-1] == -(-some.groups[group].depth // K_TILE)
        assert set(added["splits"].tolist()) == {len(added)}


@given(split_cuts())
def test_no_part_is_shorter_than_it_is_worth(drawn: Cut) -> None:
    _, launch = drawn
    assert parts(launch)["k_tiles"].min() >= MIN_SPLIT_K_TILES


@given(split_cuts())
def test_all_parts_of_a_tile_cover_the_same_rows_and_columns(drawn: Cut) -> None:
    _, launch = drawn
    for added, _ in by_flag(launch):
        assert len({tile.item() for tile in added[["group", "m0", "n0", "width"]]}) == 1


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


@given(split_cuts())
def test_parts_and_readers_agree_on_how_many_readers_there_are(drawn: Cut) -> None:
    _, launch = drawn
    for added, adding in by_flag(launch):
        assert {*added["readers"].tolist(), *adding["readers"].tolist()} == {len(adding)}


@given(split_cuts())
def test_what_adds_up_parts_comes_after_everything_that_multiplies(drawn: Cut) -> None:
    _, launch = drawn
    adds_up = (launch.tiles["splits"] > 0) & (launch.tiles["k_tiles"] == 0)
    assert adds_up[-adds_up.sum() :].all()


@given(split_cuts())
def test_no_two_parts_share_a_slot_and_all_slots_are_counted(drawn: Cut) -> None:
    _, launch = drawn
    assert sorted(parts(launch)["slot"].tolist()) == list(range(launch.slots))


@given(split_cuts())
def test_a_reader_finds_the_parts_in_the_order_of_k(drawn: Cut) -> None:
    _, launch = drawn
    for added, adding in by_flag(launch):
        (first,) = set(adding["slot"].tolist())
        assert added["slot"].tolist() == list(range(first, first + len(added)))


@given(split_cuts())
def test_every_split_tile_has_a_flag_of_its_own_and_all_flags_are_counted(drawn: Cut) -> None:
    _, launch = drawn
    places = {tile.item() for tile in parts(launch)[["group", "m0", "n0"]]}
    flags = set(parts(launch)["flag"].tolist())
    assert flags == set(range(len(places))) == set(range(launch.flags))


@given(split_cuts())
def test_the_workspace_has_room_for_a_tile_of_sums_in_every_slot(drawn: Cut) -> None:
    _, launch = drawn
    tile_bytes = launch.kernel.rows * launch.kernel.cluster * launch.kernel.max_width * 4
    assert launch.workspace_bytes == launch.slots * tile_bytes


def test_a_launch_without_split_tiles_needs_no_workspace_and_no_flags() -> None:
    launch = launch_of(make_problem("m: 64, n: 64, k: 64"), kernel("64x128"), splits=4)
    assert (launch.slots, launch.flags, launch.workspace_bytes) == (0, 0, 0)


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


def heights(group: str, name: str = "128x192-c2p", waves: int = LOWER_WAVES) -> list[int]:
    """Of tiles of up to 192 rows on top of each other, in at least so many waves of them."""
    of, some = kernel(name), make_problem(group)
    high = -(-seen(some, of).m[0] // 192)
    choice, sms = Choice(of.name, 192), of.cluster * high // waves
    tiles = cut_as(some, np.arange(1), of, choice, Machine(sms)).tiles
    column = np.sort(tiles[tiles["n0"] == 0], order="m0")
    assert (column["m0"] + column["width"])[:-1].tolist() == column["m0"][1:].tolist()
    return column["width"].tolist()


EVEN = 14 * [192] + 8 * [176]  # 4096 rows, where 22 tiles of 192 have 128 more


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("m: 4096, n: 256, k: 1024", "128x192-c2p"),
        ("m: 4096, n: 256, k: 1024, alpha: 2, activation: relu", "128x192-c2p"),
        ("m: 256, n: 4096, k: 1024", "128x192-c2px"),
        ("m: 4096, n: 256, k: 1024, beta: 1", "128x192-c2p"),
        ("m: 4096, n: 256, k: 1024, bias: n", "128x192-c2p"),
        ("m: 4096, n: 256, k: 1024, bias: m, bias_type: f32", "128x192-c2p"),
        ("m: 4096, n: 255, k: 1024, ldd: 256", "128x192-c2p"),
    ],
)
def test_the_last_tiles_of_a_group_are_lower_where_equal_ones_are_more_than_it_has_rows(
    group: str, name: str
) -> None:
    assert heights(group, name) == EVEN


def test_heights_in_finer_steps_are_as_far_apart() -> None:
    assert heights("m: 2000, n: 256, k: 1024") == 10 * [184] + [168]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (f"m: 4096, n: 256, k: {LOWER_K_TILES.start * K_TILE - K_TILE}", "128x192-c2p"),
        (f"m: 4096, n: 256, k: {LOWER_K_TILES.stop * K_TILE}", "128x192-c2p"),
        ("m: 4096, n: 256, k: 1024", "128x256-c2"),
        ("m: 4096, n: 256, k: 1024, d: f32, beta: 1, inplace: true", "128x192-c2p"),  # added
        ("m: 4164, n: 256, k: 1024, activation: silu", "128x192-c2p"),  # few widths: 64, 128, 192
        ("m: 4164, n: 256, k: 1024, d: f32, beta: 1", "128x192-c2p"),
        (f"m: 4164, n: 256, k: {BEGUN_K - K_TILE}, beta: 1", "128x192-c2p"),
        ("m: 4209, n: 256, k: 1024", "128x192-c2p"),  # 22 tiles of 192 are 15 rows more
        ("m: 8208, n: 256, k: 1024", "128x192-c2p"),  # 48 more, not 1% of them
    ],
)
def test_elsewhere_they_are_as_high_as_each_other(group: str, name: str) -> None:
    assert set(heights(group, name)) == {192}


def test_in_few_waves_they_are_as_high_as_each_other() -> None:
    assert set(heights("m: 4096, n: 256, k: 1024", waves=LOWER_WAVES - 1)) == {192}


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


@pytest.mark.parametrize(
    ("name", "groups", "once"),
    [
        ("128x256-c2", [(ONCE_AMONG, AMONG_K), (512, AMONG_K)], [True, False]),
        ("128x192-c2p", [(ONCE_AMONG + 1, LONG_K), (512, LONG_K)], [False, False]),
        ("128x256-c2", [(1, AMONG_K - K_TILE), (512, AMONG_K - K_TILE)], [False, False]),
        ("128x256-c2", [(ONCE_AMONG, LONG_K), (512, 2 * LONG_K)], [False, False]),  # K differs
        ("128x256-c2", [(ONCE_AMONG, LONG_K), (200, LONG_K)], [False, False]),  # none is read again
        ("128x256-x", [(ONCE_AMONG, LONG_K), (512, LONG_K)], [False, False]),
    ],
)
def test_among_groups_that_are_read_again_b_of_more_rows_need_not_stay(
    name: str, groups: list[tuple[int, int]], once: list[bool]
) -> None:
    some = make_problem(*(f"m: {m}, n: 304, k: {k}" for m, k in groups))
    tiles = launch_of(some, kernel(name)).tiles
    found = {int(t["group"]): bool(t["flags"] & TILE_ONCE) for t in tiles}
    assert [found[group] for group in range(len(groups))] == once


@pytest.mark.parametrize(
    ("name", "n", "alone"),
    [
        ("128x256-c2", 128, [True]),
        ("128x256-c2", 129, [False]),
        ("128x192-c2p", 256 + 1, [False, True]),
        ("128x192-c2p", 256 + 129, [False, False]),
        ("128x256", 1, [False]),  # no cluster
        ("64x128", 64, [False]),
    ],
)
def test_of_a_cluster_whose_second_cta_has_no_columns_the_tile_says_so(
    name: str, n: int, alone: list[bool]
) -> None:
    tiles = launch_of(make_problem(f"m: 300, n: {n}, k: 64"), kernel(name)).tiles
    found = {int(t["n0"]): bool(t["flags"] & TILE_ALONE) for t in tiles}
    assert [found[n0] for n0 in sorted(found)] == alone


def test_of_exchanged_operands_rows_count() -> None:
    some, of = make_problem("m: 300, n: 1000, k: 64"), kernel("128x256-c2x")
    tiles = launch_of(some, of).tiles
    assert {bool(t["flags"] & TILE_ALONE) for t in tiles if t["n0"] == 256} == {True}


def test_columns_of_x_count_where_a_gate_makes_d_of_them() -> None:
    for n, alone in ((128, True), (136, False)):
        some = make_problem(f"m: 64, n: {n}, k: 64, gate: halves")
        (tile,) = launch_of(some, kernel("128x256-c2")).tiles
        assert bool(tile["flags"] & TILE_ALONE) == alone


def test_a_b_that_several_tiles_read_stays_however_few_their_rows() -> None:
    some, of = make_problem(f"m: {ONCE_ROWS}, n: 128, k: {LONG_K}"), kernel("128x256")
    narrow = launch_of(some, of, width=ONCE_ROWS // 2)
    assert len(narrow.tiles) == 2
    assert not (narrow.tiles["flags"] & TILE_ONCE).any()


def test_where_all_of_a_cluster_share_what_is_read_once_the_l2_is_not_told() -> None:
    some = make_problem(f"m: 1, n: 300, k: {LONG_K}")
    assert not (launch_of(some, kernel("128x256-c2x")).tiles["flags"] & TILE_ONCE).any()


@pytest.mark.parametrize(
    ("name", "group", "shuffled"),
    [
        ("128x256-x", f"m: 8, n: 256, k: {SHUFFLED_K}", True),
        ("128x256-x", "m: 1, n: 96, k: 8", True),
        ("128x256-x", "m: 1, n: 64, k: 8", False),  # lines of D of 128 bytes
        ("128x256-x", f"m: 8, n: 256, k: {SHUFFLED_K + K_TILE}", False),  # hides what that saves
        ("128x256-x", "m: 8, n: 256, k: 96", False),  # every other row begins within a line
        ("128x256-x", "m: 8, n: 256, k: 96, ldb: 128", True),
        ("128x256-x", "m: 8, n: 256, k: 24", True),  # so does one, but no slice crosses lines
        ("128x256-x", "m: 8, n: 112, k: 64", False),  # three runs and a half
        ("128x256-x", "m: 8, n: 48, k: 64, d: f32", True),  # of 32 bits there are half as many
        ("128x256-x", "m: 8, n: 56, k: 64, d: f32", False),
        ("128x256-c2x", "m: 8, n: 192, k: 64", True),
        ("128x256-c2x", "m: 8, n: 96, k: 64", False),  # each CTA would load a run and a half
        ("128x192-c2px", "m: 8, n: 192, k: 64, d: f32", True),
        ("128x192-c2px", "m: 8, n: 192, k: 64", False),  # gains nothing
        ("128x256", "m: 256, n: 256, k: 64", False),  # D is not by columns
        ("128x256-x", "m: 8, n: 256, k: 64, alpha: 0", False),  # nothing is loaded
    ],
)
def test_rows_of_a_are_shuffled_where_operands_are_exchanged_k_is_short_and_runs_are_whole(
    name: str, group: str, shuffled: bool
) -> None:
    some = make_problem(group)
    launch = launch_of(some, kernel(name, some.groups[0].d))
    assert ((launch.tiles["flags"] & TILE_SHUFFLED > 0) == shuffled).all()
    assert launch.shuffled.tolist() == [shuffled]


@pytest.mark.parametrize(
    ("name", "group", "waves", "slices"),
    [
        # The only tile of a cluster, and where others follow.
        ("128x256", "m: 256, n: 512, k: 4096", "one", 4),
        ("128x256-c2", "m: 256, n: 512, k: 4096", "many", 3),
        ("128x256", "m: 256, n: 512, k: 4096, activation: relu", "many", 3),
        ("128x256", "m: 256, n: 512, k: 4096, bias: n", "many", 3),
        ("128x256", "m: 256, n: 511, k: 4096", "many", 2),
        # K is less than two rings long, of four stages or of six, or that short.
        ("128x256-x", "m: 512, n: 256, k: 448", "many", 2),
        ("128x256-x", "m: 512, n: 256, k: 512", "many", 3),
        ("128x256-x", "m: 512, n: 256, k: 448", "one", 4),
        ("128x256", "m: 128, n: 512, k: 704", "many", 2),
        ("128x256", "m: 128, n: 512, k: 768", "many", 3),
        ("128x256-x", "m: 512, n: 256, k: 130", "one", 3),
        # C is in the ring.
        ("128x256", "m: 256, n: 512, k: 4096, beta: 1, c: f16", "one", 3),
        ("128x256", "m: 256, n: 512, k: 4096, beta: 1, c: f16", "many", 2),
        ("128x256", "m: 256, n: 512, k: 4096, beta: 1, c: f32", "one", 2),
        ("128x256", "m: 256, n: 512, k: 4096, beta: 1, c: f32", "many", 1),
        # What takes long is hidden by all that there are, and by all of a K that fits the ring.
        ("128x256", "m: 256, n: 512, k: 4096, activation: silu", "many", 4),
        ("128x256", "m: 128, n: 512, k: 384, activation: silu", "many", 6),
        ("128x256", "m: 128, n: 512, k: 384, bias: n", "many", 6),
        ("128x256", "m: 128, n: 511, k: 384", "many", 6),
        # Few rows wait for memory.
        ("128x256", "m: 80, n: 512, k: 4096", "one", 4),
        ("128x256", "m: 64, n: 512, k: 4096", "one", 0),
        ("128x256", "m: 64, n: 512, k: 4096, activation: silu", "one", 0),
        ("128x256", "m: 64, n: 512, k: 256", "many", 4),
        ("128x256", "m: 64, n: 512, k: 320", "many", 0),
        # A tile for each warpgroup, a single warpgroup, and nothing to multiply.
        ("128x192-c2p", "m: 192, n: 512, k: 4096", "one", 0),
        ("64x128", "m: 128, n: 512, k: 4096", "one", 0),
        ("128x256", "m: 128, n: 512, k: 0", "one", 0),
    ],
)
def test_so_many_of_the_last_slices_of_k_are_multiplied_by_turns(
    name: str, group: str, waves: str, slices: int
) -> None:
    assert set(in_turn(group, kernel(name), waves)) == {slices}


def in_turn(group: str, of: Kernel, waves: str) -> list[int]:
    """What the tiles of two groups say of that, in a wave or in more."""
    some, machine = make_problem(group, group), Machine(132 if waves == "one" else 2)
    launch = cut_as(some, np.arange(2), of, Choice(of.name, of.max_width), machine)
    return launch.tiles["in_turn"].tolist()


@given(st.one_of(cuts(), split_cuts()))
def test_no_tile_has_more_of_them_than_it_has_slices_or_its_launch_stages(one: Cut) -> None:
    _, launch = one
    tiles, turns = launch.tiles, launch.kernel.takes_turns
    assert (tiles["in_turn"] <= np.minimum(tiles["k_tiles"], launch.stages)).all()
    assert turns or not tiles["in_turn"].any()
    # What the kernels have code for.
    narrow, some = tiles["width"] <= NARROW_ROWS, (tiles["in_turn"] > 0) | (tiles["k_tiles"] == 0)
    all_or_none = ~some | (tiles["in_turn"] == tiles["k_tiles"])
    assert not turns or np.where(narrow, all_or_none, some).all()


def test_sums_whose_rows_are_shuffled_are_never_split() -> None:
    launch = launch_of(
        make_problem(f"m: 8, n: 256, k: {SHUFFLED_K}"), kernel("128x256-x"), splits=9
    )
    assert launch.shuffled.all() and launch.slots == 0


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


def test_short_tiles_are_taken_ahead_until_they_fill_the_ring() -> None:
    def launch(k: int) -> Launch:
        some = make_problem(f"m: 1024, n: 1024, k: {k}, d: f32, count: 50")
        return launch_of(some, kernel("128x256", "f32"))

    assert launch(K_TILE).ahead == 1 + launch(K_TILE).stages == 5
    assert launch(2 * K_TILE).ahead == 3
    assert launch(LONG_K - K_TILE).ahead == 2


def test_and_beyond_that_while_the_l2_holds_what_so_many_waves_of_tiles_read_and_write() -> None:
    launch = launch_of(make_problem("m: 8192, n: 8192, k: 512"), kernel("128x256"))
    a_wave = (2 * 8192 * 512 + 8192**2) * 2 * 132 / len(launch.tiles)  # bytes of A, B and D
    assert launch.stages < 512 // K_TILE
    assert launch.ahead == AHEAD_BYTES // a_wave == 4


def test_no_more_tiles_are_taken_ahead_than_there_are_records() -> None:
    some = make_problem("m: 16, n: 128, k: 64, count: 13200")
    assert launch_of(some, kernel("128x256")).ahead == RECORDS - 1


def test_where_one_k_is_long_only_the_next_tile_is_taken_ahead() -> None:
    mixed = make_problem("m: 256, n: 256, k: 64", f"m: 256, n: 256, k: {LONG_K - 63}")
    assert launch_of(mixed, kernel("128x256")).ahead == 1


def test_an_entry_is_laid_out_as_the_kernel_reads_it() -> None:
    kinds = {"uint32_t": np.uint32, "uint16_t": np.uint16, "float": np.float32}
    declared = [
        (member.name, kinds[member.type], *([member.length] if member.length > 1 else []))
        for member in members("Tile")
    ]
    assert np.dtype(declared) == TILE
    assert TILE.itemsize == size("Tile")


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


def test_a_last_tile_of_64_rows_takes_no_turns_where_the_others_do() -> None:
    """The ring would not hold all slices of its K until the second warpgroup has had them."""
    some = make_problem("m: 300, n: 64, k: 4096, activation: silu")
    tiles = np.sort(launch_of(some, kernel("128x256-c2")).tiles, order="m0")
    assert tiles["width"].tolist() == [256, NARROW_ROWS]
    assert tiles["in_turn"].tolist() == [LAST_SLICES, 0]


@pytest.mark.parametrize(("k", "shuffled"), [(SHUFFLED_K, True), (SHUFFLED_K + K_TILE, False)])
def test_tiles_whose_rows_are_shuffled_stay_whole_runs_where_others_would_be_lower(
    k: int, shuffled: bool
) -> None:
    of, some = kernel("128x192-c2px", "f32"), make_problem(f"m: 256, n: 4096, k: {k}, d: f32")
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 192), Machine(8))
    assert launch.waves >= LOWER_WAVES and launch.shuffled.tolist() == [shuffled]
    assert set(launch.tiles["width"].tolist()) == ({192} if shuffled else {192, 176})


def test_where_k_lies_across_a_only_the_last_tile_is_lower_and_all_rows_are_covered() -> None:
    some = make_problem("m: 4096, n: 256, k: 1024, a_layout: col")
    of = kernel("128x192-c2p", layouts=("col", "col"))
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 192), Machine(8))
    assert launch.waves >= LOWER_WAVES
    tiles = np.sort(launch.tiles, order="m0")
    assert tiles["m0"].tolist() == list(range(0, 4096, 192))
    assert tiles["width"].tolist() == 21 * [192] + [64]


def test_no_tile_is_lowered_to_a_height_without_code() -> None:
    """Three of 104 rows are 16 more than 296, but finer steps than WIDTH_STEP begin above 96."""
    of, some = kernel("128x192-c2p"), make_problem("m: 296, n: 1280, k: 1024")
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 112), Machine(2))
    assert launch.waves >= LOWER_WAVES
    assert set(launch.tiles["width"].tolist()) == {104}


@pytest.mark.parametrize(("ldd", "added"), [(2**38 - 4, True), (2**38, False)])
@pytest.mark.usefixtures("nothing_held")
def test_what_has_rows_too_far_apart_for_tma_is_not_added_where_it_lies(
    ldd: int, added: bool
) -> None:
    some = make_problem(f"m: 64, n: 64, k: {ADDED_K}, d: f32, beta: 1, inplace: true, ldd: {ldd}")
    (tile,) = launch_of(some, kernel("128x256", "f32")).tiles
    assert bool(tile["flags"] & TILE_ADDED) == added


@pytest.mark.parametrize(("ldb", "shuffled"), [(2**34 - 64, True), (2**34, False)])
def test_rows_are_not_shuffled_where_tma_cannot_step_over_a_run_of_them(
    ldb: int, shuffled: bool
) -> None:
    of = kernel("128x256-x")
    launch = launch_of(make_problem(f"m: 8, n: 256, k: 64, ldb: {ldb}"), of)
    assert launch.kernel.run == 32 and launch.shuffled.tolist() == [shuffled]


@pytest.mark.parametrize(
    ("more", "stages", "residues"),
    [
        ("ldc: 549755813880", 1, False),
        ("ldc: 549755813888", 0, False),  # 2^40 bytes to the next row
        ("ldc: 68719476728, c_offset: 1", 1, True),
        ("ldc: 68719476736, c_offset: 1", 0, False),  # to the next of the same residue
    ],
)
def test_a_c_whose_rows_lie_too_far_apart_for_tma_comes_by_elements(
    more: str, stages: int, residues: bool
) -> None:
    launch = launch_of(make_problem(f"m: 64, n: 64, k: 64, beta: 1, {more}"), kernel("64x128"))
    assert launch.tiles["c_stages"].tolist() == [stages]
    assert launch.residues == residues


def test_where_k_differs_tiles_take_it_forward_however_long_it_is() -> None:
    some = make_problem(*(f"m: 8192, n: 8192, k: {k}" for k in (TURNING_K, 2 * TURNING_K)))
    assert not (launch_of(some, kernel("128x256-c2")).tiles["flags"] & TILE_BACKWARD).any()


def test_with_operands_exchanged_an_a_of_more_rows_than_few_stays_among_those_read_again() -> None:
    some = make_problem(*(f"m: {m}, n: 304, k: {LONG_K}" for m in (2 * ONCE_ROWS, 512)))
    launch = launch_of(some, kernel("128x256-x"))
    assert launch.wide.tolist() == [1, 4]
    assert not (launch.tiles["flags"] & TILE_ONCE).any()


@pytest.mark.parametrize("changes", ["beta: 1, gate: halves", "beta: 1, ldc: 549755813888"])
def test_tiles_whose_c_comes_by_elements_have_code_up_to_128_rows(changes: str) -> None:
    for name in ("128x256-c2", "128x192-c2p", "64x128"):
        tiles = launch_of(make_problem(f"m: 1000, n: 256, k: 1024, {changes}"), kernel(name)).tiles
        assert tiles["width"].max() == ELEMENTS_WIDTH


def test_of_a_short_k_with_nothing_behind_it_only_narrow_tiles_multiply_all_by_turns() -> None:
    group = "m: 512, n: 256, k: 256"
    assert set(in_turn(group, kernel("128x256-x"), "many")) == {2}


def test_where_tiles_are_one_whole_wave_no_other_one_follows() -> None:
    some, of = make_problem("m: 256, n: 1024, k: 4096"), kernel("128x256")
    launch = cut_as(some, np.arange(1), of, Choice(of.name, 256), Machine(8))
    assert launch.waves == 1 and set(launch.tiles["in_turn"].tolist()) == {LAST_SLICES}
