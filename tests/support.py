"""What several test files share: lists, plans from a list's text, and a steady environment."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import gemmctl
from gemmctl.kernels import cubins
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists import problem, reading
from gemmctl.planning import fitting, plan, tiles, tiling

ROOT = Path(__file__).parent.parent
PROBLEMS = ROOT / "problems"

Command = Callable[..., "subprocess.CompletedProcess[str]"]  # what the fixture gemmctl is

TWO_PROBLEMS = """\
gemmctl: 1
problems:
  - name: one
    groups:
      - {m: 64, n: 128, k: 64, count: 3}
  - name: two
    defaults: {a: f16, b: f16, d: f32}
    groups:
      - {m: 17, n: 40, k: 24, alpha: 0.5, beta: 1}
      - {m: 0, n: 40, k: 24}
      - {m: 5, n: 8, k: 0, beta: 2}
"""


def as_module(script: Path) -> ModuleType:
    """A script, which is in no package, as a module of its name."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def make_problem(*groups: str, defaults: str = "") -> problem.Problem:
    """One problem; its groups and defaults are written as in a list but for their braces."""
    listed = ", ".join(f"{{{group}}}" for group in groups)
    text = f"{{gemmctl: 1, problems: [{{name: p, defaults: {{{defaults}}}, groups: [{listed}]}}]}}"
    (made,) = reading.load(["-"], io.StringIO(text))
    return made


def cut_as(
    some: problem.Problem,
    groups: Any,
    kernel: Kernel,
    choice: tiling.Choice,
    machine: tiling.Machine = tiling.H200,
) -> tiles.Launch:
    """A launch of some groups, cut as chosen and no tile narrower than the others of its group."""
    planned = tiling.grid_of(some, groups, kernel, choice, machine)
    return tiles.cut(some, planned, choice)


def make_plans(text: str, launch: plan.Launching = "grouped") -> list[plan.Plan]:
    """The plans of the problems in a list's text."""
    problems = reading.load(["-"], io.StringIO(text))
    return plan.make(problems, cubins.manifest().kernels, launch=launch)


def planned(*groups: dict[str, object], name: str = "p") -> plan.Plan:
    """The plan of one problem, whose groups have these keys."""
    text = json.dumps({"gemmctl": 1, "problems": [{"name": name, "groups": groups}]})
    (made,) = make_plans(text)
    return made


def takes_all(kernel: Kernel) -> bool:
    """Whether a kernel computes more than alpha A B, too, and D with rows of any length."""
    some = make_problem("m: 8, n: 7, k: 8, beta: 1, bias: n, activation: silu")
    return fitting.takes(kernel, some, np.arange(1))


@dataclass
class Clock:
    """Time that passes only when something sleeps or runs."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, made the same on every machine; the device is the CPU."""
    unset = ("NO_COLOR", "TERM", "COLUMNS", "GITHUB_ACTIONS", "GEMMCTL_CUBINS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    found = str(Path(gemmctl.__file__).parent.parent)  # the same package, installed or not
    return {**kept, "PYTHONPATH": found, "GEMMCTL_DEVICE": "cpu", **changes}


@contextlib.contextmanager
def started(*args: str | Path, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """The real command, still running; its output streams are pipes unless others are given."""
    with subprocess.Popen(
        [sys.executable, *streams.get("python", ("-m", "gemmctl")), *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=streams.get("stdout", subprocess.PIPE),
        stderr=streams.get("stderr", subprocess.PIPE),
        text=True,
        cwd=streams.get("cwd"),
        env=environment(**streams.get("env", {})),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def markdown_rows(printed: str) -> dict[str, list[str]]:
    """The rows of a table in Markdown by their first cell, its titles among them."""
    lines = [line.strip("|").split("|") for line in printed.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in lines}


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """A terminal of that width: our end of it, and the one for a command, which gets closed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def seen(terminal: int, until: str = "\0") -> str:
    """What a terminal shows until it shows that, or until the command ends."""
    text = b""
    with contextlib.suppress(OSError):  # how the end of a terminal reads
        while until.encode() not in text and (part := os.read(terminal, 1 << 16)):
            text += part
    return text.decode(errors="replace")


def on_terminal(stream: str, *args: str | Path, columns: int = 200, **env: str) -> str:
    """What the command writes to a stream that is a terminal."""
    with terminal(columns) as (ours, theirs):
        streams = {stream: theirs, "env": {"TERM": "xterm", **env}}
        with started(*args, **streams) as process:
            os.close(theirs)
            shown = seen(ours)
            process.wait()
    return shown
