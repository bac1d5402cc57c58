"""Save a run as it goes: written aside and renamed, so that the file is never half there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from gemmctl.errors import UsageError
from gemmctl.showing.formats import compact, document
from gemmctl.showing.report import Record

# How every file that this or an older gemmctl saved begins; FORMAT and "run" are its first fields.
_A_RUN = re.compile(rb'\{\s*"format":\s*\d+,\s*"command":\s*"run"')
_BEGINNING = 200  # bytes of a file that are enough to see that


class Saving:
    """A run's file: it holds every problem that is finished, and whether that is all of them."""

    def __init__(self, path: str, head: Record, total: int, records: Iterable[Record] = ()) -> None:
        """``total`` is how many problems there will be; ``records`` are those of an earlier run."""
        self.path, self.total = path, total
        self._head = head
        self._lines = list(map(compact, records))

    @property
    def count(self) -> int:
        """How many problems it holds."""
        return len(self._lines)

    def __str__(self) -> str:
        """How far it is."""
        return f"{self.count} of {self.total}: --resume goes on with it"

    def add(self, record: Record) -> None:
        """Write the file anew with one more problem.

        Raises UsageError if the file system refuses; the file then is as it was.
        """
        self._lines.append(compact(record))
        head = whole(self._head, self.count, self.total)
        aside = _aside(self.path)
        try:
            with open(aside, "x", encoding="utf-8") as file:
                file.write(document(head, "problems", self._lines))
            os.replace(aside, os.path.realpath(self.path))
        except BaseException as error:
            if os.path.exists(aside):
                os.unlink(aside)
            if isinstance(error, OSError):
                raise UsageError(f"cannot save to {self.path}: {error.strerror}") from None
            raise


def whole(head: Record, count: int, total: int) -> Record:
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
