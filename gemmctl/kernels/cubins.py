"""The precompiled kernels: where they are, what they are, and whether they are intact."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.errors import DeviceUnusable, UsageError, unknown
from gemmctl.kernels import archive, constants
from gemmctl.kernels.constants import BOX_ROWS, K_TILE, SHUFFLED_BYTES, WIDTH_STEP

Ints = npt.NDArray[np.int64]

VARIABLE = "GEMMCTL_CUBINS"
FORMAT = 9  # of manifest.json, as cubin/build.py writes it, and of what kernels are handed
NARROW = 32  # rows of A of a tile that has hardly more to multiply than to load
OPERAND_BYTES = 2  # of an element of A or B, in all kernels there are
CONSTANTS = {name: value for name, value in vars(constants).items() if name.isupper()}
# Kernels around the GEMM: those without which a device runs nothing.
SUPPORT = ("build_maps", "build_residues", "fill", "flush", "hash_rows", "pack", "places")
# What those fields of a kernel may say that are words.
TYPES = tuple(name.removeprefix("TYPE_").lower() for name in CONSTANTS if name.startswith("TYPE_"))
WORDS = dict.fromkeys(("operand", "output"), TYPES)
WORDS |= dict.fromkeys(("a_layout", "b_layout", "d_layout"), ("row", "col"))


@dataclass(frozen=True)
class Kernel:
    """One variant of the grouped GEMM kernel, as cubin/build.py recorded it.

    A CTA computes ``rows`` columns of D (rows of B as it is stored, on wgmma's M) by up to
    ``max_width`` rows of D (rows of A, on wgmma's N). ``cluster`` CTAs lie side by side along
    D's columns and share one tile of A, or ``k_parts`` have the same tile and share its K. The
    warpgroups that multiply share every tile (cooperative) or, ``pingpong``, have one each and take
    turns.

    With ``b_unaligned`` it takes a K-major B whose rows begin anywhere, and A as ``Packing`` says
    that it is woven.

    Where ``d_layout`` is col, all that is of products with operands exchanged: its A is the list's
    B, and its rows the list's columns.
    """

    name: str
    file: str
    symbol: str
    operand: str  # element type of A and B
    output: str  # element type of D
    a_layout: str
    b_layout: str
    d_layout: str
    rows: int
    max_width: int
    b_bytes: int  # of B in a stage
    b_unaligned: bool
    ring_bytes: int  # of shared memory: what a launch cuts into stages of A and B
    most_stages: int  # of its narrowest tiles
    threads: int
    cluster: int
    k_parts: int
    ctas_per_sm: int
    pingpong: bool
    shared_bytes: int
    registers: int

    @property
    def multiplies(self) -> tuple[str, str, str, str]:
        """Types of A (and B) and of D, layouts of A and of B, of products with D by rows."""
        if self.d_across:
            other = {"row": "col", "col": "row"}
            return self.operand, self.output, other[self.b_layout], other[self.a_layout]
        return self.operand, self.output, self.a_layout, self.b_layout

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply; one more loads, and hands out tiles."""
        return self.threads // 128 - 1

    @property
    def lone(self) -> bool:
        """Whether one warpgroup has an SM and a tile to itself: nobody multiplies as it stores."""
        return self.consumers == 1 and self.ctas_per_sm == 1 and self.k_parts == 1

    @property
    def for_few_tiles(self) -> bool:
        """Whether it is for launches alone that have hardly a tile for each SM."""
        return self.lone or self.k_parts > 1

    @property
    def loaders(self) -> int:
        """Threads that can load stages by turns (``loaders`` in cubin/src/config.cuh)."""
        return 2 if self.for_few_tiles and self.k_parts <= 2 else 1

    @property
    def takes_turns(self) -> bool:
        """Whether warpgroups that share a tile may multiply it one after the other."""
        return self.consumers > 1 and not self.pingpong

    @property
    def begins(self) -> bool:
        """Whether C may be in sums that a warpgroup has all of: soon, or from their beginning on.

        Pingpong ones begin with it; to others it comes between two of their first slices of K.
        """
        alone = self.pingpong or self.consumers == 1
        return alone and not self.d_across and self.output != "f32"

    @property
    def begins_plain(self) -> bool:
        """Whether such sums have all widths, but nothing behind them is not plain."""
        return self.begins and not self.pingpong

    @property
    def begins_finer(self) -> bool:
        """Whether such sums have code at every multiple of WIDTH_STEP."""
        return self.begins and (self.begins_plain or self.light_finer)

    @property
    def stages_c(self) -> bool:
        """Whether C may join sums on the way, by the staging buffers."""
        whole = not self.d_across and not self.b_unaligned
        return self.takes_turns and whole and self.output != "f32"

    @property
    def fuses_finer(self) -> bool:
        """Whether what is fused has code at multiples of WIDTH_STEP up to FUSED_FINER_TO, too."""
        return self.takes_turns and not (self.d_across or self.a_across or self.b_unaligned)

    @property
    def boxes(self) -> bool:
        """Whether a D of 32 bits may leave by TMA, in boxes."""
        return self.pingpong and not self.d_across and self.output == "f32"

    @property
    def joins(self) -> bool:
        """Whether a bias may join the sums."""
        return self.pingpong and not self.d_across

    @property
    def scales_bias(self) -> bool:
        """Whether a bias along n may be added as sums are multiplied by alpha."""
        return not self.pingpong and not self.d_across

    @property
    def a_across(self) -> bool:
        """Whether K is not the contiguous dimension of A."""
        return self.a_layout == "col"

    @property
    def b_across(self) -> bool:
        """The same of B."""
        return self.b_layout == "row"

    @property
    def d_across(self) -> bool:
        """Whether it multiplies with operands exchanged, and so writes D by columns."""
        return self.d_layout == "col"

    @property
    def shuffles(self) -> bool:
        """Whether rows of A may come shuffled, so that sums are D as they are."""
        in_turns = self.pingpong and self.output != "f32"
        return self.d_across and not self.a_across and not in_turns

    @property
    def run(self) -> int:
        """Rows of A within which they are shuffled: those of SHUFFLED_BYTES of a column of D."""
        return SHUFFLED_BYTES // (4 if self.output == "f32" else 2)

    @property
    def box_step(self) -> int:
        """What the rows of A that are loaded for a tile are multiples of."""
        return BOX_ROWS if self.a_across else WIDTH_STEP

    @property
    def finer(self) -> bool:
        """Whether some tiles of D = alpha A B have widths in steps of FINE_STEP besides."""
        return not self.a_across and not self.b_unaligned

    @property
    def light_finer(self) -> bool:
        """Whether what is light has code at every multiple of WIDTH_STEP, and not as what is fused.

        That is a bias and relu, and rows of D that are no whole words.
        """
        return self.pingpong and not self.a_across

    def stage_bytes(self, widest: Ints | int) -> Ints:
        """Bytes of a stage of the ring, by the rows of A in a launch's widest tile.

        It has room for as many; but pingpong kernels, whose warpgroups have a tile each, gain by
        more and shorter stages only where these are very short. Else they lost up to 14% (H200):
        the further CTAs are ahead, the less they read in step.
        """
        cut_finer = (widest <= NARROW) | (not self.pingpong)
        rows_of_a = np.where(cut_finer, widest, self.max_width)
        return self.b_bytes + rows_of_a * K_TILE * OPERAND_BYTES

    def stages(self, widest: Ints | int) -> Ints:
        """Stages that the ring then has."""
        return np.minimum(self.most_stages, self.ring_bytes // self.stage_bytes(widest))

    @property
    def ctas(self) -> int:
        """CTAs that are launched as a cluster, and get tiles together."""
        return self.cluster * self.k_parts

    @property
    def columns_per_tile(self) -> int:
        """Columns of D that one entry of the tile list covers."""
        return self.rows * self.cluster


@dataclass(frozen=True)
class Manifest:
    """What cubin/build.py wrote beside the cubins."""

    folder: Path
    kernels: tuple[Kernel, ...]
    files: dict[str, str]  # cubin -> sha256 of its bytes
    archives: dict[str, str]  # cubin -> the archive that it is in
    support: dict[str, str]  # kernels around the GEMM, and the file of each
    compiler: str

    @property
    def products(self) -> frozenset[tuple[str, str, str, str]]:
        """What some kernel multiplies: types of A (and B) and of D, layouts of A and of B."""
        return frozenset(kernel.multiplies for kernel in self.kernels)

    @property
    def sha256(self) -> str:
        """One hash for all cubins: what a saved result names."""
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.files.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    def named(self, name: str | None) -> tuple[Kernel, ...]:
        """The kernels of that name, one for each pair of types and layouts; None: all there are.

        Raises UsageError if there is none.
        """
        found = tuple(kernel for kernel in self.kernels if name in (None, kernel.name))
        if not found:
            names = list(dict.fromkeys(kernel.name for kernel in self.kernels))
            raise UsageError(unknown(f"there is no kernel '{name}'", str(name), names))
        return found

    def unpack(self, name: str) -> dict[str, bytes]:
        """All cubins of an archive, by file.

        Raises DeviceUnusable if it is missing, or they are not those that the manifest names.
        """
        path = self.folder / name
        try:
            found = archive.unpack(path.read_bytes())
            named = {file for file, packed in self.archives.items() if packed == name}
            if lacking := named - found.keys():
                raise ValueError(f"it has no {min(lacking)}")
            if others := found.keys() - named:
                raise ValueError(f"the manifest does not name {min(others)}, which it has")
            for file, code in found.items():
                digest = hashlib.sha256(code).hexdigest()
                if digest != self.files[file]:
                    raise ValueError(
                        f"the sha256 of its {file} is {digest[:16]}..., the manifest says "
                        f"{self.files[file][:16]}..."
                    )
        except OSError as error:
            raise DeviceUnusable(
                f"cannot read the kernel file {path}: {error.strerror}; {_mend()}"
            ) from None
        except ImportError:
            raise DeviceUnusable(
                f"cannot unpack the kernel file {path}: this Python was built without liblzma; use "
                "one with it"
            ) from None
        except ValueError as error:
            raise DeviceUnusable(f"the kernel file {path} is damaged: {error}; {_mend()}") from None
        return found


def folder() -> Path:
    """The folder with manifest.json: inside the installed package, or beside it in a checkout.

    GEMMCTL_CUBINS overrides it.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    here = Path(__file__).parent.parent
    installed = here / "cubin"
    return installed if installed.is_dir() else here.parent / "cubin" / "built"


@cache
def manifest() -> Manifest:
    """Read manifest.json.

    Raises DeviceUnusable if it is missing or not a manifest.
    """
    where = folder()
    try:
        found: dict[str, Any] = json.loads((where / "manifest.json").read_text())
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']}, not {FORMAT}")
        if found["constants"] != CONSTANTS:
            raise ValueError(_difference(found["constants"]))
        kernels = tuple(map(_kernel, found["kernels"]))
        files = {name: entry["sha256"] for name, entry in found["files"].items()}
        archives = {name: entry["archive"] for name, entry in found["files"].items()}
        support = dict(found["support"])
        if not kernels:
            raise ValueError("it has no kernels")
        texts = (found["compiler"], *files.values(), *archives.values())
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        if lacking := set(SUPPORT) - support.keys():
            raise ValueError(f"it has no kernel {min(lacking)}")
        for needed in (*(kernel.file for kernel in kernels), *support.values()):
            if needed not in files:
                raise ValueError(f"it has no hash of {needed}")
        return Manifest(where, kernels, files, archives, support, found["compiler"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, KeyError):
            reason = f"it has no {error.args[0]}"
        elif isinstance(error, TypeError | AttributeError | RecursionError):
            reason = "it is not what cubin/build.py writes"
        named = f" (named by {VARIABLE})" if os.environ.get(VARIABLE) else ""
        raise DeviceUnusable(
            f"cannot read the kernel manifest in {where}{named}: {reason}; {_mend()}"
        ) from None


def _kernel(entry: dict[str, Any]) -> Kernel:
    """A kernel of the manifest.

    Raises KeyError, TypeError or ValueError if a field is not there, or no such. Types are
    annotations, which are text.
    """
    for field in fields(Kernel):
        value = entry[field.name]
        if type(value).__name__ != field.type:
            raise TypeError
        unknown_word = value not in WORDS.get(field.name, (value,))
        if unknown_word or (field.type == "int" and value < 1):
            raise ValueError(f"it has a kernel with {field.name} {value!r}")
    return Kernel(**{field.name: entry[field.name] for field in fields(Kernel)})


def _mend() -> str:
    """What to do about a folder of cubins that cannot be used."""
    if os.environ.get(VARIABLE):
        return f"unset {VARIABLE} to use the kernels that ship, or run cubin/build.py"
    return "reinstall gemmctl, or run cubin/build.py"


def _difference(built: dict[str, Any]) -> str:
    """Which of the numbers that kernels and host share were others when the kernels were built."""
    names = sorted(n for n in built.keys() | CONSTANTS.keys() if built.get(n) != CONSTANTS.get(n))
    return "its kernels were built for other constants: " + ", ".join(
        f"{name} {built.get(name, 'unknown')} instead of {CONSTANTS.get(name, 'none')}"
        for name in names
    )
