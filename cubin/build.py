#!/usr/bin/env python3
"""Build the cubins and their manifest from the sources in this folder.

    python cubin/build.py            build, write cubins and manifest.json
    python cubin/build.py --check    build elsewhere, compare with what is here byte for byte

Needs nvcc 13.0.88, from the PATH or from the package's ``kernels`` extra, and a host compiler.
The build fails on a register spill, a stack frame, a serialised wgmma or a dropped setmaxnreg.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = "V13.0.88"
FLAGS = [
    "-cubin", "-gencode=arch=compute_90a,code=sm_90a", "-std=c++17", "-O3",
    "-Xptxas=-v,-warn-spills,-warn-lmem-usage",
]  # fmt: skip
K_TILE_BYTES = 128  # tile.cuh: K_TILE elements of two bytes
STAGING_BYTES = {False: 2 * 8192, True: 12288}  # gemm.cuh: of each consuming warpgroup; pingpong
BARRIER_BYTES = 512  # gemm.cuh: Shared's tile and barriers, rounded up
SM_SHARED_BYTES = 228 * 1024  # CUDA C++ Programming Guide, compute capability 9.0
CTA_RESERVED_BYTES = 1024  # of these, taken by the system for each CTA

OPERANDS = {"bf16": "wgmma::Bf16", "f16": "wgmma::F16"}
OUTPUTS = {"bf16": "OutBf16", "f16": "OutF16", "f32": "OutF32"}


@dataclass(frozen=True)
class Variant:
    """One set of the kernel's template parameters; see Config in gemm.cuh."""

    name: str
    consumers: int
    max_width: int
    cluster: int
    ctas_per_sm: int
    pingpong: bool = False

    @property
    def shared_bytes(self) -> int:
        """All that its CTAs can share out."""
        return SM_SHARED_BYTES // self.ctas_per_sm - CTA_RESERVED_BYTES

    @property
    def rows(self) -> int:
        """Rows of B in a tile."""
        return 64 * self.consumers

    @property
    def stages(self) -> int:
        """As many as fit."""
        staging = STAGING_BYTES[self.pingpong] * self.consumers
        room = self.shared_bytes - staging - BARRIER_BYTES
        return room // ((self.rows + self.max_width) * K_TILE_BYTES)


VARIANTS = [
    Variant("128x256x2", consumers=2, max_width=256, cluster=2, ctas_per_sm=1),
    Variant("128x256", consumers=2, max_width=256, cluster=1, ctas_per_sm=1),
    Variant("128x192x2p", consumers=2, max_width=192, cluster=2, ctas_per_sm=1, pingpong=True),
    Variant("64x128", consumers=1, max_width=128, cluster=1, ctas_per_sm=2),
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
    """The lines of a compiler's output that no shipped kernel may cause."""
    return [
        line for line in said.splitlines()
        if re.search(r"C75\d\d|error|setmaxnreg", line)
        or re.search(r"[1-9]\d* bytes (stack frame|spill)", line)
    ]  # fmt: skip


def compile_cubin(nvcc: list[str], source: str, defines: dict[str, str], to: Path) -> int:
    """Compile one source; returns the registers per thread of its first kernel.

    Exits with the compiler's words on any error, spill, stack frame or serialised wgmma.
    """
    command = [*nvcc, *FLAGS, *(f"-D{key}={value}" for key, value in defines.items())]
    done = subprocess.run(
        [*command, source, "-o", str(to)], cwd=HERE, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    found = faults(said)
    if done.returncode or found:
        sys.exit(f"build.py: {to.name}: " + ("\n".join(found) or said))
    return int(re.search(r"Used (\d+) registers", said)[1])


def build(to: Path) -> dict[str, object]:
    """Compile everything into a folder; returns the manifest."""
    nvcc = find_nvcc()
    jobs = [
        (operand, output, variant)
        for variant in VARIANTS for operand in OPERANDS for output in OUTPUTS
    ]  # fmt: skip

    def gemm(job: tuple[str, str, Variant]) -> dict[str, object]:
        operand, output, variant = job
        file = f"gemm_{variant.name}_{operand}_{output}.cubin"
        defines = {
            "OPERAND": OPERANDS[operand],
            "OUTPUT": OUTPUTS[output],
            "CONSUMERS": str(variant.consumers),
            "PINGPONG": str(variant.pingpong).lower(),
            "MAX_WIDTH": str(variant.max_width),
            "STAGES": str(variant.stages),
            "CLUSTER": str(variant.cluster),
            "CTAS_PER_SM": str(variant.ctas_per_sm),
            "SHARED_BYTES": str(variant.shared_bytes),
        }
        registers = compile_cubin(nvcc, "gemm.cu", defines, to / file)
        return {
            "name": variant.name,
            "file": file,
            "symbol": "gemm",
            "operand": operand,
            "output": output,
            "layouts": "row, col, row",
            "rows": variant.rows,
            "max_width": variant.max_width,
            "stages": variant.stages,
            "threads": 128 * (1 + variant.consumers),
            "cluster": variant.cluster,
            "ctas_per_sm": variant.ctas_per_sm,
            "pingpong": variant.pingpong,
            "shared_bytes": variant.shared_bytes,
            "registers": registers,
            "stack_bytes": 0,
        }

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        support = pool.submit(compile_cubin, nvcc, "support.cu", {}, to / "support.cubin")
        kernels = list(pool.map(gemm, jobs))
        support.result()
    return {
        "format": 1,
        "compiler": f"nvcc {RELEASE}",
        "flags": FLAGS,
        "sources": {path.name: sha256(path) for path in sorted(HERE.glob("*.cu*h"))
                    + sorted(HERE.glob("*.cu"))},
        "files": {path.name: {"sha256": sha256(path)} for path in sorted(to.glob("*.cubin"))},
        "support": "support.cubin",
        "kernels": kernels,
    }  # fmt: skip


def sha256(path: Path) -> str:
    """The hash of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Build or check, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing here")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        manifest = json.dumps(build(fresh), indent=1) + "\n"
        (fresh / "manifest.json").write_text(manifest)
        built = {path.name: path.read_bytes() for path in fresh.iterdir()}
        here = {p.name: p.read_bytes() for p in [*HERE.glob("*.cubin"), *HERE.glob("*.json")]}
        if check:
            differ = sorted(n for n in built.keys() | here.keys() if built.get(n) != here.get(n))
            if differ:
                sys.exit("build.py: not what the sources compile to: " + ", ".join(differ))
            print(f"{len(built) - 1} cubins are what the sources compile to")
            return
        for name in here.keys() - built.keys():
            (HERE / name).unlink()
        for name, content in built.items():
            (HERE / name).write_bytes(content)
        size = sum(len(content) for content in built.values())
        print(f"{len(built) - 1} cubins, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
