"""The gemmctl command: run it, and turn every failure and every signal into its exit code."""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that mean: end, but tidily
PATIENCE_S = 10  # for a clean-up; it can hang where the signal left a lock of Python's own locked


def main() -> None:
    """Run the command line; never returns."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup and a shell's & leave them
            signal.signal(number, _end)
    # Imported from here on, so that what interrupts an import ends as quietly.
    from gemmctl.errors import ClosedPipe, DeviceHung, GemmctlError
    from gemmctl.showing import streams

    streams.prepare()
    if len(sys.argv) > 2 and sys.argv[1] in ("--install-completion", "--show-completion"):
        # A shell is named: typer then takes that name instead of looking which one this is.
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    try:
        from gemmctl.cli import app

        app(prog_name="gemmctl")
    except ClosedPipe as error:
        sys.exit(error.exit_code)
    except GemmctlError as error:
        print(error.told(), file=sys.stderr)
        if isinstance(error, DeviceHung):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_code)
        sys.exit(error.exit_code)
    except MemoryError as error:
        needed = f": {error}" if str(error) else ""
        print(f"gemmctl: out of memory{needed}; run fewer or smaller groups at a time",
              file=sys.stderr)  # fmt: skip
        sys.exit(4)
    except Exception as error:
        if sys.argv[1:2] == ["--install-completion"] and isinstance(error, OSError):
            print(f"gemmctl: {_not_installed(error)}", file=sys.stderr)
            sys.exit(2)
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            print("gemmctl: no thread can be started; allow this process more threads or memory",
                  file=sys.stderr)  # fmt: skip
            sys.exit(4)
        if (ended := _ended(error)) is not None:
            sys.exit(ended)
        import traceback

        traceback.print_exc()
        print("gemmctl: this is a bug in gemmctl; please report it with the lines above",
              file=sys.stderr)  # fmt: skip
        sys.exit(70)


def _not_installed(error: OSError) -> str:
    """Why completion could not be installed."""
    if error.filename in ("powershell", "pwsh"):  # typer asks it where its profile is
        return ("there is no PowerShell here to ask for its profile; run it where there is one, "
                "or name another shell")  # fmt: skip
    return (f"cannot install completion: cannot write {error.filename}: {error.strerror}; "
            "set HOME to a folder that can be written, or use --show-completion")  # fmt: skip


def _ended(error: BaseException | None) -> int | None:
    """The exit code of a signal on whose way out something else went wrong, if that is so.

    A signal can come where Python's own locks and thread pools do not expect it, whose clean-up
    then fails.
    """
    while error is not None:
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return error.code
        error = error.__context__
    return None


def _end(number: int, frame: FrameType | None) -> None:
    """Leave from wherever the program is, by way of every clean-up.

    A second signal skips what is left of them, and so do PATIENCE_S. A thread sees to that: a
    clean-up may be in a call of the driver, from which no handler is run.
    """
    for other in ENDING:
        if signal.getsignal(other) == _end:
            signal.signal(other, _again)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    _thread.start_new_thread(_end_at_last, (number, heard))
    sys.exit(128 + number)


def _again(number: int, frame: FrameType | None) -> None:
    """Nothing: the signal was written to the pipe."""


def _end_at_last(number: int, heard: int) -> None:
    """End the process at the next signal, or after PATIENCE_S."""
    while select.select([heard], [], [], PATIENCE_S)[0]:
        (again,) = os.read(heard, 1)
        if again in ENDING:
            number = again
            break
    if sys.stderr.isatty():
        os.write(2, b"\r\x1b[K\x1b[?25h")  # in place of a progress bar: an empty line, the cursor
    os._exit(128 + number)


if __name__ == "__main__":
    main()
