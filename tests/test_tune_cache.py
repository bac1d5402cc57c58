from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gemmctl.device.base import Facts
from gemmctl.kernels import cubins
from gemmctl.kernels.cubins import Manifest
from gemmctl.measuring import tune_cache
from gemmctl.measuring.tune_cache import TuneCache, fingerprint
from gemmctl.planning import plan
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice
from support import planned

MANIFEST = cubins.manifest()
GPU = Facts("cuda", "a gpu", 1 << 37, "580", 132)
CHOICES = (Choice("128x256", 144), Choice("64x128", 96, 2))
GROUP = {"m": 64, "n": 128, "k": 64}


def two_launches(choices: Sequence[Choice] = CHOICES, name: str = "p") -> Plan:
    made = planned({**GROUP, "k": 1024}, {**GROUP, "k": 2048, "d": "f32"}, name=name)
    (chosen,) = plan.make([made.problem], MANIFEST.kernels, chosen={name: choices})
    return chosen


class Notes(list[str]):
    """What a cache told."""

    def cache(self, facts: Facts = GPU, manifest: Manifest = MANIFEST) -> TuneCache:
        return TuneCache(facts, manifest, self.append)


def files() -> list[Path]:
    return list(tune_cache.folder().iterdir())


# What is found


def test_what_was_kept_is_found_again() -> None:
    notes, made = Notes(), two_launches()
    assert notes.cache().keep(made, 1e-3)
    assert notes.cache().find([made.problem]) == {"p": CHOICES}
    assert notes == []


def test_kernels_that_exchange_operands_are_found_again() -> None:
    notes, choices = Notes(), (Choice("128x256-x", 144), Choice("128x192-c2px", 96, 2))
    made = two_launches(choices)
    assert notes.cache().keep(made, 1e-3)
    assert notes.cache().find([made.problem]) == {"p": choices}
    assert notes == []


APART = ({**GROUP, "m": 512, "k": 4096}, {**GROUP, "k": 4096})


@pytest.mark.parametrize(
    ("sms", "found"), [(92, True), (131, True), (132, False), (1, False), (-1, False), (9.5, False)]
)
def test_two_launches_of_which_one_leaves_sms_to_the_other_are_found_again(
    sms: int, found: bool
) -> None:
    notes, made = Notes(), planned(*APART)
    choices = (Choice("128x256-c2", 256, sms=92), Choice("128x192-c2p", 64))
    (chosen,) = plan.make([made.problem], MANIFEST.kernels, chosen={"p": choices})
    assert notes.cache().keep(chosen, 1e-3)
    (path,) = files()
    path.write_text(path.read_text().replace('"sms": 92', f'"sms": {sms}'))
    choices = (replace(choices[0], sms=sms), choices[1])
    assert notes.cache().find([made.problem]) == ({"p": choices} if found else {})
    assert len(notes) == (not found)


@pytest.mark.parametrize(("launches", "launch"), [(1, 0), (2, 0), (2, 1)])
def test_sms_that_nobody_is_there_for_are_ignored(launches: int, launch: int) -> None:
    notes, made = Notes(), two_launches() if launches == 2 else planned(GROUP)
    assert len(made.launches) == launches
    assert notes.cache().keep(made, 1e-3)
    (path,) = files()
    kept = json.loads(path.read_text())
    kept["choices"][launch]["sms"] = 66
    path.write_text(json.dumps(kept))
    assert notes.cache().find([made.problem]) == {}
    assert len(notes) == 1


def test_nothing_is_found_and_nothing_said_where_nothing_was_kept() -> None:
    notes = Notes()
    assert notes.cache().find([two_launches().problem]) == {}
    assert notes == []


def test_what_is_kept_last_counts() -> None:
    notes, made = Notes(), two_launches()
    notes.cache().keep(two_launches([Choice("64x128", 128)] * 2), 2e-3)
    notes.cache().keep(made, 1e-3)
    assert notes.cache().find([made.problem]) == {"p": CHOICES}
    assert len(files()) == 1


def test_the_name_of_a_problem_does_not_matter() -> None:
    notes = Notes()
    notes.cache().keep(two_launches(name="old"), 1e-3)
    assert notes.cache().find([two_launches(name="new").problem]) == {"new": CHOICES}


@pytest.mark.parametrize(
    ("facts", "manifest"),
    [
        (replace(GPU, name="another gpu"), MANIFEST),
        (replace(GPU, sm_count=114), MANIFEST),
        (GPU, replace(MANIFEST, files={**MANIFEST.files, "new.cubin": "0" * 64})),
    ],
)
def test_another_gpu_and_other_cubins_find_nothing(facts: Facts, manifest: Manifest) -> None:
    notes, made = Notes(), two_launches()
    notes.cache().keep(made, 1e-3)
    assert notes.cache(facts, manifest).find([made.problem]) == {}
    assert notes == []


