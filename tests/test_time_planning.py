from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from support import PROBLEMS, ROOT, as_module, environment

SCRIPT = ROOT / "tools" / "time_planning.py"


def cells(*lists: str) -> list[list[list[str]]]:
    """The rows of the tables that are printed for some lists."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *lists],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [
        [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
        for table in done.stdout.strip().split("\n\n")
    ]


@pytest.fixture(scope="module")
def time_planning() -> ModuleType:
    return as_module(SCRIPT)


def test_every_list_has_its_groups_and_tiles_and_times() -> None:
    tiny = str(PROBLEMS / "tiny.yaml")
    rows, asked = cells(tiny, "12x64")
    assert [row[:2] for row in rows] == [[tiny, "6"], ["12x64", "12"]]
    for row, least in zip(rows, (6, 12), strict=True):  # of tiles: one for each group, or more
        assert int(row[2]) >= least
        assert all(float(seconds) > 0 for seconds in row[3:])
    assert [command for command, _ in asked] == ["gemmctl --version", "gemmctl --help"]
    assert all(float(seconds) > 0 for _, seconds in asked)


def test_random_lists_are_the_same_every_time(time_planning: ModuleType) -> None:
    first, second = (time_planning.random_list(50, 600) for _ in range(2))
    assert first == second
    assert first != time_planning.random_list(51, 600)
