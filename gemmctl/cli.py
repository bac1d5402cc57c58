"""The command line: the commands, and what all of them share.

Only typer and the options are imported here, everything else by the command that needs it, so that
--help and --version answer at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gemmctl.commands import compare, info, plan, run, schema, tune, verify

EXIT_CODES = """\
\b
Exit codes:
  0    done, and right
  1    ran, and the answer is no: verify found a mismatch, compare is over its limit
  2    bad usage, a bad problem list, or a file that cannot be used; nothing was run
  3    the device asked for is not usable: driver, chip or cubin
  4    the device failed while it ran: launch error, out of memory, time limit
  70   a bug in gemmctl
  130  interrupted (Ctrl-C)
  141  the reader of the output closed the pipe
"""

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    run.run,
    verify.verify,
    plan.plan,
    tune.tune,
    compare.compare,
    info.info,
    schema.schema,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gemmctl import __version__

        typer.echo(f"gemmctl {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def gemmctl(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Grouped GEMM on NVIDIA Hopper GPUs: time it, verify it, plan it, compare it."""
