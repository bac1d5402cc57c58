"""Every way gemmctl can fail, each with the exit code a script sees."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SNIPPET = 100  # characters of a long source line that an error shows
WORD = 40  # likewise of a long word
# Of paths that standard input is more than one of.
TWICE = "'-' is given twice, but standard input can be read once; give one '-'"
# Errors of lists, three lines each, so that the first ones stay on a screen; names of a sentence.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file: line and column count from 1, ``text`` is the source line."""

    file: str
    line: int
    column: int
    text: str

    def explain(self, message: str) -> str:
        """``file:line:column: message``, then the source line and a caret under the place."""
        at = self.column - 1
        start = max(0, at - SNIPPET // 2) if len(self.text) > SNIPPET else 0
        shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in self.text)
        shown = shown[start : start + SNIPPET]
        under = "\t".join(" " * text_width(part) for part in shown[: at - start].split("\t"))
        return f"{self.file}:{self.line}:{self.column}: {message}\n  {shown}\n  {under}^"


def text_width(text: str) -> int:
    """Columns of a terminal that a text takes; -1 if there is a control character in it."""
    if text.isascii():
        return len(text)
    import wcwidth

    return wcwidth.wcswidth(text)


class GemmctlError(Exception):
    """A failure that gemmctl explains in a sentence instead of a traceback."""

    exit_code = 70

    def told(self) -> str:
        """What stderr gets: every line says whose it is."""
        return "\n".join(f"gemmctl: {line}" for line in str(self).splitlines())


class UsageError(GemmctlError):
    """The command line, or a file or stream, cannot be used."""

    exit_code = 2


class ListError(UsageError):
    """One or more errors in problem lists, each with its place, and files that cannot be read.

    ``errors`` holds (mark, message) pairs, ``unreadable`` a sentence for each file. The text is
    the first SHOWN of all of them, ``file:line:column: message`` with the source line and a caret,
    for editors and terminals to link, and how many more there are.
    """

    def __init__(self, errors: Iterable[tuple[Mark, str]], unreadable: Iterable[str] = ()) -> None:
        self.errors, self.unreadable = tuple(errors), tuple(unreadable)
        files = [f"gemmctl: {sentence}" for sentence in self.unreadable[:SHOWN]]
        places = [mark.explain(said) for mark, said in self.errors[: SHOWN - len(files)]]
        more = len(self.errors) + len(self.unreadable) - len(files) - len(places)
        super().__init__(
            "\n".join([*files, *places, *([f"gemmctl: ... and {more:,} more"] if more else [])])
        )

    def told(self) -> str:
        """The text: every line begins with a place, or says whose it is."""
        return str(self)


class ClosedPipe(GemmctlError):
    """Who reads the results has gone; there is nothing to say, and nobody to say it to."""

    exit_code = 141


class DeviceUnusable(GemmctlError):
    """The device that was asked for cannot be used: driver, chip or cubin."""

    exit_code = 3


class DeviceFailed(GemmctlError):
    """The device failed while it ran: launch error, out of memory, time limit."""

    exit_code = 4


class DeviceHung(DeviceFailed):
    """A kernel did not finish in its time limit.

    The driver would wait for that kernel when the process cleans up, so whoever
    reports this error has to leave the process without clean-up.
    """


def cut(word: str) -> str:
    """A word as a message has room for it."""
    return word if len(word) <= WORD else f"{word[: WORD - 3]}..."


def listed(words: Sequence[str]) -> str:
    """``a, b and c``, for a sentence."""
    *most, last = words
    return f"{', '.join(most)}{' and ' if most else ''}{last}"


def ranged(low: object, high: object) -> str:
    """``8..64``, or ``8`` where both are."""
    return f"{low}" if low == high else f"{low}..{high}"


def closest(word: str, words: Iterable[str]) -> str | None:
    """The one of ``words`` that a word was probably meant to be; None if it is like none."""
    return next(iter(difflib.get_close_matches(word, words, n=1)), None)


def unknown(said: str, word: str, words: Sequence[str], sign: str = "") -> str:
    """``said (did you mean b?); there are a, b``, of a ``word`` that is none of those there are.

    ``sign`` stands in front of a word where a user writes it. Of many words the first SHOWN.
    """
    near = closest(word, words)
    hint = f" (did you mean {sign}{near}?)" if near else ""
    more = f" and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
    return f"{said}{hint}; there are {', '.join(words[:SHOWN])}{more}"
