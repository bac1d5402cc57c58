"""YAML text to plain values that remember their line and column.

Plain scalars follow YAML 1.2's core schema (``no`` is text, ``1e3`` a number, ``1:30`` text), and
JSON is YAML, tabs between its tokens included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from gemmctl.errors import Mark, cut

FastParser: Any = getattr(yaml, "CSafeLoader", None)  # libyaml, if this PyYAML was built with it

MAX_DEPTH = 32  # mappings and lists inside each other; far from Python's recursion limit
MAX_DIGITS = 400  # a float64 has at most 309 before its point
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what PyYAML counts as one
TOLD_LINES = 1000  # from one word on progress to the next

# What libyaml may read otherwise than PyYAML's own parser or place elsewhere, as comparing the two
# on millions of random texts showed: any but the plainest white space, byte order marks, and, but
# in lines of comment, directives, block scalars and '?'. Only PyYAML's own refuses what is no text.
_DISPUTED_CHARACTER = re.compile(
    "[^\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_DISPUTED_LINE = re.compile("^(?! *#).*[%|>?]", re.MULTILINE)

# A document that is one list or mapping in brackets, as all JSON is: tabs are blanks in it, outside
# quotes. PyYAML refuses them, so a tab becomes a blank, and everything stays where it is.
_IN_BRACKETS = re.compile(r"(?:\s+|#.*)*+[\[{]")
_TAB = re.compile(r"""("(?:[^"\\]|\\[\s\S])*+"|'[^']*+'|#[^\n]*)|\t""")

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # how JSON may escape what is beyond U+FFFF

Errors: TypeAlias = list[tuple[Mark, str]]
Progress: TypeAlias = Callable[[float], None]  # is told the share that is done


class Unreadable(Enum):
    """Stands for a value that could not be read; its error is already among the errors."""

    UNREADABLE = "unreadable"


UNREADABLE: Final = Unreadable.UNREADABLE
Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name and lines."""

    file: str
    lines: list[str]

    def mark(self, line: int, column: int) -> Mark:
        """The place at a line and column that count from 0."""
        return Mark(self.file, line + 1, column + 1, self.lines[line])


class Node:
    """A value and where it begins: ``line`` and ``column`` count from 0."""

    __slots__ = ("column", "line", "source", "value")

    def __init__(self, value: Value, source: Source, line: int, column: int) -> None:
        self.value = value
        self.source, self.line, self.column = source, line, column

    @property
    def mark(self) -> Mark:
        """Where it begins, as errors tell it; few of many nodes are ever asked."""
        return self.source.mark(self.line, self.column)


class Entry(NamedTuple):
    """A key of a mapping and its value."""

    key: Node
    node: Node


Value: TypeAlias = Scalar | list[Node] | dict[str, Entry] | Unreadable


def load(text: str, file: str, errors: Errors, progress: Progress = lambda done: None) -> Node:
    """Read the one document in ``text``; ``file`` is its name in messages.

    What is wrong is appended to ``errors`` and leaves UNREADABLE in its place, so that the
    caller can go on to check the rest. Keys are kept as they are written, whatever their type.
    """
    text = text.removeprefix("\ufeff")
    source = Source(file, LINE_BREAK.split(text))
    if "\t" in text and _IN_BRACKETS.match(text):
        text = _TAB.sub(lambda found: found[1] or " ", text)
    if FastParser and not _DISPUTED_CHARACTER.search(text) and not _DISPUTED_LINE.search(text):
        wrong: Errors = []
        with suppress(yaml.YAMLError, ValueError, _Disputed):
            node = _Document(FastParser(text), source, wrong, progress, fast=True).read()
            if not wrong:
                return node
        # What is wrong, and where, PyYAML's own parser says.
    try:
        parser = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        before = LINE_BREAK.split(text[: error.position])
        place = len(before) - 1, len(before[-1])
        said = _bad_character(ord(text[error.position]))
    else:
        try:
            return _Document(parser, source, errors, progress).read()
        except yaml.MarkedYAMLError as error:
            at = error.problem_mark or error.context_mark or parser.get_mark()
            place, said = (at.line, at.column), _syntax(error)
        except (ValueError, OverflowError):  # PyYAML's own on escapes beyond U+10FFFF and the like
            at = parser.get_mark()
            place = at.line, at.column
            said = "this escape or number is out of range; write it plainly"
    errors.append((source.mark(*place), said))
    return Node(UNREADABLE, source, *place)


class _Disputed(Exception):
    """What libyaml places elsewhere than PyYAML's own parser."""


