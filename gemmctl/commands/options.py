"""Options that several commands share."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import typer

from gemmctl.commands.ready import DEVICE_VARIABLE

MAX_SEED = 2**64 - 1  # gemmctl.operands.data.MAX_SEED, which would import numpy for --help


def percentage(option: str, text: str) -> float:
    """``3%`` or ``0.03``, the value of an option, as 0.03."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf or (value >= 1 and not text.endswith("%")):
        right = f"{text}%" if 1 <= value < math.inf else "3% or 0.03"
        told = f"'{text}' is not a percentage; write {right}"
        raise typer.BadParameter(told, param_hint=f"'{option}'")
    return value


def complete_problem(ctx: typer.Context, incomplete: str) -> list[str]:
    """The problems of the lists that stand on the command line."""
    import io

    from gemmctl.commands.sources import sources
    from gemmctl.errors import GemmctlError
    from gemmctl.lists import reading

    try:
        # Behind an option without a value yet, the parser leaves arguments where they are.
        paths = [*(ctx.params.get("files") or ()), *ctx.args]
        found = sources([path for path in paths if path != "-"], None, None, None, None, None)
        return [problem.name for problem in reading.load(found.paths, io.StringIO())]
    except GemmctlError:
        return []


def complete_device(incomplete: str) -> list[str]:
    """What --device may be."""
    return ["auto", "cpu", "cuda"]


def complete_kernel(incomplete: str) -> list[str]:
    """The kernels that there are."""
    from gemmctl.errors import GemmctlError
    from gemmctl.kernels import cubins

    try:
        return list(dict.fromkeys(kernel.name for kernel in cubins.manifest().kernels))
    except GemmctlError:
        return []


Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="GLOB",
        help="Only problems of these names; may be repeated.",
        autocompletion=complete_problem,
    ),
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
        envvar=DEVICE_VARIABLE,
        help="Where to run; auto is the first Hopper GPU, else the CPU.",
        autocompletion=complete_device,
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help="Only kernels of this name (gemmctl info lists them), whatever tune found.",
        autocompletion=complete_kernel,
    ),
]
NoTuneCache = Annotated[
    bool,
    typer.Option("--no-tune-cache", help="Let the cost model choose, whatever tune found."),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_SEED,
        metavar="N",
        help="The same seed means the same data, or list, everywhere.",
    ),
]
Launch = Annotated[
    Literal["grouped", "graph", "serial", "streams"],
    typer.Option(
        help="grouped: one launch for all groups of the same element types and layouts, "
        "several such launches side by side; graph: the same and the set-up of its tensor maps "
        "as one CUDA graph; serial: a launch for each group, in a CUDA graph; streams: the "
        "same over 8 streams."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Only these columns of a table, with commas between; a word of a title is enough.",
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Order the rows by a column; -COLUMN: from the largest down."
    ),
]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="No results and no notes: errors and exit code only.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More columns.")]
Color = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(help="auto: on a terminal, unless NO_COLOR is set or TERM is dumb."),
]
