"""The end of a launch: cut narrower, or reached at one time, where most clusters would wait."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from cuts import Cut, cuts, joined_cuts, kernel, uneven_cuts
from gemmctl.judging.product import products_of
from gemmctl.kernels import cubins
from gemmctl.kernels.constants import K_TILE, TILE_BACKWARD
from gemmctl.lists.problem import Problem
from gemmctl.operands.data import DataSpec
from gemmctl.planning import cost, plan, playing, tail, tiles, tiling
from gemmctl.planning.tiling import H200, Choice, Grid, Machine
from gemmctl.planning.work import asked_of
from support import make_problem

KERNELS = cubins.manifest().kernels
WAVE = 66  # clusters of two on an H200


def whole(some: Problem, name: str = "128x256-c2", splits: int = 1) -> Grid:
    of = kernel(name)
    return tiling.grid(some, np.arange(len(some.groups)), of, of.max_width, H200, splits)


def columns(count: int, high: int = 1, k: int = 4096, more: str = "") -> str:
    """A group of so many columns of tiles of 256x256, each so many high."""
    return f"m: {256 * high}, n: {256 * count}, k: {k}{more}"


def test_what_is_left_behind_whole_waves_is_cut_in_half_where_it_is_half_a_wave() -> None:
    planned = whole(some := make_problem(columns(3 * WAVE + WAVE // 2)))
    found, cycles = tail.evened(planned, some)
    assert found.widths.tolist() == [256, 128]
    assert found.wide.tolist() == [3 * WAVE, WAVE // 2]
    assert found.first.tolist() == [0, 3 * WAVE]
    assert found.whole.tolist() == [3 * WAVE, WAVE]
    # Of stages as long as those of the others there are few, which narrow tiles wait for.
    assert 3.5 / 4 < cycles / cost.estimate(planned, some) < 0.96
    assert cycles == cost.estimate(found, some)


def test_two_thirds_of_a_wave_are_cut_together_with_tiles_of_the_wave_before() -> None:
    """Two tiles of 192 rows on top of each other become three of 128, and take a wave each."""
    planned = whole(some := make_problem(f"m: 384, n: {256 * 55}, k: 4096"), "128x192-c2p")
    assert planned.whole.tolist() == [110]
    found, cycles = tail.evened(planned, some)
    assert found.widths.tolist() == [192, 128]
    assert found.whole.tolist() == [WAVE, WAVE]
    assert cycles < 0.95 * cost.estimate(planned, some)


@pytest.mark.parametrize(
    "group",
    [
        columns(3 * WAVE),
        columns(3 * WAVE - 1),  # a wave that is all but full
        columns(WAVE // 2),  # less than one: all tiles could be narrower
        columns(3 * WAVE + WAVE // 2, k=512),  # latency is what they wait for
        columns((playing.PLAYED + 1) * WAVE + WAVE // 2),  # half a wave of so many
    ],
)
def test_a_launch_stays_as_it_is_where_nothing_is_to_be_gained(group: str) -> None:
    planned = whole(some := make_problem(group))
    assert tail.evened(planned, some) == (planned, cost.estimate(planned, some))


@pytest.mark.parametrize("count", range(WAVE + 5, 3 * WAVE, 12))
def test_an_end_is_cut_only_where_that_gains_enough_and_what_it_then_takes_is_told(
    count: int,
) -> None:
    planned = whole(some := make_problem(columns(count)))
    found, cycles = tail.evened(planned, some)
    assert cycles == cost.estimate(found, some)
    gained = 1 - cycles / cost.estimate(planned, some)
    assert found is planned or gained >= tail.GAIN


def test_launches_that_split_sums_stay_as_they_are() -> None:
    some = make_problem(columns(3 * WAVE + WAVE // 2), "m: 256, n: 256, k: 65536")
    planned = whole(some, splits=8)
    assert planned.slots and tail.evened(planned, some)[0] is planned


def test_the_last_tiles_of_the_list_are_cut_be_their_group_the_last_or_not() -> None:
    """Long sums come first."""
    short, long = columns(2 * WAVE + WAVE // 2), columns(WAVE, k=8192)
    for groups, cut in (([short, long], 0), ([long, short], 1)):
        planned = whole(some := make_problem(*groups))
        found, _ = tail.evened(planned, some)
        narrow = found.widths < 256
        assert found.groups[narrow].tolist() == [cut]
        assert found.k_tiles[narrow].tolist() == [64]


def test_a_group_of_which_all_columns_are_cut_has_one_entry() -> None:
    some = make_problem(columns(3 * WAVE), columns(WAVE // 2))
    found, _ = tail.evened(whole(some), some)
    assert (found.groups.tolist(), found.widths.tolist()) == ([0, 1], [256, 128])


@pytest.mark.parametrize("count", [2, 40])
def test_the_two_entries_of_a_group_follow_each_other(count: int) -> None:
    groups = np.arange(count)
    some = make_problem(*[columns(2)] * count)
    wide, narrow = (tiling.grid(some, groups, kernel("128x256-c2"), w, H200) for w in (256, 128))
    found = tail.joined(wide, narrow, np.ones(count, np.int64))
    assert found.groups.tolist() == np.repeat(groups, 2).tolist()
    assert found.widths.tolist() == [256, 128] * count
    assert found.first.tolist() == [0, 1] * count


def test_a_narrow_end_has_no_other_widths_than_what_is_behind_its_sums_has_code_for() -> None:
    some, gpu = make_problem("m: 288, n: 25600, k: 1024, activation: silu"), Machine(2)
    of, groups = kernel("128x192-c2p"), np.arange(1)
    wide, narrow = (tiling.grid(some, groups, of, width, gpu) for width in (192, 128))
    found = tail.joined(wide, narrow, wide.wide // 2)
    launch = tiles.cut(some, found, Choice(of.name, 192))
    assert set(launch.tiles["width"].tolist()) == {32, 128, 192}


def test_each_entry_has_its_share_of_what_its_group_reads_and_writes() -> None:
    planned = whole(some := make_problem(columns(3 * WAVE + WAVE // 2)))
    found, _ = tail.evened(planned, some)
    assert found.share.tolist() == [6 / 7, 1 / 7]
    asked = asked_of(some, found.groups, found.kernel, found.share)
    all_of_it = asked_of(some, planned.groups, planned.kernel)
    for name in ("read", "written", "of_b"):
        assert getattr(asked, name).sum() == pytest.approx(getattr(all_of_it, name).sum())


def test_where_launches_run_side_by_side_none_is_evened() -> None:
    """What one leaves idle, another takes."""
    group = columns(3 * WAVE + WAVE // 2)
    choice = Choice("128x256-c2", 256)
    alone, beside = make_problem(group), make_problem(group, f"{group}, a: f16, b: f16")
    for some, widths in ((alone, [256, 128]), (beside, [256])):
        chosen = {some.name: [choice] * (1 if some is alone else 2)}
        (made,) = plan.make([some], KERNELS, chosen=chosen)
        assert all(launch.widths.tolist() == widths for launch in made.launches)


def test_a_launch_for_each_group_is_not_evened() -> None:
    """That shows what grouping buys, group by group, and has thousands to plan."""
    some = make_problem(columns(3 * WAVE + WAVE // 2))
    (made,) = plan.make([some], [kernel("128x256-c2")], launch="serial")
    assert len(made.launches[0].groups) == 1


# Rounds that all clusters have


def started(*groups: str, name: str = "128x256-c2", splits: int = 1) -> int:
    """Clusters that a launch starts if all have as many rounds of tiles; 0: all that fit."""
    return tail.in_rounds(whole(make_problem(*groups), name, splits)).limit


@pytest.mark.parametrize(("tiles", "clusters"), [(67, 34), (90, 45), (132, WAVE), (199, 50)])
def test_equal_tiles_are_shared_evenly_by_as_few_clusters_as_need_no_more_rounds(
    tiles: int, clusters: int
) -> None:
    assert started(columns(tiles)) == clusters
    assert started(*[columns(1)] * tiles) == clusters


@pytest.mark.parametrize(
    ("slices", "most"), [(tail.SLICES - 1, tail.ROUNDS), (tail.SLICES, tail.ROUNDS_OF_LONG)]
)
def test_in_many_rounds_all_clusters_that_fit_are_started(slices: int, most: int) -> None:
    k = K_TILE * slices
    assert started(columns((WAVE - 1) * most, k=k)) == WAVE - 1
    assert started(columns((WAVE - 1) * (most + 1), k=k)) == 0


@pytest.mark.parametrize(
    ("rows", "k", "clusters"),
    [
        (256, 4096, 45),
        (round(256 * tail.ALIKE), 4096, 45),
        (round(256 * tail.ALIKE) - 16, 4096, 0),
        (256, 4096 - K_TILE, 0),
    ],
)
def test_tiles_that_are_done_sooner_than_others_count_as_equal_only_if_they_are_a_little_lower(
    rows: int, k: int, clusters: int
) -> None:
    assert started(columns(89), f"m: {rows}, n: 256, k: {k}") == clusters


def test_a_launch_whose_end_is_cut_narrower_starts_all_clusters_that_fit() -> None:
    some, of, groups = make_problem(columns(90)), kernel("128x256-c2"), np.arange(1)
    wide, narrow = (tiling.grid(some, groups, of, width, H200) for width in (256, 240))
    joined = tail.joined(wide, narrow, np.array([5]))
    assert tail.in_rounds(joined) is joined


def test_a_launch_that_splits_sums_starts_all_clusters_that_fit() -> None:
    assert started(columns(45), splits=2) == 0


@pytest.mark.parametrize(("more", "clusters"), [(0, 45), (1, 0)])
def test_ctas_that_share_long_sums_are_as_many_as_fit(more: int, clusters: int) -> None:
    """They wait for the memory, which all SMs draw more from."""
    k = K_TILE * (2 * tail.SHARED_SLICES + more)
    assert started(f"m: 8, n: {64 * 90}, k: {k}", name="64x128-k2") == clusters


@given(cuts() | joined_cuts() | uneven_cuts())
def test_as_few_clusters_need_as_many_rounds_as_all_that_fit(cut: Cut) -> None:
    launch = tail.in_rounds(cut[1])
    entries, clusters = int(launch.entries.sum()), launch.clusters
    assert 1 <= clusters <= min(launch.room, entries)
    assert -(-entries // clusters) == -(-entries // launch.room)


def test_a_wave_that_takes_k_backward_is_of_the_clusters_that_are_started() -> None:
    planned = tail.in_rounds(whole(some := make_problem(columns(150))))
    launch = tiles.cut(some, planned, Choice("128x256-c2", 256))
    backward = (launch.tiles["flags"] & TILE_BACKWARD).astype(bool)
    assert launch.clusters == 50
    assert backward.tolist() == [False] * 50 + [True] * 50 + [False] * 50


def test_a_launch_that_is_alone_has_even_rounds_and_those_side_by_side_have_not() -> None:
    group, choice = columns(2 * WAVE - 4), Choice("128x256-c2", 256)
    alone, beside = make_problem(group), make_problem(group, f"{group}, a: f16, b: f16")
    for some, clusters in ((alone, [WAVE - 2]), (beside, [WAVE, WAVE])):
        (chosen,) = plan.make([some], KERNELS, chosen={some.name: [choice] * len(clusters)})
        assert [launch.clusters for launch in chosen.launches] == clusters


def test_the_cost_model_gives_a_launch_that_is_alone_even_rounds() -> None:
    some = make_problem("m: 768, n: 768, k: 1024, count: 10")  # 120 tiles of 256x192
    (made,) = plan.make([some], KERNELS)
    (launch,) = made.launches
    assert (len(launch.tiles), launch.room, launch.clusters) == (120, WAVE, 60)


def test_the_choice_is_of_what_is_fastest_once_ends_are_evened() -> None:
    some = make_problem("m: 4096, n: 512, k: 4096, count: 32")  # 15.5 waves of tiles of 256 rows
    (made,) = plan.make([some], KERNELS)
    (launch,) = made.launches
    everyone = np.arange(32)
    others = [
        cost.estimate(tiling.grid_of(some, everyone, k, choice, H200), some)
        for k in KERNELS
        if k.multiplies == launch.kernel.multiplies
        for choice in tiling.choices(some, everyone, k, H200, alone=True)
    ]
    assert len(set(launch.widths.tolist())) == 2
    assert cost.estimate(launch, some) < min(others)


def test_a_smaller_gpu_has_other_waves() -> None:
    some = make_problem(columns(WAVE))
    chosen = {some.name: [Choice("128x256-c2", 256)]}
    for sms, widths in ((132, [256]), (88, [256, 128])):  # a wave, and one and a half
        (made,) = plan.make([some], KERNELS, Machine(sms), chosen=chosen)
        assert made.launches[0].widths.tolist() == widths


def test_what_is_judged_of_a_group_has_the_tiles_of_both_its_cuts() -> None:
    some = make_problem(f"m: 384, n: {256 * 55}, k: 1024")
    chosen = {some.name: [Choice("128x192-c2p", 192)]}
    (made,) = plan.make([some], KERNELS, chosen=chosen)
    assert made.launches[0].widths.tolist() == [192, 128]
    (product,) = products_of(made, DataSpec("int", 0), "cuda")
    assert product.tile(0, 0) == (0, 0, 192, 256)
    assert product.tile(383, 256 * 55 - 1) == (256, 256 * 54, 128, 256)
