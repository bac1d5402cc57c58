"""Cut the groups of one launch into the entries of its tile list, and put them in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmctl.kernels.constants import K_TILE, REDUCED_ROWS, WIDTH_STEP
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.operands import dtypes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# One entry of the tile list, as the kernel reads it. There are three kinds of entries; Tile in
# cubin/src/records.cuh explains them.
TILE = np.dtype(
    [
        ("group", np.uint32),  # index into the launch's group arrays
        ("m0", np.uint32),  # first row of D
        ("n0", np.uint32),  # first column of D
        ("width", np.uint32),  # rows of D, a multiple of 16
        ("k0", np.uint32),  # first slice of 64 along K
        ("k_tiles", np.uint32),  # slices along K; 0: nothing to multiply
        ("alpha", np.float32),
        ("beta", np.float32),
        ("splits", np.uint32),  # parts that the sum over K is split into; 0: it is not
        ("slot", np.uint32),  # of this part, or of the first part to add up
        ("flag", np.uint32),  # which counts the parts of the same tile
        ("readers", np.uint32),  # entries that add up these parts
        ("row", np.uint32),  # of the parts, where the rows to add up begin
        ("plain", np.uint32),  # alpha is 1, beta is 0, and D's rows are whole 16-byte words
        ("backward", np.uint32),  # slices along K are taken from the last to the first
        ("unused", np.uint32),
    ]
)

TURNING_K = 4096  # from which turning about pays: 0.9% at 7168, for fewer bytes; nothing at 2048
MIN_SPLIT_K_TILES = 8  # slices of K that a part is worth its way through memory for
FEW_ROWS = 600  # rows of A below which B's bytes take longer than its multiplications
LONG_K = 1024  # a tile of at least this K is worth scheduling; shorter ones are latency-bound
PANEL_ROWS = 2048  # rows of A that stay live while B streams past: all tiles at work are a square


@dataclass(frozen=True)
class Machine:
    """What the plan needs to know of the GPU."""

    sm_count: int


H200 = Machine(sm_count=132)


@dataclass(frozen=True, order=True)
class Choice:
    """How a launch is cut: which kernel, the widest tile, and into how many parts K is split."""

    kernel: str
    width: int
    splits: int = 1

    def __str__(self) -> str:
        parts = f" k/{self.splits}" if self.splits > 1 else ""
        return f"{self.kernel} w{self.width}{parts}"


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel: groups that share element types."""

    kernel: Kernel
    choice: Choice
    groups: Ints  # indices into problem.groups, in the order of the launch's arrays
    widths: Ints  # rows of A per tile, one per entry of groups
    tiles: npt.NDArray[np.void]  # TILE records in the order they are handed out
    machine: Machine

    @property
    def room(self) -> int:
        """Clusters (or single CTAs) that the GPU runs at one time: a wave of tiles."""
        return _room(self.machine, self.kernel)

    @property
    def clusters(self) -> int:
        """Clusters (or single CTAs) the launch starts: all that fit, or one per tile."""
        return min(self.room, len(self.tiles))

    @property
    def waves(self) -> float:
        """Tiles that multiply over the clusters that work on them at once."""
        return int((self.tiles["readers"] == 0).sum() + self.slots) / self.room

    @property
    def slots(self) -> int:
        """Parts of split tiles, each of which needs room for a tile of float32 sums."""
        return int(((self.tiles["splits"] > 0) & (self.tiles["k_tiles"] > 0)).sum())

    @property
    def flags(self) -> int:
        """Split tiles."""
        return int(self.tiles["flag"].max(initial=0)) + 1 if self.slots else 0

    @property
    def workspace_bytes(self) -> int:
        """Memory for the parts."""
        return self.slots * self.kernel.columns_per_tile * self.kernel.max_width * 4

    @property
    def padded_macs(self) -> int:
        """Multiply-adds the tensor cores do, padding included."""
        per_k = self.tiles["width"].astype(np.int64) * self.tiles["k_tiles"]
        return int(per_k.sum()) * self.kernel.columns_per_tile * K_TILE


def _room(machine: Machine, kernel: Kernel) -> int:
    """Clusters (or single CTAs) that a GPU runs at one time."""
    return machine.sm_count * kernel.ctas_per_sm // kernel.cluster


