"""Problem lists from text: every default filled in, every error told with its place."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from gemmctl.errors import ListError, Mark, UsageError
from gemmctl.lists import yamlfile
from gemmctl.lists.fields import DEFAULTS, FIELDS, FORMAT, MAX_GROUPS, Choice, Integer
from gemmctl.lists.problem import Group, Problem
from gemmctl.lists.yamlfile import UNREADABLE, Entry, Errors, Node
from gemmctl.operands import dtypes

MAX_BYTES = 2**62  # in one problem: byte offsets, padding included, fit 64 bits with a sign

# The mappings of a list: their keys, and an example.
_MAPPINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "a problem list": (("gemmctl", "defaults", "problems"), "{gemmctl: 1, problems: [...]}"),
    "a problem": (("name", "defaults", "groups"), "{name: mine, groups: [...]}"),
    "defaults": (tuple(FIELDS), "{a: bf16, d: f32}"),
    "a group": (tuple(FIELDS), "{m: 128, n: 256, k: 64}"),
}


def load(
    paths: Sequence[str], stdin: TextIO, texts: Sequence[tuple[str, str]] = ()
) -> list[Problem]:
    """Read problem lists as one long list; the path ``-`` is ``stdin``.

    ``texts`` are lists that are no files, each with what errors call it.

    Raises ListError with every error of every list, UsageError if a file cannot be read.
    """
    errors: Errors = []
    problems: list[Problem] = []
    names: dict[str, Mark] = {}
    for file, text in [*_texts(paths, stdin), *texts]:
        found: Errors = []
        problems += _read_list(yamlfile.load(text, file, found), names, found)
        # An alias is checked wherever it is used; its errors are told once.
        errors += sorted(dict.fromkeys(found), key=lambda error: (error[0].line, error[0].column))
    if errors:
        raise ListError(errors)
    return problems


class _Given(NamedTuple):
    value: Any  # None: not legal, and its error is told
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Read:
    group: Group
    count: int
    size: int  # bytes of all of them


def _texts(paths: Sequence[str], stdin: TextIO) -> list[tuple[str, str]]:
    """Name and text of every list."""
    texts, unreadable = [], []
    if list(paths).count("-") > 1:
        raise UsageError("'-' is given twice, but standard input can be read once; give one '-'")
    for path in paths:
        try:
            if path == "-":
                texts.append(("<stdin>", stdin.read()))
            else:
                # A byte that is not UTF-8 becomes a character that yamlfile refuses by its place.
                texts.append((path, Path(path).read_bytes().decode(errors="surrogateescape")))
        except OSError as error:
            unreadable.append(f"cannot read {path}: {error.strerror}; check the path")
        except UnicodeDecodeError:
            unreadable.append("standard input is not UTF-8 text; save the list as UTF-8")
    if unreadable:
        raise UsageError("\n".join(unreadable))
    return texts


def _read_list(node: Node, names: dict[str, Mark], errors: Errors) -> list[Problem]:
    """The problems of one file; ``names`` are those of the files before it, and grow."""
    if isinstance(node.value, dict) and "gemmctl" in node.value:
        version = node.value["gemmctl"].node
        if Integer("", FORMAT, FORMAT).read(version.value) is None:
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
    node: Node, defaults: dict[str, _Given], names: dict[str, Mark], errors: Errors
) -> Problem | None:
    entries = _mapping(node, "a problem", errors)
    if entries is None:
        return None
    name = _read_name(node, entries, names, errors)
    defaults = defaults | _read_defaults(entries, errors)
    groups: list[Group] = []
    total = size = 0
    for item in _items(node, entries, "groups", errors):
        read = _read_group(item, defaults, errors)
        if read is None:
            continue
        place = read.group.where("count")
        if size <= MAX_BYTES < size + read.size:
            told = "with this group the problem holds more than 2^62 bytes; make it smaller"
            errors.append((place, told))
        if total <= MAX_GROUPS < total + read.count:
            told = f"with this group the problem has more than {MAX_GROUPS} groups; split it in two"
            errors.append((place, told))
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
    if not isinstance(name, str) or not name.isprintable() or not name or name != name.strip():
        _refuse(given, "name must be a line of text (a number in quotes), no blanks around", errors)
        return ""
    if name in names:
        first = names[name]
        told = f"the name '{name}' is taken by {first.file}:{first.line}; choose another"
        errors.append((given.mark, told))
    else:
        names[name] = given.mark
    return name


def _read_defaults(entries: dict[str, Entry], errors: Errors) -> dict[str, _Given]:
    if "defaults" not in entries:
        return {}
    return _read_fields(entries["defaults"].node, "defaults", errors) or {}


def _read_fields(node: Node, what: str, errors: Errors) -> dict[str, _Given] | None:
    """The group keys that a mapping holds; None if it is no mapping."""
    entries = _mapping(node, what, errors)
    if entries is None:
        return None
    fields = {}
    for key, (mark, given) in entries.items():
        if key in FIELDS:
            kind = FIELDS[key]
            value = kind.read(given.value)
            if value is None:
                hint = _hint(given.value, kind.names) if isinstance(kind, Choice) else ""
                _refuse(given, f"{key} must be {kind}", errors, hint)
            fields[key] = _Given(value, mark)
    return fields


def _read_group(node: Node, defaults: dict[str, _Given], errors: Errors) -> _Read | None:
    """A group with every default filled in; None if something is wrong with it."""
    own = _read_fields(node, "a group", errors)
    if own is None:
        return None
    given = defaults | own
    missing = [key for key in ("m", "n", "k") if key not in given]
    if missing:
        told = f"this group has no {' and no '.join(missing)}; give it here or in defaults"
        errors.append((node.mark, told))
    value: dict[str, Any] = {key: entry.value for key, entry in given.items()}
    if missing or None in value.values():
        return None
    value = DEFAULTS | value
    value = {"b": value["a"], "d": value["a"]} | value
    value = {"c": value["d"]} | value
    size, sound = 0, True
    for operand, rows, columns, layout in (
        ("a", "m", "k", "a_layout"),
        ("b", "k", "n", "b_layout"),
        ("c", "m", "n", "d_layout"),
        ("d", "m", "n", "d_layout"),
    ):
        inner, outer = (columns, rows) if value[layout] == "row" else (rows, columns)
        ld, least = f"ld{operand}", max(1, value[inner])
        if value.setdefault(ld, least) < least:
            sound = False
            whose = "" if ld in own else f" in the group on line {node.mark.line}"
            told = (
                f"{ld} is {value[ld]}, but {inner} = {least} elements of {operand.upper()} lie "
                f"side by side{whose}; write {ld}: {least} or more"
            )
            errors.append((given[ld].mark, told))
        size += value[outer] * value[ld] * dtypes.BY_NAME[value[operand]].size
    if not sound:
        return None
    count = value.pop("count")
    marks = {"": node.mark} | {key: entry.mark for key, entry in given.items()}
    return _Read(Group(**value, marks=marks), count, count * size)


def _mapping(node: Node, what: str, errors: Errors) -> dict[str, Entry] | None:
    """The entries of a mapping, unknown keys told; None if the node is something else."""
    keys, example = _MAPPINGS[what]
    if not isinstance(node.value, dict):
        _refuse(node, f"{what} must be a mapping such as {example}", errors)
        return None
    for key, entry in node.value.items():
        if key == "<<":
            told = "YAML 1.2 has no merge key '<<'; put what groups share under 'defaults'"
            errors.append((entry.key, told))
        elif key not in keys:
            hint = _hint(key, keys) or f"; the keys are {', '.join(keys)}"
            errors.append((entry.key, f"unknown key {_short(key)} in {what}{hint}"))
    return node.value


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
        errors.append((node.mark, f"{must}, not {_said(node.value)}{hint}"))


def _hint(word: object, words: Sequence[str]) -> str:
    """``; did you mean ...?`` if one of ``words`` is close."""
    close = difflib.get_close_matches(str(word).lower(), words, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _said(value: object) -> str:
    """A value as a message names it."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the text {_short(value)}" if isinstance(value, str) else _short(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
