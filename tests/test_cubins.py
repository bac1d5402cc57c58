"""The precompiled kernels: found, described by their manifest, and refused when damaged."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmctl.errors import DeviceUnusable, UsageError
from gemmctl.kernels import archive, cubins
from gemmctl.kernels.cubins import Kernel, Manifest
from sources import members, parameters
from support import Command, environment

SHIPPED = cubins.manifest()
# Structs of the sources that kernels are handed.
HANDED = [
    "Tile",
    "TensorMap",
    "Maps",
    "ResidueMaps",
    "Groups",
    "Ring",
    "ConstantMaps",
    "Params",
    "Templates",
    "ResidueTemplates",
    "Pack",
    "Fill",
    "Quantiles",
    "Hashed",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that GEMMCTL_CUBINS names, with a manifest and without cubins."""
    shutil.copy(SHIPPED.folder / "manifest.json", tmp_path)
    monkeypatch.setenv("GEMMCTL_CUBINS", str(tmp_path))
    cubins.manifest.cache_clear()
    yield tmp_path
    cubins.manifest.cache_clear()


# Where they are


def test_the_environment_names_the_folder(folder: Path) -> None:
    assert cubins.folder() == folder
    assert cubins.manifest().folder == folder


def test_an_empty_word_in_the_environment_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMCTL_CUBINS", "")
    assert cubins.folder().parts[-2:] == ("cubin", "built")


def test_an_installed_package_has_them_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMMCTL_CUBINS", raising=False)
    monkeypatch.setattr(cubins, "__file__", str(tmp_path / "gemmctl" / "kernels" / "cubins.py"))
    (tmp_path / "gemmctl" / "cubin").mkdir(parents=True)
    assert cubins.folder() == tmp_path / "gemmctl" / "cubin"


def test_a_checkout_has_them_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMMCTL_CUBINS", raising=False)
    monkeypatch.setattr(cubins, "__file__", str(tmp_path / "gemmctl" / "kernels" / "cubins.py"))
    (tmp_path / "gemmctl").mkdir()
    assert cubins.folder() == tmp_path / "cubin" / "built"


# The manifest


def test_a_manifest_is_what_its_file_says(folder: Path) -> None:
    written = json.loads((folder / "manifest.json").read_text())
    found = cubins.manifest()
    assert (found.support, found.compiler) == (written["support"], written["compiler"])
    assert found.files == {name: entry["sha256"] for name, entry in written["files"].items()}
    assert found.archives == {name: entry["archive"] for name, entry in written["files"].items()}
    names = [field.name for field in fields(Kernel)]
    assert [[getattr(kernel, name) for name in names] for kernel in found.kernels] == [
        [entry[name] for name in names] for entry in written["kernels"]
    ]


def test_the_manifest_is_read_once(folder: Path) -> None:
    first = cubins.manifest()
    (folder / "manifest.json").unlink()
    assert cubins.manifest() is first


def without(key: str) -> Callable[[Any], object]:
    return lambda written: {name: value for name, value in written.items() if name != key}


def of_kernels(**changes: object) -> Callable[[Any], object]:
    def change(written: Any) -> object:
        return {**written, "kernels": [{**kernel, **changes} for kernel in written["kernels"]]}

    return change


def of_fill(key: str) -> Callable[[Any], object]:
    def change(written: Any) -> object:
        written["files"]["fill.cubin"][key] = 5
        return written

    return change


def kernel_without_rows(written: Any) -> object:
    for kernel in written["kernels"]:
        del kernel["rows"]
    return written


