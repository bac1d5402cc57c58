#!/usr/bin/env python3
"""Build the cubins and their manifest from src/ into built/.

    python cubin/build.py            build, write cubins and manifest.json
    python cubin/build.py --check    build elsewhere, compare cubins with these byte for byte
    python cubin/build.py --check --share 8
                                     the same, but compile an eighth of the GEMM cubins of each
                                     variant; of the others compare the hashes in the manifest.
                                     Which they are, a hash of the sources says

Needs nvcc 13.0.88, from the PATH or from the package's ``kernels`` extra, and a host compiler.
The build fails on a register spill, a stack frame, a serialised wgmma, a dropped setmaxnreg, and
where warpgroups would claim more registers than a launch has.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
RELEASE = "V13.0.88"
TO_PTX = ["-ptx", "-arch=compute_90a", "-std=c++17", "-O3", "-I."]
TO_CUBIN = ["-cubin", "-arch=sm_90a", "-Xptxas=-v,-warn-spills,-warn-lmem-usage"]


def of_kernels(name: str) -> ModuleType:
    """A module of gemmctl.kernels, without gemmctl being installed."""
    path = HERE.parent / "gemmctl" / "kernels" / f"{name}.py"
    spec = spec_from_file_location(name, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What the kernels share with their host.
STATED = vars(of_kernels("constants"))
CONSTANTS: dict[str, int] = {name: value for name, value in STATED.items() if name.isupper()}
# How cubins are kept. Other releases of liblzma may pack the same ones otherwise, so what is
# compared is what is in an archive.
ARCHIVE = of_kernels("archive")

K_TILE_BYTES = 2 * CONSTANTS["K_TILE"]  # operands have two bytes
SWIZZLE_BYTES = 1024  # eight rows of 128 bytes, which the swizzle of 128 bytes repeats after
SM_SHARED_BYTES = 228 * 1024  # CUDA C++ Programming Guide, compute capability 9.0
CTA_RESERVED_BYTES = 1024  # of these, taken by the system for each CTA

# What the PTX of other types has for what it has of bf16: of operands in the asm of
# src/ptx/wgmma.cuh, of D in that of src/epilogue/output.cuh, and nowhere else. So the way to PTX,
# most of a build before, is gone once for all operands and both types of 16 bits.
OPERANDS = {
    "bf16": {},
    "f16": {"k16.f32.bf16.bf16": "k16.f32.f16.f16", ", 0x3F80, 0,": ", 0x3C00, 0,"},
}
HALVES = "mov.b32 {low, high}, pair; "
OUTPUTS = {
    "bf16": {},
    "f16": {
        "cvt.rn.bf16x2.f32": "cvt.rn.f16x2.f32",
        "shl.b32 number, pair, 16;": HALVES + "cvt.f32.f16 number, low;",
        "and.b32 number, pair, 0xFFFF0000;": HALVES + "cvt.f32.f16 number, high;",
    },
    "f32": {},
}
Layouts = tuple[str, str, str]  # of A, B and D
PLAIN: Layouts = ("row", "col", "row")  # K is contiguous in A and B
# But for the first, without a D of the other 16-bit type: nobody asked for these, and they would
# take a fifth of the build.
ACROSS: list[Layouts] = [("row", "row", "row"), ("col", "col", "row"), ("col", "row", "row")]
# D by columns is what the plan may make of a D by rows: the product with its operands exchanged.
EXCHANGED: list[Layouts] = [(a, b, "col") for a, b, _ in (PLAIN, *ACROSS)]
# Of kernels for few tiles, which are all that are exchanged where K lies across only. 64x128-k4
# gains nothing by rows where it lies across A, nor exchanged where it lies across B alone.
FEW_TILES: list[Layouts] = [PLAIN, *ACROSS, *EXCHANGED[1:]]
FEWER: list[Layouts] = [PLAIN, ACROSS[0], EXCHANGED[1], EXCHANGED[3]]

# The kernels around the GEMM, and their sources in src/support/.
SUPPORT = {
    "build_maps": "build_maps.cu",
    "build_residues": "build_residues.cu",
    "fill": "fill.cu",
    "flush": "flush.cu",
    "hash_rows": "hash.cu",
    "pack": "pack.cu",
    "places": "places.cu",
}


@dataclass(frozen=True)
class Variant:
    """One way to compile the GEMM kernel; Config in src/config.cuh explains the numbers."""

    rows: int  # of B in a tile
    max_width: int
    consumers: int
    cluster: int = 1  # CTAs side by side, which share A
    k_parts: int = 1  # CTAs that share a tile's K
    ctas_per_sm: int = 1
    pingpong: bool = False
    layouts: Sequence[Layouts] = (PLAIN,)  # each of which is compiled
    b_unaligned: bool = False  # rows of B begin anywhere, and A is woven
    # What setmaxnreg leaves to a thread that loads and gives to one that multiplies; 0: not used.
    loader_registers: int = 0
    consumer_registers: int = 0

    @property
    def name(self) -> str:
        """Its tile, and behind a dash its cluster (c, k), pingpong (p) and unaligned B (u)."""
        cluster = f"c{self.cluster}" if self.cluster > 1 else ""
        parts = f"k{self.k_parts}" if self.k_parts > 1 else ""
        schedule = cluster + parts + "p" * self.pingpong + "u" * self.b_unaligned
        return f"{self.rows}x{self.max_width}" + (schedule and f"-{schedule}")

    @property
    def shared_bytes(self) -> int:
        """All that its CTAs can share out."""
        return SM_SHARED_BYTES // self.ctas_per_sm - CTA_RESERVED_BYTES

    @property
    def threads(self) -> int:
        """Of a CTA: one warpgroup loads."""
        return 128 * (1 + self.consumers)

    @property
    def staging(self) -> tuple[int, int]:
        """Staging buffers of each consuming warpgroup, and the bytes of one.

        Two or a larger one: pingpong, what a fifth stage leaves, and where B is unaligned, what a
        fourth one does.
        """
        return (1, 12288) if self.pingpong or self.b_unaligned else (2, 8192)

    @property
    def control_bytes(self) -> int:
        """For records, what is fused and barriers, of which pingpong ones keep more aside."""
        if self.ctas_per_sm > 1:
            return 1024
        return 3072 if self.pingpong else 2048

    @property
    def ring_bytes(self) -> int:
        """What is left for stages of A and B, in whole spans of the swizzle."""
        buffers, buffer_bytes = self.staging
        room = self.shared_bytes - self.consumers * buffers * buffer_bytes - self.control_bytes
        room -= (self.k_parts - 1) * self.rows * self.max_width * 4  # sums that others send
        return room // SWIZZLE_BYTES * SWIZZLE_BYTES

    @property
    def b_bytes(self) -> int:
        """Of B in a stage; unaligned rows take a 16-byte word more."""
        return self.rows * (K_TILE_BYTES + 16 * self.b_unaligned)

    @property
    def most_stages(self) -> int:
        """Stages that fit of the narrowest tiles there are."""
        return self.ring_bytes // (self.b_bytes + CONSTANTS["WIDTH_STEP"] * K_TILE_BYTES)

    @property
    def claimed_registers(self) -> int:
        """Registers of a CTA once setmaxnreg has handed them out; 0 where it is not used."""
        return 128 * (self.loader_registers + self.consumers * self.consumer_registers)

    @property
    def defines(self) -> dict[str, str]:
        """What src/config.cuh takes its numbers from."""
        buffers, buffer_bytes = self.staging
        return {
            "ROWS": str(self.rows),
            "CONSUMERS": str(self.consumers),
            "PINGPONG": str(self.pingpong).lower(),
            "B_UNALIGNED": str(self.b_unaligned).lower(),
            "MAX_WIDTH": str(self.max_width),
            "RING_BYTES": str(self.ring_bytes),
            "MOST_STAGES": str(self.most_stages),
            "CLUSTER": str(self.cluster),
            "K_PARTS": str(self.k_parts),
            "CTAS_PER_SM": str(self.ctas_per_sm),
            "SHARED_BYTES": str(self.shared_bytes),
            "CONTROL_BYTES": str(self.control_bytes),
            "STAGING_BUFFERS": str(buffers),
            "STAGING_BYTES": str(buffer_bytes),
            "LOADER_REGISTERS": str(self.loader_registers),
            "CONSUMER_REGISTERS": str(self.consumer_registers),
        }


COOPERATIVE = {"loader_registers": 56, "consumer_registers": 224}  # 128 sums a thread, at most
COPYING = {"b_unaligned": True, "loader_registers": 72, "consumer_registers": 216}  # 128 sums
PINGPONG = {"pingpong": True, "loader_registers": 40, "consumer_registers": 232}  # 192 sums
VARIANTS = [
    Variant(128, 256, 2, cluster=2, layouts=[PLAIN, *ACROSS, *EXCHANGED], **COOPERATIVE),
    Variant(128, 256, 2, layouts=[PLAIN, *EXCHANGED], **COOPERATIVE),
    Variant(128, 192, 2, cluster=2, layouts=[PLAIN, *ACROSS, *EXCHANGED], **PINGPONG),
    Variant(128, 256, 2, cluster=2, **COPYING),
    Variant(64, 128, 1, ctas_per_sm=2, layouts=[PLAIN, ACROSS[0]]),
    Variant(64, 128, 1, k_parts=2, layouts=FEW_TILES),
    Variant(64, 128, 1, k_parts=4, layouts=FEWER),
    Variant(64, 256, 1, layouts=FEW_TILES),
    Variant(64, 256, 2, layouts=EXCHANGED[:1], **PINGPONG),
]


def find_nvcc() -> list[str]:
    """The compiler to call, and proof that it is the release the manifest promises."""
    wheel = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "bin" / "nvcc"
    found = str(wheel) if wheel.is_file() else shutil.which("nvcc")
    if found is None:
        sys.exit("build.py: no nvcc: install the toolchain with pip install '.[kernels]'")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if RELEASE not in version.stdout:
        sys.exit(
            f"build.py: {found} is not release {RELEASE}; other releases give other bytes. "
            "Install it with pip install '.[kernels]'"
        )
    return [found]


def faults(said: str) -> list[str]:
    """The lines of a compiler's output that no shipped kernel may cause.

    C7519 is none of them: one more fence before the first multiplication upon sums that hold C.
    """
    return [
        line for line in said.splitlines()
        if re.search(r"C75(?!19)\d\d|error|setmaxnreg", line)
        or re.search(r"[1-9]\d* bytes (stack frame|spill)", line)
    ]  # fmt: skip


def compile_ptx(nvcc: list[str], source: str, defines: dict[str, str], to: Path) -> None:
    """Compile one source of src/ as far as PTX. Exits with the compiler's words on any error."""
    # In hexadecimal, so that what does not fit an int is unsigned.
    constants = {name: f"{value:#x}" for name, value in CONSTANTS.items()}
    defined = [f"-D{name}={value}" for name, value in {**constants, **defines}.items()]
    without_faults([*nvcc, *TO_PTX, *defined, source, "-o", str(to)])


