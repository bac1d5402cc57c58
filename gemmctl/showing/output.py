"""Where a command's words go: results to stdout, notes to stderr, in the form that was asked."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Literal, TextIO

from gemmctl.errors import ClosedPipe, UsageError
from gemmctl.showing.formats import Format, line, render
from gemmctl.showing.progress import Bar
from gemmctl.showing.report import Record, Report
from gemmctl.showing.table import DEFAULT, View

Color = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Output:
    """The options of every command that say how to speak.

    format None is a table on a terminal and plain text elsewhere; quiet leaves only errors and
    the exit code. Raises UsageError for a view of a format that has no columns or rows to choose.
    """

    format: Format | None
    quiet: bool
    color: Color
    view: View = DEFAULT

    def __post_init__(self) -> None:
        """Refuse what the format cannot do."""
        if self.view.columns is not None and self._format in ("csv", "json", "jsonl"):
            raise UsageError(f"--columns picks columns of tables; {self._format} has every field")
        if self.view.sort is not None and self._format == "jsonl":
            raise UsageError("--sort needs all results at once; jsonl gives each when it is there")

    def bar(self, total: int) -> Bar:
        """A progress bar of so many parts, shown where it is seen and in nobody's way."""
        streaming = self._format == "jsonl" and sys.stdout.isatty()
        dumb = os.environ.get("TERM") == "dumb"
        shown = sys.stderr.isatty() and not (self.quiet or streaming or dumb)
        return Bar(total, shown=shown, color=self._colored(sys.stderr))

    def note(self, text: str) -> None:
        """One line on stderr."""
        if not self.quiet:
            print(f"gemmctl: {text}", file=sys.stderr)

    def stream(self, head: Record, record: Record) -> None:
        """Give one record away at once, if the format can be read line by line."""
        if self._format == "jsonl":
            self._write(line(head, record))

    def show(self, report: Report) -> None:
        """Give the whole report, less the records that were streamed."""
        if self._format != "jsonl":
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            color = self._colored(sys.stdout)
            self._write(render(report, self._format, color=color, width=width))
        if self._format == "plain":
            for text in report.notes:
                self.note(text)

    @contextlib.contextmanager
    def shown(
        self, found: Sized, report: Callable[[], Report], so_far: Callable[[], str]
    ) -> Iterator[None]:
        """Show a report at the end of a block, in which something is ``found``.

        If something else ends the block, what was found until then is shown, and a note says how
        much that is.
        """
        try:
            yield
        except ClosedPipe:
            raise
        except BaseException:
            if found:
                with contextlib.suppress(ClosedPipe):
                    self.show(report())
            self.note(so_far())
            raise
        self.show(report())

    def _write(self, text: str) -> None:
        if not self.quiet:
            sys.stdout.write(text)
            sys.stdout.flush()

    @property
    def _format(self) -> Format:
        return self.format or ("table" if sys.stdout.isatty() else "plain")

    def _colored(self, stream: TextIO) -> bool:
        if self.color != "auto":
            return self.color == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain
