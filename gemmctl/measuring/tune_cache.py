"""What tune found fastest, kept in the user's cache folder: a file for each problem and GPU.

A cache must never keep anybody from working: whatever is wrong with it is told in a note.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmctl.device.base import Facts
from gemmctl.kernels.constants import WIDTH_STEP
from gemmctl.kernels.cubins import Manifest
from gemmctl.lists.problem import Group, Problem
from gemmctl.planning.exchange import exchanged
from gemmctl.planning.plan import Plan, sorts
from gemmctl.planning.tiling import Choice, few_parts, grid_of, machine_of

FORMAT = 2  # of the files; another number whenever a reader of the old one would err
MAX_SPLITS = (1 << 16) - 1  # what a tile has room for, far more than are ever worth considering


def folder() -> Path:
    """``$XDG_CACHE_HOME/gemmctl/tune``; ``~/.cache`` if that is unset or relative, as XDG says.

    Raises RuntimeError if there is no home either.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "gemmctl" / "tune"


def fingerprint(problem: Problem) -> str:
    """A hash of all that may change which choice is best; neither names nor values do.

    Of the scalars only whether alpha is 1 and beta is 0, of C nothing where it is not read, of
    what is fused only what there is; where operands begin only if one does so off a boundary, for
    what was measured before that could be said stays known.
    """
    lines = [
        [
            *(g.m, g.n, g.depth, g.a, g.b, g.d, g.a_layout, g.b_layout, g.d_layout),
            *(g.lda, g.ldb, g.ldd, g.alpha == 1, *((g.c, g.ldc) if g.beta else ())),
            *(() if g.plain else (g.bias, g.bias_type, g.activation, g.gate)),
            *(begins if any(begins := _begins(g)) else ()),
        ]
        for g in problem.groups
    ]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


def _begins(group: Group) -> tuple[int, ...]:
    c_offset = group.c_offset if group.beta else 0
    return group.a_offset, group.b_offset, c_offset, group.d_offset


class TuneCache:
    """The choices kept for one device and one set of cubins."""

    def __init__(self, facts: Facts, cubins: Manifest, note: Callable[[str], None]) -> None:
        """``note`` is told a line for each file or folder that cannot be used, once."""
        self._device = {"gpu": facts.name, "sm_count": facts.sm_count}
        self._machine = machine_of(facts.sm_count)
        self._cubins = cubins
        self._note, self._noted = note, set[str]()

    def find(self, problems: Iterable[Problem]) -> dict[str, tuple[Choice, ...]]:
        """By problem name, how to cut the launches of those problems that were tuned."""
        found = {problem.name: self._find(problem) for problem in problems}
        return {name: choices for name, choices in found.items() if choices is not None}

    def keep(self, best: Plan, median_s: float) -> bool:
        """Keep the choices of a plan; whether that worked."""
        key = self._key(best.problem)
        choices = [asdict(choice) for choice in best.choices]
        text = json.dumps({**key, "choices": choices, "median_s": median_s}, indent=1) + "\n"
        try:
            path = _path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            # A name that nobody else writes to, then renamed: others see the old file or the new.
            handle, aside = tempfile.mkstemp(".part", path.stem, path.parent, text=True)
            try:
                with open(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(aside, path)
            except BaseException:
                os.unlink(aside)
                raise
        except (OSError, RuntimeError) as error:
            self._tell(f"cannot keep what was found: {_reason(error)}")
            return False
        return True

    def _find(self, problem: Problem) -> tuple[Choice, ...] | None:
        key = self._key(problem)
        try:
            path = _path(key)
            text = "" if path.is_fifo() else path.read_text(encoding="utf-8")  # it may never end
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RuntimeError) as error:
            self._tell(f"cannot read what tune found: {_reason(error)}")
            return None
        except UnicodeDecodeError:
            text = ""
        try:
            return self._choices(json.loads(text), key, problem)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._tell(f"ignored {path}: it is not what tune wrote for this problem and device")
            return None

    def _choices(self, found: Any, key: dict[str, Any], problem: Problem) -> tuple[Choice, ...]:
        """The choices in a file.

        Raises one of many errors if it is for anything but this key, or no choice for the launches
        of this problem, or one that would split sums into more parts than the GPU has room for.
        """
        if any(found[name] != value for name, value in key.items()):
            raise ValueError
        choices = tuple(Choice(**entry) for entry in found["choices"])
        work = exchanged(problem)
        launches = sorts(work, self._cubins.kernels, len(choices))
        leaving = [place for place, choice in enumerate(choices) if choice.sms]
        if leaving and (leaving != [0] or len(sorts(work, self._cubins.kernels)) == len(launches)):
            raise ValueError  # where few rows are apart, the first launch leaves SMs, and none else
        for choice, (groups, fitting) in zip(choices, launches, strict=True):
            kernel = {kernel.name: kernel for kernel in fitting}[choice.kernel]
            if {type(choice.width), type(choice.splits), type(choice.sms)} != {int}:
                raise TypeError
            if choice.sms not in (0, *range(kernel.ctas, self._machine.sm_count)):
                raise ValueError
            if choice.width not in range(WIDTH_STEP, kernel.max_width + 1, WIDTH_STEP):
                raise ValueError
            if not 1 <= choice.splits <= MAX_SPLITS:
                raise ValueError
            cut = grid_of(work, groups, kernel, choice, self._machine)
            if not few_parts(cut):
                raise ValueError
        return choices

    def _key(self, problem: Problem) -> dict[str, Any]:
        """The fingerprint does not say of a C whether it is in place, where sums may be added."""
        added = problem.columns.adds.nonzero()[0].tolist()
        return {
            "format": FORMAT,
            **self._device,
            "cubin_sha256": self._cubins.sha256,
            "problem": fingerprint(problem),
            **({"added": added} if added else {}),
        }

    def _tell(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


def _path(key: dict[str, Any]) -> Path:
    return folder() / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"


def _reason(error: OSError | RuntimeError) -> str:
    """An operating system's reason with the folder it is about."""
    if isinstance(error, OSError):
        return f"{folder()}: {error.strerror}"
    return str(error)
