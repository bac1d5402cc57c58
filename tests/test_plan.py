"""How a problem runs: what is refused and why, where operands lie, which launches there are."""

from __future__ import annotations

import hashlib
import io
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmctl.errors import ListError, Mark
from gemmctl.generating import listing
from gemmctl.generating.family import family
from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.lists.problem import BIASES, GATES, Problem
from gemmctl.operands import dtypes
from gemmctl.planning import choosing, cost, epilogue, fitting, plan, refusals, tables, tiling
from gemmctl.planning.arena import ALIGNMENT, FENCE
from gemmctl.planning.plan import Plan
from gemmctl.planning.queue import side_by_side
from gemmctl.planning.refusals import MAX_TILES
from gemmctl.planning.tiling import H200, Choice, Grid, Machine
from gemmctl.planning.work import asked_of
from support import PROBLEMS, Clock, make_problem

KERNELS = cubins.manifest().kernels
FIELDS = (
    "group", "m0", "n0", "width", "k0", "k_tiles", "alpha", "beta", "splits", "slot", "flag",
    "readers", "row", "flags", "box", "c_stages", "in_turn",
)  # fmt: skip


def plan_of(*groups: str, defaults: str = "") -> Plan:
    (made,) = plan.make([make_problem(*groups, defaults=defaults)], KERNELS)
    return made


def refused(*problems: Problem, kernels: Sequence[cubins.Kernel] = KERNELS) -> Any:
    with pytest.raises(ListError) as caught:
        plan.make(problems, kernels)
    return caught.value.errors


def pointed_at(mark: Mark) -> str:
    """The word that a caret stands under."""
    (word,) = re.findall(r"^\{?\w*", mark.text[mark.column - 1 :])
    return str(word)


# What no kernel can run


@pytest.mark.parametrize(
    ("group", "place", "words"),
    [
        ("a: bf16, b: f16, k: 8", "b", ["a is bf16 and b is f16", "bf16, f16"]),
        ("a: f32, k: 8", "a", ["no kernel multiplies f32", "bf16, f16"]),
        ("d_layout: col, gate: pairs, k: 8", "d_layout", ["a gate pairs columns", "d_layout: row"]),
        ("b_layout: row, gate: halves, k: 8", "b_layout", ["a gate takes", "b_layout: col"]),
        ("b_layout: row, gate: pairs, k: 8", "b_layout", ["a gate takes", "b_layout: col"]),
    ],
)
def test_what_no_kernel_can_run_is_refused_with_place_reason_and_remedy(
    group: str, place: str, words: list[str]
) -> None:
    mark, message = refused(make_problem(f"m: 64, n: 64, {group}"))[0]
    assert pointed_at(mark) == place
    assert [word for word in words if word not in message] == []


EXCHANGING = [kernel for kernel in KERNELS if kernel.name == "128x256-x"]


@pytest.mark.parametrize(
    ("group", "place", "words"),
    [
        ("n: 64, beta: 1", "beta", "computes D = alpha A B and nothing more"),
        (
            "n: 64, k: 1024, d: f32, beta: 1, inplace: true",
            "beta",
            "computes D = alpha A B and nothing more",
        ),
        ("beta: 0, n: 64, bias: n", "bias", "computes D = alpha A B and nothing more"),
        ("n: 64, activation: relu", "activation", "computes D = alpha A B and nothing more"),
        ("n: 64, gate: pairs", "gate", "computes D = alpha A B and nothing more"),
        ("n: 60", "n", "make n, ldd and d_offset multiples of 8, or"),
        ("beta: 0, n: 64, ldd: 68", "ldd", "make n, ldd and d_offset multiples of 8, or"),
        ("beta: 0, n: 64, d_offset: 4", "d_offset", "make n, ldd and d_offset multiples of 8, or"),
        ("n: 62, d: f32", "n", "make n, ldd and d_offset multiples of 4, or"),
        ("n: 63, m: 60, d_layout: col", "m", "make m, ldd and d_offset multiples of 8, or"),
        ("n: 63, ldd: 68, d_layout: col", "ldd", "make m, ldd and d_offset multiples of 8, or"),
    ],
)
def test_what_no_kernel_that_exchanges_operands_computes_is_refused_where_only_they_are_chosen(
    group: str, place: str, words: str
) -> None:
    some = make_problem(group, defaults="m: 64, n: 64, k: 8")
    ((mark, message),) = refused(some, kernels=EXCHANGING)
    assert pointed_at(mark) == place
    assert message.startswith("128x256-x ") and words in message
    assert message.endswith("leave the choice of a kernel to the plan")


UNALIGNED = [kernel for kernel in KERNELS if kernel.b_unaligned]


@pytest.mark.parametrize(
    ("group", "place", "words"),
    [
        ("gate: pairs", "gate", "takes columns of B as they lie"),
        ("ldb: 8388608", "ldb", "less than 16777216 bytes apart"),
        ("lda: 8388608, d_layout: col", "lda", "less than 16777216 bytes apart"),
    ],
)
def test_what_kernels_for_an_unaligned_b_cannot_take_is_refused_where_only_they_are_chosen(
    group: str, place: str, words: str
) -> None:
    some = make_problem(group, defaults="m: 64, n: 64, k: 8")
    ((mark, message),) = refused(some, kernels=UNALIGNED)
    assert pointed_at(mark) == place
    assert message.startswith(f"{UNALIGNED[0].name} takes ") and words in message
    assert message.endswith("leave the choice of a kernel to the plan")


