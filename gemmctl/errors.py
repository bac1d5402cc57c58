"""Every way gemmctl can fail, each with the exit code a script sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmctl.lists.yamlfile import Mark


class GemmctlError(Exception):
    """A failure that gemmctl explains in a sentence instead of a traceback."""

    exit_code = 70


class UsageError(GemmctlError):
    """The command line, an input file or an output path cannot be used."""

    exit_code = 2


class ListError(UsageError):
    """One or more errors in problem lists, each with its place.

    ``errors`` holds (mark, message) pairs; the text is every one of them as
    ``file:line:column: message`` with the source line and a caret.
    """

    def __init__(self, errors: Iterable[tuple[Mark, str]]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(mark.explain(message) for mark, message in self.errors))


class DeviceUnusable(GemmctlError):
    """The device that was asked for cannot be used: driver, chip or cubin."""

    exit_code = 3


class DeviceFailed(GemmctlError):
    """The device failed while it ran: launch error, out of memory, time limit."""

    exit_code = 4


class DeviceHung(DeviceFailed):
    """A kernel did not finish in its time limit.

    The driver would wait for that kernel when the process cleans up, so whoever
    reports this error has to leave the process without clean-up.
    """
