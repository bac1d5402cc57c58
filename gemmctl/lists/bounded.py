"""Reading files and streams that may not end."""

from __future__ import annotations

from typing import IO, AnyStr

from gemmctl.errors import UsageError

MOST = 2**29  # bytes or characters: a list of 2**20 groups with every field has 300 MB
PIECE = 2**20  # that is read at one time


def read(file: IO[AnyStr], called: str) -> AnyStr:
    """All that a file or stream holds; raises UsageError if that is more than any list or run."""
    pieces = [file.read(PIECE)]
    length = len(pieces[0])
    while pieces[-1]:
        pieces.append(file.read(PIECE))
        length += len(pieces[-1])
        if length > MOST:
            raise UsageError(f"{called} holds more than {MOST >> 20} MiB, which no list or run "
                             "does; check the path, or split it")  # fmt: skip
    return pieces[-1].join(pieces)