@pytest.mark.parametrize(
    "group",
    [
        "alpha: 0.5",
        "n: 60, d: f32",
        "m: 63",
        "n: 63, d_layout: col",
        "k: 0",
        "alpha: 0",
        "m: 0, n: 63, bias: n",
        "n: 0, beta: 1",
    ],
)
def test_what_they_compute_is_not(group: str) -> None:
    some = make_problem(group, defaults="m: 64, n: 64, k: 8")
    assert refusals.refusals(some, EXCHANGING) == []


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from(["", "beta: 1", "alpha: 2", "bias: m", "activation: relu", "gate: pairs"]),
    st.sampled_from(["bf16", "f32"]),
)
def test_the_plan_takes_them_for_what_they_are_not_refused_for(
    m: int, n: int, longer: int, more: str, d: str
) -> None:
    if more == "gate: pairs":
        n -= n % 2
    some = make_problem(f"m: {m}, n: {n}, k: 8, ldd: {max(1, n) + longer}, d: {d}, {more}")
    taken = {kernel.name for _, kernels in plan.alike(some, KERNELS) for kernel in kernels}
    able = refusals.refusals(some, EXCHANGING) == []
    assert ("128x256-x" in taken) == (able and m > 0 < n)


def test_an_output_type_without_a_kernel_is_refused() -> None:
    kernels = [kernel for kernel in KERNELS if kernel.output == "bf16"]
    ((mark, message),) = refused(make_problem("m: 8, n: 8, k: 8, d: f16"), kernels=kernels)
    assert (pointed_at(mark), message) == ("d", "no kernel writes f16; use one of bf16")


def test_layouts_that_the_chosen_kernels_do_not_take_are_refused() -> None:
    kernels = [kernel for kernel in KERNELS if kernel.name == "128x256"]
    some = make_problem("m: 8, n: 8, k: 8, d_layout: col", "m: 8, n: 8, k: 8, b_layout: row")
    ((mark, message),) = refused(some, kernels=kernels)
    assert pointed_at(mark) == "b_layout"
    assert "takes bf16 from A row and B row to bf16 in D row" in message
    assert "leave the choice" in message


def test_in_layouts_across_k_there_is_no_d_of_the_other_16_bit_type() -> None:
    ((mark, message),) = refused(make_problem("m: 8, n: 8, k: 8, b_layout: row, d: f16"))
    assert pointed_at(mark) == "b_layout"
    assert "to f16 in D row" in message and "take d: bf16 or f32" in message


def test_a_pair_of_types_without_a_kernel_is_refused_though_each_has_one() -> None:
    pairs = [("bf16", "f32"), ("f16", "f16")]
    kernels = [kernel for kernel in KERNELS if (kernel.operand, kernel.output) in pairs]
    ((mark, message),) = refused(make_problem("m: 8, n: 8, k: 8, a: f16, d: f32"), kernels=kernels)
    assert pointed_at(mark) == "d"
    assert message == "no kernel writes f32 from f16 operands; use one of f16"


def test_more_tiles_than_anyone_has_memory_for_are_refused_at_the_largest_group() -> None:
    some = make_problem("m: 9, n: 8, k: 8", "m: 400000, n: 300000, k: 8", "m: 64, n: 64, k: 8")
    ((mark, words),) = refused(some)
    assert mark == some.groups[1].marks["m"]
    assert "29300002 tiles" in words and str(MAX_TILES) in words


@pytest.mark.parametrize(("k", "fits"), [(8, True), (0, False)])
@pytest.mark.parametrize("shape", ["m: 4194304, n: 6400", "m: 6400, n: 4194304, d_layout: col"])
def test_tiles_that_multiply_nothing_are_smaller_and_sooner_too_many(
    shape: str, k: int, fits: bool
) -> None:
    some = make_problem(f"{shape}, k: {k}")
    assert (refusals.refusals(some, KERNELS) == []) == fits


def test_everything_that_is_wrong_is_said_at_once() -> None:
    first = make_problem("m: 64, n: 64, k: 8, b: f16, d_layout: col, gate: pairs")
    second = make_problem("m: 64, n: 64, k: 8", "m: 64, n: 64, k: 9, a: f32")
    places = [pointed_at(mark) for mark, _ in refused(first, second)]
    assert places == ["b", "d_layout", "a"]


def test_a_group_that_is_there_many_times_is_refused_once() -> None:
    assert len(refused(make_problem("m: 64, n: 64, k: 8, b: f16, count: 1000"))) == 1


def test_a_mistake_in_the_defaults_is_said_once() -> None:
    groups = ("m: 64, n: 64, k: 8", "m: 32, n: 64, k: 8")
    assert len(refused(make_problem(*groups, defaults="b: f16"))) == 1


