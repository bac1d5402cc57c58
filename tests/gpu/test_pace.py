"""The sustained pace on a Hopper GPU."""

from __future__ import annotations

import io

import numpy as np

from gemmctl.device.cuda import CudaDevice
from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.measuring import baselines, sustained
from gemmctl.measuring.bench import Settings
from gemmctl.planning import plan

LIST = """
gemmctl: 1
problems:
  - name: plain
    groups:
      - {m: 4096, n: 4096, k: 4096}
  - name: inplace
    groups:
      - {m: 300, n: 264, k: 512, beta: 2, inplace: true, count: 8}
"""


def test_blocks_have_a_clock_and_energy_and_doubling_c_in_place_does_not_run_away(
    device: CudaDevice,
) -> None:
    problems = reading.load(["-"], io.StringIO(LIST))
    for made in plan.make(problems, cubins.manifest().kernels):
        settings = Settings(runs=2, max_time_s=8, pace="sustained")
        with device.open(made, settings.data) as session:
            entries = baselines.enter(
                ("cublas-loop",), session, made, settings.data, pace="sustained"
            )
            found = sustained.measure(session, device, made, settings, entries=entries)
            session.sustain(0.1, lambda: None)
            begin = int(made.layout.d[0])
            d = session.read(begin, begin + 2 * made.problem.groups[0].n).view(np.uint16)
        for one in (found, *(rival for rival in found.rivals if rival.verdict == "ok")):
            told = one.sustained
            assert told is not None and told.sm_hz is not None and told.energy_j is not None
            print(made.problem.name, told)
            assert 3e8 < told.sm_hz < 2.1e9
            assert 50 < told.power_w < 1000  # type: ignore[operator]
            assert 0 < told.energy_j < 1
            assert 1e-6 < one.samples[0] < 1e-2
        assert ((d & 0x7F80) != 0x7F80).all()  # bf16 of a whole row, none infinite or NaN
