from __future__ import annotations

import subprocess
import sys

from support import PROBLEMS, ROOT, environment

SCRIPT = ROOT / "tools" / "time_planning.py"


def cells(*lists: str) -> list[list[str]]:
    """The rows that are printed for some lists."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *lists],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    _, _, *rows = done.stdout.splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_list_has_its_groups_and_tiles_and_times() -> None:
    tiny = str(PROBLEMS / "tiny.yaml")
    rows = cells(tiny, "12x64")
    assert [row[:2] for row in rows] == [[tiny, "6"], ["12x64", "12"]]
    for row, least in zip(rows, (6, 12), strict=True):  # of tiles: one for each group, or more
        assert int(row[2]) >= least
        assert all(float(seconds) > 0 for seconds in row[3:])


def test_random_lists_are_the_same_every_time() -> None:
    first, second = (cells("50x600")[0][:3] for _ in range(2))
    assert first == second