def test_another_driver_finds_the_same() -> None:
    notes, made = Notes(), two_launches()
    notes.cache().keep(made, 1e-3)
    assert notes.cache(replace(GPU, driver="590")).find([made.problem]) == {"p": CHOICES}


WITH_C = {**GROUP, "beta": 1}
F32_C = {**WITH_C, "d": "f32"}
WITH_BIAS = {**GROUP, "bias": "n"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GROUP, {**GROUP, "m": 65}),
        (GROUP, {**GROUP, "n": 136}),
        (GROUP, {**GROUP, "k": 72}),
        (GROUP, {**GROUP, "a": "f16", "b": "f16"}),
        (GROUP, {**GROUP, "d": "f32"}),
        (GROUP, {**GROUP, "lda": 72}),
        (GROUP, {**GROUP, "ldb": 72}),
        (GROUP, {**GROUP, "ldd": 136}),
        (GROUP, {**GROUP, "a_offset": 1}),
        (GROUP, {**GROUP, "b_offset": 1}),
        (GROUP, {**GROUP, "d_offset": 1}),
        (WITH_C, {**WITH_C, "c_offset": 1}),
        (GROUP, {**GROUP, "alpha": 2}),
        (GROUP, WITH_C),
        (WITH_C, {**WITH_C, "c": "f32"}),
        (WITH_C, {**WITH_C, "ldc": 136}),
        (WITH_BIAS, {**WITH_BIAS, "bias": "m"}),
        (WITH_BIAS, {**WITH_BIAS, "bias_type": "f32"}),
        (GROUP, {**GROUP, "count": 2}),
    ],
)
def test_what_may_change_the_best_choice_changes_the_fingerprint(
    before: dict[str, object], after: dict[str, object]
) -> None:
    assert fingerprint(planned(before).problem) != fingerprint(planned(after).problem)


@pytest.mark.parametrize("layout", ["a_layout", "b_layout", "d_layout"])
def test_layouts_change_the_fingerprint(layout: str) -> None:
    problem = planned(GROUP).problem
    (group,) = problem.groups
    other = "col" if getattr(group, layout) == "row" else "row"
    turned = replace(problem, groups=(replace(group, **{layout: other}),))
    assert fingerprint(turned) != fingerprint(problem)


@pytest.mark.parametrize("other", [F32_C, {**F32_C, "inplace": True, "beta": 0.5}])
def test_what_sums_may_be_added_to_is_told_from_what_is_read(other: dict[str, object]) -> None:
    notes, made = Notes(), planned({**F32_C, "inplace": True})
    notes.cache().keep(made, 1e-3)
    assert notes.cache().find([made.problem])
    assert notes.cache().find([planned(other).problem]) == {}


def test_the_order_of_groups_changes_the_fingerprint() -> None:
    wide = {**GROUP, "n": 256}
    turned = fingerprint(planned(wide, GROUP).problem)
    assert fingerprint(planned(GROUP, wide).problem) != turned


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({**GROUP, "alpha": 2}, {**GROUP, "alpha": -0.5}),
        (WITH_C, {**WITH_C, "beta": -3}),
        (GROUP, {**GROUP, "c": "f32"}),  # is not read
        (GROUP, {**GROUP, "ldc": 136}),
        (GROUP, {**GROUP, "c_offset": 1}),
        ({**GROUP, "count": 2}, {**GROUP, "lda": 64, "count": 2}),
    ],
)
def test_what_cannot_change_the_best_choice_does_not_change_the_fingerprint(
    before: dict[str, object], after: dict[str, object]
) -> None:
    assert fingerprint(planned(before).problem) == fingerprint(planned(after).problem)


# What is wrong with the cache never keeps anybody from working


def changed(**entries: object) -> str:
    """What is kept for two_launches(), with some entries changed."""
    (path,) = files()
    return json.dumps({**json.loads(path.read_text()), **entries})