def assemble(nvcc: list[str], ptx: Path, to: Path) -> int:
    """Make a cubin of PTX; returns the registers per thread of its first kernel.

    Exits with the compiler's words on any error, spill, stack frame or serialised wgmma.
    """
    said = without_faults([*nvcc, *TO_CUBIN, str(ptx), "-o", str(to)])
    return int(re.search(r"Used (\d+) registers", said)[1])


def without_faults(command: list[str]) -> str:
    """What a compiler says that ends well and finds no fault; else exits with its words."""
    done = subprocess.run(command, cwd=HERE / "src", capture_output=True, text=True)
    said = done.stdout + done.stderr
    found = faults(said)
    if done.returncode or found:
        sys.exit(f"build.py: {Path(command[-1]).name}: " + ("\n".join(found) or said))
    return said


def compile_support(nvcc: list[str], kernel: str, to: Path) -> None:
    """Put the cubin of a kernel around the GEMM into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / f"{kernel}.ptx"
        compile_ptx(nvcc, f"support/{SUPPORT[kernel]}", {}, ptx)
        assemble(nvcc, ptx, to / f"{kernel}.cubin")


@dataclass(frozen=True)
class Gemm:
    """A variant for two types and layouts, which is one cubin."""

    variant: Variant
    operand: str
    output: str
    layouts: Layouts

    @property
    def name(self) -> str:
        """The variant's, and x where D lies by columns."""
        name = self.variant.name
        if self.layouts[2] == "row":
            return name
        return f"{name}x" if "-" in name else f"{name}-x"

    @property
    def lie(self) -> str:
        """The layouts of A, B and D, a letter each."""
        return "".join(layout[0] for layout in self.layouts)

    @property
    def file(self) -> str:
        """Types, layouts, and the kernel's name."""
        return f"gemm_{self.operand}_{self.output}_{self.lie}_{self.name}.cubin"

    @property
    def archive(self) -> str:
        """Where it is kept: with all of its variant, whose code is most of it."""
        return f"gemm_{self.variant.name}{ARCHIVE.SUFFIX}"

    @property
    def defines(self) -> dict[str, str]:
        """What src/config.cuh takes its numbers and types from: of those of 16 bits not which."""
        a_layout, b_layout, d_layout = self.layouts
        return {
            "OUTPUT": "OutF32" if self.output == "f32" else "OutHalf",
            "A_ACROSS": str(a_layout == "col").lower(),
            "B_ACROSS": str(b_layout == "row").lower(),
            "D_ACROSS": str(d_layout == "col").lower(),
            **self.variant.defines,
        }

    def entry(self, registers: int) -> dict[str, object]:
        """What the manifest says of it, with so many registers per thread.

        Exits if its warpgroups would claim more registers than the launch has.
        """
        variant = self.variant
        launched = variant.threads * registers
        if variant.claimed_registers > launched:
            sys.exit(
                f"build.py: {self.file}: warpgroups claim {variant.claimed_registers} registers "
                f"and a CTA is launched with {launched}: the last claim would wait for ever"
            )
        return {
            "name": self.name,
            "file": self.file,
            "symbol": "gemm",
            "operand": self.operand,
            "output": self.output,
            "a_layout": self.layouts[0],
            "b_layout": self.layouts[1],
            "d_layout": self.layouts[2],
            "rows": variant.rows,
            "max_width": variant.max_width,
            "b_bytes": variant.b_bytes,
            "b_unaligned": variant.b_unaligned,
            "ring_bytes": variant.ring_bytes,
            "most_stages": variant.most_stages,
            "threads": variant.threads,
            "cluster": variant.cluster,
            "k_parts": variant.k_parts,
            "ctas_per_sm": variant.ctas_per_sm,
            "pingpong": variant.pingpong,
            "shared_bytes": variant.shared_bytes,
            "registers": registers,
        }


