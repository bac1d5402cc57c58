"""Our own kernel launched group by group: the same results, one launch each."""

from __future__ import annotations

import numpy as np
import pytest

from gemmctl.device.cpu import CpuDevice
from gemmctl.judging import verify
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Launching, Plan
from support import make_plans

LIST = """\
gemmctl: 1
problems:
  - name: p
    groups:
      - {m: 300, n: 264, k: 136, count: 3}
      - {m: 0, n: 264, k: 136}
      - {m: 17, n: 40, k: 24, a: f16, d: f32, alpha: 0.5, beta: 1}
      - {m: 5, n: 8, k: 0, beta: 2}
      - {m: 300, n: 264, k: 136}
"""


def planned(launch: Launching, text: str = LIST) -> Plan:
    (made,) = make_plans(text, launch)
    return made


@pytest.mark.parametrize("launch", ["serial", "streams"])
def test_every_group_with_a_d_has_a_launch_of_its_own(launch: Launching) -> None:
    launches = planned(launch).launches
    assert sorted(one.groups.tolist() for one in launches) == [[0], [1], [2], [4], [5], [6]]
    assert all((one.tiles["group"] == 0).all() for one in launches)


def test_a_graph_has_the_launches_of_a_grouped_run() -> None:
    graph, grouped = planned("graph"), planned("grouped")
    assert graph.choices == grouped.choices
    assert all(
        np.array_equal(one.tiles, other.tiles)
        for one, other in zip(graph.launches, grouped.launches, strict=True)
    )


def test_launches_of_single_groups_side_by_side_split_no_sums() -> None:
    text = "gemmctl: 1\nproblems:\n  - {name: p, groups: [{m: 64, n: 64, k: 65536, count: 2}]}\n"
    splits = {
        launch: {choice.splits for choice in planned(launch, text).choices}
        for launch in ("grouped", "serial", "streams")
    }
    assert splits["streams"] == {1}
    assert min(splits["grouped"] | splits["serial"]) > 1


def test_operands_lie_where_they_lie_for_a_grouped_launch() -> None:
    grouped, serial = planned("grouped").layout, planned("serial").layout
    assert all(np.array_equal(getattr(grouped, x), getattr(serial, x)) for x in "abcd")


@pytest.mark.parametrize("launch", ["graph", "serial", "streams"])
def test_however_launched_they_are_right(launch: Launching) -> None:
    made, spec = planned(launch), DataSpec("int", 5)
    with CpuDevice().open(made, spec) as session:
        session.run()
        verdicts = verify.verify(made, session, spec, device="cpu")
    assert [verdict.message for verdict in verdicts if not verdict.ok] == []
