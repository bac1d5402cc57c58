"""Every way to cut a problem on a Hopper GPU: right, repeatable, and ranked by honest times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gemmctl.device.cuda import CudaDevice
from gemmctl.judging import verify
from gemmctl.kernels import cubins
from gemmctl.measuring import tune
from gemmctl.measuring.tune_cache import TuneCache
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice
from support import PROBLEMS, environment, make_plans

KERNELS = cubins.manifest().kernels
LISTS = {
    "ragged": "{m: 300, n: 500, k: 1000, ldd: 504}, "
    "{m: 17, n: 129, k: 64, ldd: 136, alpha: 0.5, beta: 1}, {m: 513, n: 256, k: 4096}, "
    "{m: 0, n: 8, k: 8}, {m: 9, n: 64, k: 0}",
    "long": "{m: 256, n: 256, k: 16384, count: 2}",
    "across": "{m: 1000, n: 400, k: 2048, count: 3}, {m: 1, n: 8, k: 64}, {m: 130, n: 72, k: 0}",
    "mixed": "{m: 250, n: 256, k: 2048}, {m: 100, n: 264, k: 512, d: f32}, "
    "{a: f16, m: 64, n: 512, k: 1024}",
}


def planned(name: str) -> Plan:
    (made,) = make_plans(f"gemmctl: 1\nproblems:\n  - {{name: {name}, groups: [{LISTS[name]}]}}\n")
    return made


def own_machine(made: Plan, device: CudaDevice) -> Plan:
    (own,) = plan.make([made.problem], KERNELS, device.machine)
    return own


def every_candidate(made: Plan) -> list[Plan]:
    launches = range(len(made.launches))
    return [one for launch in launches for one in tune.candidates(made, KERNELS, launch)]


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("kind", ["int", "normal"])
def test_every_candidate_is_right(name: str, kind: str, device: CudaDevice) -> None:
    spec = DataSpec(kind, 11)  # type: ignore[arg-type]
    for candidate in every_candidate(own_machine(planned(name), device)):
        with device.open(candidate, spec) as session:
            session.run()
            verdicts = verify.verify(candidate, session, spec)
        assert [v.message for v in verdicts if not v.ok] == [], candidate.choices


@pytest.mark.parametrize("name", LISTS)
def test_every_candidate_gives_the_same_bits_each_time(name: str, device: CudaDevice) -> None:
    for candidate in every_candidate(own_machine(planned(name), device)):
        begin, end = candidate.layout.d_begin, candidate.layout.d_end
        with device.open(candidate, DataSpec("normal", 3)) as session:
            session.run()
            first = session.read(begin, end)
            for _ in range(10):
                session.poison()
                session.run()
                assert np.array_equal(session.read(begin, end), first), candidate.choices


def test_a_ranking_has_every_candidate_and_believable_times(device: CudaDevice) -> None:
    made = own_machine(planned("long"), device)
    ranking = tune.measure(made, device, KERNELS, tune.Settings(max_time_s=60, all=True))
    for trial in ranking.trials:
        print(f"{trial.choice}: {trial.median_s * 1e6:.1f} us, {trial.plan.estimate_s * 1e6:.1f}")
    assert len(ranking.trials) == len(every_candidate(made))
    roofline = device.facts.roofline
    assert roofline is not None
    assert ranking.best.median_s > 0.8 * roofline.bound_s(made.flops, made.bytes)
    # Few whole sums of 16384 cannot keep up with split ones.
    assert ranking.best.plan.choices[0].splits > 1


def test_run_uses_what_was_kept_for_this_gpu(device: CudaDevice, tmp_path: Path) -> None:
    (made,) = make_plans((PROBLEMS / "tiny.yaml").read_text())
    choices = [Choice("64x128", 80)] * len(made.launches)
    (chosen,) = plan.make(
        [made.problem], KERNELS, device.machine, chosen={made.problem.name: choices}
    )
    assert TuneCache(device.facts, cubins.manifest(), pytest.fail).keep(chosen, 1e-3)
    for command, items in (("run", "problems"), ("verify", "checks")):
        done = subprocess.run(
            [sys.executable, "-m", "gemmctl", command, PROBLEMS / "tiny.yaml", "-f", "json"],
            cwd=tmp_path,
            env=environment(GEMMCTL_DEVICE=f"cuda:{device.ordinal}"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for one in json.loads(done.stdout)[items]:
            assert one["tuned"]
            assert one["choices"] == list(map(str, choices))
