"""Clocks, power, energy and driver version, by NVML."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cuda.bindings import driver

from gemmctl.device.base import Telemetry
from gemmctl.device.cuda.calls import call

# NVML, "clocks event reasons": what holds the clock below its maximum.
_THROTTLE = {
    0x2: "clock setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class Nvml:
    """Clocks, power, energy and driver version, where the machine's NVML gives them."""

    def __init__(self, bus_id: bytes) -> None:
        self._handle: int | None = None
        self._module: Any = None
        with suppress(Exception):  # NVML may be missing: nothing depends on it
            from cuda.bindings import nvml

            nvml.init_v2()
            self._module = nvml
            name = bus_id.split(b"\0")[0].decode()
            self._handle = nvml.device_get_handle_by_pci_bus_id_v2(name)

    def driver_version(self) -> str:
        """The driver's version and that of CUDA; the latter alone without NVML."""
        version = call(driver.cuDriverGetVersion)
        cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
        if self._handle is None:
            return cuda
        return f"{self._module.system_get_driver_version()} ({cuda})"

    def sm_clocks(self) -> tuple[float | None, float | None]:
        """The highest clock of the SMs and the one set for applications, in Hz, where known."""
        nvml, handle = self._module, self._handle

        def highest() -> int:
            return int(nvml.device_get_max_clock_info(handle, nvml.ClockType.CLOCK_SM))

        def set_by_user() -> int:
            setting = nvml.ClockId.APP_CLOCK_TARGET
            return int(nvml.device_get_clock(handle, nvml.ClockType.CLOCK_SM, setting))

        return _hz(highest), _hz(set_by_user)

    def read(self) -> Telemetry | None:
        """Clocks and power now; None where NVML does not give them."""
        if self._handle is None:
            return None
        try:
            nvml = self._module
            active = nvml.device_get_current_clocks_event_reasons(self._handle)
            return Telemetry(
                sm_hz=nvml.device_get_clock_info(self._handle, nvml.ClockType.CLOCK_SM) * 1e6,
                power_w=nvml.device_get_power_usage(self._handle) / 1e3,
                throttle=tuple(reason for bit, reason in _THROTTLE.items() if active & bit),
                memory_hz=_hz(
                    lambda: nvml.device_get_clock_info(self._handle, nvml.ClockType.CLOCK_MEM)
                ),
            )
        except nvml.NvmlError:
            return None

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; None where NVML does not count them."""
        if self._handle is None:
            return None
        try:
            return float(self._module.device_get_total_energy_consumption(self._handle)) / 1e3
        except self._module.NvmlError:  # a board before Volta, or a part of a GPU
            return None


def _hz(read_mhz: Callable[[], int]) -> float | None:
    """A clock in Hz; None where this NVML or this GPU does not give it: nothing depends on it."""
    try:
        return read_mhz() * 1e6
    except Exception:
        return None
