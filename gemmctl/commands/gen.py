"""``gemmctl gen``: write a problem list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gemmctl.commands.options import Seed
from gemmctl.errors import UsageError

if TYPE_CHECKING:
    from gemmctl.generating.listing import Request

ABOUT = """\
\b
Examples:
  gemmctl gen moe --model deepseek-v3 --tokens 4096 --ep 8 --routing zipf:1.2
  gemmctl gen lora --adapters 128 --tokens 16384 | gemmctl run -
  gemmctl gen random --m 8:256 --groups 1000 -o mine.yaml
  gemmctl gen import shapes.txt

The same command writes the same bytes on every machine, and says itself in the first line. Each
list also says what it holds; one of experts (moe), too, how unevenly rows are spread, and how many
have none.
"""
MANY = 2**20  # tokens: each takes up to half a kilobyte of memory while it chooses
EXTENT = 2**31 - 1  # gemmctl.lists.fields.MAX_EXTENT, which would import numpy for --help
GROUPS = 2**20  # likewise MAX_GROUPS

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Write a problem list: models' layers, batches, peers' lists.",
    epilog=ABOUT,
)


def _complete_model(incomplete: str) -> list[str]:
    """The models that are known."""
    from gemmctl.generating import models

    return list(models.models())


def _complete_routing(incomplete: str) -> list[str]:
    """How likely each may be to be chosen."""
    return ["uniform", "zipf:", "lognormal:", "hot:"]


def _complete_routing_or_counts(incomplete: str) -> list[str]:
    """The same, or a file."""
    return [*_complete_routing(incomplete), "counts:"]


def _named(name: str | None) -> str | None:
    """A name that is given; raises UsageError if it is empty, which is no name and no default."""
    if name == "":
        raise UsageError("--name: a problem needs a name of a character or more; or leave it out")
    return name


Save = Annotated[
    str | None,
    typer.Option(
        "-o", "--save", metavar="FILE", help="Write it there; only a generated list is replaced."
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What the problem is called. [default: after the options]",
        callback=_named,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(metavar="AB[:D]", help="Element types: of A, B and D, or of A and B and of D."),
]
PassDtype = Annotated[
    str | None,
    typer.Option(
        metavar="AB[:D]",
        help="Element types. [default: bf16, and bf16:f32 for gradients of weights]",
    ),
]
WEIGHTED = "uniform|zipf:S|lognormal:S|hot:H"
LIKELY = (
    "How likely each is to be chosen: all alike; the r-th in a random order by r^-S; by exp(S z) "
    "with z normal; H of them together nine times as likely as all others"
)
Routed = Annotated[
    str,
    typer.Option(metavar=WEIGHTED, help=f"{LIKELY}.", autocompletion=_complete_routing),
]
RoutedOrCounted = Annotated[
    str,
    typer.Option(
        metavar=f"{WEIGHTED}|counts:FILE",
        help=f"{LIKELY}; or how many tokens chose each, from a file (text, JSON or .npy).",
        autocompletion=_complete_routing_or_counts,
    ),
]


@app.command()
def moe(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A published model, such as deepseek-v3; TAB or a wrong name lists them.",
            autocompletion=_complete_model,
        ),
    ] = None,
    layer: Annotated[
        Literal["gate_up", "down"] | None,
        typer.Option(help="Which layer of the model's experts. [default: gate_up]"),
    ] = None,
    experts: Annotated[
        int | None, typer.Option(min=1, max=GROUPS, metavar="N", help="Without --model: experts.")
    ] = None,
    topk: Annotated[
        int | None,
        typer.Option(min=1, max=64, metavar="N", help="Without --model: experts of a token."),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", min=1, max=EXTENT, metavar="N", help="Without --model: rows of the weights."
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", min=1, max=EXTENT, metavar="K", help="Without --model: their columns."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, max=MANY, metavar="N", help="Tokens that are routed, of all GPUs."),
    ] = None,
    ep: Annotated[
        int, typer.Option(min=1, metavar="N", help="GPUs that share the experts evenly.")
    ] = 1,
    rank: Annotated[int, typer.Option(min=0, metavar="N", help="Which of these GPUs, from 0.")] = 0,
    routing: RoutedOrCounted = "uniform",
    pass_: Annotated[
        Literal["forward", "dgrad", "wgrad"],
        typer.Option(
            "--pass",
            help="forward: Y = X W^T; dgrad: dX = dY W; wgrad: dW += dY^T X in place, where K is "
            "an expert's tokens.",
        ),
    ] = "forward",
    swiglu: Annotated[
        bool,
        typer.Option("--swiglu", help="Multiply silu of half of Y's columns by the others."),
    ] = False,
    dtype: PassDtype = None,
    seed: Seed = 0,
    name: Name = None,
    save: Save = None,
) -> None:
    """A layer of experts, one group each, on one GPU.

    Every token chooses different experts, one after another, each by its weight among those that it
    has not chosen yet. Experts that none chose are groups with m (of wgrad: k) 0.
    """
    from gemmctl.generating import passes
    from gemmctl.generating import routing as choosing
    from gemmctl.generating.moe import Moe

    parsed = choosing.parse(routing, sys.stdin.buffer)
    given = passes.usual_type(pass_) if dtype is None else dtype
    sizes = model, layer, experts, topk, n, k, tokens, ep, rank
    _write(Moe(*sizes, parsed, pass_, swiglu, given, seed, name), save)


@app.command()
def lora(
    adapters: Annotated[int, typer.Option(min=1, max=GROUPS, metavar="N", help="Adapters.")] = 64,
    tokens: Annotated[
        int,
        typer.Option(min=1, max=MANY, metavar="N", help="Tokens, each through one adapter."),
    ] = 8192,
    layer: Annotated[
        Literal["down", "up"],
        typer.Option(help="down: tokens x rank x hidden; up: tokens x hidden x rank."),
    ] = "down",
    hidden: Annotated[
        int, typer.Option(min=1, max=EXTENT, metavar="N", help="The layer's width.")
    ] = 4096,
    ranks: Annotated[
        str, typer.Option(metavar="R,...", help="Each adapter draws its rank from these.")
    ] = "16,32,64",
    routing: Routed = "uniform",
    dtype: Dtype = "bf16",
    seed: Seed = 0,
    name: Name = None,
    save: Save = None,
) -> None:
    """Low-rank adapters that serve a batch together, one group each."""
    from gemmctl.generating import routing as choosing
    from gemmctl.generating.lora import Lora

    parsed = choosing.parse(routing, sys.stdin.buffer)
    _write(Lora(layer, adapters, ranks, hidden, tokens, parsed, dtype, seed, name), save)


@app.command()
def batched(
    mnk: Annotated[
        list[str],
        typer.Option("--mnk", metavar="MxNxK[:COUNT]", help="A shape; repeated, more of them."),
    ],
    count: Annotated[
        int, typer.Option(min=1, max=GROUPS, metavar="N", help="Groups of each without a COUNT.")
    ] = 1,
    dtype: Dtype = "bf16",
    name: Name = None,
    save: Save = None,
) -> None:
    """Products of one shape, as bmm has them, or of a few."""
    from gemmctl.generating.batched import Batched

    _write(Batched(tuple(mnk), count, dtype, name), save)


@app.command()
def wgrad(
    weights: Annotated[
        list[str],
        typer.Option(metavar="NxK[:COUNT]", help="Weights of a layer; repeated, more of them."),
    ],
    tokens: Annotated[
        str, typer.Option(metavar="N|LOW:HIGH", help="Tokens of each, or a range to draw from.")
    ],
    dtype: Dtype = "bf16:f32",
    seed: Seed = 0,
    name: Name = None,
    save: Save = None,
) -> None:
    """Gradients of the weights of dense layers.

    Each group is dW += dY^T X in place: M x N is the weights' shape, K the tokens.
    """
    from gemmctl.generating.wgrad import Wgrad

    _write(Wgrad(tuple(weights), tokens, dtype, seed, name), save)


@app.command()
def random(
    groups: Annotated[int, typer.Option(min=1, max=GROUPS, metavar="N", help="Groups.")] = 64,
    m: Annotated[str, typer.Option("--m", metavar="N|LOW:HIGH", help="Sizes of M.")] = "64:4096",
    n: Annotated[str, typer.Option("--n", metavar="N|LOW:HIGH", help="Sizes of N.")] = "64:4096",
    k: Annotated[str, typer.Option("--k", metavar="N|LOW:HIGH", help="Sizes of K.")] = "64:4096",
    log_uniform: Annotated[
        bool, typer.Option("--log-uniform", help="As many sizes from 1 to 2 as from 2 to 4.")
    ] = False,
    align: Annotated[
        str, typer.Option(metavar="N|MxNxK", help="All sizes, or M, N and K, are multiples of it.")
    ] = "1x8x8",
    dtype: Annotated[
        str,
        typer.Option(metavar="AB[:D],...", help="Element types; of several each group draws one."),
    ] = "bf16",
    seed: Seed = 0,
    name: Name = None,
    save: Save = None,
) -> None:
    """Groups each of its own shape, drawn from ranges."""
    from gemmctl.generating.mixed import Random

    _write(Random(groups, m, n, k, log_uniform, align, dtype, seed, name), save)


@app.command()
def sweep(
    m: Annotated[str, typer.Option("--m", metavar="SIZES", help="Size of M, or several.")],
    n: Annotated[str, typer.Option("--n", metavar="SIZES", help="Size of N, or several.")],
    k: Annotated[str, typer.Option("--k", metavar="SIZES", help="Size of K, or several.")],
    count: Annotated[
        int, typer.Option(min=1, max=GROUPS, metavar="N", help="Equal groups of each problem.")
    ] = 1,
    dtype: Dtype = "bf16",
    name: Name = None,
    save: Save = None,
) -> None:
    """A problem for each value of m, n or k.

    One of them has several values: 64,96,128; or 1:4096, doubled; or 64:512:64 with a step.
    """
    from gemmctl.generating.sweep import Sweep

    _write(Sweep(m, n, k, count, dtype, name), save)


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", hidden=True)],
    n: Annotated[
        int | None,
        typer.Option(
            "--n", min=1, max=EXTENT, metavar="N", help="Of tokens per expert: rows of the weights."
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, max=EXTENT, metavar="K", help="Their columns.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="AB[:D]", help="Element types of what has none of its own.")
    ] = "bf16",
    name: Name = None,
    save: Save = None,
) -> None:
    """Another tool's list, or tokens per expert.

    FILE is a path, or - for standard input. What it is, is seen from what it holds: lines M N K
    or MxNxK; [MxNxK][MxNxK] and INDEX MxNxK as CUTLASS has them; rows [M, N, K] in JSON or .npy, or
    objects with m, n, k and maybe a count; matmuls as hipBLASLt logs them and hipblaslt-bench reads
    them (YAML); and with --n and --k, tokens per expert: text, which is one problem, or JSON or
    .npy, where each row of a table is one.
    """
    from gemmctl.generating import source
    from gemmctl.generating.importing import Import

    expected = source.EXPECTED if n is None else source.TOKENS
    _write(Import(source.read(file, sys.stdin.buffer, expected), n, k, dtype, name), save)


@app.command()
def family(
    folder: Annotated[str, typer.Argument(metavar="DIR", hidden=True)],
    seed: Seed = 0,
) -> None:
    """140 lists of every kind, each a file: KIND-NNN.yaml.

    DIR is made if need be, and generated lists of the same names in it are replaced. Each takes an
    H200 between 10 us and 3 ms. The cost model is fitted to measurements of those of seed 0.
    """
    import os

    from gemmctl.generating import listing
    from gemmctl.generating.family import family as lists
    from gemmctl.generating.family import names
    from gemmctl.showing import files

    if folder == "-":
        raise UsageError("a family is a file a list, in a folder; write ./- for one of that name")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        told = f"cannot make the folder {folder or repr(folder)}: {error.strerror}"
        raise UsageError(told) from None
    paths = {name: os.path.join(folder, f"{name}.yaml") for name in names()}
    for path in paths.values():
        _check(path)
    written = 0
    try:
        for name, request in lists(seed):
            files.replace(paths[name], listing.text(request))
            written += 1
    except BaseException:
        typer.echo(f"gemmctl: {written} of {len(paths)} lists are written", err=True)
        raise


def _write(request: Request, save: str | None) -> None:
    from gemmctl.generating import listing
    from gemmctl.showing import files, streams

    text = listing.text(request)
    if save is None:
        streams.in_utf8()
        typer.echo(text, nl=False)
    else:
        _check(save)
        files.replace(save, text)


def _check(path: str) -> None:
    """Raise UsageError unless a list can be written there, in place of a generated one or none."""
    import re

    from gemmctl.generating.listing import BEGINNING
    from gemmctl.showing import files

    generated = re.compile(re.escape(BEGINNING.encode()))
    files.check(path, generated.match, "a generated list", "without it, the list goes")