@pytest.mark.parametrize(
    "change",
    [
        *map(without, ("kernels", "files", "support", "constants", "compiler")),
        kernel_without_rows,
        of_kernels(a_layout=""),
        of_kernels(operand="f64"),
        of_kernels(output="zz"),
        of_kernels(cluster=0),
        of_kernels(threads=-128),
        of_fill("sha256"),
        of_fill("archive"),
        lambda written: {**written, "compiler": None},
        lambda written: {**written, "support": {}},
        lambda _: [],
        lambda written: {**written, "files": []},
        lambda written: {**written, "files": {"fill.cubin": 1}},
        lambda written: {**written, "support": 3},
        lambda written: {**written, "constants": []},
        lambda written: {**written, "kernels": 3},
    ],
)
def test_a_file_that_is_no_manifest_is_refused(
    change: Callable[[Any], object], folder: Path
) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DeviceUnusable, match="cannot read the kernel manifest") as caught:
        cubins.manifest()
    assert str(folder) in str(caught.value)
    told = "unset GEMMCTL_CUBINS to use the kernels that ship, or run cubin/build.py"
    assert told in str(caught.value)


def test_a_manifest_of_another_format_is_refused(folder: Path) -> None:
    found = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**found, "format": 1}))
    with pytest.raises(DeviceUnusable, match="its format is 1, not 9"):
        cubins.manifest()


def test_kernels_that_are_handed_something_else_have_another_format() -> None:
    handed = [*map(members, HANDED), *map(parameters, ("gemm", *SHIPPED.support))]
    digest = hashlib.sha256(repr(handed).encode()).hexdigest()[:16]
    # Where the digest differs, older cubins would be handed what they do not know: raise FORMAT in
    # gemmctl/kernels/cubins.py and cubin/build.py, and put both here.
    assert (cubins.FORMAT, digest) == (9, "8b9894729e9ae8e9")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"K_TILE": 32}, "K_TILE 32 instead of 64"),
        ({"K_TILE": 32, "MAPS": 4}, "K_TILE 32 instead of 64, MAPS 4 instead of 3"),
        ({"SECRET": 1}, "SECRET 1 instead of none"),
        ({"MAPS": None}, "MAPS unknown instead of 3"),
    ],
)
def test_kernels_that_were_built_for_other_constants_are_refused(
    changed: dict[str, int | None], said: str, folder: Path
) -> None:
    found = json.loads((folder / "manifest.json").read_text())
    constants = {**found["constants"], **changed}
    found["constants"] = {name: value for name, value in constants.items() if value is not None}
    (folder / "manifest.json").write_text(json.dumps(found))
    with pytest.raises(DeviceUnusable, match=rf"for other constants: {said}; unset GEMM"):
        cubins.manifest()


def changed(key: str, value: object) -> str:
    """A manifest without files, with another value of one key."""
    written = json.loads((SHIPPED.folder / "manifest.json").read_text())
    return json.dumps({**written, "files": {}, key: value})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "it has no format"),
        ("[]", "it is not what cubin/build.py writes"),
        (f'{{"format": {cubins.FORMAT}, "constants": 5}}', "it is not what cubin/build.py writes"),
        ("[" * 100_000, "it is not what cubin/build.py writes"),
        (changed("kernels", []), "it has no kernels"),
        (changed("kernels", [vars(SHIPPED.kernels[0])]), "it has no hash of "),
        (changed("kernels", [{**vars(SHIPPED.kernels[0]), "threads": "384"}]), "it is not what"),
        (changed("kernels", [{**vars(SHIPPED.kernels[0]), "operand": ["f16"]}]), "it is not what"),
    ],
)
def test_a_manifest_that_lacks_something_is_told_in_words(
    text: str, told: str, gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    done = gemmctl("info", GEMMCTL_CUBINS=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert f"(named by GEMMCTL_CUBINS): {told}" in done.stderr
    assert "; unset GEMMCTL_CUBINS to use the kernels that ship" in done.stderr


def test_half_a_manifest_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:1000])
    with pytest.raises(DeviceUnusable, match="cannot read the kernel manifest"):
        cubins.manifest()


def test_a_folder_without_a_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(DeviceUnusable, match=r"cannot read the kernel manifest .* No such file"):
        cubins.manifest()