GEMMS = [
    Gemm(variant, operand, output, layouts)
    for variant in VARIANTS for layouts in variant.layouts
    for operand in OPERANDS for output in OUTPUTS
    if (layouts == PLAIN and not variant.b_unaligned) or output in (operand, "f32")
]  # fmt: skip
ARCHIVES = {f"{kernel}.cubin": f"support{ARCHIVE.SUFFIX}" for kernel in SUPPORT}
ARCHIVES |= {gemm.file: gemm.archive for gemm in GEMMS}


def compile_gemms(nvcc: list[str], gemms: Sequence[Gemm], to: Path) -> dict[str, int]:
    """Put cubins of the same ``defines`` into a folder; returns registers per thread, by file.

    The compiler makes PTX of the kernel once for all of them.
    """
    registers = {}
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "gemm.ptx"
        compile_ptx(nvcc, "gemm.cu", gemms[0].defines, ptx)
        of_bf16 = ptx.read_text()
        for gemm in gemms:
            text = of_bf16
            for there, here in (OPERANDS[gemm.operand] | OUTPUTS[gemm.output]).items():
                text = text.replace(there, here)
            ptx.write_text(text)
            registers[gemm.file] = assemble(nvcc, ptx, to / gemm.file)
    return registers


def build(to: Path, known: Mapping[str, int] | None = None) -> dict[str, object]:
    """Compile everything into a folder; returns the manifest.

    But for those GEMM cubins that are there and ``known``, by the registers per thread.
    """
    nvcc, registers = find_nvcc(), dict(known or {})
    alike: dict[tuple[str, ...], list[Gemm]] = {}
    for gemm in GEMMS:
        if gemm.file not in registers:
            alike.setdefault(tuple(gemm.defines.values()), []).append(gemm)
    # The long ones first, so that all processors are done at one time.
    ordered = sorted(alike.values(), key=lambda gemms: gemms[0].layouts[2] == "col")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        support = [pool.submit(compile_support, nvcc, kernel, to) for kernel in SUPPORT]
        for job in [pool.submit(compile_gemms, nvcc, gemms, to) for gemms in ordered]:
            registers |= job.result()
        for job in support:
            job.result()
    return {
        "format": 9,
        "compiler": f"nvcc {RELEASE}",
        "flags": {"ptx": TO_PTX, "cubin": TO_CUBIN},
        "constants": CONSTANTS,
        "sources": hashes_of_sources(),
        "files": {
            path.name: {"archive": ARCHIVES[path.name], "sha256": sha256(path)}
            for path in sorted(to.glob("*.cubin"))
        },
        "support": {kernel: f"{kernel}.cubin" for kernel in SUPPORT},
        "kernels": [gemm.entry(registers[gemm.file]) for gemm in GEMMS],
    }


