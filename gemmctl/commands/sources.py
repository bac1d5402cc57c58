"""Where a command's problems come from: lists by path or name, and shapes on the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gemmctl.errors import UsageError

ABOUT_FILES = (
    "FILE is a problem list: a path, - for standard input, @NAME for one that ships with gemmctl "
    "(gemmctl info names them), or @ for all of those. Several are one long list."
)


class _Listed(str):
    """A list that ships, which completes its name with and without the @ in front.

    Typer keeps what starts with the word that is completed. bash calls the @ a word of its own, but
    has what it is completed by begin with it all the same.
    """

    def startswith(self, prefix: str, *span: Any) -> bool:  # type: ignore[override]
        return super().startswith((prefix, f"@{prefix}"), *span)


def _complete_file(ctx: typer.Context, incomplete: str) -> list[str]:
    """Lists that ship, after an @; the shell itself completes paths."""
    from gemmctl.lists import shipped

    alone = (ctx.params.get("files") or [""])[-1] == "@"
    if not alone and not incomplete.startswith("@"):
        return []
    return [_Listed(f"@{name}") for name in shipped.names()]


Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", autocompletion=_complete_file, hidden=True),
]
Mnk = Annotated[
    list[str] | None,
    typer.Option(
        "--mnk",
        metavar="MxNxK[:COUNT]",
        help="A problem without a list: a group of this shape, or so many; repeated, more groups.",
    ),
]
Count = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Groups of each --mnk without a COUNT. [default: 1]"),
]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="AB[:D]", help="Element types for --mnk. [default: bf16]"),
]
Alpha = Annotated[
    float | None, typer.Option(metavar="X", help="Factor of A B for --mnk. [default: 1]")
]
Beta = Annotated[
    float | None, typer.Option(metavar="X", help="Factor of C for --mnk. [default: 0]")
]


@dataclass(frozen=True)
class Sources:
    """Problem lists: paths, and the text of one that was made of shapes."""

    paths: list[str]
    typed: str | None


def sources(
    files: list[str] | None,
    mnk: list[str] | None,
    count: int | None,
    dtype: str | None,
    alpha: float | None,
    beta: float | None,
) -> Sources:
    """What these options name.

    Raises UsageError if that is nothing, or not a shape or a list that ships.
    """
    from gemmctl.lists import shapes, shipped

    paths: list[str] = []
    for file in files or ():
        if file.startswith("@"):
            paths += shipped.paths(file[1:])
            continue
        name = os.path.basename(file).removesuffix(".yaml")
        if name in shipped.names() and not os.path.exists(file):
            raise UsageError(f"there is no {file} here; @{name} is the list that ships")
        paths.append(file)
    if mnk:
        each = 1 if count is None else count
        types = "bf16" if dtype is None else dtype
        return Sources(paths, shapes.listed(mnk, each, types, alpha, beta))
    for name, value in (("count", count), ("dtype", dtype), ("alpha", alpha), ("beta", beta)):
        if value is not None:
            raise UsageError(f"--{name} is of the shapes of --mnk; in a list, write it there")
    if not paths:
        raise UsageError("name a problem list, @NAME for one that ships, or a shape with --mnk")
    return Sources(paths, None)
