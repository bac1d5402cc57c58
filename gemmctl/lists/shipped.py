"""The problem lists that ship with gemmctl, by name."""

from __future__ import annotations

from pathlib import Path

from gemmctl.errors import UsageError, unknown


def folder() -> Path:
    """Where they are: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).parent.parent
    installed = here / "problems"
    return installed if installed.is_dir() else here.parent / "problems"


def names() -> list[str]:
    """What they are called."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def paths(name: str) -> list[str]:
    """The file of the list of that name, of all of them if it is empty.

    Raises UsageError if there is none of that name.
    """
    known = names()
    if name and name not in known:
        raise UsageError(unknown(f"no list that ships is called '{name}'", name, known, "@"))
    return [str(folder() / f"{chosen}.yaml") for chosen in ([name] if name else known)]
