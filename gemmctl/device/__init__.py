"""Places where plans run: a Hopper GPU through the cubins, or the CPU through numpy."""

from __future__ import annotations

import re

from gemmctl.device.base import Device
from gemmctl.device.cpu import CpuDevice
from gemmctl.errors import DeviceUnusable, UsageError


def open_device(name: str) -> tuple[Device, str | None]:
    """The device called ``auto``, ``cpu``, ``cuda`` (the first Hopper GPU) or ``cuda:N``.

    ``auto`` is ``cuda``, or the CPU where no Hopper GPU can be used; the second value then says
    why not. Raises UsageError for any other name, DeviceUnusable if a GPU was asked for and cannot
    be used.
    """
    if name == "cpu":
        return CpuDevice(), None
    asked = re.fullmatch("auto|cuda(?::([0-9]{1,4}))?", name)
    if not asked:
        raise UsageError(f"there is no device '{name}'; use auto, cpu, cuda or cuda:N")
    try:
        return _gpu(int(asked[1]) if asked[1] else None), None
    except DeviceUnusable as error:
        if name != "auto":
            raise
        return CpuDevice(), str(error)


def _gpu(ordinal: int | None) -> Device:
    """The GPU of that number, or the first that can be used."""
    from gemmctl.device import cuda

    if ordinal is not None:
        return cuda.CudaDevice(ordinal)
    reasons = []
    for candidate in range(cuda.device_count()):
        try:
            return cuda.CudaDevice(candidate)
        except DeviceUnusable as error:
            reasons.append(str(error))
    raise DeviceUnusable("; ".join(reasons) or "the NVIDIA driver sees no GPU")
