"""A Hopper GPU as a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gemmctl.device.cuda.calls import guarded
from gemmctl.device.cuda.gpu import Gpu
from gemmctl.device.cuda.session import CudaSession
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan


class CudaDevice(Gpu):
    """One GPU of compute capability 9.0, on which plans run."""

    @contextmanager
    def open(self, plan: Plan, data: DataSpec) -> Iterator[CudaSession]:
        """Allocate the arena, generate the operands, poison D, build the tables and tensor maps.

        Raises DeviceFailed with the bytes needed and free when the arena does not fit.
        """
        with guarded() as cleanup:
            yield CudaSession(self, plan, data, cleanup)
