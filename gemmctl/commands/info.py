"""``gemmctl info``: what is here."""

from __future__ import annotations

from gemmctl.commands.options import Color, DeviceName, Format, Quiet
from gemmctl.commands.ready import opened


def info(
    format: Format = None,
    device: DeviceName = "auto",
    quiet: Quiet = False,
    color: Color = "auto",
) -> None:
    """Print the GPU, driver, kernels and versions; check the cubins."""
    from gemmctl.kernels import cubins
    from gemmctl.showing import info_report
    from gemmctl.showing.output import Output

    manifest = cubins.manifest()
    for name in sorted(set(manifest.archives.values())):
        manifest.unpack(name)  # raises if it is missing or damaged
    on, why_not_gpu = opened(device)
    found = info_report.report(on.facts, why_not_gpu, on.telemetry(), manifest)
    out = Output(format, quiet, color)
    out.stream(found.head, {found.items: found.records})
    out.show(found)
