"""Save a run as it goes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from gemmctl.errors import UsageError
from gemmctl.showing import files, saved
from gemmctl.showing.formats import compact, document
from gemmctl.showing.report import Record
from gemmctl.showing.saved import Saved

# How every file that this or an older gemmctl saved begins; FORMAT and "run" are its first fields.
_A_RUN = re.compile(rb'\{\s*"format":\s*\d+,\s*"command":\s*"run"')
# How it may begin once another program wrote it again: with any of its keys. What begins otherwise
# need not be read whole.
_A_KEY = re.compile(
    rb'\{\s*"(format|command|gemmctl|cubin_sha256|date|device|settings|complete|problem_count|'
    rb'unmeasured|problems)"'
)


class Saving:
    """A run's file: it holds every problem that is finished, and whether that is all of them."""

    def __init__(
        self, path: str | None, head: Record, names: Sequence[str], earlier: Saved | None = None
    ) -> None:
        """``names`` are the problems that there will be, beside those of an ``earlier`` run.

        What that lacked is lacking still. ``path`` None: nothing is kept. An earlier run of fewer
        problems is told at once that there will be more; raises UsageError as ``add`` does.
        """
        before, lacking = ({}, []) if earlier is None else (earlier.problems, earlier.unmeasured)
        self._path, self._head = path, head
        self._stamp = None if path is None else files.stamp(path)
        self._names = list(dict.fromkeys([*before, *lacking, *names]))
        self._lines = {name: compact(record) for name, record in before.items()}
        if path is not None and earlier is not None and earlier.total != len(self._names):
            self._write(path, self._lines)

    def add(self, record: Record) -> None:
        """Write the file anew with one more problem.

        Raises UsageError if the file system refuses, or if another has written the file since this
        did; it then is as it was.
        """
        if self._path is not None:
            self._write(self._path, {**self._lines, record["name"]: compact(record)})

    def _write(self, path: str, lines: dict[str, str]) -> None:
        if (there := files.stamp(path)) is not None and there != self._stamp:
            raise UsageError(
                f"cannot save to {path}: something else has written to it meanwhile; give each run "
                "a file of its own"
            )
        head = whole_head(self._head, lines, self._names)
        files.replace(path, document(head, "problems", list(lines.values())))
        self._lines, self._stamp = lines, files.stamp(path)

    def left(self) -> str:
        """What is there if the run ends here, to be added to a note; nothing if nothing is."""
        if self._path is None or not self._lines:
            return ""
        held = f"{len(self._lines)} of {len(self._names)}"
        return f"; {self._path} holds {held}, and --resume goes on with it"


def whole_head(head: Record, measured: Collection[str], names: Sequence[str]) -> Record:
    """The head of a whole document, which says whether all problems are in it, or which are not."""
    left = [name for name in names if name not in measured]
    return {**head, "complete": not left, "problem_count": len(names), "unmeasured": left}


def check(path: str) -> None:
    """Raise UsageError if a run could not, or should not, be saved there; leaves nothing behind.

    Only a saved run is ever replaced, and what is empty.
    """

    def ours(beginning: bytes) -> object:
        return _A_RUN.match(beginning) or (_A_KEY.match(beginning) and _is_run(path))

    files.check(path, ours, "a saved run", "-f json prints the same result")


def _is_run(path: str) -> bool:
    """Whether a file is a saved run, all of it read."""
    try:
        saved.load(path)
    except UsageError:
        return False
    return True
