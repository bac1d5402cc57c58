"""From files to plans and the device that they run on."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from gemmctl.commands.sources import Sources
from gemmctl.errors import DeviceFailed, UsageError

DEVICE_VARIABLE = "GEMMCTL_DEVICE"

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemmctl.device.base import Device
    from gemmctl.kernels.cubins import Kernel
    from gemmctl.lists.problem import Problem
    from gemmctl.planning.plan import Launching, Plan
    from gemmctl.showing.output import Output


def checked(given: Sources, only: list[str] | None, kernels: Sequence[Kernel]) -> list[Problem]:
    """The problems to plan; everything that is wrong with any list is raised at once.

    What no kernel can run is said of the problems asked for, as far as they can be read.
    """
    from gemmctl.lists import problem, reading
    from gemmctl.lists.shapes import TYPED
    from gemmctl.planning.refusals import refusals

    texts = [] if given.typed is None else [(TYPED, given.typed)]
    # What is read stays to the end. Python's collector would look at all of it again and again,
    # which took longer than everything else for 100,000 groups.
    gc.disable()
    try:
        found = reading.read(given.paths, sys.stdin, texts)
    finally:
        gc.freeze()
        gc.enable()
    wanted = problem.matching(found.problems, only or ())
    found.check(refusal for each in wanted for refusal in refusals(each, kernels))
    return problem.select(found.problems, only or ())


def ready(
    given: Sources,
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
    from gemmctl.planning.tiling import machine_of

    manifest = cubins.manifest()
    kernels = manifest.named(kernel)
    problems = checked(given, only, kernels)
    device, why_not_gpu = opened(name)
    if why_not_gpu:
        out.note(f"{why_not_gpu}; running on the CPU")
    chosen = {}
    if tuned and kernel is None and launch in plan.TOGETHER:
        chosen = TuneCache(device.facts, manifest, out.note).find(problems)
    plans = plan.make(problems, kernels, machine_of(device.facts.sm_count), launch, chosen)
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
