#!/usr/bin/env python3
"""Measure how large a device's honest errors are: the constants C of gemmctl/judging/statistic.py.

    python tools/calibrate_rms.py --device cuda

For products with D in float32, one row per operand type and K: the constant that explains the
errors of all elements, for each kernel, whole and with K split.
"""

from __future__ import annotations

import argparse
import io
import sys

from gemmctl.device import open_device
from gemmctl.device.base import Device
from gemmctl.errors import GemmctlError
from gemmctl.judging import statistic
from gemmctl.judging.verify import verify
from gemmctl.kernels import cubins
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists import reading
from gemmctl.lists.problem import Problem
from gemmctl.operands.data import DataSpec
from gemmctl.planning import plan
from gemmctl.planning.tiling import Choice

DEPTHS = [16, 64, 256, 1024, 4096, 16384, 65536, 131072]
SPLITS = (1, 4)


def problem_of(operand: str, k: int) -> Problem:
    """One product of 256 x 256 elements in float32."""
    text = (
        "{gemmctl: 1, problems: [{name: p, groups: "
        f"[{{m: 256, n: 256, k: {k}, a: {operand}, d: f32}}]}}]}}"
    )
    (made,) = reading.load(["-"], io.StringIO(text))
    return made


def measured(problem: Problem, kernel: Kernel, splits: int, device: Device, seed: int) -> float:
    """The constant that one run explains."""
    choice = Choice(kernel.name, kernel.max_width, splits)
    (made,) = plan.make([problem], [kernel], chosen={problem.name: [choice]})
    spec = DataSpec("normal", seed)
    with device.open(made, spec) as session:
        session.run()
        (found,) = verify(made, session, spec, device=device.facts.kind)
    modelled = statistic.C_CPU if device.facts.kind == "cpu" else statistic.C_CUDA
    return (found.rms or 0.0) * statistic.SLACK * modelled


def main() -> None:
    """Print the table and its largest number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    try:
        device, _ = open_device(arguments.device)
    except GemmctlError as error:
        sys.exit(f"calibrate_rms.py: {error}")
    kernels = [
        kernel
        for kernel in cubins.manifest().kernels
        if kernel.output == "f32" and kernel.multiplies[2:] == ("row", "col")
    ]
    if device.facts.kind == "cpu":
        kernels = kernels[:1]
    columns = [(kernel.name, splits) for kernel in kernels if kernel.operand == "bf16"
               for splits in SPLITS]  # fmt: skip
    print("operand       K  " + "  ".join(f"{name} k/{splits}" for name, splits in columns))
    largest = 0.0
    for operand in sorted({kernel.operand for kernel in kernels}):
        for k in DEPTHS:
            found = [
                measured(problem_of(operand, k), kernel, splits, device, arguments.seed)
                for kernel in kernels
                if kernel.operand == operand
                for splits in SPLITS
            ]
            largest = max(largest, *found)
            print(f"{operand:7} {k:7}  " + "  ".join(f"{value:.4f}" for value in found), flush=True)
    print(f"{device.facts.name}: largest {largest:.4f}")


if __name__ == "__main__":
    main()
