"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def percentage(text: str) -> float:
    """``3%`` or ``0.03`` as 0.03."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise typer.BadParameter(f"{text!r} is not a percentage; write 3% or 0.03")
    return value


Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Problem lists; - is standard input.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="GLOB", help="Only problems of these names; may be repeated."),
]
Format = Annotated[
    Literal["table", "plain", "markdown", "csv", "json", "jsonl"] | None,
    typer.Option(
        "-f",
        "--format",
        help="What goes to stdout. [default: table on a terminal, plain elsewhere]",
    ),
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda|cuda:N",
        envvar="GEMMCTL_DEVICE",
        help="Where to run; auto is the first Hopper GPU, else the CPU.",
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help="Only kernels of this name (gemmctl info lists them), whatever tune found.",
    ),
]
NoTuneCache = Annotated[
    bool,
    typer.Option("--no-tune-cache", help="Let the cost model choose, whatever tune found."),
]
Seed = Annotated[int, typer.Option(help="The same seed means the same data everywhere.")]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="No results and no notes: errors and exit code only.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More columns.")]
Color = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(help="auto: on a terminal, unless NO_COLOR is set or TERM is dumb."),
]
