"""A Hopper GPU, or the reason why the tests in this folder are skipped."""

from __future__ import annotations

import pytest

from gemmctl.device.cuda import CudaDevice
from gemmctl.errors import DeviceUnusable


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    try:
        return CudaDevice(time_limit_s=20)
    except DeviceUnusable as error:
        pytest.skip(f"needs a Hopper GPU: {error}")
