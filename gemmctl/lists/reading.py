"""Problem lists from text: every default filled in, every error told with its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from gemmctl.errors import TWICE, ListError, Mark, UsageError, closest, cut, listed
from gemmctl.lists import bounded, yamlfile
from gemmctl.lists.fields import (
    DEFAULTS,
    FIELDS,
    FORMAT,
    MAX_EXTENT,
    MAX_GROUPS,
    Choice,
    Integer,
    unprintable,
)
from gemmctl.lists.problem import Group, Problem
from gemmctl.lists.shapes import TYPED
from gemmctl.lists.yamlfile import UNREADABLE, Entry, Errors, Node, Progress
from gemmctl.operands import dtypes

MAX_BYTES = 2**62  # in one problem: byte offsets, padding included, fit 64 bits with a sign
PARSING = 0.7  # share of the time that reading a list takes: text to nodes; the rest: to groups

REPORT = "this is what gemmctl wrote about lists, not a problem list; give the lists themselves"

# The mappings of a list: their keys, and an example.
_MAPPINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "a problem list": (("gemmctl", "defaults", "problems"), "{gemmctl: 1, problems: [...]}"),
    "a problem": (("name", "defaults", "groups"), "{name: mine, groups: [...]}"),
    "defaults": (tuple(FIELDS), "{a: bf16, d: f32}"),
    "a group": (tuple(FIELDS), "{m: 128, n: 256, k: 64}"),
}
_KNOWN = {what: frozenset(keys) for what, (keys, _) in _MAPPINGS.items()}
_SIZES = {name: dtype.size for name, dtype in dtypes.BY_NAME.items()}
# Of each operand: its leading dimension, its layout, and the extents of its rows and columns; D
# before C, which may lie where D does.
_OPERANDS = (
    ("a", "lda", "a_layout", "m", "k"),
    ("b", "ldb", "b_layout", "k", "n"),
    ("d", "ldd", "d_layout", "m", "n"),
    ("c", "ldc", "d_layout", "m", "n"),
)
_LENGTHS = frozenset(ld for _, ld, *_ in _OPERANDS)
_GATED = tuple((*each[:4], "n/2") if each[0] == "d" else each for each in _OPERANDS)


@dataclass(frozen=True)
class Lists:
    """What problem lists hold as far as it can be read, and all that is wrong with them."""

    files: tuple[str, ...]  # that could be read, in their order
    problems: tuple[Problem, ...]
    errors: tuple[tuple[Mark, str], ...]
    unreadable: tuple[str, ...]  # a sentence for each file that could not

    def check(self, more: Iterable[tuple[Mark, str]] = ()) -> None:
        """Raises ListError with every error and ``more``, in the order of files and lines."""
        order = {file: number for number, file in enumerate(self.files)}
        errors = sorted(
            dict.fromkeys((*self.errors, *more)),
            key=lambda error: (order[error[0].file], error[0].line, error[0].column),
        )
        if errors or self.unreadable:
            raise ListError(errors, self.unreadable)


def load(paths: Sequence[str], stdin: TextIO) -> list[Problem]:
    """Read problem lists as one long list; the path ``-`` is ``stdin``.

    Raises ListError with every file that cannot be read and every error of every list.
    """
    found = read(paths, stdin)
    found.check()
    return list(found.problems)


def read(
    paths: Sequence[str],
    stdin: TextIO,
    texts: Sequence[tuple[str, str]] = (),
    progress: Progress = lambda done: None,
) -> Lists:
    """Read problem lists as one long list, as far as they are right.

    The path ``-`` is ``stdin``; ``texts`` are lists that are no files, each with what errors call
    it. ``progress`` is told the share that is read, now and then. Raises UsageError if a path is
    given twice.
    """
    written, unreadable = _texts(paths, stdin)
    written += texts
    errors: Errors = []
    problems: list[Problem] = []
    names: dict[str, Mark] = {}
    whole, done = sum(len(text) for _, text in written), 0
    for file, text in written:

        def told(share: float, begin: int = done, length: int = len(text)) -> None:
            progress((begin + PARSING * share * length) / whole)

        node = yamlfile.load(text, file, errors, told)
        problems += _read_list(node, names, errors)
        done += len(text)
        progress(done / whole if whole else 1.0)
    return Lists(tuple(file for file, _ in written), tuple(problems), tuple(errors), unreadable)


class _Marks(Mapping[str, Mark]):
    """The marks of nodes, made when they are asked for."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: dict[str, Node]) -> None:
        self._nodes = nodes

    def __getitem__(self, key: str) -> Mark:
        return self._nodes[key].mark

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class _Fields(NamedTuple):
    """Group keys that were written: their values, and where."""

    values: dict[str, Any]  # None: not legal, and its error is told
    places: dict[str, Node]


