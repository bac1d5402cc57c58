"""The arrays that a device reads: addresses, sizes, codes, and what the kernels take them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmctl.device.cuda.params import GROUP_ARRAYS
from gemmctl.kernels import constants, cubins
from gemmctl.kernels.constants import (
    TILE_ADDED,
    TILE_BIAS_SCALED,
    TILE_BOXED,
    TILE_JOINED,
    TYPE_F32,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES, LAYOUTS
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan, tables
from gemmctl.planning.arena import FENCE
from gemmctl.planning.plan import Plan
from gemmctl.planning.tables import FILL, Tables
from gemmctl.planning.tiling import Choice
from sources import members, size
from support import make_problem

KERNELS = cubins.manifest().kernels
SPEC = DataSpec("normal", 2**40 + 3)
ADDRESS = 0x7F00_0000_0000  # where an arena may lie on a GPU

# Two launches: bf16 without the empty group, and f16 into f32. Every number is there once.
GROUPS = (
    "m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldd: 48, ldc: 41, beta: 1, c: f32",
    "m: 0, n: 8, k: 8",
    "m: 17, n: 16, k: 56, a: f16, d: f32, ldd: 20, beta: -1, c: bf16",
    "m: 33, n: 96, k: 32",
    "m: 9, n: 104, k: 0, lda: 88, ldb: 120, beta: 2, c: f16",
)


def plan_of(*groups: str) -> Plan:
    (made,) = plan.make([make_problem(*groups)], KERNELS)
    return made


def built(made: Plan, base: int = ADDRESS) -> list[Tables]:
    return [tables.build(launch, made, base) for launch in made.launches]


# One launch


def test_the_arrays_have_one_entry_for_each_group_of_the_launch_in_its_order() -> None:
    bf16, f16 = built(plan_of(*GROUPS))
    assert bf16.m.tolist() == [24, 33, 9]
    assert bf16.n.tolist() == [40, 96, 104]
    assert bf16.k.tolist() == [64, 32, 0]
    assert [*f16.m.tolist(), *f16.n.tolist(), *f16.k.tolist()] == [17, 16, 56]


def test_leading_dimensions_are_in_elements() -> None:
    bf16, f16 = built(plan_of(*GROUPS))
    assert bf16.ld_a.tolist() == [72, 32, 88]
    assert bf16.ld_b.tolist() == [80, 32, 120]
    assert bf16.ld_c.tolist() == [41, 96, 104]
    assert bf16.ld_d.tolist() == [48, 96, 104]
    assert f16.ld_d.tolist() == [20]


@pytest.mark.parametrize("launch", ["grouped", "graph", "serial", "streams"])
def test_what_is_added_to_d_is_what_the_tiles_of_the_group_say(launch: plan.Launching) -> None:
    """Of equal groups, too, of which some only would be in one launch with the others."""
    some = make_problem("m: 4096, n: 4096, k: 640, d: f32, beta: 1, inplace: true, count: 2")
    (made,) = plan.make([some], KERNELS, launch=launch)
    said, told = [], []
    for cut, table in zip(made.launches, built(made), strict=True):
        for group in range(len(cut.groups)):
            flags = table.tiles["flags"][table.tiles["group"] == group]
            said.append(set((flags & TILE_ADDED > 0).tolist()))
            told.append({bool(table.c_box[group] == WIDTHS)})
    assert said == told
    assert {True} in said


def test_of_a_d_that_tma_stores_there_is_a_map_in_the_place_of_cs() -> None:
    some = make_problem(
        "m: 3072, n: 2816, k: 640, d: f32, ldd: 2820, c: bf16", "m: 64, n: 64, k: 64, d: f32"
    )
    (made,) = plan.make([some], KERNELS, chosen={some.name: [Choice("128x192-c2p", 192)]})
    (table,) = built(made)
    boxed = [
        bool((table.tiles["flags"][table.tiles["group"] == i] & TILE_BOXED).all()) for i in (0, 1)
    ]
    assert boxed == [True, False]
    assert (table.ptr_c == table.ptr_d).tolist() == boxed
    assert (table.c_box == WIDTHS + 1).tolist() == boxed
    assert (int(table.ld_c[0]), int(table.type_c[0])) == (2820, TYPE_F32)


@pytest.mark.parametrize("operand", "abcd")
def test_an_address_is_where_the_arena_lies_and_the_operand_in_it(operand: str) -> None:
    made = plan_of(*GROUPS)
    bf16, f16 = (getattr(table, f"ptr_{operand}") for table in built(made))
    offsets = getattr(made.layout, operand)
    assert bf16.tolist() == [ADDRESS + offsets[0], ADDRESS + offsets[3], ADDRESS + offsets[4]]
    assert f16.tolist() == [ADDRESS + offsets[2]]


def test_an_operand_begins_so_many_elements_behind_a_boundary_of_256_bytes() -> None:
    offsets = {"a": 1, "b": 127, "c": 3, "d": 5}
    told = ", ".join(f"{operand}_offset: {offset}" for operand, offset in offsets.items())
    plan = plan_of(f"m: 24, n: 40, k: 64, c: f32, beta: 1, {told}, count: 2")
    columns, spans = plan.problem.columns, []
    for operand, length in (("a", 24 * 64), ("b", 40 * 64), ("c", 24 * 40), ("d", 24 * 40)):
        begins, (size, _) = getattr(plan.layout, operand), columns.sizes[operand]
        assert set((begins % 256).tolist()) == {offsets[operand] * size % 256}
        spans += [(begin, begin + length * size) for begin in begins.tolist()]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(spans)))


def test_in_place_c_begins_where_d_does() -> None:
    layout = plan_of("m: 24, n: 40, k: 64, beta: 1, d_offset: 5, inplace: true").layout
    assert layout.c.tolist() == layout.d.tolist() and layout.d[0] % 256 == 10


def test_a_tile_whose_sums_a_bias_joins_says_where_that_is_and_how_much_of_it() -> None:
    made = plan_of(
        "m: 40, n: 700, k: 512, bias: n", "m: 24, n: 8, k: 512", "m: 400, n: 300, k: 512, bias: m"
    )
    pingpong = next(
        of for of in KERNELS if (of.name, of.operand, of.output) == ("128x192-c2p", "bf16", "bf16")
    )
    (made,) = plan.make(
        [made.problem], [pingpong], chosen={made.problem.name: [Choice(pingpong.name, 192)]}
    )
    base = 2**63 + 2**32 - 2**16  # so that adding to it carries into the upper half
    (table,) = built(made, base)
    joined = table.tiles[table.tiles["flags"] & TILE_JOINED > 0]
    told = [
        (int(tile["group"]), int(tile["slot"]), int(tile["readers"]) << 32 | int(tile["flag"]))
        for tile in joined
    ]
    first, _, third = (base + int(offset) for offset in made.layout.bias)
    assert sorted(told) == [
        (0, 188, first + 2 * 512), (0, 444, first + 2 * 256), (0, 700, first),
        *((2, 400 - row, third + 2 * row) for row in (288, 288, 144, 144, 0, 0)),
    ]  # fmt: skip
    others = table.tiles[table.tiles["flags"] & TILE_JOINED == 0]
    assert others[["slot", "flag", "readers"]].tolist() == [(0, 0, 0)]
    assert not made.launches[0].tiles["readers"].any()  # the plan has no addresses


@pytest.mark.parametrize(("bias_type", "size"), [("bf16", 2), ("f32", 4)])
def test_a_tile_whose_bias_comes_with_alpha_says_of_which_type_it_is_too(
    bias_type: str, size: int
) -> None:
    made = plan_of("m: 8, n: 8, k: 8", f"m: 8, n: 300, k: 64, bias: n, bias_type: {bias_type}")
    (made,) = plan.make(
        [made.problem], KERNELS, chosen={made.problem.name: [Choice("64x128", 128)]}
    )
    base = 2**63 + 2**32 - 2**16
    (table,) = built(made, base)
    scaled = table.tiles[table.tiles["flags"] & TILE_BIAS_SCALED > 0]
    bias = base + int(made.layout.bias[1])
    told = [(int(tile["slot"]), int(tile["readers"]) << 32 | int(tile["flag"])) for tile in scaled]
    left = (300, 236, 172, 108, 44)
    assert sorted(told, reverse=True) == [(here, bias + size * (300 - here)) for here in left]
    assert set(scaled["row"].tolist()) == {dtypes.BY_NAME[bias_type].code}


def test_addresses_in_the_upper_half_do_not_overflow() -> None:
    made = plan_of(*GROUPS)
    base = 2**64 - 2**20
    assert built(made, base)[0].ptr_d[0] == base + int(made.layout.d[0])


def test_the_type_of_c_may_differ_from_group_to_group() -> None:
    bf16, f16 = built(plan_of(*GROUPS))
    names = {dtype.code: name for name, dtype in dtypes.BY_NAME.items()}
    assert [names[code] for code in bf16.type_c.tolist()] == ["f32", "bf16", "f16"]
    assert [names[code] for code in f16.type_c.tolist()] == ["bf16"]


def test_a_bias_has_an_address_a_type_and_a_side_and_none_has_address_0() -> None:
    made = plan_of(
        "m: 24, n: 40, k: 64",
        "m: 24, n: 40, k: 64, bias: n, bias_type: f32",
        "m: 24, n: 40, k: 64, bias: m",
    )
    (table,) = built(made)
    places = made.layout.bias.tolist()
    assert table.ptr_bias.tolist() == [0, ADDRESS + places[1], ADDRESS + places[2]]
    assert table.type_bias.tolist() == [dtypes.BF16.code, dtypes.F32.code, dtypes.BF16.code]
    assert table.bias_along.tolist() == [0, 1, 2]


def test_activations_and_gates_are_numbered_as_they_are_listed() -> None:
    (table,) = built(
        plan_of(
            *(f"m: 8, n: 8, k: 8, activation: {name}" for name in ACTIVATIONS),
            *(f"m: 8, n: 8, k: 8, gate: {name}" for name in GATES),
        )
    )
    assert table.activation.tolist() == [0, 1, 2, 3, 4, 0, 0, 0]
    assert table.gate.tolist() == [0, 0, 0, 0, 0, 0, 1, 2]


def test_tiles_and_their_rows_are_those_of_the_launch() -> None:
    made = plan_of(*GROUPS)
    for launch, table in zip(made.launches, built(made), strict=True):
        assert table.box.tolist() == (launch.loaded // WIDTH_STEP - 1).tolist()
        assert np.array_equal(table.tiles, launch.tiles)


def test_every_array_can_be_copied_as_it_lies() -> None:
    for table in built(plan_of(*GROUPS)):
        assert all(getattr(table, field.name).flags.c_contiguous for field in fields(Tables))


def test_launched_one_by_one_every_group_has_the_same_entries() -> None:
    some = make_problem(*GROUPS)
    (together,), (alone,) = (
        plan.make([some], KERNELS, launch=how) for how in ("grouped", "serial")
    )
    names = [x.name for x in fields(Tables) if x.name not in ("tiles", "box")]
    for name in names:
        entries = [np.concatenate([getattr(t, name) for t in built(p)]) for p in (together, alone)]
        assert np.array_equal(*entries), name


# What is generated


def records(made: Plan, base: int = ADDRESS, spec: DataSpec = SPEC) -> list[dict[str, int]]:
    filled = tables.fills(made, base, spec)
    return [dict(zip(filled.dtype.names, record.tolist(), strict=True)) for record in filled]


def offsets(made: Plan) -> list[int]:
    return [record["ptr"] - ADDRESS for record in records(made)]


def test_every_operand_with_elements_is_generated_and_no_d() -> None:
    made = plan_of("m: 24, n: 40, k: 64, beta: 1", "m: 8, n: 8, k: 8, beta: 1")
    at = made.layout
    assert offsets(made) == [*at.a.tolist(), *at.b.tolist(), *at.c.tolist()]


def test_c_is_not_generated_where_beta_is_0() -> None:
    made = plan_of("m: 24, n: 40, k: 64", "m: 8, n: 8, k: 8, beta: 1")
    at = made.layout
    assert offsets(made) == [*at.a.tolist(), *at.b.tolist(), at.c[1]]


@pytest.mark.parametrize("group", ["k: 0, beta: 1", "k: 64, alpha: 0, beta: 1"])
def test_where_nothing_is_multiplied_only_c_is_generated(group: str) -> None:
    made = plan_of(f"m: 24, n: 40, {group}")
    assert offsets(made) == [made.layout.c[0]]


@pytest.mark.parametrize("group", ["m: 0, n: 8, k: 8, beta: 1", "m: 8, n: 0, k: 8, beta: 1"])
def test_nothing_is_generated_for_an_empty_group(group: str) -> None:
    assert records(plan_of(group)) == []


def test_a_group_of_one_element_is_generated() -> None:
    assert len(records(plan_of("m: 1, n: 1, k: 1, lda: 8, ldb: 8, ldd: 8, beta: 1"))) == 3


def test_a_bias_is_generated_as_a_column() -> None:
    made = plan_of("m: 24, n: 40, k: 0, bias: n, bias_type: f32", "m: 24, n: 40, k: 0, bias: m")
    along_n, along_m = records(made)
    shape = ("rows", "cols", "row_step", "col_step", "type")
    assert [along_n[key] for key in shape] == [40, 1, 1, 1, dtypes.F32.code]
    assert [along_m[key] for key in shape] == [24, 1, 1, 1, dtypes.BF16.code]
    assert offsets(made) == made.layout.bias.tolist()
    assert along_n["key"] == data.keys(SPEC.seed, data.BIAS, np.arange(1))[0]


def test_what_is_generated_again_is_c_in_place() -> None:
    made = plan_of(
        "m: 24, n: 40, k: 64, beta: 1", "m: 24, n: 40, k: 64, beta: 1, inplace: true, ldd: 48",
        "m: 24, n: 40, k: 64, inplace: true",
    )  # fmt: skip
    again = tables.refills(tables.fills(made, ADDRESS, SPEC), made, ADDRESS)
    assert again["ptr"].tolist() == [ADDRESS + int(made.layout.d[1])]
    assert (again["rows"], again["cols"], again["row_step"]) == (24, 40, 48)


def test_of_a_gated_d_only_its_own_columns_are_hashed() -> None:
    (record,) = tables.hashed(plan_of("m: 24, n: 40, k: 64, gate: pairs, ldd: 30"), ADDRESS)
    assert (record["row_bytes"], record["pitch_bytes"]) == (20 * 2, 30 * 2)


def test_a_record_has_the_shape_the_steps_and_the_type() -> None:
    a, b, c = records(plan_of(GROUPS[0]))
    shape = ("rows", "cols", "row_step", "col_step", "type")
    assert [a[key] for key in shape] == [24, 64, 72, 1, dtypes.BF16.code]
    assert [b[key] for key in shape] == [40, 64, 80, 1, dtypes.BF16.code]
    assert [c[key] for key in shape] == [24, 40, 41, 1, dtypes.F32.code]


def test_what_lies_across_has_the_same_shape_and_its_steps_exchanged() -> None:
    layouts = "a_layout: col, b_layout: row, d_layout: col"
    a, b, c = records(
        plan_of(f"m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldc: 41, beta: 1, {layouts}")
    )
    shape = ("rows", "cols", "row_step", "col_step")
    assert [a[key] for key in shape] == [24, 64, 1, 72]
    assert [b[key] for key in shape] == [40, 64, 1, 80]
    assert [c[key] for key in shape] == [24, 40, 1, 41]


def test_of_a_d_by_columns_the_operands_are_exchanged() -> None:
    layouts = "a_layout: col, d_layout: col"
    made = plan_of(f"m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldc: 41, ldd: 25, bias: n, {layouts}")
    ((launch,), (table,)) = made.launches, built(made)
    assert (launch.kernel.a_layout, launch.kernel.b_layout) == ("row", "row")
    assert [int(values[0]) for values in (table.m, table.n, table.k)] == [40, 24, 64]
    assert (table.ptr_a - ADDRESS, table.ptr_b - ADDRESS) == (made.layout.b, made.layout.a)
    lds = (table.ld_a, table.ld_b, table.ld_c, table.ld_d)
    assert [int(values[0]) for values in lds] == [80, 72, 41, 25]
    assert table.bias_along.tolist() == [2]


EXCHANGING = [kernel for kernel in KERNELS if kernel.name == "128x256-x"]


def test_a_kernel_that_writes_d_by_columns_is_given_the_operands_exchanged() -> None:
    some = make_problem("m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldd: 48")
    (made,) = plan.make([some], EXCHANGING, chosen={some.name: [Choice("128x256-x", 256)]})
    (table,) = built(made)
    assert [int(values[0]) for values in (table.m, table.n, table.k)] == [40, 24, 64]
    assert (table.ptr_a - ADDRESS, table.ptr_b - ADDRESS) == (made.layout.b, made.layout.a)
    assert table.ptr_d - ADDRESS == made.layout.d
    assert [int(values[0]) for values in (table.ld_a, table.ld_b, table.ld_d)] == [80, 72, 48]
    assert table.box.tolist() == [48 // WIDTH_STEP - 1]


def test_rows_that_are_shuffled_have_boxes_of_their_own_behind_those_of_all_widths() -> None:
    some = make_problem("m: 24, n: 96, k: 64", "m: 24, n: 48, k: 64")
    (made,) = plan.make([some], EXCHANGING, chosen={some.name: [Choice("128x256-x", 256)]})
    (table,) = built(made)
    assert made.launches[0].shuffled.tolist() == [True, False]
    assert table.box.tolist() == [WIDTHS + 96 // WIDTH_STEP - 1, 48 // WIDTH_STEP - 1]


def test_of_a_d_by_columns_it_is_given_them_as_the_list_has_them() -> None:
    some = make_problem("m: 24, n: 40, k: 64, lda: 72, ldb: 80, ldd: 48, d_layout: col")
    (made,) = plan.make([some], EXCHANGING)
    (table,) = built(made)
    assert (made.launches[0].kernel.a_layout, made.launches[0].kernel.b_layout) == ("row", "col")
    assert [int(values[0]) for values in (table.m, table.n, table.k)] == [24, 40, 64]
    assert (table.ptr_a - ADDRESS, table.ptr_b - ADDRESS) == (made.layout.a, made.layout.b)
    assert [int(values[0]) for values in (table.ld_a, table.ld_b, table.ld_d)] == [72, 80, 48]


def test_it_is_given_the_copies_of_what_is_packed() -> None:
    (made,) = plan.make([make_problem("m: 24, n: 40, k: 64, lda: 71, ldb: 69")], EXCHANGING)
    (table,), packing = built(made), made.packing
    assert (table.ptr_a - ADDRESS, table.ptr_b - ADDRESS) == (packing.b, packing.a)
    assert sorted(packing.to.tolist()) == sorted([int(packing.a[0]), int(packing.b[0])])
    assert [int(values[0]) for values in (table.ld_a, table.ld_b)] == [64, 64]


def test_of_a_d_by_columns_the_columns_are_hashed() -> None:
    (record,) = tables.hashed(plan_of("m: 24, n: 40, k: 64, d_layout: col, ldd: 30"), ADDRESS)
    assert (record["rows"], record["row_bytes"], record["pitch_bytes"]) == (40, 24 * 2, 30 * 2)


@pytest.mark.parametrize("operand", [0, 1, 2])
def test_every_operand_has_the_key_of_the_seed_and_of_its_place_in_the_problem(
    operand: int,
) -> None:
    made = plan_of(*(f"m: 8, n: 8, k: 8, beta: 1, a: {a}" for a in ("bf16", "f16", "bf16")))
    found = [record["key"] for record in records(made)[3 * operand : 3 * operand + 3]]
    assert found == data.keys(SPEC.seed, operand, np.arange(3)).tolist()


def test_no_two_operands_of_a_long_list_have_the_same_key() -> None:
    keys = tables.fills(plan_of("m: 8, n: 8, k: 8, beta: 1, count: 10000"), 0, SPEC)["key"]
    # Three permutations of 32 bits: equal groups never share one, operands rarely.
    assert all(len(set(keys[i : i + 10000].tolist())) == 10000 for i in (0, 10000, 20000))
    assert len(set(keys.tolist())) > 30000 - 10


def test_the_largest_integer_is_that_of_each_groups_types_and_scalars() -> None:
    group, types = "m: 8, n: 8, k: 64, alpha: 1000", ("d: f16", "d: f32", "d: bf16", "a: f16")
    problem = make_problem(*(f"{group}, {of}" for of in types))
    expected = [
        data.integer_limits(np.array([64]), dtypes.BY_NAME[a], dtypes.BY_NAME[d], np.array([1e3]))
        for a, d in (("bf16", "f16"), ("bf16", "f32"), ("bf16", "bf16"), ("f16", "f16"))
    ]
    assert tables.integer_limits(problem).tolist() == np.concatenate(expected).tolist()
    assert len(set(tables.integer_limits(problem).tolist())) > 1


def test_what_is_generated_is_what_the_launches_read() -> None:
    made = plan_of(*GROUPS)
    read = {int(ptr) for table in built(made) for ptr in (*table.ptr_a, *table.ptr_b, *table.ptr_c)}
    assert {record["ptr"] for record in records(made)} <= read


@given(
    st.lists(
        st.tuples(*[st.integers(0, 60)] * 3, *[st.sampled_from(LAYOUTS)] * 3),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 1),
)
def test_no_record_reaches_out_of_the_arena_or_into_another_or_into_d(
    shapes: list[tuple[int, int, int, str, str, str]], beta: int
) -> None:
    made = plan_of(
        *(
            f"m: {m}, n: {n}, k: {k}, lda: 64, ldb: 72, ldd: 64, beta: {beta}, "
            f"a_layout: {a}, b_layout: {b}, d_layout: {d}"
            for m, n, k, a, b, d in shapes
        )
    )
    end = 0
    for record in sorted(records(made, 0), key=lambda record: record["ptr"]):
        assert record["ptr"] >= end
        steps = (record["rows"] - 1) * record["row_step"] + (record["cols"] - 1) * record[
            "col_step"
        ]
        end = record["ptr"] + 2 * (steps + 1)
    assert end <= made.layout.d_begin


# What stands on both sides


def test_the_arrays_are_in_the_order_and_of_the_types_that_the_kernel_reads() -> None:
    (table, *_) = built(plan_of(*GROUPS))
    mine = [(f"const {getattr(table, name).dtype}_t*", name) for name in GROUP_ARRAYS]
    assert mine == [(member.type, member.name) for member in members("Groups")]


def test_a_record_to_generate_is_laid_out_as_the_kernel_reads_it() -> None:
    kinds = {"uint64_t": np.uint64, "uint32_t": np.uint32}
    declared = members("Fill")
    assert np.dtype([(member.name, kinds[member.type]) for member in declared]) == FILL
    assert FILL.itemsize == size("Fill")


@pytest.mark.parametrize(
    ("prefix", "words"), [("BIAS", BIASES), ("ACTIVATION", ACTIVATIONS), ("GATE", GATES)]
)
def test_the_kernel_calls_biases_activations_and_gates_by_their_places(
    prefix: str, words: Sequence[str]
) -> None:
    stated = {name: value for name, value in vars(constants).items() if name.startswith(prefix)}
    assert stated == {f"{prefix}_{word.upper()}": place for place, word in enumerate(words)}


@pytest.mark.parametrize("d", ["bf16", "f32"])
def test_every_d_ends_a_fence_before_the_next_one_whatever_its_layout_type_and_offset(
    d: str,
) -> None:
    shapes = ("m: 8, n: 72", "m: 72, n: 8", "m: 40, n: 40, ldd: 77, d_offset: 127")
    layouts = [f"{shape}, d_layout: {layout}" for shape in shapes for layout in LAYOUTS]
    made = plan_of(
        *(f"{group}, k: 8, d: {d}" for group in layouts), f"m: 8, n: 72, k: 8, d: {d}, gate: pairs"
    )
    ends = made.layout.d_begin
    for record in np.sort(tables.hashed(made, 0), order="ptr"):
        assert record["ptr"] >= ends + FENCE
        ends = int(record["ptr"] + record["rows"] * record["pitch_bytes"])
    assert ends + FENCE <= made.layout.d_end <= made.layout.size


def test_a_d_of_32_bits_is_hashed_by_rows_of_twice_the_bytes() -> None:
    (record,) = tables.hashed(plan_of("m: 24, n: 40, k: 64, d: f32, ldd: 44"), ADDRESS)
    assert (record["rows"], record["row_bytes"], record["pitch_bytes"]) == (24, 40 * 4, 44 * 4)
