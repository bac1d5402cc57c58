"""cubin/build.py without its compiler: what it refuses, what it asks for, what it writes."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmctl.kernels import archive, cubins
from gemmctl.kernels.constants import K_TILE, RECORDS, WIDTH_STEP, WIDTHS
from gemmctl.operands import dtypes
from gemmctl.planning import tiles
from sources import FOLDER, size, text
from support import ROOT, as_module

HOME = FOLDER.parent
SHIPPED = json.loads((HOME / "built" / "manifest.json").read_text())
REGISTER_FILE = 64 * 1024  # 32-bit registers of an SM (CUDA programming guide, capability 9.0)
CTA_SHARED_BYTES = 227 * 1024  # that one CTA can have (the same)


build = as_module(HOME / "build.py")
CUBINS = len(build.SUPPORT) + len(build.GEMMS)
VARIANTS = pytest.mark.parametrize("variant", build.VARIANTS, ids=lambda variant: variant.name)

CLEAN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 1120 bytes cmem[0]
"""
FAULTS = {
    "stack": "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
    "long stack": "    100 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
    "spill store": "    0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads",
    "spill load": "    0 bytes stack frame, 0 bytes spill stores, 40 bytes spill loads",
    "serialised": "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
    "instructions are serialized due to insufficient register resources for the wgmma pipeline",
    "ignored": "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to "
    "maintain minimum register requirement.",
    "unknown": "ptxas warning : 'setmaxnreg' ignored; unable to determine register count at entry",
    "error": 'load.cuh(12): error: identifier "x" is undefined',
}
EVERY_FAULT = pytest.mark.parametrize("line", FAULTS.values(), ids=FAULTS)


# What the compiler says


def test_nothing_is_wrong_with_a_kernel_that_keeps_to_its_registers() -> None:
    assert build.faults(CLEAN) == []


@EVERY_FAULT
def test_spills_stack_frames_serialised_wgmma_and_a_dropped_setmaxnreg_are_faults(
    line: str,
) -> None:
    assert build.faults(f"{CLEAN}{line}\n{CLEAN}") == [line]


@pytest.fixture
def compiler(tmp_path: Path) -> Callable[..., list[str]]:
    """A command that says something, writes its arguments to the output file and ends."""

    def make(says: str, status: int = 0) -> list[str]:
        script = tmp_path / "compiler.py"
        script.write_text(
            "import sys\n"
            f"sys.stderr.write({says!r})\n"
            "open(sys.argv[sys.argv.index('-o') + 1], 'w').write(' '.join(sys.argv[1:]))\n"
            f"sys.exit({status})\n"
        )
        return [sys.executable, str(script)]

    return make