@pytest.mark.parametrize("name", sorted({kernel.name for kernel in SHIPPED.kernels}))
def test_a_name_stands_for_the_kernels_of_all_types_and_layouts(name: str) -> None:
    found = SHIPPED.named(name)
    assert {kernel.name for kernel in found} == {name}
    layouts = {layouts_of(kernel) for kernel in found}
    assert {(kernel.operand, kernel.output, *layouts_of(kernel)) for kernel in found} == {
        (*pair, *layout) for layout in layouts for pair in pairs_in(*layout, name=name)
    }


@pytest.mark.parametrize(
    ("layouts", "multiplies"),
    [
        (("row", "col", "row"), ("row", "col")),
        (("col", "row", "row"), ("col", "row")),
        (("row", "col", "col"), ("row", "col")),
        (("col", "row", "col"), ("col", "row")),
        (("row", "row", "col"), ("col", "col")),
    ],
)
def test_a_kernel_that_writes_d_by_columns_multiplies_what_has_its_layouts_once_exchanged(
    layouts: tuple[str, str, str], multiplies: tuple[str, str]
) -> None:
    a, b, d = layouts
    one = replace(SHIPPED.kernels[0], a_layout=a, b_layout=b, d_layout=d)
    assert one.multiplies == (one.operand, one.output, *multiplies)


def test_no_name_stands_for_every_kernel() -> None:
    assert SHIPPED.named(None) == SHIPPED.kernels


def test_a_name_that_no_kernel_has_is_refused_with_those_there_are() -> None:
    names = ", ".join(dict.fromkeys(kernel.name for kernel in SHIPPED.kernels))
    with pytest.raises(UsageError, match=f"^there is no kernel 'fast'; there are {names}$"):
        SHIPPED.named("fast")


def test_a_name_that_is_close_to_a_kernels_is_put_right() -> None:
    with pytest.raises(UsageError, match=r"no kernel '128x256-c1' \(did you mean 128x256-c2\?\)"):
        SHIPPED.named("128x256-c1")


# A cubin


def manifest_of(folder: Path, **files: bytes) -> Manifest:
    """A manifest of files with the contents given, all in one archive, which is not written."""
    digests = {f"{name}.cubin": hashlib.sha256(code).hexdigest() for name, code in files.items()}
    return Manifest(folder, (), digests, dict.fromkeys(digests, "all.tar.xz"), {}, "a compiler")


def test_a_cubin_that_is_what_the_manifest_says_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "all.tar.xz").write_bytes(archive.pack({"one.cubin": b"code", "two.cubin": b"2"}))
    manifest = manifest_of(tmp_path, one=b"code", two=b"2")
    assert manifest.unpack("all.tar.xz") == {"one.cubin": b"code", "two.cubin": b"2"}


def test_a_missing_cubin_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnusable, match="cannot read the kernel file") as caught:
        manifest_of(tmp_path, one=b"code").unpack("all.tar.xz")
    said = str(caught.value)
    assert f"{tmp_path / 'all.tar.xz'}: No such file" in said and "reinstall gemmctl" in said


@pytest.mark.parametrize("found", [b"", b"cod", b"codE", b"code "])
def test_a_damaged_cubin_is_named_with_what_to_do(found: bytes, tmp_path: Path) -> None:
    (tmp_path / "all.tar.xz").write_bytes(archive.pack({"one.cubin": found}))
    with pytest.raises(DeviceUnusable, match="is damaged") as caught:
        manifest_of(tmp_path, one=b"code").unpack("all.tar.xz")
    said = str(caught.value)
    assert str(tmp_path / "all.tar.xz") in said and "reinstall gemmctl" in said
    assert "its one.cubin" in said
    assert all(hashlib.sha256(code).hexdigest()[:16] in said for code in (found, b"code"))


def test_an_archive_with_one_damaged_cubin_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "all.tar.xz").write_bytes(archive.pack({"one.cubin": b"code", "two.cubin": b"3"}))
    with pytest.raises(DeviceUnusable, match=r"is damaged: the sha256 of its two\.cubin is"):
        manifest_of(tmp_path, one=b"code", two=b"2").unpack("all.tar.xz")


