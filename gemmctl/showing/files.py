"""Files of --save: written aside and renamed, so that they are never half there."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from typing import TextIO

from gemmctl.errors import UsageError

_BEGINNING = 200  # bytes of a file that are enough to see what it is
_KEPT = 60  # characters of its name, 240 bytes at most, in that of the file beside it: of 255


def check(path: str, ours: Callable[[bytes], object], what: str, instead: str) -> None:
    """Raise UsageError if a file could not, or should not, be written; leaves nothing behind.

    Only files whose beginning says that they are ``ours`` are ever replaced, and empty ones;
    ``what`` they are and what to do ``instead`` of naming a standard stream is for the sentences.
    """
    if not path:
        raise UsageError("cannot save to a file without a name; give --save a path")
    if path == "-":
        raise UsageError(f"--save writes a file; {instead} to standard output")
    try:
        aside, there = _aside(path), _status(path)
        if there is not None:
            if not stat.S_ISREG(there.st_mode):
                raise UsageError(f"cannot save to {path}: it is not a file")
            if any(os.path.samestat(there, os.fstat(number)) for number in range(3)):
                raise UsageError(
                    f"cannot save to {path}: it is one of the standard streams; {instead}"
                )
            if not os.access(path, os.W_OK):
                raise UsageError(f"cannot save to {path}: no write permission")
        elif os.path.basename(path) in ("", ".", ".."):
            raise UsageError(
                f"cannot save to {path}: it is a folder that does not exist; give --save the path "
                "of a file"
            )
        with _new(aside):
            os.unlink(aside)
        if there is not None:
            with open(path, "rb") as file:
                beginning = file.read(_BEGINNING)
            if beginning and not ours(beginning):
                raise UsageError(f"cannot save to {path}: it is not {what}, and only those "
                                 "are replaced; choose another name")  # fmt: skip
    except OSError as error:
        raise UsageError(f"cannot save to {path}: {error.strerror}") from None


def _status(path: str) -> os.stat_result | None:
    """What is there; None: nothing yet.

    Raises OSError if nothing can be there: a name is too long, links go in a circle.
    """
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def stamp(path: str) -> tuple[int, int, int] | None:
    """What changes whenever a file is written anew; None if there is none, or it cannot be seen."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_mtime_ns


def replace(path: str, text: str) -> None:
    """Write a file anew, with the mode that it has.

    Raises UsageError if the file system refuses: it then is as it was.
    """
    try:
        aside = _aside(path)
        try:
            with _new(aside) as file:
                if (there := _status(path)) is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(there.st_mode))
                file.write(text)
            os.replace(aside, os.path.realpath(path))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            raise
    except OSError as error:
        raise UsageError(f"cannot save to {path}: {error.strerror}") from None


def _new(aside: str) -> TextIO:
    """A new file there, and not where a link leads to.

    What a process of the same number left there, which was killed while it wrote, goes. Raises
    OSError if the file system refuses.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside)
    return open(aside, "x", encoding="utf-8")


def _aside(path: str) -> str:
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name[:_KEPT]}.{os.getpid()}.part")