def choice(**changes: object) -> dict[str, object]:
    return {"kernel": "64x128", "width": 128, "splits": 1, **changes}


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "null", "[]", "[1]", '"text"', "7", "{}", "[" * 100_000, b"\xff\xfe\x00",
        {"format": 1}, {"gpu": "another"}, {"sm_count": None}, {"cubin_sha256": "0"},
        {"problem": "0"}, {"choices": None}, {"choices": []}, {"choices": [choice()]},
        {"choices": [choice()] * 3}, {"choices": [choice(), None]},
        {"choices": [choice(), choice(kernel="1x1")]},
        {"choices": [choice(), choice(kernel=["64x128"])]},
        {"choices": [choice(), choice(width=0)]}, {"choices": [choice(), choice(width=-16)]},
        {"choices": [choice(), choice(width=24)]}, {"choices": [choice(), choice(width=256)]},
        {"choices": [choice(), choice(width=64.0)]}, {"choices": [choice(), choice(width="64")]},
        {"choices": [choice(), choice(splits=0)]}, {"choices": [choice(), choice(splits=True)]},
        {"choices": [choice(), choice(splits=10**30)]},
        {"choices": [choice(), choice(extra=1)]}, {"choices": [choice(), {"kernel": "64x128"}]},
    ],
)  # fmt: skip
def test_a_file_that_tune_did_not_write_is_ignored_with_one_note(
    content: str | bytes | dict[str, object],
) -> None:
    notes, made = Notes(), two_launches()
    notes.cache().keep(made, 1e-3)
    (path,) = files()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else changed(**content))
    cache = notes.cache()
    assert cache.find([made.problem]) == cache.find([made.problem]) == {}
    (note,) = notes
    assert note.startswith(f"ignored {path}: ")


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for() -> None:
    notes, made = Notes(), two_launches()
    notes.cache().keep(made, 1e-3)
    (path,) = files()
    path.unlink()
    os.mkfifo(path)
    assert notes.cache().find([made.problem]) == {}
    assert [note.startswith(f"ignored {path}: ") for note in notes] == [True]


@pytest.mark.parametrize(("splits", "found"), [(8, True), (9, False)])
def test_more_parts_of_sums_than_the_gpu_has_room_for_are_ignored(splits: int, found: bool) -> None:
    notes, made = Notes(), planned({"m": 256, "n": 256 * 16, "k": 65536})
    choice = Choice("128x256-c2", 256, splits)
    (chosen,) = plan.make([made.problem], MANIFEST.kernels, chosen={"p": [choice]})
    (launch,) = chosen.launches
    assert (launch.slots, launch.room) == (16 * splits, 66)
    notes.cache().keep(chosen, 1e-3)
    assert notes.cache().find([made.problem]) == ({"p": (choice,)} if found else {})
    assert len(notes) == (not found)


def test_a_damaged_file_is_written_anew() -> None:
    notes, made = Notes(), two_launches()
    notes.cache().keep(made, 1e-3)
    files()[0].write_text("{")
    notes.cache().keep(made, 1e-3)
    assert notes.cache().find([made.problem]) == {"p": CHOICES}
    assert notes == []


def test_the_file_of_another_problem_is_ignored() -> None:
    notes, made, other = Notes(), two_launches(), planned(GROUP)
    notes.cache().keep(made, 1e-3)
    (path,) = files()
    notes.cache().keep(other, 1e-3)
    (second,) = set(files()) - {path}
    second.write_text(path.read_text())
    assert notes.cache().find([other.problem]) == {}
    assert len(notes) == 1


def test_a_folder_that_cannot_be_read_is_one_note_for_all_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    notes = Notes()
    assert notes.cache().find([two_launches().problem, planned(GROUP, name="q").problem]) == {}
    assert notes == [f"cannot read what tune found: {tune_cache.folder()}: Permission denied"]


def test_a_folder_that_cannot_be_written_is_one_note_for_all_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    notes = Notes()
    cache = notes.cache()
    assert not cache.keep(two_launches(), 1e-3)
    assert not cache.keep(planned(GROUP), 1e-3)
    assert notes == [f"cannot keep what was found: {tune_cache.folder()}: Read-only file system"]
    assert files() == []  # what was written aside is gone, too


def test_somebody_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    notes = Notes()
    assert notes.cache().find([two_launches().problem]) == {}
    assert not notes.cache().keep(two_launches(), 1e-3)
    assert len(notes) == 2


def test_many_writers_leave_a_whole_file_at_all_times() -> None:
    rivals = [two_launches([Choice("64x128", width)] * 2) for width in (64, 96, 128)]
    notes = Notes()
    assert notes.cache().keep(rivals[0], 1e-3)
    done = threading.Event()

    def write(made: Plan) -> None:
        while not done.is_set():
            assert notes.cache().keep(made, 1e-3)

    writers = [threading.Thread(target=write, args=[made]) for made in rivals]
    for writer in writers:
        writer.start()
    try:
        found = [notes.cache().find([rivals[0].problem]) for _ in range(300)]
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert all(one.get("p") in [made.choices for made in rivals] for one in found)
    assert notes == []
    assert len(files()) == 1


# Where it is


def test_the_cache_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tune_cache.folder() == tmp_path / "gemmctl" / "tune"


@pytest.mark.parametrize("chosen", ["", "not/absolute"])
def test_without_a_word_from_xdg_it_is_below_home(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tune_cache.folder() == tmp_path / ".cache" / "gemmctl" / "tune"