@dataclass(frozen=True, slots=True)
class _Read:
    group: Group
    count: int
    size: int  # bytes of all of them


def _texts(paths: Sequence[str], stdin: TextIO) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Name and text of every list, and what to say of files that cannot be read."""
    texts, unreadable = [], []
    first: dict[str, str] = {}  # the path by which each file was given
    for path in paths:
        real = path if path in ("-", "") else _real(path)
        if real in first:
            also = "" if path == first[real] else f", also as {path}"
            told = f"{first[real] or repr(path)} is given twice{also}; give it once"
            raise UsageError(TWICE if path == "-" else told)
        first[real] = path
    for path in paths:
        try:
            if path == "-":
                texts.append(("<stdin>", bounded.read(stdin, "standard input")))
            else:
                # A byte that is not UTF-8 becomes a character that yamlfile refuses by its place.
                with open(path, "rb") as file:
                    text = bounded.read(file, path).decode(errors="surrogateescape")
                texts.append((path, text))
        except OSError as error:
            unreadable.append(f"cannot read {path or repr(path)}: {error.strerror}; check the path")
        except UnicodeDecodeError:
            unreadable.append("standard input is not UTF-8 text; save the list as UTF-8")
    return texts, tuple(unreadable)


def is_report(entries: Mapping[str, object]) -> bool:
    """Whether a mapping is what ``-f json`` or ``--save`` wrote."""
    return {"gemmctl", "command"} <= entries.keys()


def _real(path: str) -> str:
    """Where a path leads; the path itself where the working folder is gone."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def _read_list(node: Node, names: dict[str, Mark], errors: Errors) -> list[Problem]:
    """The problems of one file; ``names`` are those of the files before it, and grow."""
    if isinstance(node.value, dict) and "gemmctl" in node.value:
        version = node.value["gemmctl"].node
        if Integer("", FORMAT, FORMAT).read(version.value) is None:
            if is_report(node.value):
                errors.append((node.mark, REPORT))
                return []
            _refuse(version, f"gemmctl must be {FORMAT}, the format read here", errors)
            return []
    entries = _mapping(node, "a problem list", errors)
    if entries is None:
        return []
    if "gemmctl" not in entries:
        errors.append((node.mark, f"the format version is missing; add 'gemmctl: {FORMAT}'"))
    defaults = _read_defaults(entries, errors)
    problems = (
        _read_problem(item, defaults, names, errors)
        for item in _items(node, entries, "problems", errors)
    )
    return [problem for problem in problems if problem]


def _read_problem(
    node: Node, defaults: _Fields, names: dict[str, Mark], errors: Errors
) -> Problem | None:
    entries = _mapping(node, "a problem", errors)
    if entries is None:
        return None
    name = _read_name(node, entries, names, errors)
    own = _read_defaults(entries, errors)
    defaults = _Fields(defaults.values | own.values, defaults.places | own.places)
    groups: list[Group] = []
    total = size = 0
    for item in _items(node, entries, "groups", errors):
        read = _read_group(item, defaults, errors)
        if read is None:
            continue
        if size <= MAX_BYTES < size + read.size:
            told = "with this group the problem holds more than 2^62 bytes; make it smaller"
            errors.append((read.group.where("count"), told))
        if total <= MAX_GROUPS < total + read.count:
            told = f"with this group the problem has more than {MAX_GROUPS} groups; split it in two"
            errors.append((read.group.where("count"), told))
        size += read.size
        total += read.count
        if total <= MAX_GROUPS:
            groups += [read.group] * read.count
    return Problem(name, tuple(groups), node.mark)


