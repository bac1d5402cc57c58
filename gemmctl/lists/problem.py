"""Problem lists: groups, their defaults and checks, and the JSON Schema of the format.

A group is D = alpha A B + beta C with A m x k, B k x n, C and D m x n. Element (i, j) of a matrix
with leading dimension ld lies at i * ld + j in layout ``row`` and at j * ld + i in layout ``col``;
C has D's layout.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from gemmctl.errors import ListError, UsageError
from gemmctl.lists import yamlfile
from gemmctl.lists.yamlfile import UNREADABLE, Entry, Errors, Mark, Node
from gemmctl.operands import dtypes

FORMAT = 1  # what `gemmctl:` says at the top of a list
MAX_EXTENT = 2**31 - 1  # the kernels' tables hold m, n and k in 32 bits
MAX_LD = 2**40 - 1  # a tensor map's strides are below 2^40 bytes
MAX_GROUPS = 2**20  # in one problem
MAX_BYTES = 2**62  # in one problem: byte offsets, padding included, fit 64 bits with a sign
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
FLOAT32_MIN = 2.0**-149


@dataclass(frozen=True, slots=True)
class Group:
    """One matrix product, every default filled in. alpha and beta are float32 values."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str
    a_layout: str
    b_layout: str
    d_layout: str
    lda: int
    ldb: int
    ldc: int
    ldd: int
    alpha: float
    beta: float
    # Where each key stands that was written, in the group or in defaults; "": the group itself.
    marks: Mapping[str, Mark] = field(compare=False, repr=False)

    def where(self, *keys: str) -> Mark:
        """The place of the first of ``keys`` that was written, else the group's own."""
        return next((self.marks[key] for key in keys if key in self.marks), self.marks[""])


@dataclass(frozen=True)
class Columns:
    """A problem's numbers as arrays with one entry per group; read-only."""

    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    lda: npt.NDArray[np.int64]
    ldb: npt.NDArray[np.int64]
    ldc: npt.NDArray[np.int64]
    ldd: npt.NDArray[np.int64]
    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Products that run as one timed unit; a group with a count is there as often as it says."""

    name: str
    groups: tuple[Group, ...]
    mark: Mark = field(compare=False, repr=False)

    @cached_property
    def columns(self) -> Columns:
        """The groups' numbers as arrays."""
        runs = [list(run) for _, run in groupby(self.groups, key=id)]
        counts = [len(run) for run in runs]

        def column(name: str, dtype: type) -> npt.NDArray[Any]:
            firsts = (getattr(run[0], name) for run in runs)
            once: npt.NDArray[Any] = np.fromiter(firsts, dtype, len(runs))
            values = np.repeat(once, counts)
            values.flags.writeable = False
            return values

        integers = {f: column(f, np.int64) for f in ("m", "n", "k", "lda", "ldb", "ldc", "ldd")}
        scalars = {f: column(f, np.float64) for f in ("alpha", "beta")}
        return Columns(**integers, **scalars)


def load(paths: Sequence[str], stdin: TextIO) -> list[Problem]:
    """Read problem lists as one long list; the path ``-`` is ``stdin``.

    Raises ListError with every error of every list, UsageError if a file cannot be read.
    """
    errors: Errors = []
    problems: list[Problem] = []
    names: dict[str, Mark] = {}
    for file, text in _texts(paths, stdin):
        found: Errors = []
        problems += _read_list(yamlfile.load(text, file, found), names, found)
        # An alias is checked wherever it is used; its errors are told once.
        errors += sorted(dict.fromkeys(found), key=lambda error: (error[0].line, error[0].column))
    if errors:
        raise ListError(errors)
    return problems


