"""From files to plans and the device that they run on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gemmctl.commands.sources import TYPED, Sources
from gemmctl.errors import DeviceFailed, UsageError

DEVICE_VARIABLE = "GEMMCTL_DEVICE"

if TYPE_CHECKING:
    from gemmctl.device.base import Device
    from gemmctl.planning.plan import Launching, Plan
    from gemmctl.showing.output import Output


def planned(
    found: Sources,
    only: list[str] | None,
    launch: Launching = "grouped",
    *,
    kernel: str | None = None,
) -> list[Plan]:
    """Read and plan every problem; every error of every list is raised before anything runs."""
    from gemmctl.kernels import cubins
    from gemmctl.lists import problem, reading
    from gemmctl.planning import plan

    kernels = cubins.manifest().named(kernel)
    texts = [] if found.typed is None else [(TYPED, found.typed)]
    problems = problem.select(reading.load(found.paths, sys.stdin, texts), only or ())
    return plan.make(problems, kernels, launch=launch)


def ready(
    found: Sources,
    only: list[str] | None,
    name: str,
    out: Output,
    launch: Launching = "grouped",
    *,
    kernel: str | None = None,
    tuned: bool = False,
) -> tuple[list[Plan], Device]:
    """The plans and the device they run on.

    The lists are checked before the device is touched, and whether every problem fits into its
    memory before any is run. ``tuned``: what was found fastest on the device goes before what the
    cost model chooses.
    """
    from gemmctl.kernels import cubins
    from gemmctl.measuring.tune_cache import TuneCache
    from gemmctl.planning import plan
    from gemmctl.planning.tiling import H200, Machine

    plans = planned(found, only, launch, kernel=kernel)
    device, why_not_gpu = opened(name)
    if why_not_gpu:
        out.note(f"{why_not_gpu}; running on the CPU")
    manifest, count = cubins.manifest(), device.facts.sm_count
    machine = H200 if count is None else Machine(count)
    chosen = {}
    if tuned and kernel is None and launch in plan.TOGETHER:
        chosen = TuneCache(device.facts, manifest, out.note).find(plans)
    if chosen or machine != H200:
        problems = [made.problem for made in plans]
        plans = plan.make(problems, manifest.named(kernel), machine, launch, chosen)
    for made in plans:
        if made.layout.size > device.facts.memory_bytes:
            raise DeviceFailed(
                f"the operands of {made.problem.name} take {made.layout.size / 1e9:.3g} GB and "
                f"{device.facts.name} has {device.facts.memory_bytes / 1e9:.3g} GB; "
                "run fewer or smaller groups at a time"
            )
    return plans, device


def opened(name: str) -> tuple[Device, str | None]:
    """The device of that name, and why it is no GPU where one was looked for."""
    from gemmctl.device import open_device

    try:
        return open_device(name)
    except UsageError as error:
        if name == os.environ.get(DEVICE_VARIABLE):
            raise UsageError(f"{DEVICE_VARIABLE}: {error}") from None
        raise