def _read_name(
    node: Node, entries: dict[str, Entry], names: dict[str, Mark], errors: Errors
) -> str:
    if "name" not in entries:
        errors.append((node.mark, "this problem has no name; add 'name:' and a word"))
        return ""
    given = entries["name"].node
    name = given.value
    if not isinstance(name, str) or not name or name != name.strip():
        _refuse(given, "name must be a line of text (a number in quotes), no blanks around", errors)
        return ""
    if (unseen := unprintable(name)) is not None:
        told = f"name must be text that can be shown, and {unseen} in it cannot; leave it out"
        errors.append((given.mark, told))
        return ""
    if name in names:
        first = names[name]
        taken = f"taken by {first.file}:{first.line}"
        told = f"the name '{cut(name)}' is {taken}; choose another"
        if given.mark.file == TYPED:
            told = f"--mnk calls its problem '{cut(name)}', which is {taken}; rename that one"
        errors.append((given.mark, told))
    else:
        names[name] = given.mark
    return name


def _read_defaults(entries: dict[str, Entry], errors: Errors) -> _Fields:
    read = (
        _read_fields(entries["defaults"].node, "defaults", errors)
        if "defaults" in entries
        else None
    )
    return read or _Fields({}, {})


def _read_fields(node: Node, what: str, errors: Errors) -> _Fields | None:
    """The group keys that a mapping holds; None if it is no mapping."""
    entries = _mapping(node, what, errors)
    if entries is None:
        return None
    values, places = {}, {}
    for key, (place, given) in entries.items():
        if key in FIELDS:
            kind = FIELDS[key]
            value = kind.read(given.value)
            if value is None:
                hint = _hint(given.value, kind.runs) if isinstance(kind, Choice) else ""
                _refuse(given, f"{key} must be {kind}", errors, hint)
            values[key], places[key] = value, place
    return _Fields(values, places)


def _read_group(node: Node, defaults: _Fields, errors: Errors) -> _Read | None:
    """A group with every default filled in; None if something is wrong with it."""
    own = _read_fields(node, "a group", errors)
    if own is None:
        return None
    value = {**DEFAULTS, **defaults.values, **own.values}
    missing = [key for key in ("m", "n", "k") if key not in value]
    if missing:
        told = f"this group has no {' and no '.join(missing)}; give it here or in defaults"
        errors.append((node.mark, told))
    if missing or None in value.values():
        return None
    places = {"": node, **defaults.places, **own.places}
    size, wrong = _fill_in(value)
    for key, told in wrong:
        whose = "" if key in own.values else f" in the group on line {node.line + 1}"
        errors.append((places[key].mark, told.format(whose=whose)))
    if any(key not in _LENGTHS for key, _ in wrong):
        return None
    count = value.pop("count")
    return _Read(Group(**value, marks=_Marks(places)), count, count * size)


def bytes_of(group: Mapping[str, Any]) -> int:
    """Bytes of a group's operands and bias, by what is written of it: legal values, M, N and K.

    A C counts even if nothing reads it.
    """
    size, _ = _fill_in({**DEFAULTS, **group})
    return size


