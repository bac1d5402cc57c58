"""Files that keep a whole run: written aside and renamed, so that none is ever half there."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from gemmctl.errors import UsageError
from gemmctl.showing.formats import render
from gemmctl.showing.report import FORMAT, Record, Report


@dataclass(frozen=True)
class Saved:
    """A run that was read back."""

    path: str
    head: Record
    problems: dict[str, Record]  # by name


def check_writable(path: str) -> None:
    """Raise UsageError if ``save`` could not write there; leaves nothing behind."""
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise UsageError(f"cannot save to {path}: it is not a file")
        if not os.access(path, os.W_OK):
            raise UsageError(f"cannot save to {path}: no write permission")
    aside = _aside(path)
    try:
        with open(aside, "x"):
            os.unlink(aside)
    except OSError as error:
        raise UsageError(f"cannot save to {path}: {error.strerror}") from None


def save(report: Report, path: str) -> None:
    """Write the whole report as JSON.

    Raises UsageError if the file system refuses.
    """
    aside = _aside(path)
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(render(report, "json"))
        os.replace(aside, os.path.realpath(path))
    except OSError as error:
        raise UsageError(f"cannot save to {path}: {error.strerror}") from None


def load(path: str) -> Saved:
    """Read a run that ``save`` wrote.

    Raises UsageError if the file cannot be read or is not such a run.
    """
    try:
        with open(path, encoding="utf-8") as file:
            head: Any = json.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path} is not JSON; compare reads what run --save wrote") from None
    if not isinstance(head, dict) or head.get("command") != "run" or "problems" not in head:
        raise UsageError(f"{path} is not a saved run; compare reads what run --save wrote")
    if head.get("format") != FORMAT:
        raise UsageError(
            f"{path} has format {head.get('format')}, this gemmctl reads format {FORMAT}; "
            "save the run again with this version"
        )
    problems = {problem["name"]: problem for problem in head.pop("problems")}
    return Saved(path, head, problems)


def _aside(path: str) -> str:
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name}.{os.getpid()}.part")
