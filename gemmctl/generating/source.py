"""A file to import: its bytes, its lines, and what is wrong with a place in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from gemmctl.errors import ListError, Mark, UsageError
from gemmctl.lists import bounded
from gemmctl.lists.fields import FIELDS
from gemmctl.lists.yamlfile import MAX_DIGITS, Entry, Node, too_long

TOKENS = "tokens per expert"
NPY, NPZ = b"\x93NUMPY", b"PK\x03\x04"  # how what numpy saved begins
EXPECTED = "M N K, MxNxK, INDEX MxNxK, or [MxNxK][MxNxK]..."


@dataclass(frozen=True)
class Source:
    """A file's bytes, and its path as it was given; ``-`` is standard input."""

    path: str
    data: bytes

    def __str__(self) -> str:
        return self.path

    @property
    def called(self) -> str:
        """What errors call it."""
        return "<stdin>" if self.path == "-" else self.path

    @property
    def text(self) -> str:
        """Its text; what is not UTF-8 becomes a character that no list has."""
        return self.data.decode(errors="replace").removeprefix("\ufeff")

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines that are not blank or comments, counted from 1."""
        for line, text in enumerate(re.split("\r\n|[\r\n]", self.text), 1):
            if text.strip() and not text.lstrip().startswith("#"):
                yield line, text

    @property
    def beginning(self) -> str:
        """The first line that is not blank or a comment, without blanks before it."""
        return next((text.lstrip() for _, text in self.lines()), "")

    def mark(self, line: int, text: str, at: int) -> Mark:
        """The place of a character, counted from 0, of a line."""
        return Mark(self.called, line, at + 1, text)


def read(path: str, stdin: BinaryIO, expected: str) -> Source:
    """The file at a path; raises UsageError if it cannot be read or is empty.

    ``expected`` is what it should have.
    """
    try:
        if path == "-":
            data = bounded.read(stdin, "standard input")
        else:
            with open(path, "rb") as file:
                data = bounded.read(file, path)
    except OSError as error:
        raise UsageError(
            f"cannot read {path or repr(path)}: {error.strerror}; check the path"
        ) from None
    source = Source(path, data)
    if not data.strip():
        raise UsageError(f"{source.called} is empty; it should have {expected}")
    if data.startswith(NPZ):
        raise UsageError(f"{source.called} is an archive, as numpy.savez writes; numpy.save one "
                         "array as .npy")  # fmt: skip
    if not data.startswith(NPY):
        try:
            data.decode()
        except UnicodeDecodeError as error:
            told = f"{source.called}: byte 0x{data[error.start]:02x} at {error.start} is not UTF-8"
            raise UsageError(f"{told}; save the file as UTF-8 text") from None
    return source


def size(digits: str, mark: Mark) -> int:
    """The number with these digits, if it may be a size; raises ListError if not."""
    if len(digits) > MAX_DIGITS:
        refuse(mark, too_long(digits))
    value = int(digits)
    if FIELDS["m"].read(value) is None:
        refuse(mark, f"a size must be {FIELDS['m']}, not {value}")
    return value


def keyed(node: Node, either: Collection[str]) -> dict[str, Entry]:
    """The entries of a mapping; a key that is one of ``either`` may be written in capitals.

    Raises ListError for one that is there in small letters and in capitals.
    """
    assert isinstance(node.value, dict)
    found: dict[str, Entry] = {}
    for key, entry in node.value.items():
        name = key.lower() if key.lower() in either else key
        if name in found:
            first = found[name].key
            told = f"duplicate key '{key}', first on line {first.line + 1} as '{first.value}'"
            refuse(entry.key.mark, f"{told}; remove one of the two")
        found[name] = entry
    return found


def refuse(mark: Mark, message: str) -> NoReturn:
    """Raises ListError with one error."""
    raise ListError([(mark, message)])