@pytest.mark.parametrize("file", sorted(PROBLEMS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_list_that_ships_can_be_planned(file: Any) -> None:
    plans = plan.make(reading.load([str(file)], io.StringIO()), KERNELS)
    assert all(made.tiles for made in plans)


# Where operands lie


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Groups of all kinds: padded rows, with and without C, bias and gate, some of them empty."""

    def group() -> str:
        m, n, k = (draw(st.integers(0, 50)) for _ in "mnk")
        a, c, d = (draw(st.sampled_from(types)) for types in (["bf16", "f16"], *[names] * 2))
        ld = {
            key: 8 * (max(1, -(-extent // 8)) + draw(st.integers(0, 2)))
            for key, extent in (("lda", k), ("ldb", k))
        }
        ld |= {key: max(1, n) + draw(st.integers(0, 9)) for key in ("ldc", "ldd")}
        fields = {"m": m, "n": n, "k": k, "a": a, "c": c, "d": d, **ld}
        fields |= {"beta": draw(st.integers(0, 1))}
        fields |= {"bias": draw(st.sampled_from(BIASES)), "bias_type": draw(st.sampled_from(names))}
        fields |= {"gate": draw(st.sampled_from(GATES[: 1 if n % 2 else None]))}
        return ", ".join(f"{key}: {value}" for key, value in fields.items())

    names = list(dtypes.BY_NAME)
    return plan_of(*(group() for _ in range(draw(st.integers(1, 5)))))


def spans(made: Plan, operand: str) -> list[tuple[int, int]]:
    """First byte and end of an operand in every group: whole rows, ld elements each."""
    starts = getattr(made.layout, operand).tolist()
    ends = []
    for start, group in zip(starts, made.problem.groups, strict=True):
        if operand == "bias":
            ends.append(start + group.bias_length * dtypes.BY_NAME[group.bias_type].size)
            continue
        rows = group.n if operand == "b" else group.m
        size = dtypes.BY_NAME[getattr(group, operand)].size
        ends.append(start + rows * getattr(group, f"ld{operand}") * size)
    return list(zip(starts, ends, strict=True))


def c_spans(made: Plan, *, read: bool) -> list[tuple[int, int]]:
    groups = made.problem.groups
    return [span for span, g in zip(spans(made, "c"), groups, strict=True) if (g.beta != 0) == read]


@given(plans())
def test_no_two_operands_share_a_byte(made: Plan) -> None:
    taken = [span for operand in ("a", "b", "bias", "d") for span in spans(made, operand)]
    taken += c_spans(made, read=True)
    unread = c_spans(made, read=False)
    if unread:
        taken.append((unread[0][0], max(end for _, end in unread)))
    taken = sorted(span for span in taken if span[0] < span[1])
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))


@given(plans())
def test_every_operand_lies_in_the_arena_on_a_boundary(made: Plan) -> None:
    for begin, end in (span for operand in (*"abcd", "bias") for span in spans(made, operand)):
        assert begin % ALIGNMENT == 0
        assert 0 <= begin <= end <= made.layout.size


@given(plans())
def test_every_d_has_a_fence_before_and_behind_it(made: Plan) -> None:
    layout, before = made.layout, made.layout.d_begin
    for begin, end in sorted(spans(made, "d")):
        assert begin - before >= FENCE
        before = end
    assert layout.d_end - before >= FENCE


@given(plans())
def test_the_region_of_d_holds_nothing_else(made: Plan) -> None:
    begin, end = made.layout.d_begin, made.layout.d_end
    others = [span for operand in ("a", "b", "c", "bias") for span in spans(made, operand)]
    assert all(last <= begin or first >= end for first, last in others)
    assert all(begin <= first <= last <= end for first, last in spans(made, "d"))


@given(plans())
def test_groups_without_a_c_share_one_place_that_nothing_else_uses(made: Plan) -> None:
    assert len({begin for begin, _ in c_spans(made, read=False)}) <= 1


def test_a_thousand_groups_without_a_c_take_the_room_of_one() -> None:
    one, many = (plan_of(f"m: 64, n: 64, k: 8, count: {count}").layout for count in (1, 1000))
    assert many.d_begin - many.c[0] == one.d_begin - one.c[0] == 64 * 64 * 2


@pytest.mark.parametrize("beta", [0, 1])
def test_c_in_place_is_d_and_takes_no_room(beta: int) -> None:
    apart, inside = (
        plan_of(f"m: 64, n: 64, k: 8, beta: {beta}, inplace: {word}, count: 3").layout
        for word in ("false", "true")
    )
    assert inside.c.tolist() == inside.d.tolist()
    assert inside.size < apart.size


def test_operands_lie_in_the_order_of_the_groups() -> None:
    made = plan_of("m: 64, n: 32, k: 16, beta: 1", "m: 8, n: 8, k: 8, beta: 1", "m: 40, n: 8, k: 8")
    for operand in "abd":
        assert spans(made, operand) == sorted(spans(made, operand))


# What there is to do


def test_flops_are_two_for_every_product() -> None:
    made = plan_of(
        "m: 3, n: 8, k: 16, count: 2",
        "m: 5, n: 8, k: 0",
        "m: 0, n: 8, k: 8",
        "m: 3, n: 8, k: 16, alpha: 0",
    )
    assert made.flops == 2 * (2 * 3 * 8 * 16)


def test_flops_do_not_overflow() -> None:
    some = make_problem(f"m: {2**17}, n: {2**17}, k: {2**31 - 8}")
    (made,) = plan.make([some], [kernel for kernel in KERNELS if kernel.name == "128x256-c2"])
    assert made.flops == 2 * 2**34 * (2**31 - 8) > 2**64


@pytest.mark.parametrize(
    ("group", "nbytes"),
    [
        ("m: 3, n: 8, k: 16", 2 * (3 * 16 + 8 * 16 + 3 * 8)),
        ("m: 3, n: 8, k: 16, count: 5", 5 * 2 * (3 * 16 + 8 * 16 + 3 * 8)),
        ("m: 3, n: 8, k: 16, lda: 800, ldb: 24, ldd: 80", 2 * (3 * 16 + 8 * 16 + 3 * 8)),
        ("m: 3, n: 8, k: 16, d: f32", 2 * (3 * 16 + 8 * 16) + 4 * 3 * 8),
        ("m: 3, n: 8, k: 16, beta: 1", 2 * (3 * 16 + 8 * 16 + 2 * 3 * 8)),
        ("m: 3, n: 8, k: 16, beta: 1, c: f32", 2 * (3 * 16 + 8 * 16 + 3 * 8) + 4 * 3 * 8),
        ("m: 3, n: 8, k: 16, c: f32", 2 * (3 * 16 + 8 * 16 + 3 * 8)),
        ("m: 3, n: 8, k: 0", 2 * 3 * 8),
        ("m: 3, n: 8, k: 16, alpha: 0, beta: 1", 2 * (2 * 3 * 8)),
        ("m: 1, n: 1, k: 8, ldd: 8", 2 * (8 + 8 + 1)),
        ("m: 3, n: 8, k: 16, beta: 1, inplace: true", 2 * (3 * 16 + 8 * 16 + 2 * 3 * 8)),
        ("m: 3, n: 8, k: 16, bias: n", 2 * (3 * 16 + 8 * 16 + 3 * 8 + 8)),
        ("m: 3, n: 8, k: 16, bias: m, bias_type: f32", 2 * (3 * 16 + 8 * 16 + 3 * 8) + 4 * 3),
        ("m: 3, n: 8, k: 16, activation: silu", 2 * (3 * 16 + 8 * 16 + 3 * 8)),
        ("m: 3, n: 8, k: 16, gate: pairs, beta: 1", 2 * (3 * 16 + 8 * 16 + 3 * 8 + 3 * 4)),
        ("m: 0, n: 8, k: 16, beta: 1, bias: n", 0),
        ("m: 3, n: 0, k: 16, beta: 1", 0),
    ],
)
def test_bytes_are_each_operand_once_and_only_where_it_is_read(group: str, nbytes: int) -> None:
    assert plan_of(group).bytes == nbytes


@given(plans())
def test_every_group_with_a_d_is_in_one_launch_of_its_types(made: Plan) -> None:
    groups = made.problem.groups
    launched = sorted(index for launch in made.launches for index in launch.groups.tolist())
    assert launched == [i for i, g in enumerate(groups) if g.m and g.n]
    for launch in made.launches:
        types = (launch.kernel.operand, launch.kernel.output)
        assert {(groups[i].a, groups[i].d) for i in launch.groups} == {types}
    assert len({(x.kernel.operand, x.kernel.output) for x in made.launches}) == len(made.launches)


def test_types_of_c_do_not_divide_a_launch() -> None:
    made = plan_of("m: 8, n: 8, k: 8, beta: 1", "m: 8, n: 8, k: 8, beta: 1, c: f32")
    assert len(made.launches) == 1


def test_a_problem_of_empty_groups_has_no_launch() -> None:
    made = plan_of("m: 0, n: 8, k: 8", "m: 8, n: 0, k: 8")
    assert (made.launches, made.flops, made.bytes, made.tiles) == ((), 0, 0, 0)
    assert (made.waves, made.tile_efficiency, made.kernel) == (0, 1, "none")


def test_the_same_problem_gives_the_same_plan() -> None:
    text = ("m: 300, n: 520, k: 4096, count: 3", "m: 17, n: 8, k: 64, a: f16")
    first, second = plan_of(*text), plan_of(*text)
    for one, other in zip(first.launches, second.launches, strict=True):
        assert one.choice == other.choice
        assert np.array_equal(one.tiles, other.tiles)


def test_problems_are_planned_in_their_order() -> None:
    first, second = make_problem("m: 8, n: 8, k: 8"), make_problem("m: 16, n: 8, k: 8")
    made = plan.make([first, second], KERNELS)
    assert [one.problem for one in made] == [first, second]


def costs(
    some: Problem, groups: list[int], machine: Machine, alone: bool = False
) -> dict[Choice, float]:
    """Of all that is worth considering, each estimated in full."""
    indices = np.array(groups)
    able = [
        kernel
        for kernel in KERNELS
        if kernel.multiplies == ("bf16", "bf16", "row", "col")
        and fitting.takes(kernel, some, np.arange(len(some.groups)))
    ]
    choices = {
        choice: tiling.grid_of(some, indices, kernel, choice, machine)
        for kernel in tiling.considered(able, len(groups), machine, alone)
        for choice in tiling.choices(some, indices, kernel, machine, alone)
    }
    return {choice: cost.estimate(planned, some) for choice, planned in choices.items()}


def least(found: dict[Choice, float], most_splits: float = math.inf) -> Choice:
    able = [choice for choice in found if choice.splits <= most_splits]
    return min(able, key=lambda choice: found[choice])


shapes = st.tuples(
    st.integers(1, 40) | st.integers(1, 3000),
    st.integers(1, 3000),
    st.integers(0, 40) | st.integers(1, 300).map(lambda k: 64 * k),
)


@settings(max_examples=25)
@given(
    st.lists(shapes, min_size=1, max_size=6),
    st.sampled_from([1, 8]),
    st.sampled_from([Machine(132), Machine(20)]),
)
def test_of_all_kernels_and_choices_the_one_with_the_least_cost_is_taken(
    drawn: list[tuple[int, int, int]], word: int, machine: Machine
) -> None:
    """A single launch, whose end is evened, takes no more than any whose end is not.

    Nor do two, one of few rows apart from the others.
    """
    some = make_problem(
        *(f"m: {m}, n: {-(-n // word) * word}, k: {k}, lda: 20000, ldb: 20000" for m, n, k in drawn)
    )
    everyone = range(len(drawn))
    together, serial, streams = (
        plan.make([some], KERNELS, machine, how)[0] for how in ("grouped", "serial", "streams")
    )
    cycles = together.cycles(cost.FITTED)
    considered = costs(some, list(everyone), machine, alone=True)
    assert cycles <= min(considered.values()) * (1 + 1e-9)
    if not together.apart:
        (choice,) = together.choices
        assert cycles <= considered[choice] * (1 + 1e-9)
    each = [costs(some, [i], machine) for i in everyone]
    assert list(serial.choices) == [least(one) for one in each]
    assert list(streams.choices) == [least(one, most_splits=1) for one in each]


@pytest.mark.parametrize("name", ["epilogue", "hetero64", "longk", "skew16k"])
@pytest.mark.parametrize("launch", ["grouped", "serial"])
def test_how_many_groups_are_cut_at_one_time_changes_no_choice(
    name: str, launch: plan.Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = reading.load([str(PROBLEMS / f"{name}.yaml")], io.StringIO())
    found = []
    for at_once in (1, 300, 10**6):
        monkeypatch.setattr(choosing, "AT_ONCE", at_once)
        made = plan.make(problems, KERNELS, launch=launch)
        found.append([one.choices for one in made])
    assert found[0] == found[1] == found[2]


# Launches side by side


def alone(some: Problem) -> list[tuple[Choice, Grid]]:
    """How each launch is cut that is to run beside others, as is fastest by itself."""
    return [
        cut
        for groups, fitting in plan.alike(some, KERNELS)
        for cut in choosing.choose(some, [groups], fitting, H200, company="beside")
    ]


def cycles(some: Problem, launches: Sequence[Grid]) -> float:
    """Until all are done; a little more where CTAs wait for an SM, which the plan avoids."""
    ctas = sum(launch.clusters * launch.kernel.ctas for launch in launches)
    waiting = choosing.WAITING * (ctas > H200.sm_count)
    return cost.all_together(launches, side_by_side(launches), some) * (1 + waiting)


@settings(max_examples=25)
@given(st.lists(shapes, min_size=2, max_size=3))
@example([(1, 385, 5952), (129, 1729, 320)])  # a little later, but none waits
def test_launches_side_by_side_end_no_later_together_than_cut_as_is_fastest_by_itself(
    drawn: list[tuple[int, int, int]],
) -> None:
    types = ("a: bf16", "a: f16", "a: bf16, d: f32")
    some = make_problem(
        *(f"m: {m}, n: {n}, k: {k}, {own}" for (m, n, k), own in zip(drawn, types, strict=False))
    )
    (made,) = plan.make([some], KERNELS)
    by_themselves = [planned for _, planned in alone(made.exchanged)]
    together = cycles(made.exchanged, made.launches)
    assert together <= cycles(made.exchanged, by_themselves) * (1 + 1e-9)


def test_launches_that_need_more_sms_than_there_are_take_larger_tiles_to_begin_at_once() -> None:
    some = make_problem("m: 1024, n: 512, k: 64", "m: 1024, n: 1024, k: 64, a: f16")
    (made,) = plan.make([some], KERNELS)
    by_themselves = [planned for _, planned in alone(some)]
    assert sum(int(one.entries.sum()) for one in by_themselves) > H200.sm_count
    assert sum(int(one.entries.sum()) for one in made.launches) <= H200.sm_count


def test_a_kernel_that_needs_whole_sms_is_not_put_behind_one_that_spreads_halves() -> None:
    """Measured of such a list: 49% slower (random-020-inplace, H200, 23 November 2026)."""
    long = "m: 400, n: 500, k: 1600, count: 3"
    short = "m: 400, n: 500, k: 300, count: 8, a: f16"
    some = make_problem(long, short)
    (made,) = plan.make([some], KERNELS)
    assert [choice.kernel for choice, _ in alone(some)] == ["64x128", "128x256"]
    assert [choice.kernel for choice in made.choices] == ["64x128", "64x128"]


@pytest.mark.parametrize(
    ("more", "both"),
    [
        # Neither launch gains if it is cut so by itself.
        ("", ("128x256-x w256", "128x256-x w256")),
        # The second, whose sums are split where it is fastest alone, would be so in other widths.
        (", beta: 1, inplace: true", ("64x128 w112", "64x128 w80")),
    ],
)
def test_two_launches_end_no_later_than_in_another_two_cuts(
    more: str, both: tuple[str, str]
) -> None:
    """Of a list of the family that is known for it: in place it took 39 us for 26 (H200)."""
    text = next(listing.text(request) for name, request in family(0) if name == "random-020")
    listed = text.replace("{a: bf16, b: bf16}", f"{{a: bf16, b: bf16{more}}}")
    (some,) = reading.load(["-"], io.StringIO(listed))
    (made,) = plan.make([some], KERNELS)
    chosen = [Choice.parsed(one) for one in both]
    (other,) = plan.make([some], KERNELS, chosen={some.name: chosen})
    assert made.estimate_s <= other.estimate_s


def test_launches_that_all_find_room_are_cut_as_is_fastest_by_itself() -> None:
    some = make_problem("m: 64, n: 512, k: 512", "m: 64, n: 512, k: 512, a: f16")
    (made,) = plan.make([some], KERNELS)
    assert made.choices == tuple(choice for choice, _ in alone(some))


def test_more_launches_than_ways_that_are_tried_are_each_cut_as_is_fastest_by_itself() -> None:
    sorts = product(("bf16", "f16"), ("row", "col"), ("row", "col"), ("f32", "same"))
    some = make_problem(
        *(
            f"m: 512, n: 4096, k: 64, a: {a}, d: {a if d == 'same' else d}"
            f", a_layout: {of_a}, b_layout: {of_b}"
            for a, of_a, of_b, d in list(sorts)[: choosing.OTHERS + 1]
        )
    )
    (made,) = plan.make([some], KERNELS)
    assert len(made.launches) == choosing.OTHERS + 1
    assert made.choices == tuple(choice for choice, _ in alone(some))


@pytest.mark.parametrize("more", ["", ", beta: 1, inplace: true"])
def test_of_the_ways_to_cut_a_launch_beside_another_few_have_one_kernel_and_fewer_split_sums(
    more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are split only where those of the fastest are, which is looked at first."""
    looked = dict[int, list[Grid]]()
    stay = cost.stay

    def noted(launch: Grid, *rest: Any, **named: Any) -> Any:
        looked.setdefault(int(launch.groups[0]), []).append(launch)
        return stay(launch, *rest, **named)

    monkeypatch.setattr(cost, "stay", noted)
    text = next(listing.text(request) for name, request in family(0) if name == "random-020")
    listed = text.replace("{a: bf16, b: bf16}", f"{{a: bf16, b: bf16{more}}}")
    (some,) = reading.load(["-"], io.StringIO(listed))
    plan.make([some], KERNELS)
    assert len(looked) == 2
    for fastest, *others in looked.values():
        split = [launch for launch in others if launch.slots]
        whole = Counter(launch.kernel for launch in (fastest, *others) if not launch.slots)
        assert 0 < len(others) <= choosing.OTHERS / 2
        assert len(split) <= (choosing.OF_SPLIT if fastest.slots else 0)
        assert max(whole.values()) <= choosing.OF_KERNEL


def test_of_ways_that_take_about_as_long_one_is_taken_that_leaves_no_cta_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = "a: f16, b: f16, d: f16"
    some = make_problem("m: 512, n: 1024, k: 512", f"m: 256, n: 512, k: 2048, {half}")

    def ctas() -> int:
        (made,) = plan.make([some], KERNELS)
        return sum(launch.clusters * launch.kernel.ctas for launch in made.launches)

    assert ctas() <= H200.sm_count
    monkeypatch.setattr(choosing, "WAITING", 0.0)
    assert ctas() > H200.sm_count


def test_few_more_ways_to_cut_many_launches_are_looked_at_than_to_cut_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = list[Grid]()
    stay = cost.stay

    def counted(launch: Grid, *rest: Any, **named: Any) -> Any:
        looked.append(launch)
        return stay(launch, *rest, **named)

    monkeypatch.setattr(cost, "stay", counted)
    pairs = [(a, d) for a in ("bf16", "f16") for d in ("bf16", "f16", "f32")]
    groups = [f"m: 512, n: 4096, k: 64, a: {a}, d: {d}" for a, d in pairs]
    for count in (2, 4, 6):
        looked.clear()
        (made,) = plan.make([make_problem(*groups[:count])], KERNELS)
        assert len(made.launches) == count
        assert count < len(looked) <= count + choosing.OTHERS


def test_only_kernels_of_the_groups_types_are_considered() -> None:
    made = plan_of("m: 8, n: 8, k: 8, a: f16, d: f32")
    (launch,) = made.launches
    assert (launch.kernel.operand, launch.kernel.output) == ("f16", "f32")


def test_a_large_product_takes_the_widest_tile_of_a_kernel_in_clusters_and_is_not_split() -> None:
    (launch,) = plan_of("m: 8192, n: 8192, k: 8192").launches
    assert launch.choice == Choice(launch.kernel.name, launch.kernel.max_width)
    assert launch.kernel.cluster == 2


def test_a_long_sum_over_few_tiles_is_split() -> None:
    (launch,) = plan_of("m: 128, n: 512, k: 65536").launches
    assert launch.choice.splits > 1


def test_what_the_l2_adds_is_found_once_for_all_groups_that_are_launched_one_by_one() -> None:
    sizes = [f"m: 256, n: 256, k: {k}" for k in range(384, 1384, 100)]
    some = make_problem(*sizes, defaults="d: f32, beta: 1, inplace: true")
    before = epilogue.all_added.cache_info().misses
    (made,) = plan.make([some], KERNELS, launch="serial")
    assert len(made.launches) == len(sizes)
    assert epilogue.all_added.cache_info().misses == before + 1


def test_equal_groups_launched_one_by_one_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[int] = []

    def noting(problem: Problem, launches: list[Any], *rest: Any, **named: Any) -> Any:
        decided.extend(group for launch in launches for group in launch.tolist())
        return choosing.choose(problem, launches, *rest, **named)

    monkeypatch.setattr(plan, "choose", noting)
    some = make_problem("m: 8, n: 8, k: 8, count: 3", "m: 16, n: 8, k: 8", "m: 8, n: 8, k: 8")
    (made,) = plan.make([some], KERNELS, launch="serial")
    assert sorted(launch.groups.tolist() for launch in made.launches) == [[0], [1], [2], [3], [4]]
    assert decided == [0, 3]


def test_a_problem_is_cut_as_was_chosen_for_it_by_name() -> None:
    wanted = [Choice("64x128", 96), Choice("128x256", 160, 2)]
    some = make_problem("m: 600, n: 600, k: 4096", "m: 600, n: 600, k: 4096, a: f16")
    (as_chosen,) = plan.make([some], KERNELS, chosen={"p": wanted, "other": []})
    (by_cost,) = plan.make([some], KERNELS, chosen={"other": wanted})
    assert [launch.choice for launch in as_chosen.launches] == wanted
    assert [launch.kernel.operand for launch in as_chosen.launches] == ["bf16", "f16"]
    assert (as_chosen.tuned, by_cost.tuned) == (True, False)
    assert [launch.choice for launch in by_cost.launches] != wanted


@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_launch_is_left_out_for_want_of_a_choice(count: int) -> None:
    some = make_problem("m: 8, n: 8, k: 8", "m: 8, n: 8, k: 8, a: f16")
    with pytest.raises(ValueError, match="zip"):
        plan.make([some], KERNELS, chosen={"p": [Choice("64x128", 64)] * count})


def test_the_plan_is_for_the_gpu_that_it_is_made_for() -> None:
    some = make_problem("m: 512, n: 512, k: 64")
    (made,) = plan.make([some], KERNELS, Machine(7))
    assert {launch.machine for launch in made.launches} == {Machine(7)}


@pytest.mark.parametrize(
    ("group", "shares"),
    [
        ("m: 26, n: 1280, k: 2560", True), ("m: 20, n: 512, k: 1536", True),
        ("m: 26, n: 1280, k: 256", False), ("m: 4096, n: 4096, k: 4096", False),
        ("m: 16, n: 128, k: 2560, count: 200", False),
    ],
)  # fmt: skip
def test_ctas_share_k_where_few_tiles_have_a_long_one(group: str, shares: bool) -> None:
    (made,) = plan.make([make_problem(group)], KERNELS)
    assert (made.launches[0].kernel.k_parts > 1) == shares


OUT_OF_PROPORTION = {
    "one long sum and 64 tiny products": (
        "m: 128, n: 128, k: 128, count: 64", "m: 128, n: 128, k: 131072",
    ),
    "one long sum behind 3000 tiny products": (
        "m: 64, n: 128, k: 128, count: 3000", "m: 256, n: 256, k: 65536",
    ),
    "experts of K from 8 to 49152": tuple(
        f"m: 512, n: 512, k: {8 * max(1, 6144 // i**2)}" for i in range(64, 0, -1)
    ),
    "one long sum behind 127 products": (
        "m: 1024, n: 1024, k: 256, count: 127", "m: 1024, n: 1024, k: 32768",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT_OF_PROPORTION)
def test_where_k_is_out_of_proportion_no_number_of_parts_is_much_faster_than_what_is_chosen(
    name: str,
) -> None:
    some = make_problem(*OUT_OF_PROPORTION[name])
    (made,) = plan.make([some], KERNELS)
    (launch,) = made.launches
    enough = cost.estimate(launch, some) / 1.15
    for kernel in KERNELS:
        if kernel.multiplies != launch.kernel.multiplies or kernel.for_few_tiles:
            continue
        asked = asked_of(some, launch.groups, kernel)
        for width in tiling.widths(some, launch.groups, kernel, H200, alone=True):
            for parts in (*range(1, 25), *range(28, 129, 4)):
                other = tiling.grid(some, launch.groups, kernel, width, H200, parts)
                # What takes longer at least need not be played through.
                if cost.at_least(other, asked)[0] < enough:
                    assert cost.estimate(other, some, asked=asked) >= enough


# What a table says of it


def test_tiles_and_waves_are_those_of_all_launches() -> None:
    made = plan_of("m: 600, n: 600, k: 64", "m: 600, n: 600, k: 64, a: f16")
    bf16, f16 = made.launches
    assert made.tiles == len(bf16.tiles) + len(f16.tiles)
    assert made.waves == bf16.waves + f16.waves


def test_ctas_are_those_that_each_launch_starts() -> None:
    made = plan_of("m: 600, n: 600, k: 64", "m: 600, n: 600, k: 64, a: f16")
    assert made.ctas == tuple(one.clusters * one.kernel.ctas for one in made.launches)
    assert plan_of("m: 0, n: 8, k: 8").ctas == ()


def test_what_a_run_is_expected_to_take_is_what_its_launches_take_together() -> None:
    made = plan_of("m: 600, n: 600, k: 640", "m: 600, n: 600, k: 640, a: f16")
    cycles = cost.all_together(made.launches, made.queue, made.problem)
    assert made.estimate_s == cycles / cost.CLOCK_HZ
    assert cycles < sum(cost.estimate(launch, made.problem) for launch in made.launches)


def test_tile_efficiency_is_useful_work_over_padded_work() -> None:
    made = plan_of("m: 17, n: 65, k: 72, ldd: 72")
    (launch,) = made.launches
    assert made.tile_efficiency == 17 * 65 * 72 / launch.padded_macs
    assert plan_of("m: 2048, n: 2048, k: 2048").tile_efficiency == 1


def test_kernels_are_named_each_once() -> None:
    made = plan_of("m: 8, n: 8, k: 8", "m: 8, n: 8, k: 8, a: f16")
    one, other = made.launches
    assert one.kernel.name == other.kernel.name == made.kernel
    mixed = replace(made, launches=(one, replace(other, kernel=replace(other.kernel, name="x"))))
    assert mixed.kernel == f"{one.kernel.name}+x"


@pytest.mark.parametrize(
    ("groups", "dtype"),
    [
        (["a: bf16"], "bf16"),
        (["a: bf16, d: f32"], "bf16->f32"),
        (["a: bf16, d: f32", "a: f16", "a: bf16, d: f32, beta: 1"], "bf16->f32,f16"),
    ],
)
def test_the_types_are_named_each_pair_once(groups: list[str], dtype: str) -> None:
    assert plan_of(*(f"m: 8, n: 8, k: 8, {group}" for group in groups)).dtype == dtype


def test_the_shape_is_a_range_where_groups_differ() -> None:
    assert plan_of("m: 16, n: 8, k: 24").shape == "16x8x24"
    assert plan_of("m: 16, n: 8, k: 24", "m: 0, n: 8, k: 64").shape == "0..16x8x24..64"


def test_planning_says_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def slowed(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def slowly(*args: Any, **named: Any) -> Any:
            clock.sleep(seconds)
            return function(*args, **named)

        return slowly

    monkeypatch.setattr(plan, "perf_counter", clock.monotonic)
    for function, seconds in ((plan.refusals, 0.5), (plan.choose_beside, 2.5), (plan.lay_out, 8)):
        monkeypatch.setattr(plan, function.__name__, slowed(function, seconds))
    made = plan_of("m: 8, n: 8, k: 8", "m: 8, n: 8, k: 8, a: f16")
    assert made.plan_s == 0.5 + 2.5 + 8
    assert made == replace(made, plan_s=0)


# What lists that ship are cut into, by choices that were the cost model's on 2026-11-21: all tile
# lists, before planning was made fast; edge and ragged since C comes through the ring, also by
# residues, all since a tile has flags and a box; edge and ragged since parts are a group's own
# number, adding up waits for them, and long sums come first; decode256, edge and ragged since some
# B is read once, and qwen3_dn_z since tiles of many rows end before the list does; hetero64 since
# widths come in finer steps; edge and ragged since rows of D that are no whole words have few; and
# with big1 and tiny1k since a tile says what its warpgroups multiply by turns; hetero64 and
# qwen3_dn_z since a group has tiles of two heights; hetero64 since a tile says that only the first
# of a cluster's CTAs has columns; edge and ragged since it says that C or a bias is added; edge
# since tiles of a wave go in panels of which a GPC draws least.

AS_BEFORE = {
    "big1": ("128x256-c2 w256", "a82a0025456a4ed6"),
    "decode256": ("128x192-c2p w192", "5e79ea2d06b788d4"),
    "edge": ("64x128 w128 k/4+64x128 w128", "cb962a56cfce94b3"),
    "hetero64": ("128x192-c2p w192", "dcce80c3501d5a37"),
    "longk": ("128x192-c2p w192 k/8", "289cf2a248518fae"),
    "qwen3_dn_z": ("128x192-c2p w192", "782c652ba4c50066"),
    "ragged": (
        "64x128 w64+64x128 w128+64x128 w128+64x128 w96+64x128 w96+64x128 w96",
        "2b220fdc6e6d1900",
    ),
    "tiny1k": ("128x256 w256", "2f16285e3560b41b"),
}


def digest(made: Plan) -> str:
    """A hash of all tile lists, field by field."""
    hashed = hashlib.sha256()
    for launch in made.launches:
        for name in FIELDS:
            values = launch.tiles[name]
            # Of splits as many bits as they had before kinds.
            hashed.update((values.astype(np.uint32) if name == "splits" else values).tobytes())
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("name", AS_BEFORE)
def test_lists_are_cut_and_ordered_as_they_were(name: str) -> None:
    words, tiles = AS_BEFORE[name]
    (some,) = reading.load([str(PROBLEMS / f"{name}.yaml")], io.StringIO())
    choices = [Choice.parsed(one) for one in words.split("+")]
    (made,) = plan.make([some], KERNELS, chosen={some.name: choices})
    assert digest(made) == tiles


# Large lists


def python_lines(function: Callable[[], object]) -> int:
    """How many lines of Python a call runs: a loop in numpy is one of them."""
    count = 0

    def trace(_: object, event: str, __: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def planned_and_tabulated(some: Problem) -> None:
    (made,) = plan.make([some], KERNELS)
    for launch in made.launches:
        tables.build(launch, made, 0)


def test_no_line_of_python_runs_for_every_tile() -> None:
    """Of a list that is too long to be played through."""
    few, many = (make_problem(f"m: {size}, n: {size}, k: 64") for size in (16384, 65536))
    lines = [python_lines(lambda some=some: planned_and_tabulated(some)) for some in (few, many)]
    assert abs(lines[1] - lines[0]) < 100  # ways to cut them that are looked at more closely


def test_no_line_of_python_runs_for_every_group_but_to_make_the_columns() -> None:
    (one,) = make_problem("m: 1, n: 512, k: 64").groups

    def lines(count: int) -> int:
        groups = tuple(replace(one, m=1 + i % 500) for i in range(count))
        some = Problem("p", groups, one.marks[""])
        assert len(some.columns.m) == count
        return python_lines(lambda: planned_and_tabulated(some))

    assert lines(40_000) <= 1.1 * lines(10_000)
