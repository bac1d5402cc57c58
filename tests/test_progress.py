from __future__ import annotations

import time

import pytest

from gemmctl.showing import progress
from gemmctl.showing.progress import Bar


def test_work_that_is_done_in_time_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar(1, shown=True) as bar:
        bar.part("quick")(0.5)
    assert capfd.readouterr().err == ""


def test_work_that_takes_longer_shows_what_is_being_done(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the captured stream for a terminal
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    with Bar(2, shown=True) as bar:
        bar.part("slow")(0.5)
        time.sleep(0.3)
    shown = capfd.readouterr()
    assert "slow" in shown.err
    assert shown.out == ""


def test_a_bar_that_is_not_wanted_does_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    with Bar(1, shown=False) as bar:
        bar.part("hidden")(0.5)
        time.sleep(0.1)
    assert capfd.readouterr().err == ""


def test_parts_are_counted_with_the_share_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with Bar(3, shown=True) as bar:
        bar.part("first")
        bar.part("second")(0.25)
        (task,) = bar._progress.tasks
    assert (task.description, task.completed, task.total) == ("second", 1.25, 3)
