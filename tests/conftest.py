"""Fixtures: the real command, and a list for it to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Workers share the cores: no BLAS threads besides. numpy is imported later.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from gemmctl.lists import yamlfile
from support import TWO_PROBLEMS, Command, environment

# Machines are busy: how long an example takes is nobody's fault.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A shell that starts tests in the background has them, and what they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--share``; tests/gpu/conftest.py goes by it."""
    parser.addoption(
        "--share", type=int, default=1, metavar="N", help="one in N of the cases of each GPU test"
    )


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what was tuned on this machine or in another test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the L2 held none of a D that it adds to, as of one that is much larger than it is."""
    monkeypatch.setattr("gemmctl.planning.epilogue.ADDED_HELD", 0.0)


@pytest.fixture(scope="module", params=["libyaml", "PyYAML"])
def each_parser(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module's tests run with libyaml and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "PyYAML":
            patch.setattr(yamlfile, "FastParser", None)
        yield


@pytest.fixture
def gemmctl(tmp_path: Path) -> Command:
    """Run the real command in an empty folder on the CPU device."""

    def run(
        *args: str | Path, stdin: str = "", python: Sequence[str] = ("-m", "gemmctl"), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *python, *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(**env),
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def two_problems(tmp_path: Path) -> Path:
    """A list of two small problems, with an empty group and one without K."""
    path = tmp_path / "two.yaml"
    path.write_text(TWO_PROBLEMS)
    return path