def test_a_cubin_that_its_archive_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "all.tar.xz").write_bytes(archive.pack({"two.cubin": b"2"}))
    with pytest.raises(
        DeviceUnusable, match=r"all\.tar\.xz is damaged: it has no one\.cubin; .*re"
    ):
        manifest_of(tmp_path, one=b"code", two=b"2").unpack("all.tar.xz")


PACKED = archive.pack({"one.cubin": b"code"})


def tar_of(*members: tuple[str, bytes, bytes]) -> bytes:
    """A packed tar of members with a type, a name and a target, four bytes behind each file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target.decode()
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"code"))
    return lzma.compress(made.getvalue())


ONE = ("one.cubin", tarfile.REGTYPE, b"")
UNUSABLE = {
    "empty": b"",
    "not packed": b"code",
    "cut": PACKED[:-1],
    "cut in its code": PACKED[:60],
    "longer": PACKED + b"more",
    "two of them": PACKED + PACKED,
    "no files": lzma.compress(b"code"),
    "a link to what is not there": tar_of(ONE, ("two", tarfile.SYMTYPE, b"gone")),
    "a hard link to what is not there": tar_of(ONE, ("two", tarfile.LNKTYPE, b"gone")),
    "a link to itself": tar_of(("one.cubin", tarfile.SYMTYPE, b"one.cubin")),
    "a link to a file": tar_of(
        ("two", tarfile.REGTYPE, b""), ("one.cubin", tarfile.SYMTYPE, b"two")
    ),
    "a folder": tar_of(ONE, ("two", tarfile.DIRTYPE, b"")),
    "a name twice": tar_of(ONE, ONE),
    "a file too many": tar_of(ONE, ("two", tarfile.REGTYPE, b"")),
}


@pytest.mark.parametrize("found", UNUSABLE.values(), ids=UNUSABLE)
def test_an_archive_that_holds_anything_else_is_damaged(found: bytes, tmp_path: Path) -> None:
    (tmp_path / "all.tar.xz").write_bytes(found)
    with pytest.raises(DeviceUnusable, match=r"all\.tar\.xz is damaged: .+; .*reinstall gemmctl"):
        manifest_of(tmp_path, one=b"code").unpack("all.tar.xz")


@pytest.mark.parametrize("size", [2**70, 8**11 - 1])
def test_an_archive_whose_file_is_said_to_be_huge_is_damaged(size: int, tmp_path: Path) -> None:
    member = tarfile.TarInfo("one.cubin")
    member.size = size
    tar = member.tobuf(tarfile.GNU_FORMAT) + bytes(2048)
    (tmp_path / "all.tar.xz").write_bytes(lzma.compress(tar))
    with pytest.raises(DeviceUnusable, match=r"all\.tar\.xz is damaged: .+; .*reinstall gemmctl"):
        manifest_of(tmp_path, one=b"code").unpack("all.tar.xz")


def test_a_bit_that_flips_in_an_archive_is_seen() -> None:
    for place in range(len(PACKED)):
        for bit in range(8):
            flipped = PACKED[:place] + bytes([PACKED[place] ^ 1 << bit]) + PACKED[place + 1 :]
            with pytest.raises(ValueError):
                archive.unpack(flipped)


def test_a_python_without_liblzma_is_told_so(gemmctl: Command, tmp_path: Path) -> None:
    """It may plan all the same, for which no cubin is unpacked."""
    (tmp_path / "lzma.py").write_text("raise ModuleNotFoundError('no _lzma', name='_lzma')\n")
    found = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    assert gemmctl("plan", "--mnk", "64x64x64", PYTHONPATH=found).returncode == 0
    done = gemmctl("info", PYTHONPATH=found)
    assert (done.returncode, done.stdout) == (3, "")
    told = r"cannot unpack the kernel file \S+\.tar\.xz: this Python was built without liblzma"
    assert re.search(told, done.stderr)


def test_what_is_packed_is_the_same_in_any_order() -> None:
    files = {"b": b"1", "a": bytes(70_000)}
    assert archive.unpack(archive.pack(files)) == files
    assert archive.pack(files) == archive.pack(dict(sorted(files.items())))


def test_files_that_are_alike_take_the_room_of_one() -> None:
    code = np.random.default_rng(0).bytes(100_000)
    alone = len(archive.pack({"one": code}))
    assert len(archive.pack({"one": code, "two": code + b"2", "three": code})) < 1.02 * alone


def test_one_hash_names_all_cubins(tmp_path: Path) -> None:
    both = manifest_of(tmp_path, one=b"1", two=b"2")
    assert both.sha256 == manifest_of(tmp_path, two=b"2", one=b"1").sha256
    others = [
        manifest_of(tmp_path, one=b"1"),
        manifest_of(tmp_path, one=b"1", two=b"3"),
        manifest_of(tmp_path, one=b"2", two=b"1"),
        manifest_of(tmp_path, one=b"1", three=b"2"),
    ]
    assert both.sha256 not in {other.sha256 for other in others}


def test_a_tile_is_as_wide_as_the_ctas_of_a_cluster_side_by_side() -> None:
    one = replace(SHIPPED.kernels[0], rows=64, cluster=1)
    assert (one.columns_per_tile, replace(one, cluster=2).columns_per_tile) == (64, 128)


# What ships


@cache
def code_of(file: str) -> bytes:
    """A cubin that ships."""
    return SHIPPED.unpack(SHIPPED.archives[file])[file]


def test_every_cubin_that_ships_is_intact() -> None:
    for file in SHIPPED.files:
        assert code_of(file).startswith(b"\x7fELF")


def test_nothing_ships_that_the_manifest_does_not_name() -> None:
    named = set(SHIPPED.archives.values())
    assert {path.name for path in SHIPPED.folder.iterdir()} == {"manifest.json", *named}
    for name in named:
        held = [file for file, packed in SHIPPED.archives.items() if packed == name]
        assert sorted(SHIPPED.unpack(name)) == sorted(held)


def test_every_kernel_and_the_support_are_in_a_file_that_ships() -> None:
    named = {*SHIPPED.support.values(), *(kernel.file for kernel in SHIPPED.kernels)}
    assert named == set(SHIPPED.files)


@pytest.mark.parametrize("symbol", SHIPPED.support)
def test_every_kernel_around_the_gemm_is_in_its_file_under_its_name(symbol: str) -> None:
    assert f".text.{symbol}\0".encode() in code_of(SHIPPED.support[symbol])


def test_every_kernel_is_in_its_file_under_its_name() -> None:
    for kernel in SHIPPED.kernels:
        assert f".text.{kernel.symbol}\0".encode() in code_of(kernel.file), kernel.file


def test_every_pair_of_layouts_has_a_kernel() -> None:
    layouts = {(kernel.a_layout, kernel.b_layout) for kernel in SHIPPED.kernels}
    assert layouts == {(a, b) for a in ("row", "col") for b in ("row", "col")}


def layouts_of(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.a_layout, kernel.b_layout, kernel.d_layout


def pairs_in(*layouts: str, name: str = "") -> list[tuple[str, str]]:
    """Of some kernels no D is of the other 16-bit type.

    Where K is not contiguous, or D lies by columns, or B may be unaligned.
    """
    usual = layouts == ("row", "col", "row") and not name.endswith("u")
    return [
        (operand, output)
        for operand in ("bf16", "f16") for output in ("bf16", "f16", "f32")
        if usual or output in (operand, "f32")
    ]  # fmt: skip


def test_every_variant_ships_for_every_pair_of_types_once() -> None:
    shipped = sorted(
        (kernel.name, kernel.operand, kernel.output, *layouts_of(kernel))
        for kernel in SHIPPED.kernels
    )
    variants = {(name, *layouts) for name, _, _, *layouts in shipped}
    assert shipped == sorted(
        (name, operand, output, *layouts)
        for name, *layouts in variants
        for operand, output in pairs_in(*layouts, name=name)
    )