def select(problems: Sequence[Problem], globs: Sequence[str]) -> list[Problem]:
    """The problems whose names match any of ``globs``, in their order; all if there are none.

    Raises UsageError for a glob that matches nothing.
    """
    names = [problem.name for problem in problems]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise UsageError(f"no problem is named '{glob}'; there are {', '.join(names)}")
    if not globs:
        return list(problems)
    return [p for p in problems if any(fnmatchcase(p.name, glob) for glob in globs)]


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a problem list, for editors."""

    def mapping(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": required,
            "additionalProperties": False,
            "properties": properties,
        }

    def items(of: str) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": {"$ref": f"#/definitions/{of}"}}

    group = {"$ref": "#/definitions/group"}
    name = {"type": "string", "pattern": r"^\S(.*\S)?$", "description": "unlike any other's"}
    version = {"const": FORMAT, "description": "format version"}
    top = {"gemmctl": version, "defaults": group, "problems": items("problem")}
    problem = {"name": name, "defaults": group, "groups": items("group")}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gemmctl problem list",
        **mapping(["gemmctl", "problems"], top),
        "definitions": {
            "problem": mapping(["name", "groups"], problem),
            "group": mapping([], {key: kind.schema() for key, kind in _FIELDS.items()}),
        },
    }


@dataclass(frozen=True)
class _Integer:
    meaning: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def read(self, value: object) -> int | None:
        if isinstance(value, float) and value.is_integer():  # 1e3
            value = int(value)
        return value if type(value) is int and self.low <= value <= self.high else None

    def schema(self) -> dict[str, Any]:
        return {
            "type": "integer",
            "minimum": self.low,
            "maximum": self.high,
            "description": self.meaning,
        }


@dataclass(frozen=True)
class _Choice:
    meaning: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"

    def read(self, value: object) -> str | None:
        return value if isinstance(value, str) and value in self.names else None

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names), "description": self.meaning}


@dataclass(frozen=True)
class _Float32:
    meaning: str

    def __str__(self) -> str:
        return f"0 or a number of magnitude {FLOAT32_MIN:.2g} to {FLOAT32_MAX:.3g} (float32)"

    def read(self, value: object) -> float | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        legal = value == 0 or FLOAT32_MIN <= abs(value) <= FLOAT32_MAX
        return float(np.float32(value)) if legal else None

    def schema(self) -> dict[str, Any]:
        return {
            "type": "number",
            "minimum": -FLOAT32_MAX,
            "maximum": FLOAT32_MAX,
            "description": self.meaning,
        }


_TYPES = tuple(dtypes.BY_NAME)
_LAYOUTS = ("row", "col")

# Every key of a group and of defaults.
_FIELDS: dict[str, _Integer | _Choice | _Float32] = {
    "m": _Integer("rows of A, C and D", 0, MAX_EXTENT),
    "n": _Integer("columns of B, C and D", 0, MAX_EXTENT),
    "k": _Integer("columns of A, rows of B", 0, MAX_EXTENT),
    "count": _Integer("how many such groups (default 1)", 1, MAX_GROUPS),
    "a": _Choice("element type of A (default bf16)", _TYPES),
    "b": _Choice("element type of B (default: that of A)", _TYPES),
    "c": _Choice("element type of C (default: that of D)", _TYPES),
    "d": _Choice("element type of D (default: that of A)", _TYPES),
    "a_layout": _Choice("layout of A (default row)", _LAYOUTS),
    "b_layout": _Choice("layout of B (default col: n rows of k)", _LAYOUTS),
    "d_layout": _Choice("layout of C and D (default row)", _LAYOUTS),
    "lda": _Integer("leading dimension of A in elements (default: packed)", 1, MAX_LD),
    "ldb": _Integer("leading dimension of B in elements (default: packed)", 1, MAX_LD),
    "ldc": _Integer("leading dimension of C in elements (default: packed)", 1, MAX_LD),
    "ldd": _Integer("leading dimension of D in elements (default: packed)", 1, MAX_LD),
    "alpha": _Float32("factor of A B (default 1)"),
    "beta": _Float32("factor of C (default 0: C is not read)"),
}

_DEFAULTS: dict[str, Any] = {
    "a": "bf16", "a_layout": "row", "b_layout": "col", "d_layout": "row",
    "alpha": 1.0, "beta": 0.0, "count": 1,
}  # fmt: skip

# The mappings of a list: their keys, and an example.
_MAPPINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "a problem list": (("gemmctl", "defaults", "problems"), "{gemmctl: 1, problems: [...]}"),
    "a problem": (("name", "defaults", "groups"), "{name: mine, groups: [...]}"),
    "defaults": (tuple(_FIELDS), "{a: bf16, d: f32}"),
    "a group": (tuple(_FIELDS), "{m: 128, n: 256, k: 64}"),
}


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
        if _Integer("", FORMAT, FORMAT).read(version.value) is None:
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
        if key in _FIELDS:
            kind = _FIELDS[key]
            value = kind.read(given.value)
            if value is None:
                hint = _hint(given.value, kind.names) if isinstance(kind, _Choice) else ""
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
    value = _DEFAULTS | value
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
