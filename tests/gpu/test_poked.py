"""Defects poked into D on a Hopper GPU: verify reads what the device holds, and catches them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from gemmctl.device.cuda import CudaDevice
from gemmctl.device.cuda.session import CudaSession
from gemmctl.judging.repeats import repeated
from gemmctl.judging.verdict import Verdict
from gemmctl.judging.verify import verify
from gemmctl.kernels import cubins
from gemmctl.operands import dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan
from gemmctl.planning.plan import Plan
from support import environment, make_problem

pytestmark = pytest.mark.planted
LARGE = "m: 1024, n: 1024, k: 4096"  # more than is compared as a whole


def planned(*groups: str, kernel: str | None = None) -> Plan:
    (made,) = plan.make([make_problem(*groups)], cubins.manifest().named(kernel))
    return made


def poke(session: CudaSession, made: Plan, row: int, col: int, value: float) -> None:
    """Put a value into the first group's D."""
    group = made.problem.groups[0]
    dtype = dtypes.BY_NAME[group.d]
    bits = dtype.from_float(np.array([value]))
    at = session.base + int(made.layout.d[0]) + (row * group.ldd + col) * dtype.size
    session.device.upload(at, bits)
    session.device.wait()


@pytest.mark.parametrize("kernel", ["128x256-c2", "128x256-c2x"])
@pytest.mark.parametrize("kind", ["normal", "int"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_element_that_is_not_finite_is_caught_wherever_it_is(
    device: CudaDevice, value: float, kind: str, kernel: str
) -> None:
    made, spec = planned(LARGE, kernel=kernel), DataSpec(kind, 3)  # type: ignore[arg-type]
    random = np.random.default_rng(1)
    with device.open(made, spec) as session:
        for _ in range(20):
            row, col = random.integers(1024), random.integers(1024)
            session.run()
            poke(session, made, row, col, value)
            (verdict,) = verify(made, session, spec)
            assert verdict.bad == 1, verdict.message
            assert verdict.first and (verdict.first.row, verdict.first.col) == (row, col)
            assert verdict.first.tile
            m0, n0, rows, cols = verdict.first.tile
            assert m0 <= row < m0 + rows and n0 <= col < n0 + cols


def test_another_value_is_caught_at_least_95_times_of_100(device: CudaDevice) -> None:
    made, spec = planned("m: 512, n: 512, k: 65536"), DataSpec("normal", 3)
    random, caught = np.random.default_rng(2), 0
    with device.open(made, spec) as session:
        session.run()
        (right,) = verify(made, session, spec)
        assert right.ok, right.message
        memory = session.read(int(made.layout.d[0]), int(made.layout.d[0]) + 512 * 512 * 2)
        values = dtypes.BF16.to_f32(memory.view(np.uint16).reshape(512, 512))
        for _ in range(40):
            row, col, other = random.integers(512), random.integers(512), random.integers(512)
            poke(session, made, row, col, float(values[row, other]))
            caught += not verify(made, session, spec)[0].ok or col == other
            poke(session, made, row, col, float(values[row, col]))
    assert caught >= 36


def test_a_result_that_changes_is_caught(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, spec = planned("m: 64, n: 64, k: 64", "m: 64, n: 64, k: 64"), DataSpec("int", 3)
    right: Callable[[CudaSession], None] = CudaSession.run

    def run(session: CudaSession) -> None:
        right(session)
        poke(session, made, 5, 6, 1.0)

    with device.open(made, spec) as session:
        session.run()
        verdicts: list[Verdict] = verify(made, session, spec)
        assert all(verdict.ok for verdict in repeated(session, verdicts, session.digests(), 3))
        session.run()
        monkeypatch.setattr(CudaSession, "run", run)
        found = repeated(session, verdicts, session.digests(), 2)
    assert [verdict.ok for verdict in found] == [False, True]
    assert "run 2 gave other bits than the first" in found[0].message


def test_two_processes_that_split_sums_at_once_both_end(device: CudaDevice) -> None:
    command = [sys.executable, "-m", "gemmctl", "run", "@longk", "-q", "--max-time", "2",
               "--runs", "100000", "--max-noise", "0"]  # fmt: skip
    both = [subprocess.Popen(command, env=environment(GEMMCTL_DEVICE="cuda")) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