class _Document:
    """A walk over a parser's events that builds nodes; ``fast``: the parser is libyaml."""

    def __init__(
        self, parser: Any, source: Source, errors: Errors, progress: Progress, *, fast: bool = False
    ) -> None:
        self._next: Callable[[], Any] = parser.get_event
        self._source = source
        self._errors = errors
        self._progress, self._told = progress, 0  # up to which line
        self._fast = fast
        self._anchors: dict[str, Node | None] = {}  # None: the node is not complete yet

    def read(self) -> Node:
        self._next()  # the stream's start
        if isinstance(self._next(), StreamEndEvent):  # else the document's start
            return Node(None, self._source, 0, 0)
        root = self._node(self._next(), 0)
        self._next()  # the document's end
        event = self._next()
        if not isinstance(event, StreamEndEvent):
            self._error(event, "a second document starts here; keep one document in a file")
        return root

    def _new(self, value: Value, event: Any) -> Node:
        at = event.start_mark
        return Node(value, self._source, at.line, at.column)

    def _error(self, event: Any, message: str) -> Node:
        node = self._new(UNREADABLE, event)
        self._errors.append((node.mark, message))
        return node

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        if depth == MAX_DEPTH and not isinstance(event, ScalarEvent):
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels; close a bracket before this",
                problem_mark=event.start_mark,
            )
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            node = self._error(event, f"tag '{cut(tag)}' has no meaning here; leave it out")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: AliasEvent) -> Node:
        name = str(event.anchor)
        if name not in self._anchors:
            return self._error(
                event,
                f"nothing before this is called '&{cut(name)}'; put that anchor on a value first",
            )
        node = self._anchors[name]
        if node is None:
            return self._error(
                event, f"alias '*{cut(name)}' stands inside what it names; write the value out"
            )
        return node

    def _scalar(self, event: ScalarEvent) -> Node:
        text: str = event.value
        if not event.implicit[0]:  # quoted, or a block of text
            return self._new(_PAIR.sub(_joined, text), event)
        if not text and self._fast:
            raise _Disputed
        if text.isdigit() and text.isascii() and len(text) <= MAX_DIGITS:  # most that are plain
            return self._new(int(text), event)
        if text[:1] in _STARTS:
            for pattern, value in _PLAIN:
                if pattern.fullmatch(text):
                    if len(text) > MAX_DIGITS:
                        return self._error(event, too_long(text))
                    return self._new(value(text), event)
        return self._new(text, event)

    def _sequence(self, event: SequenceStartEvent, depth: int) -> Node:
        items = []
        while not isinstance(item := self._next(), SequenceEndEvent):
            items.append(self._node(item, depth + 1))
            if items[-1].line >= self._told + TOLD_LINES:
                self._told = items[-1].line
                self._progress(self._told / len(self._source.lines))
        return self._new(items, event)

    def _mapping(self, event: MappingStartEvent, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        while not isinstance(key := self._next(), MappingEndEvent):
            name = key.value if isinstance(key, ScalarEvent) else None
            if not name or key.anchor or key.tag:
                self._node(key, depth + 1)  # for what may be wrong with it
            at = self._new(name, key)
            node = self._node(self._next(), depth + 1)
            if name is None:
                self._errors.append((at.mark, "a key is a plain word; write 'key: value'"))
            elif name in entries:
                first = entries[name].key.line + 1
                told = f"duplicate key '{cut(name)}', first on line {first}; remove one of the two"
                self._errors.append((at.mark, told))
            else:
                entries[name] = Entry(at, node)
        return self._new(entries, event)


def _joined(pair: re.Match[str]) -> str:
    """The character that a pair of surrogates stands for."""
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def too_long(number: str) -> str:
    """What to say of a number with more than MAX_DIGITS."""
    return f"a number of {len(number)} digits is too long; write a shorter one"


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "this is not YAML"
    said = next((say for part, say in _SYNTAX.items() if part in problem), "{}").format(problem)
    if error.context and error.context_mark:
        return f"{said} ({error.context} that begins on line {error.context_mark.line + 1})"
    return said


def _bad_character(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # how surrogateescape passes on a byte that it cannot decode
        return f"byte 0x{code - 0xDC00:02x} is not UTF-8; save the file as UTF-8 text"
    return f"character U+{code:04X} is not allowed in YAML; remove it"


_STARTS = ("", *"-+.0123456789nNtTfF~")  # of the plain scalars below

# YAML 1.2.2 section 10.3.2; the most frequent first.
_PLAIN: tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text[0] in "tT"),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
)

# The parser's commonest complaints, said with what to do about them; {} is its own text.
_SYNTAX = {
    "character '\\t'": "a tab cannot stand here; write spaces in its place",
    "that cannot start any token": "{}; put the text in quotes",
    "mapping values are not allowed here": (
        "a ':' is not allowed here; check the indentation, or quote text that holds ':'"
    ),
    "could not find expected ':'": "{}; write 'key: value'",
    "expected <block end>": (
        "this does not line up with what stands above it; "
        "give the entries of one list or mapping the same indentation"
    ),
    "expected ',' or": "{}; close the bracket, or put a comma before this",
    "expected '<document start>'": (
        "the list ended before this; remove it, or check the brackets and indentation above"
    ),
    "unexpected end of stream": "{}; close the quotes",
    "unknown escape character": "{}; use single quotes, which know no escapes",
    "expected alphabetic or numeric character": "{}; quote text that begins with '*' or '&'",
    "expected the node content": "{}; write a value, or quote the text",
}