def _fill_in(value: dict[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    """Fill in a group's types, leading dimensions and where C begins.

    Returns its bytes, and what is wrong, each with its key. What is too small is mended, so that
    what else is wrong with the group can be told. ``{whose}`` in a message stands for the group,
    where the key is of defaults.
    """
    value.setdefault("b", value["a"])
    value.setdefault("c", value.setdefault("d", value["a"]))
    value.setdefault("bias_type", value["d"])
    wrong, mended = [], {}
    gated, m, n = value["gate"] != "none", value["m"], value["n"]
    if gated and n % 2:
        near = " or ".join(f"n: {even}" for even in (n - 1, n + 1) if even <= MAX_EXTENT)
        told = f"n is {n}{{whose}}, but a gate pairs columns; write {near}"
        wrong.append(("n", told))
    extents = {"m": m, "n": n, "k": value["k"], "n/2": n // 2}
    size = 0
    for operand, ld, layout, rows, columns in _GATED if gated else _OPERANDS:
        inner, outer = (columns, rows) if value[layout] == "row" else (rows, columns)
        least = extents[inner] or 1
        if ld == "ldc" and value["inplace"]:
            value.setdefault("ldc", value["ldd"])
            value.setdefault("c_offset", value["d_offset"])
        elif value.setdefault(ld, least) < least:
            told = (
                f"{ld} is {value[ld]}, but {inner} = {least} elements of {operand.upper()} lie "
                f"side by side{{whose}}; write {ld}: {least} or more"
            )
            wrong.append((ld, told))
            mended[ld] = least
        size += extents[outer] * value[ld] * _SIZES[value[operand]]
    value.setdefault("c_offset", 0)
    if value["bias"] != "none":
        size += extents[value["bias"]] * _SIZES[value["bias_type"]]
    if value["inplace"]:
        wrong += _not_in_place(value)
    value.update(mended)
    return size, wrong


def _not_in_place(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What keeps C from being D's memory."""
    if value["gate"] != "none":
        told = "D of a gate has half of C's columns{whose} and cannot be its memory"
        yield "inplace", f"{told}; leave inplace out"
    for ours, theirs in (("c", "d"), ("ldc", "ldd"), ("c_offset", "d_offset")):
        if value[ours] != value[theirs]:
            told = f"{ours} is {value[ours]} and {theirs} {value[theirs]}{{whose}}"
            yield ours, f"{told}, but in place they are the same; leave {ours} out"


def _mapping(node: Node, what: str, errors: Errors) -> dict[str, Entry] | None:
    """The entries of a mapping, unknown keys told; None if the node is something else.

    A key that an unknown one was surely meant to be is there, too, unreadable: it is not missing.
    """
    keys, example = _MAPPINGS[what]
    if not isinstance(node.value, dict):
        _refuse(node, f"{what} must be a mapping such as {example}", errors)
        return None
    if node.value.keys() <= _KNOWN[what]:
        return node.value
    entries, slips = dict(node.value), []
    for key, entry in node.value.items():
        if key == "<<":
            told = "YAML 1.2 has no merge key '<<'; put what groups share under 'defaults'"
            errors.append((entry.key.mark, told))
        elif key not in keys:
            close = closest(str(key).lower(), keys)
            if close is None:
                told = f"unknown key {cut(repr(key))} in {what}; the keys are {', '.join(keys)}"
                errors.append((entry.key.mark, told))
                continue
            slips.append((entry.key, cut(repr(key)), f"'{close}'"))
            place = entry.key
            unreadable = Node(UNREADABLE, place.source, place.line, place.column)
            entries.setdefault(close, Entry(place, unreadable))
    if slips:
        places, written, meant = zip(*slips, strict=True)
        unknown = "unknown keys" if len(slips) > 1 else "unknown key"
        told = f"{unknown} {listed(written)} in {what}; did you mean {listed(meant)}?"
        errors.append((places[0].mark, told))
    return entries


def _items(node: Node, entries: dict[str, Entry], key: str, errors: Errors) -> list[Node]:
    """The items of a list that has to be there and not empty."""
    if key not in entries:
        errors.append((node.mark, f"'{key}' is missing; add '{key}:' and a list under it"))
        return []
    given = entries[key].node
    if isinstance(given.value, list) and given.value:
        return given.value
    _refuse(given, f"{key} must be a list of at least one", errors)
    return []


def _refuse(node: Node, must: str, errors: Errors, hint: str = "") -> None:
    if node.value is not UNREADABLE:
        errors.append((node.mark, f"{must}, not {said(node.value)}{hint}"))


def _hint(word: object, words: Sequence[str]) -> str:
    """``; did you mean ...?`` if one of ``words`` is close."""
    close = closest(str(word).lower(), words)
    return "" if close is None else f"; did you mean '{close}'?"


def said(value: object) -> str:
    """A value as a message names it."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the text {cut(repr(value))}" if isinstance(value, str) else cut(repr(value))
