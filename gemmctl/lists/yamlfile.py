"""YAML text to plain values that remember their line and column.

Plain scalars follow YAML 1.2's core schema (``no`` is text, ``1e3`` a number, ``1:30`` text).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from gemmctl.errors import Mark

MAX_DEPTH = 32  # mappings and lists inside each other; far from Python's recursion limit
MAX_DIGITS = 400  # a float64 has at most 309 before its point
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what PyYAML counts as one


Errors: TypeAlias = list[tuple[Mark, str]]


class Unreadable(Enum):
    """Stands for a value that could not be read; its error is already among the errors."""

    UNREADABLE = "unreadable"


UNREADABLE: Final = Unreadable.UNREADABLE
Scalar: TypeAlias = str | int | float | bool | None


class Entry(NamedTuple):
    """One value of a mapping, and where its key stands."""

    key: Mark
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it begins."""

    value: Scalar | list[Node] | dict[str, Entry] | Unreadable
    mark: Mark


def load(text: str, file: str, errors: Errors) -> Node:
    """Read the one document in ``text``; ``file`` is its name in messages.

    What is wrong is appended to ``errors`` and leaves UNREADABLE in its place, so that the
    caller can go on to check the rest. Keys are kept as they are written, whatever their type.
    """
    text = text.removeprefix("\ufeff")
    lines = LINE_BREAK.split(text)
    try:
        return _Document(text, file, lines, errors).read()
    except yaml.reader.ReaderError as error:
        before = LINE_BREAK.split(text[: error.position])
        mark = Mark(file, len(before), len(before[-1]) + 1, lines[len(before) - 1])
        errors.append((mark, _bad_character(ord(text[error.position]))))
        return Node(UNREADABLE, mark)


class _Document:
    """A walk over the parser's events that builds nodes."""

    def __init__(self, text: str, file: str, lines: list[str], errors: Errors) -> None:
        self._parser: Any = yaml.SafeLoader(text)
        self._file = file
        self._lines = lines
        self._errors = errors
        self._anchors: dict[str, Node | None] = {}  # None: the node is not complete yet

    def read(self) -> Node:
        try:
            self._next()  # the stream's start
            if isinstance(self._parser.peek_event(), yaml.StreamEndEvent):
                return Node(None, Mark(self._file, 1, 1, self._lines[0]))
            self._next()  # the document's start
            root = self._node(self._next(), 0)
            self._next()  # the document's end
            event = self._next()
            if not isinstance(event, yaml.StreamEndEvent):
                self._error(event, "a second document starts here; keep one document in a file")
            return root
        except yaml.MarkedYAMLError as error:
            at = error.problem_mark or error.context_mark or self._parser.get_mark()
            mark = self._mark(at)
            self._errors.append((mark, _syntax(error)))
        except (ValueError, OverflowError):  # PyYAML's own on escapes beyond U+10FFFF and the like
            mark = self._mark(self._parser.get_mark())
            self._errors.append((mark, "this escape or number is out of range; write it plainly"))
        return Node(UNREADABLE, mark)

    def _next(self) -> Any:
        return self._parser.get_event()

    def _mark(self, mark: Any) -> Mark:
        return Mark(self._file, mark.line + 1, mark.column + 1, self._lines[mark.line])

    def _error(self, event: yaml.Event, message: str) -> Node:
        mark = self._mark(event.start_mark)
        self._errors.append((mark, message))
        return Node(UNREADABLE, mark)

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth == MAX_DEPTH and not isinstance(event, yaml.ScalarEvent):
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels; close a bracket before this",
                problem_mark=event.start_mark,
            )
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            node = self._error(event, f"tag '{tag}' has no meaning here; leave it out")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        name = event.anchor
        if name not in self._anchors:
            return self._error(
                event, f"nothing before this is called '&{name}'; put that anchor on a value first"
            )
        node = self._anchors[name]
        if node is None:
            return self._error(
                event, f"alias '*{name}' stands inside what it names; write the value out"
            )
        return node

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        mark = self._mark(event.start_mark)
        if not event.implicit[0]:  # quoted, or a block of text
            return Node(event.value, mark)
        text: str = event.value
        for pattern, value in _PLAIN:
            if pattern.fullmatch(text):
                if len(text) > MAX_DIGITS:
                    return self._error(
                        event, f"a number of {len(text)} digits is too long; write a shorter one"
                    )
                return Node(value(text), mark)
        return Node(text, mark)

    def _sequence(self, event: yaml.SequenceStartEvent, depth: int) -> Node:
        items = []
        while not isinstance(item := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(item, depth + 1))
        return Node(items, self._mark(event.start_mark))

    def _mapping(self, event: yaml.MappingStartEvent, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            mark = self._mark(key.start_mark)
            self._node(key, depth + 1)
            node = self._node(self._next(), depth + 1)
            name = key.value if isinstance(key, yaml.ScalarEvent) else None
            if name is None:
                self._errors.append((mark, "a key is a plain word; write 'key: value'"))
            elif name in entries:
                first = entries[name].key.line
                self._errors.append(
                    (mark, f"duplicate key '{name}', first on line {first}; remove one of the two")
                )
            else:
                entries[name] = Entry(mark, node)
        return Node(entries, self._mark(event.start_mark))


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
    "character '\\t'": "a tab cannot stand here; indent with spaces",
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
