"""Runs that were saved, read back: everything that is needed of them is there, or they are refused.

A run is what ``run --save`` wrote, or what ``run -f json`` or ``run -f jsonl`` printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from gemmctl.errors import UsageError
from gemmctl.lists import bounded
from gemmctl.showing.recorded import is_amount
from gemmctl.showing.report import FORMAT, Record

FORMATS = range(1, FORMAT + 1)  # 1 has no version of the data

Fields = Mapping[str, type | tuple[type, ...]]

# What every run has, and every problem in it, with the types that JSON gives them.
_HEAD: Fields = {"cubin_sha256": str, "device": dict, "settings": dict}
_DEVICE: Fields = {"kind": str, "name": str, "driver": (str, NoneType)}
_SETTINGS: Fields = {"cache": str, "data": dict}
_PROBLEM: Fields = {"name": str, "groups": list, "samples_s": list}
# What a line of jsonl says of its run.
_HEAD_FIELDS = ("format", "command", "gemmctl", "date", *_HEAD)


@dataclass(frozen=True)
class Saved:
    """A run that was read back."""

    path: str
    head: Record
    problems: dict[str, Record]  # by name

    @property
    def total(self) -> int:
        """How many problems the run was to measure."""
        count: int = self.head.get("problem_count", len(self.problems))
        return count

    @property
    def unmeasured(self) -> list[str]:
        """Those of them that it did not come to; of an older run it is not known which they are."""
        names: list[str] = self.head.get("unmeasured", [])
        return names


def load(path: str) -> Saved:
    """Read a run; the path ``-`` is standard input.

    Raises UsageError if the file cannot be read, is no run, or lacks what every run has.
    """
    name = "standard input" if path == "-" else path
    try:
        if path == "-":
            text = bounded.read(sys.stdin, name)
        else:
            with open(path, encoding="utf-8") as file:
                text = bounded.read(file, name)
        text = text.removeprefix("\ufeff")  # as editors leave it
        if not text.strip():
            raise UsageError(f"{name} is empty; it has to be what run --save wrote")
        documents = list(_documents(text))
    except OSError as error:
        raise UsageError(f"cannot read {path or repr(path)}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}: {error.msg}"
        told = f"{name} is not JSON ({place}); it has to be what run --save wrote"
        raise UsageError(told) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{name} is not JSON; it has to be what run --save wrote") from None
    head, problems = _run(name, documents)
    _check_head(name, head)
    found: dict[str, Record] = {}
    for number, problem in enumerate(problems, 1):
        _check_problem(name, number, problem)
        if problem["name"] in found:
            raise UsageError(f"{name}: there are two problems '{problem['name']}'")
        found[problem["name"]] = problem
    return Saved(name, head, found)


def _documents(text: str) -> Iterator[Any]:
    """The JSON documents in a text: one, or one on every line."""
    try:
        yield json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    error.lineno = number
                    raise


def _run(path: str, documents: list[Any]) -> tuple[Record, list[Any]]:
    """The head of a run, and its problems."""
    for document in documents:
        if not isinstance(document, dict) or document.get("command") != "run":
            raise UsageError(f"{path} is not a saved run; run --save writes one")
        number = document.get("format")
        if type(number) is not int or number not in FORMATS:
            raise UsageError(
                f"{path} has format {json.dumps(number)[:40]}, this gemmctl reads formats up to "
                f"{FORMAT}; save the run again with this version, or use a newer one"
            )
    first = documents[0]
    if len(documents) == 1 and "problems" in first:
        _require(path, first, {"problems": list})
        return {key: value for key, value in first.items() if key != "problems"}, first["problems"]
    head = {key: first[key] for key in _HEAD_FIELDS if key in first}
    for number, line in enumerate(documents[1:], 2):
        for key in (*_HEAD, "format"):
            if line.get(key) != first.get(key):
                raise UsageError(f"{path}: line {number} is of another run than line 1: its {key} "
                                 "differs")  # fmt: skip
    return head, documents


def _check_head(path: str, head: Record) -> None:
    _require(path, head, _HEAD)
    _require(f"{path}: device", head["device"], _DEVICE)
    _require(f"{path}: settings", head["settings"], _SETTINGS)
    if "problem_count" in head:
        _require(path, head, {"problem_count": int})
    if "unmeasured" in head:
        _require(path, head, {"unmeasured": list})
        for name in head["unmeasured"]:
            if not isinstance(name, str):
                raise UsageError(f"{path} has {json.dumps(name)[:40]} in unmeasured, not a name")


def _check_problem(path: str, number: int, problem: Any) -> None:
    where = f"{path}: problem {number}"
    if isinstance(problem, dict) and isinstance(problem.get("name"), str):
        where = f"{path}: problem '{problem['name']}'"
    _require(where, problem, _PROBLEM)
    if not problem["samples_s"]:
        raise UsageError(f"{where} has no samples in samples_s")
    if "telemetry" in problem:
        _require(where, problem, {"telemetry": list})
        for reading in problem["telemetry"]:
            _require(f"{where}: telemetry", reading, {"sm_hz": float})
    for sample in problem["samples_s"]:
        if not is_amount(sample):
            raise UsageError(f"{where} has {json.dumps(sample)} in samples_s, which is no time")


def _require(where: str, found: Any, fields: Fields) -> None:
    """Raise UsageError if ``found`` is no mapping that has these fields of these types.

    A float is any amount: what other programs write again has no point where it is whole.
    """
    if not isinstance(found, dict):
        raise UsageError(f"{where} is {json.dumps(found)[:40]}, not a mapping")
    for field, kind in fields.items():
        if field not in found:
            raise UsageError(f"{where} has no {field}")
        value = found[field]
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not (is_amount(value) if kind is float else fits):
            raise UsageError(f"{where} has {json.dumps(value)[:40]} as its {field}")