def drawn(share: int) -> set[str]:
    """The GEMM cubins that a check compiles: of every variant one in ``share``.

    They are drawn by a hash of all that goes into them, so that nobody knows before a change which
    they will be.
    """
    made_of = [hashes_of_sources(), CONSTANTS, sha256(Path(__file__))]

    def place(file: str) -> bytes:
        return hashlib.sha256(json.dumps([file, *made_of]).encode()).digest()

    found: set[str] = set()
    for variant in VARIANTS:
        files = sorted((gemm.file for gemm in GEMMS if gemm.variant is variant), key=place)
        found.update(files[: -(-len(files) // share)])
    return found


# By file of built/: what is in an archive, by name, and another file itself, by none.
Contents = Mapping[str, Mapping[str, bytes]]


def contents(folder: Path) -> Contents:
    """What the files of built/ hold."""
    files = {path.name: path.read_bytes() for path in folder.glob("*")}
    return {name: unpacked(file) or {"": file} for name, file in files.items()}


def unpacked(file: bytes) -> dict[str, bytes]:
    """What is in an archive, by name; nothing of what is none."""
    try:
        return ARCHIVE.unpack(file)
    except ValueError:
        return {}


def differences(here: Contents, built: Contents) -> list[str]:
    """Files, and ARCHIVE/FILE, that only one has or that are not the same in both."""
    pairs = [{(name, file) for name in held for file in held[name]} for held in (here, built)]
    return [
        f"{name}/{file}".rstrip("/")
        for name, file in sorted(pairs[0] | pairs[1])
        if here.get(name, {}).get(file) != built.get(name, {}).get(file)
    ]


def taken_over(here: Contents, share: int, to: Path) -> dict[str, int]:
    """Write the GEMM cubins that are here, are not drawn and have the hashes in the manifest.

    Returns their registers by the manifest; none of a manifest that cannot be read.
    """
    try:
        manifest = json.loads(here["manifest.json"][""])
    except (KeyError, ValueError):
        return {}
    registers, wanted = {}, drawn(share)
    for entry in manifest["kernels"]:
        file = entry["file"]
        cubin = here.get(ARCHIVES.get(file, ""), {}).get(file)
        if cubin is None or file in wanted:
            continue
        if manifest["files"][file]["sha256"] == hashlib.sha256(cubin).hexdigest():
            (to / file).write_bytes(cubin)
            registers[file] = entry["registers"]
    return registers


def hashes_of_sources() -> dict[str, str]:
    """Of every file that is compiled or included."""
    sources = sorted((HERE / "src").rglob("*.cu*"))
    return {path.relative_to(HERE / "src").as_posix(): sha256(path) for path in sources}


def sha256(path: Path) -> str:
    """The hash of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Build or check, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing here")
    parser.add_argument(
        "--share", type=int, default=1, metavar="N", help="check by one GEMM cubin in N"
    )
    arguments = parser.parse_args()
    if arguments.share < 1 or (arguments.share > 1 and not arguments.check):
        parser.error("--share takes a number from 1, and goes with --check")
    home = HERE / "built"
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        here = contents(home)
        known = taken_over(here, arguments.share, fresh) if arguments.share > 1 else {}
        manifest = json.dumps(build(fresh, known), indent=1) + "\n"
        built: dict[str, dict[str, bytes]] = {"manifest.json": {"": manifest.encode()}}
        for file, archive in ARCHIVES.items():
            built.setdefault(archive, {})[file] = (fresh / file).read_bytes()
        if arguments.check:
            if differ := differences(here, built):
                sys.exit("build.py: not what the sources compile to: " + ", ".join(differ))
            print(f"{len(ARCHIVES) - len(known)} cubins are what the sources compile to")
            if known:
                print(f"{len(known)} others are what the manifest says, which is of these sources")
            return
        home.mkdir(exist_ok=True)
        for name in here.keys() - built.keys():
            (home / name).unlink()
        for name, new in built.items():
            if here.get(name) != new:
                (home / name).write_bytes(new.get("") or ARCHIVE.pack(new))
        size = sum(path.stat().st_size for path in home.iterdir())
        print(f"{len(ARCHIVES)} cubins, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
