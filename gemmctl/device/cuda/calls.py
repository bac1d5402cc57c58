"""Calls of the CUDA driver, and its errors as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cuda.bindings import driver

from gemmctl.errors import DeviceFailed, DeviceHung, DeviceUnusable

MIN_DRIVER = 13000  # CUDA 13.0: what cubins of nvcc 13.0 need


def device_count() -> int:
    """How many CUDA devices the driver sees.

    Raises DeviceUnusable with the reason if there is no driver, an old one, or no GPU.
    """
    try:
        (result,) = driver.cuInit(0)
    except RuntimeError:  # cuda.pathfinder's DynamicLibNotFoundError is one
        raise DeviceUnusable(
            "no NVIDIA driver: libcuda.so.1 was not found; install driver branch 580 or newer, "
            "or use --device cpu"
        ) from None
    version = call(driver.cuDriverGetVersion)
    if version and version < MIN_DRIVER:
        raise DeviceUnusable(
            f"the NVIDIA driver supports CUDA {version // 1000}.{version % 1000 // 10}; the "
            "kernels need CUDA 13.0: driver branch 580 or newer"
        )
    if result == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        raise DeviceUnusable("the NVIDIA driver sees no GPU; use --device cpu, or check nvidia-smi")
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DeviceUnusable(f"the NVIDIA driver does not start: {reason(result)}")
    return int(call(driver.cuDeviceGetCount))


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """A driver function's results without the status: nothing, one, or a tuple.

    Raises DeviceFailed with the driver's reason.
    """
    result, *values = function(*arguments)
    check(result, f"{function.__name__} failed")
    return values[0] if len(values) == 1 else tuple(values)


def check(result: Any, what: str) -> None:
    """Raise DeviceFailed with ``what`` and the driver's reason unless a result is success."""
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DeviceFailed(f"{what}: {reason(result)}")


def reason(result: Any) -> str:
    """What the driver says of a result, and its name."""
    _, text = driver.cuGetErrorString(result)
    return f"{text.decode()} ({driver.CUresult(result).name})" if text else str(result)


def elapsed_s(begun: Any, ended: Any) -> float:
    """Seconds between two events that have passed."""
    return float(call(driver.cuEventElapsedTime, begun, ended)) / 1e3


@contextmanager
def guarded() -> Iterator[ExitStack]:
    """An ExitStack that frees nothing once a kernel hangs: the driver would wait for it."""
    with ExitStack() as stack:
        try:
            yield stack
        except DeviceHung:
            stack.pop_all()
            raise
