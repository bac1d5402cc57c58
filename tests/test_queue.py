"""The order of a run's launches and their streams: which go side by side."""

from __future__ import annotations

from itertools import permutations

import pytest

from gemmctl.planning import plan
from gemmctl.planning.plan import TOGETHER, Launching, Plan
from gemmctl.planning.queue import in_turn
from support import make_plans

WHOLE = ("m: 300, n: 264, k: 136, d: f32", "m: 4096, n: 4096, k: 512, a: f16, d: f32")
SPLIT = ("m: 64, n: 64, k: 65536", "m: 64, n: 64, k: 32768, a: f16")


def planned(*groups: str, launch: Launching = "grouped") -> Plan:
    listed = ", ".join(f"{{{group}}}" for group in groups)
    (made,) = make_plans(f"gemmctl: 1\nproblems: [{{name: p, groups: [{listed}]}}]\n", launch)
    return made


@pytest.mark.parametrize("launch", TOGETHER)
def test_every_launch_has_a_stream_of_its_own_large_or_small(launch: Launching) -> None:
    made = planned(*WHOLE, launch=launch)
    assert made.queue == ((0, 0), (1, 1))
    assert made.streams == 2


@pytest.mark.parametrize("launch", TOGETHER)
@pytest.mark.parametrize("groups", list(permutations((*WHOLE, *SPLIT))))
def test_launches_that_split_sums_share_a_stream_and_come_first(
    launch: Launching, groups: tuple[str, ...]
) -> None:
    made = planned(*groups, launch=launch)
    order, streams = zip(*made.queue, strict=True)
    assert sorted(order) == [0, 1, 2, 3]
    assert [made.launches[i].slots > 0 for i in order] == [True, True, False, False]
    assert streams == (0, 0, 1, 2)


def test_otherwise_they_keep_the_order_of_the_plan() -> None:
    order = [i for i, _ in planned(WHOLE[0], SPLIT[0], WHOLE[1], SPLIT[1]).queue]
    assert order == [1, 3, 0, 2]


def test_launches_of_single_groups_go_one_after_another_or_take_turns() -> None:
    group = "m: 8, n: 8, k: 8, count: 20"
    assert planned(group, launch="serial").queue == in_turn(20)
    assert planned(group, launch="streams").queue == in_turn(20, plan.STREAMS)
    assert in_turn(5, 3) == ((0, 0), (1, 1), (2, 2), (3, 0), (4, 1))


@pytest.mark.parametrize("launch", ["grouped", "graph", "serial", "streams"])
def test_nothing_to_launch_needs_no_stream(launch: Launching) -> None:
    made = planned("m: 0, n: 8, k: 8", launch=launch)
    assert (made.streams, made.estimate_s) == (0, 0)
