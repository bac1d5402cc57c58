"""The command line: the commands, and what all of them share.

Only typer and the options are imported here, everything else by the command that needs it, so that
--help and --version answer at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gemmctl.commands import compare, gen, info, plan, run, schema, tune, verify
from gemmctl.commands.sources import ABOUT_FILES

EPILOG = """\
\b
Examples:
  gemmctl run --mnk 2048x14336x4096 --count 8
  gemmctl run mine.yaml -o today.json
  gemmctl compare yesterday.json today.json --fail-over 3%
  gemmctl verify @ragged @edge

\b
Exit codes:
  0    done, and right
  1    ran, and the answer is no: verify found a mismatch, compare is over its limit
  2    bad usage, a bad problem list, or a file or stream that cannot be used
  3    the device asked for is not usable: driver, chip or cubin
  4    the device failed while it ran: launch error, out of memory, time limit
  70   a bug in gemmctl
  129  hung up (SIGHUP)
  130  interrupted (Ctrl-C)
  141  the reader of the output closed the pipe
  143  terminated (SIGTERM)
"""


@contextmanager
def _plain_words() -> Iterator[None]:
    """What is wrong with an option's value, without the words that pydantic puts before it."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


class _Commands(TyperGroup):
    """All commands, and the options that stand before them."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Read the options before the command."""
        with _plain_words():
            return super().make_context(*args, **more)

    def invoke(self, *args: Any, **more: Any) -> Any:
        """Read those of the command, and run it."""
        with _plain_words():
            return super().invoke(*args, **more)


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(epilog=ABOUT_FILES)(run.run)
app.command(epilog=ABOUT_FILES)(verify.verify)
app.command(epilog=ABOUT_FILES)(plan.plan)
app.command(epilog=ABOUT_FILES)(tune.tune)
app.command()(compare.compare)
app.add_typer(gen.app, name="gen")
app.command()(info.info)
app.command()(schema.schema)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gemmctl import __version__

        typer.echo(f"gemmctl {__version__}")
        raise typer.Exit


@app.callback(epilog=EPILOG)
def gemmctl(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Grouped GEMM on NVIDIA Hopper GPUs: time it, verify it, plan it, compare it."""
