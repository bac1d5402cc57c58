"""Save a run as it goes: written aside and renamed, so that the file is never half there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence

from gemmctl.errors import UsageError
from gemmctl.showing.formats import compact, document
from gemmctl.showing.report import Record
from gemmctl.showing.saved import Saved

# How every file that this or an older gemmctl saved begins; FORMAT and "run" are its first fields.
_A_RUN = re.compile(rb'\{\s*"format":\s*\d+,\s*"command":\s*"run"')
_BEGINNING = 200  # bytes of a file that are enough to see that


class Saving:
    """A run's file: it holds every problem that is finished, and whether that is all of them."""

    def __init__(
        self, path: str | None, head: Record, names: Sequence[str], earlier: Saved | None = None
    ) -> None:
        """``names`` are the problems that there will be, beside those of an ``earlier`` run.

        ``path`` None: nothing is kept.
        """
        before = {} if earlier is None else earlier.problems
        self._path, self._head = path, head
        self._total = len(before.keys() | set(names))
        self._lines = list(map(compact, before.values()))

    def add(self, record: Record) -> None:
        """Write the file anew with one more problem.

        Raises UsageError if the file system refuses; the file then is as it was.
        """
        if self._path is None:
            return
        lines = [*self._lines, compact(record)]
        text = document(whole_head(self._head, len(lines), self._total), "problems", lines)
        aside = _aside(self._path)
        try:
            with open(aside, "x", encoding="utf-8") as file:
                file.write(text)
            os.replace(aside, os.path.realpath(self._path))
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            if isinstance(error, OSError):
                raise UsageError(f"cannot save to {self._path}: {error.strerror}") from None
            raise
        self._lines = lines

    def left(self) -> str:
        """What is there if the run ends here, to be added to a note; nothing if nothing is."""
        if self._path is None or not self._lines:
            return ""
        held = f"{len(self._lines)} of {self._total}"
        return f"; {self._path} holds {held}, and --resume goes on with it"


def whole_head(head: Record, count: int, total: int) -> Record:
    """The head of a whole document, which says whether all problems are in it."""
    return {**head, "complete": count == total, "problem_count": total}


def check(path: str) -> None:
    """Raise UsageError if a run could not, or should not, be saved there; leaves nothing behind.

    Only a saved run is ever replaced, and what is empty.
    """
    if not path:
        raise UsageError("cannot save to a file without a name; give --save a path")
    if path == "-":
        raise UsageError("--save writes a file; -f json prints the same result to standard output")
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise UsageError(f"cannot save to {path}: it is not a file")
        if any(os.path.samestat(os.stat(path), os.fstat(number)) for number in range(3)):
            raise UsageError(f"cannot save to {path}: it is one of the standard streams; "
                             "-f json prints the result")  # fmt: skip
        if not os.access(path, os.W_OK):
            raise UsageError(f"cannot save to {path}: no write permission")
    aside = _aside(path)
    try:
        with open(aside, "x"):
            os.unlink(aside)
        if os.path.exists(path):
            with open(path, "rb") as file:
                beginning = file.read(_BEGINNING)
            if beginning and not _A_RUN.match(beginning):
                raise UsageError(f"cannot save to {path}: it is not a saved run, and only those "
                                 "are replaced; choose another name")  # fmt: skip
    except OSError as error:
        raise UsageError(f"cannot save to {path}: {error.strerror}") from None


def _aside(path: str) -> str:
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name}.{os.getpid()}.part")