def test_a_clean_assembly_returns_the_registers_of_a_thread(
    compiler: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert build.assemble(compiler(CLEAN), Path("gemm.ptx"), tmp_path / "x.cubin") == 168


def test_the_compiler_gets_flags_definitions_source_and_target(
    compiler: Callable[..., list[str]], tmp_path: Path
) -> None:
    to = tmp_path / "x.ptx"
    build.compile_ptx(compiler(CLEAN), "gemm.cu", {"STAGES": "4", "CLUSTER": "2"}, to)
    shared = [f"-D{name}={value:#x}" for name, value in cubins.CONSTANTS.items()]
    expected = [*build.TO_PTX, *shared, "-DSTAGES=4", "-DCLUSTER=2", "gemm.cu", "-o", str(to)]
    assert to.read_text() == " ".join(expected)


def test_the_assembler_gets_flags_ptx_and_target(
    compiler: Callable[..., list[str]], tmp_path: Path
) -> None:
    to = tmp_path / "x.cubin"
    build.assemble(compiler(CLEAN), Path("gemm.ptx"), to)
    assert to.read_text() == " ".join([*build.TO_CUBIN, "gemm.ptx", "-o", str(to)])


def test_the_flags_make_the_compiler_tell_about_spills_and_local_memory() -> None:
    told = ",".join(flag for flag in build.TO_CUBIN if flag.startswith("-Xptxas="))
    assert {"-v", "-warn-spills", "-warn-lmem-usage"} <= set(
        told.removeprefix("-Xptxas=").split(",")
    )


@EVERY_FAULT
def test_a_fault_ends_the_build_with_the_compilers_words(
    line: str, compiler: Callable[..., list[str]], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        build.assemble(compiler(f"{CLEAN}{line}\n"), Path("gemm.ptx"), tmp_path / "x.cubin")
    assert ended.value.code == f"build.py: x.cubin: {line}"


def test_a_compiler_that_fails_ends_the_build_with_all_it_said(
    compiler: Callable[..., list[str]], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=r"build.py: x.ptx: nvcc fatal: no host compiler"):
        build.compile_ptx(
            compiler("nvcc fatal: no host compiler", 1), "gemm.cu", {}, tmp_path / "x.ptx"
        )


# Which compiler


@pytest.fixture
def no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No nvcc in the environment's packages, nor on the PATH; the folder that packages are in."""
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(shutil, "which", lambda _: None)
    return tmp_path


def nvcc(path: Path, release: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release 13.0, {release}'\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler_the_build_says_how_to_get_one(no_wheel: Path) -> None:
    with pytest.raises(SystemExit, match=r"no nvcc: .*pip install '\.\[kernels\]'"):
        build.find_nvcc()


def test_a_compiler_of_another_release_is_refused(
    no_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = nvcc(no_wheel / "bin" / "nvcc", "V13.0.89")
    monkeypatch.setattr(shutil, "which", lambda _: found)
    with pytest.raises(SystemExit, match=rf"nvcc is not release {build.RELEASE}"):
        build.find_nvcc()


def test_the_compiler_of_the_packages_goes_before_the_one_on_the_path(
    no_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = nvcc(no_wheel / "bin" / "nvcc", build.RELEASE)
    monkeypatch.setattr(shutil, "which", lambda _: elsewhere)
    assert build.find_nvcc() == [elsewhere]
    wheel = nvcc(no_wheel / "nvidia" / "cu13" / "bin" / "nvcc", build.RELEASE)
    assert build.find_nvcc() == [wheel]


def test_the_extra_for_kernels_brings_the_release_that_is_asked_for() -> None:
    release = build.RELEASE.removeprefix("V")
    (comment,) = re.findall(
        r"^kernels = \[\n.*# (.*)$", (ROOT / "pyproject.toml").read_text(), re.M
    )
    assert f"nvcc {release}" in comment


# Stages, shared memory and registers


@VARIANTS
def test_the_ctas_of_an_sm_fit_its_shared_memory(variant: Any) -> None:
    assert variant.shared_bytes <= CTA_SHARED_BYTES
    per_cta = variant.shared_bytes + build.CTA_RESERVED_BYTES
    assert variant.ctas_per_sm * per_cta <= build.SM_SHARED_BYTES


def shared_bytes(variant: Any, ring_bytes: int) -> int:
    """What Shared takes: the ring, staging, records, targets, what is fused, turns and barriers.

    Of pingpong kernels those whose sums begin with C and which a bias may join, which take the
    most.
    """
    buffers, buffer_bytes = variant.staging
    staging = variant.consumers * buffers * buffer_bytes
    fused = (1 if variant.pingpong else 2) * size("Fused")
    joins = variant.pingpong and build.PLAIN in variant.layouts
    ones = 8 * 16 if joins else 0  # eight rows of eight numbers
    pairs = (32 if joins else 1) * 2 * variant.rows // 64 * 4  # of two rows of each block
    bias = max(variant.max_width * 4 if build.PLAIN in variant.layouts else 4, pairs)
    kept = tiles.TILE.itemsize + 2 * size("TargetD") + bias if variant.pingpong else 0
    aside = variant.consumers * (fused + kept + size("Cursor"))
    barriers = 8 * (2 * variant.most_stages + 2 * RECORDS + variant.consumers)
    c_first = (RECORDS if variant.pingpong else 1) * (8 + size("Cursor"))
    pieces = 8 * variant.consumers  # of C that are in the staging buffers
    gathered = sent(variant) + (16 if variant.k_parts > 1 else 0)
    records = RECORDS * tiles.TILE.itemsize
    return ring_bytes + staging + records + ones + aside + barriers + c_first + pieces + gathered


def sent(variant: Any) -> int:
    """Bytes of the sums that a tile's first CTA has from the others that share its K."""
    return int((variant.k_parts - 1) * variant.rows * variant.max_width * 4)


@VARIANTS
def test_the_ring_is_as_long_as_fits_beside_what_is_kept_for_records_and_barriers(
    variant: Any,
) -> None:
    others = shared_bytes(variant, 0)
    assert shared_bytes(variant, variant.ring_bytes) <= variant.shared_bytes
    room = variant.shared_bytes - max(others, others_reserved(variant))
    assert variant.ring_bytes <= room < variant.ring_bytes + build.SWIZZLE_BYTES


def others_reserved(variant: Any) -> int:
    """Bytes beside the ring that the build sets aside."""
    buffers, buffer_bytes = variant.staging
    staging = variant.consumers * buffers * buffer_bytes
    return int(staging + variant.control_bytes + sent(variant))


def stages(variant: Any, width: int) -> int:
    """Stages that the ring has room for where tiles are so wide."""
    row_bytes = K_TILE * 2
    of_b = row_bytes + 16 * variant.b_unaligned  # an unaligned row lies in a word more
    return int(variant.ring_bytes // (variant.rows * of_b + width * row_bytes))


@VARIANTS
def test_there_are_barriers_for_the_stages_of_the_narrowest_tiles(variant: Any) -> None:
    assert variant.most_stages == stages(variant, WIDTH_STEP)


@VARIANTS
def test_a_pingpong_ring_holds_all_of_c_beside_the_stage_in_flight(variant: Any) -> None:
    most = variant.rows // 64 * 2  # stages of a C in f32
    assert not variant.pingpong or stages(variant, variant.max_width) > most


@pytest.mark.parametrize("ctas_per_sm", [1, 2, 3])
def test_any_other_tile_would_get_no_longer_ring_than_fits(ctas_per_sm: int) -> None:
    for consumers in (1, 2):
        for max_width in range(16, 257, 16):
            rows = 64 * consumers
            other = build.Variant(rows, max_width, consumers, ctas_per_sm=ctas_per_sm)
            assert shared_bytes(other, other.ring_bytes) <= other.shared_bytes


@VARIANTS
def test_loads_run_at_least_two_stages_ahead_of_the_multiply_in_flight(variant: Any) -> None:
    assert stages(variant, variant.max_width) >= 4


def members(struct: str) -> list[tuple[str, str, str]]:
    """Types, names and dimensions of what a struct of shared.cuh holds."""
    declared = re.sub(r"alignas\(\d+\) ", "", text("shared.cuh"))
    (body,) = re.findall(rf"{re.escape(struct)}(.*?)\n}};", declared, re.S)
    return re.findall(r"(\w+(?:<.*>)?) (\w+)((?:\[[^]]+\])*);", body)


def test_what_the_kernel_keeps_in_shared_memory_is_what_the_build_counts() -> None:
    assert members("struct Aside {") == [("Fused", "fused", "[2]")]
    assert members("struct Aside<C, true> {") == [
        ("Fused", "fused", "[1]"),
        ("Tile", "kept", ""),
        ("TargetD", "target", "[2]"),
        ("float", "bias", "[C::d_across ? 1 : C::max_width]"),  # in one place with what follows
        ("Pairs<C>", "pairs", "[C::joins ? 1 : 0]"),
    ]
    assert members("struct Shared {") == [
        ("uint8_t", "ring", "[C::ring_bytes]"),
        ("Staging<C::buffers, C::staging_bytes>", "staging", "[C::consumers]"),
        ("Part<C::max_width>", "parts", "[C::k_parts - 1]"),
        ("Ones", "ones", "[C::joins ? 1 : 0]"),
        ("Tile", "tiles", "[RECORDS]"),
        ("uint64_t", "full", "[C::most_stages]"),
        ("uint64_t", "empty", "[C::most_stages]"),
        ("uint64_t", "tile_full", "[RECORDS]"),
        ("uint64_t", "tile_empty", "[RECORDS]"),
        ("Aside<C, C::pingpong>", "aside", "[C::consumers]"),
        ("uint64_t", "turn", "[C::consumers]"),
        ("Cursor", "next", "[C::consumers]"),
        ("Cursor", "c_begin", "[C::c_first ? RECORDS : 1]"),
        ("uint64_t", "c_there", "[C::c_first ? RECORDS : 1]"),
        ("uint64_t", "c_full", "[C::c_staged ? C::consumers : 1]"),
        ("Gathered", "gathered", "[C::k_parts > 1 ? 1 : 0]"),
    ]


@VARIANTS
def test_a_tile_is_one_that_wgmma_and_the_tile_list_know(variant: Any) -> None:
    assert variant.cluster in (1, 2)
    assert variant.max_width % (WIDTH_STEP * variant.cluster) == 0
    assert variant.max_width <= WIDTHS * WIDTH_STEP


def test_the_name_of_a_variant_is_its_tile_its_cluster_and_its_schedule() -> None:
    names = [variant.name for variant in build.VARIANTS]
    assert names == [
        "128x256-c2", "128x256", "128x192-c2p", "128x256-c2u",
        "64x128", "64x128-k2", "64x128-k4", "64x256", "64x256-p",
    ]  # fmt: skip
    assert build.Variant(128, 192, 2, pingpong=True).name == "128x192-p"


def test_every_variant_has_a_name_of_its_own() -> None:
    assert len({variant.name for variant in build.VARIANTS}) == len(build.VARIANTS)


@pytest.mark.parametrize("entry", SHIPPED["kernels"], ids=lambda entry: entry["file"])
def test_the_ctas_of_an_sm_fit_its_registers(entry: dict[str, Any]) -> None:
    registers = entry["registers"] * entry["threads"] * entry["ctas_per_sm"]
    assert registers <= REGISTER_FILE


@VARIANTS
def test_setmaxnreg_hands_out_multiples_of_8_and_no_more_than_256(variant: Any) -> None:
    for registers in (variant.loader_registers, variant.consumer_registers):
        assert registers % 8 == 0
        assert registers == 0 or 24 <= registers <= 256


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("ptxas info    : (C7510) Potential Performance Loss: wgmma is serialized", True),
        ("ptxas info    : (C7519) warpgroup.arrive is injected in around line 1", False),
        ("ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", False),
        ("ptxas info    : 0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads", True),
        ("ptxas info    : setmaxnreg ignored to maintain minimum register requirements", True),
    ],
)
def test_serialised_multiplications_spills_and_lost_registers_end_the_build(
    said: str, *, fault: bool
) -> None:
    assert build.faults(f"{said}\nptxas info    : Used 168 registers") == [said] * fault


# The manifest


MULTIPLICATION = "wgmma.mma_async.sync.aligned.m64n8k16.f32.{0}.{0} {{%f0}}, a, b;"
ONES = {"bf16": "selp.b32 %r1, 0x3F80, 0, wanted;", "f16": "selp.b32 %r1, 0x3C00, 0, wanted;"}
CONVERSIONS = {
    "bf16": ["cvt.rn.bf16x2.f32 %r1, %f1, %f0;", "shl.b32 number, pair, 16;"],
    "f16": ["cvt.rn.f16x2.f32 %r1, %f1, %f0;", f"{build.HALVES}cvt.f32.f16 number, low;"],
}
OF_C = "and.b32 %r1, %r2, 0xFFFF0000;"  # which may have either type, whatever D has


def fake_ptx(nvcc: list[str], source: str, defines: dict[str, str], to: Path) -> None:
    """Puts down what it was asked for, and what a kernel's PTX has of its types."""
    of_types = [MULTIPLICATION.format("bf16"), ONES["bf16"], *CONVERSIONS["bf16"], OF_C]
    to.write_text(json.dumps([nvcc, source, defines, of_types]))


def fake_assemble(nvcc: list[str], ptx: Path, to: Path) -> int:
    """Passes on what was put down."""
    assert nvcc == ["nvcc"]
    shutil.copy(ptx, to)
    return 168


def compile_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build, "find_nvcc", lambda: ["nvcc"])
    patch.setattr(build, "compile_ptx", fake_ptx)
    patch.setattr(build, "assemble", fake_assemble)
    for module in (archive, build.ARCHIVE):
        patch.setattr(module, "PRESET", 1)  # sooner done, for what no one keeps


@pytest.fixture
def dry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose compiler only writes down what it is asked for."""
    compile_nothing(monkeypatch)


@pytest.mark.usefixtures("dry")
@VARIANTS
def test_warpgroups_that_claim_more_registers_than_a_launch_has_end_the_build(
    variant: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A claim for more than there is would wait for ever."""
    claimed = 128 * (variant.loader_registers + variant.consumers * variant.consumer_registers)
    enough = -(-claimed // variant.threads)
    monkeypatch.setattr(build, "GEMMS", [build.Gemm(variant, "bf16", "f32", build.PLAIN)])
    for registers in (enough, enough - 1):
        monkeypatch.setattr(build, "assemble", lambda *_, found=registers: found)
        if registers * variant.threads >= claimed:
            build.build(tmp_path)
        else:
            with pytest.raises(SystemExit, match=rf"{variant.name}.*claim {claimed} registers"):
                build.build(tmp_path)


@pytest.mark.usefixtures("dry")
def test_every_variant_is_built_for_its_layouts_and_their_pairs_of_types(tmp_path: Path) -> None:
    built = build.build(tmp_path)
    keys = ("rows", "max_width", "cluster", "a_layout", "b_layout", "d_layout")
    assert [
        (*(entry[key] for key in keys), entry["operand"], entry["output"])
        for entry in built["kernels"]
    ] == [
        (variant.rows, variant.max_width, variant.cluster, *layouts, operand, output)
        for variant in build.VARIANTS
        for layouts in variant.layouts
        for operand in ("bf16", "f16")
        for output in ("bf16", "f16", "f32")
        if (layouts == ("row", "col", "row") and not variant.b_unaligned)
        or output in (operand, "f32")
    ]
    assert set(build.OPERANDS) | set(build.OUTPUTS) <= set(dtypes.BY_NAME)


@pytest.mark.usefixtures("dry")
def test_the_manifest_says_of_a_kernel_what_it_was_compiled_with(tmp_path: Path) -> None:
    for entry in build.build(tmp_path)["kernels"]:
        nvcc, source, defines, of_types = json.loads((tmp_path / entry["file"]).read_text())
        assert (nvcc, source, entry["registers"]) == (["nvcc"], "gemm.cu", 168)
        operand, of_d = entry["operand"], CONVERSIONS["f16" if entry["output"] == "f16" else "bf16"]
        assert of_types == [MULTIPLICATION.format(operand), ONES[operand], *of_d, OF_C]
        told = ("STAGING", "CONTROL", "LOADER", "CONSUMER_")  # what the manifest does not say
        assert {key: defines[key] for key in defines if not key.startswith(told)} == {
            "OUTPUT": "OutF32" if entry["output"] == "f32" else "OutHalf",
            "A_ACROSS": {"row": "false", "col": "true"}[entry["a_layout"]],
            "B_ACROSS": {"row": "true", "col": "false"}[entry["b_layout"]],
            "D_ACROSS": {"row": "false", "col": "true"}[entry["d_layout"]],
            "ROWS": str(entry["rows"]),
            "CONSUMERS": str(entry["threads"] // 128 - 1),
            "PINGPONG": "true" if entry["pingpong"] else "false",
            "B_UNALIGNED": "true" if entry["b_unaligned"] else "false",
            "MAX_WIDTH": str(entry["max_width"]),
            "RING_BYTES": str(entry["ring_bytes"]),
            "MOST_STAGES": str(entry["most_stages"]),
            "CLUSTER": str(entry["cluster"]),
            "K_PARTS": str(entry["k_parts"]),
            "CTAS_PER_SM": str(entry["ctas_per_sm"]),
            "SHARED_BYTES": str(entry["shared_bytes"]),
        }


def test_types_of_16_bits_stand_only_where_the_build_puts_another_in() -> None:
    asm = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text("wgmma.cuh")))
    for there in build.OPERANDS["f16"]:
        asm = asm.replace(there, "")
    assert "bf16" not in asm and "0x3F80" not in asm
    of_d = text("output.cuh").split("struct OutHalf")[1].split("struct OutF32")[0]
    for there in build.OUTPUTS["f16"]:
        assert of_d.count(there) == 1
        of_d = of_d.replace(there, "")
    assert not re.search(r"bf16|bfloat|half2|number, pair", of_d)
    for variant in build.VARIANTS:
        assert not {"bf16", "f16"} & {*variant.defines, *variant.defines.values()}


# What a manifest has of a kernel that depends on its types.
TYPED = {"operand", "output", "file", "registers"}


@pytest.mark.usefixtures("dry")
def test_kernels_that_differ_in_types_of_16_bits_alone_are_compiled_to_ptx_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noting(nvcc: list[str], source: str, defines: dict[str, str], to: Path) -> None:
        asked.append(json.dumps([source, defines]))
        fake_ptx(nvcc, source, defines, to)

    monkeypatch.setattr(build, "compile_ptx", noting)
    kernels = build.build(tmp_path)["kernels"]
    assert len(asked) == len(set(asked))
    alike = {
        (entry["output"] == "f32", *(value for key, value in entry.items() if key not in TYPED))
        for entry in kernels
    }
    assert len(asked) == len(alike) + len(build.SUPPORT) < len(kernels)


@pytest.mark.usefixtures("dry")
def test_a_cubin_is_named_by_types_layouts_and_kernel(tmp_path: Path) -> None:
    files = {entry["file"] for entry in build.build(tmp_path)["kernels"]}
    assert {f"gemm_bf16_f32_{x}_128x192-c2p.cubin" for x in ("rcr", "rrr", "ccr", "crr")} <= files
    for entry in SHIPPED["kernels"]:
        layouts = "".join(entry[f"{operand}_layout"][0] for operand in "abd")
        names = (entry["operand"], entry["output"], layouts, entry["name"])
        assert entry["file"] == f"gemm_{'_'.join(names)}.cubin"


@pytest.mark.parametrize(
    ("layouts", "names"),
    [
        (
            ("row", "col", "row"),
            [
                "128x256-c2", "128x256", "128x192-c2p", "128x256-c2u",
                "64x128", "64x128-k2", "64x128-k4", "64x256",
            ],
        ),
        (("row", "col", "col"), ["128x256-c2x", "128x256-x", "128x192-c2px", "64x256-px"]),
    ],
)  # fmt: skip
def test_a_kernel_has_its_variants_name_and_an_x_where_d_lies_by_columns(
    layouts: tuple[str, ...], names: list[str]
) -> None:
    found = [gemm.name for gemm in build.GEMMS if gemm.layouts == layouts]
    assert list(dict.fromkeys(found)) == names


@VARIANTS
def test_the_source_takes_exactly_the_definitions_that_the_build_makes(variant: Any) -> None:
    taken = re.findall(r"= ([A-Z_]{2,});", text("config.cuh"))
    of_types = ["OUTPUT", "A_ACROSS", "B_ACROSS", "D_ACROSS"]
    assert sorted(taken) == sorted([*of_types, *variant.defines])


def test_every_shared_constant_is_used_by_the_kernels_and_defined_by_none() -> None:
    source = text()
    for name in cubins.CONSTANTS:
        # All but what is none of the others.
        if name not in ("BIAS_NONE", "ACTIVATION_NONE"):
            assert re.search(rf"\b{name}\b", source), name
        assert not re.search(rf"(#define |\b){name}\b *(=(?!=)|\()", source), name


def test_the_build_reads_the_constants_that_gemmctl_has() -> None:
    assert build.CONSTANTS == cubins.CONSTANTS == SHIPPED["constants"]


@pytest.mark.usefixtures("dry")
def test_every_support_kernel_is_built_from_a_source_of_its_own(tmp_path: Path) -> None:
    support = build.build(tmp_path)["support"]
    sources = {json.loads((tmp_path / file).read_text())[1] for file in support.values()}
    assert sources == {f"support/{path.name}" for path in (FOLDER / "support").iterdir()}
    for kernel, file in support.items():
        source = json.loads((tmp_path / file).read_text())[1]
        assert re.findall(r"__global__[^;{]*\b(\w+)\([^_)]", text(Path(source).name)) == [kernel]


@pytest.mark.usefixtures("dry")
def test_the_manifest_has_the_hash_of_every_cubin_and_every_source(tmp_path: Path) -> None:
    built = build.build(tmp_path)
    assert built["files"] == {
        path.name: {
            "archive": build.ARCHIVES[path.name],
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in tmp_path.glob("*.cubin")
    }
    assert built["sources"] == {
        path.relative_to(FOLDER).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FOLDER.rglob("*") if path.is_file()
    }  # fmt: skip


def test_the_cubins_that_ship_were_built_from_the_sources_beside_them() -> None:
    changed = [
        name
        for name, digest in SHIPPED["sources"].items()
        if hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() != digest
    ]
    assert changed == [], "run python cubin/build.py"


@pytest.mark.usefixtures("dry")
def test_a_kernel_has_a_thread_for_every_lane_of_its_warpgroups(tmp_path: Path) -> None:
    for gemm, entry in zip(build.GEMMS, build.build(tmp_path)["kernels"], strict=True):
        assert entry["threads"] == 128 * (1 + gemm.variant.consumers)


@pytest.mark.usefixtures("dry")
def test_the_manifest_that_ships_is_of_these_variants(tmp_path: Path) -> None:
    def described(manifest: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in entry.items() if key != "registers"}
            for entry in manifest["kernels"]
        ]

    built = build.build(tmp_path)
    assert described(SHIPPED) == described(built)
    assert set(SHIPPED["files"]) == set(built["files"])
    for key in ("format", "compiler", "flags", "constants", "support"):
        assert SHIPPED[key] == built[key]


def test_the_command_line_reads_every_manifest_that_the_build_writes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMCTL_CUBINS", str(checkout))
    found = cubins.manifest.__wrapped__()
    pairs = [
        6 if layout == build.PLAIN and not variant.b_unaligned else 4
        for variant in build.VARIANTS
        for layout in variant.layouts
    ]
    assert len(found.kernels) == sum(pairs)
    unpacked = [found.unpack(name) for name in set(found.archives.values())]
    assert set().union(*unpacked) == set(found.files)
    assert all(code for files in unpacked for code in files.values())


# Building and checking


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources, and what was built of them."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(FOLDER, folder / "src")
    with pytest.MonkeyPatch.context() as patch:
        compile_nothing(patch)
        patch.setattr(build, "HERE", folder)
        patch.setattr(sys, "argv", ["build.py"])
        build.main()
    return folder


@pytest.fixture
def checkout(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: None) -> Path:
    """What was built in a folder of sources that build.py takes for its own."""
    shutil.copytree(built_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["build.py"])
    return tmp_path / "built"


def check(monkeypatch: pytest.MonkeyPatch, share: int = 1) -> None:
    part = ["--share", str(share)] if share > 1 else []
    monkeypatch.setattr(sys, "argv", ["build.py", "--check", *part])
    build.main()


def change(built: Path, file: str, content: bytes | None) -> None:
    """Put something else into the archive of a cubin, or take the cubin out of it."""
    path = built / build.ARCHIVES[file]
    files = archive.unpack(path.read_bytes())
    del files[file]
    if content is not None:
        files[file] = content
    path.write_bytes(archive.pack(files))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The cubins that the compiler is asked for from now on."""
    files: set[str] = set()

    def noting(nvcc: list[str], ptx: Path, to: Path) -> int:
        files.add(to.name)
        return fake_assemble(nvcc, ptx, to)

    monkeypatch.setattr(build, "assemble", noting)
    return files


EVERY_SHARE = pytest.mark.parametrize("share", [1, 3])


def test_what_was_just_built_passes_the_check(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    check(monkeypatch)
    assert capsys.readouterr().out == f"{CUBINS} cubins are what the sources compile to\n"


def test_a_check_by_a_share_compiles_the_support_and_so_much_of_every_variant(
    checkout: Path,
    compiled: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    check(monkeypatch, share=3)
    assert {f"{kernel}.cubin" for kernel in build.SUPPORT} < compiled
    for variant in build.VARIANTS:
        files = {gemm.file for gemm in build.GEMMS if gemm.variant is variant}
        assert len(files & compiled) == -(-len(files) // 3) < len(files)
    others = CUBINS - len(compiled)
    assert capsys.readouterr().out == (
        f"{len(compiled)} cubins are what the sources compile to\n"
        f"{others} others are what the manifest says, which is of these sources\n"
    )


def test_other_sources_draw_another_share_and_the_same_the_same(checkout: Path) -> None:
    source, shares = checkout.parent / "src" / "records.cuh", []
    for change in ("", "// one\n", "// two\n"):
        with source.open("a") as file:
            file.write(change)
        assert build.drawn(3) == build.drawn(3)
        shares.append(frozenset(build.drawn(3)))
    assert len(set(shares)) == 3


def test_every_gemm_cubin_is_drawn_sooner_or_later(checkout: Path) -> None:
    found: set[str] = set()
    with (checkout.parent / "src" / "records.cuh").open("a") as source:
        for _ in range(40):
            source.write("// changed\n")
            source.flush()
            found |= build.drawn(3)
    assert found == {gemm.file for gemm in build.GEMMS}


@pytest.mark.parametrize("file", ["fill.cubin", "gemm_f16_f32_rcr_64x128.cubin"])
@EVERY_SHARE
def test_a_cubin_that_is_not_what_the_sources_compile_to_is_named(
    share: int, file: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(checkout, file, b"something else")
    named = f"{build.ARCHIVES[file]}/{file}"
    with pytest.raises(SystemExit, match=rf"not what the sources compile to: {named}$"):
        check(monkeypatch, share)


@EVERY_SHARE
def test_a_manifest_that_is_not_what_the_sources_compile_to_is_named(
    share: int, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "manifest.json").write_bytes(b"something else")
    with pytest.raises(SystemExit, match=r"not what the sources compile to: manifest\.json$"):
        check(monkeypatch, share)


def test_whichever_gemm_cubin_is_changed_a_check_by_a_share_names_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gemm in build.GEMMS:
        path = checkout / gemm.archive
        before = path.read_bytes()
        change(checkout, gemm.file, b"something else")
        with pytest.raises(SystemExit, match=rf"compile to: {gemm.archive}/{gemm.file}$"):
            check(monkeypatch, share=3)
        path.write_bytes(before)


def test_a_drawn_cubin_is_named_though_the_manifest_has_its_hash(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = min(build.drawn(3))
    change(checkout, file, b"something else")
    manifest = json.loads((checkout / "manifest.json").read_text())
    manifest["files"][file]["sha256"] = hashlib.sha256(b"something else").hexdigest()
    (checkout / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    with pytest.raises(
        SystemExit, match=rf"compile to: {build.ARCHIVES[file]}/{file}, manifest\.json$"
    ):
        check(monkeypatch, share=3)


@EVERY_SHARE
def test_a_missing_file_and_one_too_many_are_named(
    share: int, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = min(build.GEMMS, key=lambda gemm: gemm.archive)
    change(checkout, gone.file, None)
    (checkout / "old.cubin").write_bytes(b"left over")
    change(checkout, "fill.cubin", None)
    named = rf"{gone.archive}/{gone.file}, old\.cubin, support\.tar\.xz/fill\.cubin"
    with pytest.raises(SystemExit, match=f"compile to: {named}$"):
        check(monkeypatch, share)


@EVERY_SHARE
def test_a_missing_archive_is_named_by_each_of_its_cubins_and_one_too_many(
    share: int, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "support.tar.xz").rename(checkout / "tools.tar.xz")
    files = sorted(f"{kernel}.cubin" for kernel in build.SUPPORT)
    named = ", ".join(f"{name}.tar.xz/{file}" for name in ("support", "tools") for file in files)
    with pytest.raises(SystemExit, match=f"compile to: {named}$"):
        check(monkeypatch, share)


@EVERY_SHARE
def test_a_source_that_changed_since_the_build_fails_the_check(
    share: int, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (checkout.parent / "src" / "records.cuh").open("a") as source:
        source.write("// changed\n")
    with pytest.raises(SystemExit, match=r"compile to: manifest\.json$"):
        check(monkeypatch, share)


@EVERY_SHARE
def test_a_check_writes_nothing(
    share: int, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(checkout, "fill.cubin", b"something else")
    before = contents(checkout)
    with pytest.raises(SystemExit):
        check(monkeypatch, share)
    assert contents(checkout) == before


@pytest.mark.parametrize("arguments", [["--share", "3"], ["--check", "--share", "0"]])
def test_a_share_is_of_a_check_and_one_in_so_many(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        build.main()
    assert ended.value.code == 2
    assert "--share takes a number from 1, and goes with --check" in capsys.readouterr().err


def test_a_build_puts_right_what_differs_and_removes_what_is_left_over(checkout: Path) -> None:
    right = contents(checkout)
    change(checkout, "fill.cubin", b"something else")
    change(checkout, build.GEMMS[0].file, None)
    (checkout / build.GEMMS[-1].archive).write_bytes(b"something else")
    (checkout / "old.tar.xz").write_bytes(archive.pack({"fill.cubin": b"left over"}))
    (checkout / "old.cubin").write_bytes(b"left over")
    build.main()
    assert contents(checkout) == right


def test_what_differs_only_in_how_it_is_packed_is_right_and_stays(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another liblzma packs the same bytes otherwise."""
    for path in checkout.glob("*.tar.xz"):
        packed = lzma.compress(lzma.decompress(path.read_bytes()), preset=0)
        assert packed != path.read_bytes()
        path.write_bytes(packed)
    before = contents(checkout)
    check(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["build.py"])
    build.main()
    assert contents(checkout) == before


@pytest.mark.parametrize("spoil", [lzma.decompress, lambda packed: packed + b"more"])
@EVERY_SHARE
def test_an_archive_that_cannot_be_unpacked_is_named(
    share: int,
    spoil: Callable[[bytes], bytes],
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody could load what is in it, whatever that is."""
    path = checkout / "gemm_64x128.tar.xz"
    path.write_bytes(spoil(path.read_bytes()))
    of_it = r"gemm_64x128\.tar\.xz/gemm_\w+_r[cr]r_64x128\.cubin"  # two layouts of 64x128
    named = rf"gemm_64x128\.tar\.xz, ({of_it}(, |$)){{10}}$"
    with pytest.raises(SystemExit, match=f"not what the sources compile to: {named}"):
        check(monkeypatch, share)


def test_a_build_says_how_much_it_wrote(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = np.random.default_rng(0)

    def assemble_large(*told: Any) -> int:
        told[-1].write_bytes(draws.bytes(150_000))  # which no packing shortens
        return 168

    monkeypatch.setattr(build, "assemble", assemble_large)
    build.main()
    size = sum(path.stat().st_size for path in checkout.iterdir())
    assert size >= CUBINS * 150_000
    assert capsys.readouterr().out == f"{CUBINS} cubins, {size / 1e6:.1f} MB\n"


def test_a_build_that_fails_writes_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(nvcc: list[str], ptx: Path, to: Path) -> int:
        if "_f32_" in to.name:
            sys.exit(f"build.py: {to.name}: 8 bytes stack frame")
        return fake_assemble(nvcc, ptx, to)

    before = contents(checkout)
    monkeypatch.setattr(build, "assemble", fail)
    with pytest.raises(SystemExit, match="stack frame"):
        build.main()
    assert contents(checkout) == before
