"""Where a command's words go: results to stdout, notes to stderr, in the form that was asked."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal, TextIO

from gemmctl.errors import UsageError
from gemmctl.showing.formats import Format, line, render
from gemmctl.showing.report import Record, Report

Color = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Output:
    """The options of every command that say how to speak.

    format None is a table on a terminal and plain text elsewhere; quiet leaves only errors and
    the exit code.
    """

    format: Format | None
    quiet: bool
    verbose: bool
    color: Color

    @property
    def bar(self) -> bool:
        """Whether a progress bar would be seen and be in nobody's way."""
        streaming = self._format == "jsonl" and sys.stdout.isatty()
        dumb = os.environ.get("TERM") == "dumb"
        return sys.stderr.isatty() and not (self.quiet or streaming or dumb)

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
            self._write(render(report, self._format, color=self._colored(sys.stdout)))
        if self._format == "plain":
            for text in report.notes:
                self.note(text)

    def _write(self, text: str) -> None:
        if self.quiet:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            raise UsageError(f"cannot write to standard output: {error.strerror}") from None

    @property
    def _format(self) -> Format:
        return self.format or ("table" if sys.stdout.isatty() else "plain")

    def _colored(self, stream: TextIO) -> bool:
        if self.color != "auto":
            return self.color == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain
