"""What a device does for the rest of gemmctl: hold operands, run a plan, give bytes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from gemmctl.device.roofline import Roofline
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan

WARM_RUNS = 20  # back to back in one warm, or sustained, sample on a GPU
# Products that BLAS sums at one time on the CPU: few, for the error to stay small (`_growth` in
# judging/product.py has the bound).
K_BLOCK = 256


@dataclass(frozen=True)
class Facts:
    """What a device is; printed by ``info`` and stored with every result.

    uuid names one GPU among others of its kind, as nvidia-smi -L does. sm_max_hz is the highest
    clock that its SMs can be set to, sm_set_hz the one that applications are given (nvidia-smi
    -ac). A lock (nvidia-smi -lgc) is reported by no driver: it shows as a telemetry reading below
    sm_max_hz under load, with no reason for it or ``clock setting``. All are None where unknown.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    memory_bytes: int
    driver: str | None = None
    sm_count: int | None = None
    roofline: Roofline | None = None  # None where percent of bound has no meaning
    timers: Mapping[str, str] = field(default_factory=dict)  # cache state -> how a sample is taken
    uuid: str | None = None
    sm_max_hz: float | None = None
    sm_set_hz: float | None = None


@dataclass(frozen=True)
class Telemetry:
    """Clocks, power and throttling at one moment."""

    sm_hz: float
    power_w: float
    throttle: tuple[str, ...]
    memory_hz: float | None = None


@dataclass(frozen=True)
class Setup:
    """What it cost to make a plan ready to launch, in seconds.

    host_s: building and uploading the arrays; device_s: the kernel that builds the tensor maps
    (None where there is none); replay_s: what the host spends on launching a run again (None
    of grouped launches).
    """

    host_s: float
    device_s: float | None
    replay_s: float | None = None


@dataclass(frozen=True)
class Sample:
    """What was measured at one time.

    host_bound: a GPU had passed the beginning before the host had queued all of it, so it may have
    waited for the host in between; the time then says little about the GPU. Where the host itself
    is the device, it is no reason to doubt.
    """

    seconds: float  # of one run
    host_bound: bool = False


class Session(Protocol):
    """One plan with its operands in place on one device."""

    setup: Setup

    def run(self) -> None:
        """Run the plan's launches once and wait for them.

        Raises DeviceFailed or DeviceHung.
        """

    def time(self, count: int, *, cold: bool) -> list[Sample]:
        """So many samples; cold: the L2 is flushed before every one.

        Where C is in place, the first run has C as it was, and each other the D of that before it.
        Raises DeviceFailed or DeviceHung.
        """

    def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
        """Samples of runs back to back until so many seconds have passed; one sample at least.

        ``watch`` is called again and again meanwhile. Where C is in place, every sample begins with
        C as it was, and making that anew is in none of them. Raises DeviceFailed or DeviceHung.
        """

    def poison(self) -> None:
        """Fill the D region of the arena, fences included, with POISON; C in place anew."""

    def digests(self) -> npt.NDArray[np.uint64]:
        """A hash of each group's D as it is now, which shows any change; 0 for an empty one."""

    def read(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """The arena's bytes [begin, end); may be a view. Valid until the session closes."""


class Device(Protocol):
    """A place where plans run."""

    facts: Facts

    def open(self, plan: Plan, data: DataSpec) -> AbstractContextManager[Session]:
        """Allocate the arena, generate the operands, poison D, build the tables.

        Raises DeviceFailed with the bytes needed and free when the arena does not fit.
        """

    def telemetry(self) -> Telemetry | None:
        """Clocks and power now; None where they cannot be read."""

    def energy_j(self) -> float | None:
        """Joules used since some moment in the past; None where nothing counts them."""


def repeat(queue: Callable[[], None], runs: int) -> None:
    """Queue something so many times."""
    for _ in range(runs):
        queue()
