"""A progress bar on stderr for what takes longer than a second, on a terminal only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from gemmctl.showing import streams

PATIENCE_S = 1.0  # what is done by then needs no bar
SPEED_PERIOD_S = 600.0  # that the time left is guessed from; parts differ, so a long look back


class Bar:
    """Counts parts done; a context manager that shows itself late and leaves nothing behind."""

    def __init__(self, total: int, *, shown: bool, color: bool = True) -> None:
        """``total`` parts; nothing at all happens unless ``shown``."""
        self._total = total
        self._shown = shown
        self._color = color
        self._begun = 0

    def __enter__(self) -> Bar:
        """Start to wait."""
        if self._shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            # Left to itself rich would send what others print to stdout through this bar's stderr.
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=Console(
                    file=streams.canvas(), color_system="auto" if self._color else None
                ),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                speed_estimate_period=SPEED_PERIOD_S,
            )
            self._task = self._progress.add_task("", total=self._total)
            self._timer = threading.Timer(PATIENCE_S, self._progress.start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def part(self, name: str) -> Callable[[float], None]:
        """Begin the next part; the function given back hears the share of it done, 0 to 1."""
        before = self._begun
        self._begun += 1

        def hear(share: float) -> None:
            if self._shown:
                self._progress.update(self._task, description=name, completed=before + share)

        hear(0.0)
        return hear

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wipe the bar, if it came to be."""
        if self._shown:
            self._timer.cancel()
            self._timer.join()
            if self._progress.live.is_started:
                self._progress.stop()