def choices(problem: Problem, groups: Ints, kernel: Kernel, machine: Machine) -> list[Choice]:
    """Ways to cut a launch that are worth considering for one kernel.

    The kernel's own width and every 32 below, down to half of it; and where whole tiles leave much
    of the GPU idle, K split into as many parts as fill it, or as stay long enough.
    """
    longest = int(problem.columns.k[groups].max()) // K_TILE
    found = []
    for width in range(kernel.max_width, kernel.max_width // 2 - 1, -32):
        found.append(Choice(kernel.name, width))
        _, tiles_m, tiles_n = _grids(problem, groups, kernel, width)
        whole = int((tiles_m * tiles_n).sum())
        splits = min(_room(machine, kernel) // whole, longest // MIN_SPLIT_K_TILES)
        if splits > 1:
            found.append(Choice(kernel.name, width, splits))
    return found


def cut(problem: Problem, groups: Ints, kernel: Kernel, choice: Choice, machine: Machine) -> Launch:
    """Cut groups into tiles: as few rows of tiles as the width allows, each as narrow as fits.

    Tiles of a group go in panels of about PANEL_ROWS rows, each panel along all of B and the next
    one back, so that the tiles at work at one time form a square and read the least. Where all K
    are long, every other wave of tiles takes K backward: it begins with what the wave before it,
    which moved along K in step, ended with and left in the L2.
    """
    columns = problem.columns
    m, n, k = columns.m[groups], columns.n[groups], columns.k[groups]
    widths, tiles_m, tiles_n = _grids(problem, groups, kernel, choice.width)
    counts = tiles_m * tiles_n
    of = np.repeat(np.arange(len(groups)), counts)
    index = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    full = -(-PANEL_ROWS // widths)[of]  # rows of tiles in a panel
    panel_tiles = full * tiles_n[of]
    panel = index // panel_tiles
    height = np.minimum(full, tiles_m[of] - panel * full)
    inside = index - panel * panel_tiles
    along = np.where(panel % 2 == 0, inside // height, tiles_n[of] - 1 - inside // height)
    tiles = np.zeros(len(of), TILE)
    tiles["group"] = of
    tiles["m0"] = (panel * full + inside % height) * widths[of]
    tiles["n0"] = along * kernel.columns_per_tile
    tiles["width"] = widths[of]
    tiles["k_tiles"] = _ceil(k, K_TILE)[of]
    alpha, beta = columns.alpha[groups], columns.beta[groups]
    tiles["alpha"], tiles["beta"] = alpha[of], beta[of]
    word = 16 // dtypes.BY_NAME[kernel.output].size
    words = (n % word == 0) & (columns.ldd[groups] % word == 0)
    tiles["plain"] = ((alpha == 1) & (beta == 0) & words)[of]
    tiles = _ordered(problem, groups, tiles)
    if k.min() == k.max() >= TURNING_K:
        tiles["backward"] = np.arange(len(tiles)) // _room(machine, kernel) % 2
    if choice.splits > 1:
        tiles = _split(tiles, choice.splits, m[tiles["group"]])
    return Launch(kernel, choice, groups, widths, tiles, machine)


def _grids(problem: Problem, groups: Ints, kernel: Kernel, widest: int) -> tuple[Ints, Ints, Ints]:
    """Of each group: rows of A per tile, rows of tiles, tiles in a row."""
    columns = problem.columns
    m, n, k = columns.m[groups], columns.n[groups], columns.k[groups]
    widths = _ceil(_ceil(m, _ceil(m, widest)), WIDTH_STEP) * WIDTH_STEP
    widths[k == 0] = REDUCED_ROWS  # what the kernel does where it only adds up, here nothing
    return widths, _ceil(m, widths), _ceil(n, kernel.columns_per_tile)


def _split(tiles: npt.NDArray[np.void], splits: int, m: Ints) -> npt.NDArray[np.void]:
    """Split the sums of tiles with enough K; ``m`` has the rows of each tile's group.

    The entries that add up the parts come last. So a CTA that waits for parts waits for entries
    that others were given before, and cannot wait for itself.
    """
    long = tiles["k_tiles"] >= splits * MIN_SPLIT_K_TILES
    chosen = tiles[long]
    flags = np.arange(len(chosen))
    rows = np.minimum(chosen["width"], m[long] - chosen["m0"])
    readers = _ceil(rows, REDUCED_ROWS)
    for name, values in (("splits", splits), ("flag", flags), ("readers", readers)):
        chosen[name] = values
    chosen["slot"] = flags * splits

    part = np.arange(splits)
    parts = np.repeat(chosen, splits)
    k_tiles = chosen["k_tiles"].astype(np.int64)[:, None]
    begin, end = k_tiles * part // splits, k_tiles * (part + 1) // splits
    parts["k0"], parts["k_tiles"] = begin.ravel(), (end - begin).ravel()
    parts["slot"] += np.tile(part, len(chosen)).astype(np.uint32)

    sums = np.repeat(chosen, readers)
    reader = np.arange(len(sums)) - np.repeat(np.cumsum(readers) - readers, readers)
    sums["row"] = reader * REDUCED_ROWS
    sums["m0"] += sums["row"]
    sums["width"], sums["k_tiles"] = REDUCED_ROWS, 0
    return np.concatenate([parts, tiles[~long], sums])


def _ordered(problem: Problem, groups: Ints, tiles: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The tile list in the order in which tiles are handed out.

    Where K differs, long K first, so that the end is even; but short tiles hide behind each
    other's latency, and sorting them measured 5 to 11% slower. Where K is the same, groups of few
    rows are spread among those of many: the ones wait for memory, the others for the tensor cores
    (measured: 2% at K = 768, nothing at K = 2048).
    """
    k_tiles = tiles["k_tiles"].astype(np.int64)
    if k_tiles.min() == k_tiles.max():
        small = problem.columns.m[groups][tiles["group"]] < FEW_ROWS
        return tiles[np.argsort(_spread(small), kind="stable")]
    if k_tiles.mean() * K_TILE < LONG_K:
        return tiles
    return tiles[np.argsort(-k_tiles, kind="stable")]


def _spread(chosen: npt.NDArray[np.bool_]) -> Floats:
    """Sort keys that space both classes of a list evenly and keep each in its own order."""
    rank = np.where(chosen, np.cumsum(chosen), np.cumsum(~chosen)) - 0.5
    keys: Floats = rank / np.where(chosen, chosen.sum(), (~chosen).sum())
    return keys


def _ceil(value: Ints, step: Ints | int) -> Ints:
    return (value + step - 1) // step
