"""A Hopper GPU, or the reason why the tests in this folder are skipped; and a share of them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path

import pytest

from gemmctl.device.cuda import CudaDevice, device_count
from gemmctl.errors import DeviceUnusable
from gemmctl.kernels import cubins


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    try:
        return CudaDevice(time_limit_s=20)
    except DeviceUnusable as error:
        pytest.skip(f"needs a Hopper GPU: {error}")


def there_is_a_gpu() -> bool:
    try:
        return device_count() > 0
    except DeviceUnusable:
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one in ``--share`` of each test's cases: other ones with every build of the kernels.

    Without a GPU a single one of each, which is skipped.
    """
    share: int = config.getoption("share")
    if share < 1:
        raise pytest.UsageError("--share takes a number from 1")
    if not (config.option.collectonly or there_is_a_gpu()):
        share = max(share, len(items))
    if share == 1:
        return
    kernels = cubins.manifest().sha256

    def place(item: pytest.Item) -> bytes:
        return hashlib.sha256(f"{kernels} {item.nodeid}".encode()).digest()

    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            cases[item.nodeid.split("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for alike in cases.values():
        left_out.update(sorted(alike, key=place)[-(-len(alike) // share) :])
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
