"""The gemmctl command: run it, and turn every failure into its exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback

from gemmctl.cli import app
from gemmctl.errors import DeviceHung, GemmctlError


def main() -> None:
    """Run the command line; never returns."""
    if hasattr(signal, "SIGPIPE"):
        # End like cat and grep when the reader of stdout has gone: silently, exit code 141.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app(prog_name="gemmctl")
    except GemmctlError as error:
        print(error.told(), file=sys.stderr)
        if isinstance(error, DeviceHung):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_code)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        print("gemmctl: this is a bug in gemmctl; please report it with the lines above",
              file=sys.stderr)  # fmt: skip
        sys.exit(70)


if __name__ == "__main__":
    main()
