"""Which of the GPU tests a share has."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from support import ROOT, environment


def collected(*options: str) -> list[str]:
    """The cases that pytest would run."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/gpu", "--collect-only", "-q", *options],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_share_has_cases_of_every_test() -> None:
    every, some = (
        Counter(case.split("[")[0] for case in collected(*options))
        for options in ((), ("--share", "8"))
    )
    assert some == {test: -(-cases // 8) for test, cases in every.items()}
