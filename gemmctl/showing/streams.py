"""The standard streams made dependable: open, and never failing in anything but a sentence."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from gemmctl.errors import ClosedPipe, UsageError


def prepare() -> None:
    """Replace the standard streams of this process.

    Closed ones are opened on the null device, so that no file that is opened later takes their
    numbers. Lists are read as UTF-8 whatever the locale is; bytes that are not become surrogates.
    Characters that an output cannot encode are escaped.
    """
    for number, access in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, access)  # the lowest number that is free, which is this one
    binary = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = io.TextIOWrapper(binary, "utf-8", "surrogateescape")
    sys.stdout, sys.stderr = _Results(1, sys.stdout), _Notes(2, sys.stderr)


def in_utf8() -> None:
    """Have standard output be UTF-8, whatever the locale is: for what gemmctl reads again."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def canvas() -> TextIO:
    """Standard error for who moves the cursor: its control characters are not escaped."""
    return _Stream(2, sys.stderr) if isinstance(sys.stderr, _Notes) else sys.stderr


def escaped(text: str) -> str:
    """Text that does nothing to a terminal: what cannot be seen is written out, as ``\\x1b``.

    Line ends and tabs are left.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


class _Stream(io.TextIOWrapper):
    """Standard error: what cannot be written is lost, for there is nobody to tell."""

    def __init__(self, number: int, before: TextIO | None) -> None:
        """In the encoding of the stream that it replaces; None: that was closed."""
        binary = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        encoding = before.encoding if before else "utf-8"
        super().__init__(binary, encoding, "backslashreplace", line_buffering=True)

    def write(self, text: str) -> int:
        """Write, or give up."""
        try:
            return super().write(text)
        except OSError as error:
            self.give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or give up."""
        try:
            super().flush()
        except OSError as error:
            self.give_up(error)

    def give_up(self, error: OSError) -> None:
        """Send what was not written yet to the null device, and the rest, too."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


class _Notes(_Stream):
    """Standard error as messages are written to it, whatever is quoted in them."""

    def write(self, text: str) -> int:
        """Write what can be seen of it."""
        return super().write(escaped(text))


class _Results(_Stream):
    """Standard output: what cannot be written ends the command."""

    def give_up(self, error: OSError) -> None:
        """Raise ClosedPipe if the reader has gone, else UsageError."""
        super().give_up(error)
        if isinstance(error, BrokenPipeError):
            raise ClosedPipe from None
        raise UsageError(f"cannot write to standard output: {error.strerror}") from None
