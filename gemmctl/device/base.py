"""What a device does for the rest of gemmctl: hold operands, run a plan, give bytes back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from gemmctl.device.roofline import Roofline
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan


@dataclass(frozen=True)
class Facts:
    """What a device is; printed by ``info`` and stored with every result."""

    kind: Literal["cpu", "cuda"]
    name: str
    memory_bytes: int
    driver: str | None = None
    sm_count: int | None = None
    roofline: Roofline | None = None  # None where percent of bound has no meaning
    timers: Mapping[str, str] = field(default_factory=dict)  # cache state -> how a sample is taken


@dataclass(frozen=True)
class Telemetry:
    """Clock, power and throttling at one moment."""

    sm_hz: float
    power_w: float
    throttle: tuple[str, ...]


@dataclass(frozen=True)
class Setup:
    """What it cost to make a plan ready to launch, in seconds.

    host_s: building and uploading the arrays; device_s: the kernel that builds the tensor maps
    (None where there is none); replay_s: what the host spends on launching a run again (None
    where runs are not CUDA graphs).
    """

    host_s: float
    device_s: float | None
    replay_s: float | None = None


class Session(Protocol):
    """One plan with its operands in place on one device."""

    setup: Setup

    def run(self) -> None:
        """Run the plan's launches once and wait for them.

        Raises DeviceFailed or DeviceHung.
        """

    def time(self, count: int, *, cold: bool) -> list[float]:
        """Seconds of each of ``count`` runs; cold: the L2 is flushed before every one.

        Raises DeviceFailed or DeviceHung.
        """

    def poison(self) -> None:
        """Fill the D region of the arena, fences included, with 0xFF bytes."""

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
