"""What ``info`` reports: the device, the kernels and the versions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gemmctl import __version__
from gemmctl.lists import shipped
from gemmctl.showing.report import Report, head_of, number
from gemmctl.showing.table import Table

if TYPE_CHECKING:
    from gemmctl.device.base import Facts, Telemetry
    from gemmctl.kernels.cubins import Kernel, Manifest

WIDE = 88  # characters of a row with names of lists: as many as of the longest with a kernel


def report(
    facts: Facts, why_not_gpu: str | None, telemetry: Telemetry | None, cubins: Manifest
) -> Report:
    """The device, the kernels and the versions."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:  # another distribution brought the module
            return "unknown"

    names = dict.fromkeys(kernel.name for kernel in cubins.kernels)
    lists = " ".join(f"@{name}" for name in shipped.names())
    packages = {name: installed(name) for name in ("cuda-bindings", "numpy")}
    rows = [
        ["gemmctl", __version__],
        ["python", platform.python_version()],
        *([name, text] for name, text in packages.items()),
        ["device", f"{facts.kind}: {facts.name}"],
        ["memory", f"{number(facts.memory_bytes, 1e9)} GB"],
    ]
    if why_not_gpu:
        rows.append(["no GPU", why_not_gpu])
    if facts.driver:
        rows.append(["driver", facts.driver])
    if facts.sm_count:
        rows.append(["SMs", str(facts.sm_count)])
    if facts.roofline:
        rows.append(["roofline", facts.roofline.name])
    if telemetry:
        throttle = ", ".join(telemetry.throttle) or "not throttled"
        clock, power = number(telemetry.sm_hz, 1e6), number(telemetry.power_w)
        rows.append(["now", f"{clock} MHz, {power} W, {throttle}"])
    rows += [
        *(["lists", names] for names in textwrap.wrap(lists, WIDE, break_on_hyphens=False)),
        ["cubins", str(cubins.folder)],
        ["cubin sha256", cubins.sha256],
        ["compiler", cubins.compiler],
        ["types", " ".join(dict.fromkeys(f"{k.operand}->{k.output}" for k in cubins.kernels))],
        *(["kernel", _told(cubins.named(name))] for name in names),
    ]
    return Report(
        head={
            **head_of("info", cubins),
            "python": platform.python_version(),
            "packages": packages,
            "device": asdict(facts),
            "why_not_gpu": why_not_gpu,
            "telemetry": asdict(telemetry) if telemetry else None,
            "cubin_folder": str(cubins.folder),
            "compiler": cubins.compiler,
            "lists": shipped.names(),
        },
        items="kernels",
        records=[asdict(kernel) for kernel in cubins.kernels],
        table=Table(["what", "value"], rows, left=[True, True], ranks=[0, 0]),
    )


def _told(named: Sequence[Kernel]) -> str:
    """A name, the layouts of A, B and D that its kernels are for, and what they take of an SM."""
    first, most = named[0], max(kernel.registers for kernel in named)
    lie = dict.fromkeys(f"{k.a_layout[0]}{k.b_layout[0]}{k.d_layout[0]}" for k in named)
    return (
        f"{first.name} ({' '.join(lie)}): {first.stages(first.max_width)} to {first.most_stages} "
        f"stages, {first.threads} threads, {most} registers, {first.shared_bytes} B shared"
    )
