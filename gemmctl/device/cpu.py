"""The CPU as a device: walks the tables that a GPU would get, with numpy's float32 BLAS."""

from __future__ import annotations

import os
import platform
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from itertools import compress
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.device import blas
from gemmctl.device.base import K_BLOCK, Facts, Sample, Session, Setup, Telemetry
from gemmctl.errors import DeviceFailed
from gemmctl.kernels.constants import K_TILE
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES, factors
from gemmctl.operands import data, dtypes
from gemmctl.operands.activations import activate
from gemmctl.operands.data import DataSpec, Operand
from gemmctl.operands.digest import digest
from gemmctl.operands.dtypes import Bits, DType, Floats
from gemmctl.planning import packing, tables
from gemmctl.planning.arena import POISON
from gemmctl.planning.fitting import STRIDE_STEP
from gemmctl.planning.plan import Plan
from gemmctl.planning.tables import Tables

Bytes = npt.NDArray[np.uint8]
Singles = npt.NDArray[np.float32]

TIMERS = {
    **dict.fromkeys(("cold", "warm"), "each sample is one run by the host's clock"),
    "sustained": "each sample is the mean of a block of runs, each by the host's clock",
}
FLOAT32_BYTES = 4
KEPT_BYTES = 1 << 29  # of A, and of B, converted to float32, per launch
_FILL_BYTES = 1 << 22  # written by one thread at a time
_BY_CODE = {dtype.code: dtype for dtype in dtypes.BY_NAME.values()}


class CpuDevice:
    """This machine's cores and memory."""

    def __init__(self) -> None:
        self.facts = Facts("cpu", _processor(), _memory_bytes(), timers=TIMERS)

    @contextmanager
    def open(self, plan: Plan, data: DataSpec) -> Iterator[Session]:
        """Allocate the arena, generate the operands, poison D, build the tables.

        Raises DeviceFailed with the bytes needed and free when the arena, and what launches keep
        of it in float32, do not fit.
        """
        needed, free = plan.layout.size + _converted_bytes(plan), _free_bytes()
        if needed > free:
            raise DeviceFailed(
                f"the operands of {plan.problem.name} and copies of A and B in float32 take "
                f"{needed / 1e9:.3g} GB and this machine has {free / 1e9:.3g} GB free; run fewer "
                "or smaller groups at a time"
            )
        arena = np.empty(plan.layout.size, np.uint8)
        with ThreadPoolExecutor(blas.THREADS) as pool:
            _poison(arena, pool)
            fills = tables.fills(plan, 0, data)
            _fill(arena, fills, pool)
            session = CpuSession(plan, arena, pool, tables.refills(fills, plan, 0))
            del arena
            try:
                yield session
            finally:
                session.close()

    def telemetry(self) -> Telemetry | None:
        """None: clocks and power are not read on a CPU."""
        return None

    def energy_j(self) -> float | None:
        """None: no energy is counted on a CPU."""
        return None


class CpuSession:
    """A plan with its operands in this process's memory."""

    def __init__(
        self, plan: Plan, arena: Bytes, pool: Executor, refills: npt.NDArray[np.void]
    ) -> None:
        """``refills``: FILL records of what runs write over, as offsets in the arena."""
        started = perf_counter()
        self._plan, self._refills = plan, refills
        self._arena = arena
        self._pool = pool
        base = arena.ctypes.data
        self._packs = tables.packs(plan, 0).tolist()
        self._launches = [
            _Launch(launch.kernel, tables.build(launch, plan, base), arena, base)
            for launch in plan.launches
        ]
        self.setup = Setup(host_s=perf_counter() - started, device_s=None)

    def close(self) -> None:
        """Give the memory back, whoever still has the session."""
        del self._arena
        self._launches.clear()

    def run(self) -> None:
        """Pack what has to be, and run the plan's launches once."""
        list(self._pool.map(self._pack, self._packs))
        blas.keep_to_callers()
        for launch in self._launches:
            for shares in launch.rounds():
                list(self._pool.map(launch.run, shares))

    def _pack(self, record: tuple[int, ...]) -> None:
        """Copy one operand by its PACK record, whose addresses are offsets in the arena."""
        source, pitch_bytes, line_bytes, to, first, end, woven = record
        words = int(packing.words(line_bytes, woven))
        lines = (end - first) // words
        copy = np.ndarray((lines, words * STRIDE_STEP), np.uint8, self._arena.data, to)
        copy[:, :line_bytes] = np.ndarray(
            (lines, line_bytes), np.uint8, self._arena.data, source, (pitch_bytes, 1)
        )
        if woven:
            copy[:, line_bytes:] = 0
            copy[:] = packing.weave(copy)

    def time(self, count: int, *, cold: bool) -> list[Sample]:
        """So many samples of one run each, the first on C as it was where C is in place.

        cold: every run converts the operands to float32 anew; the processor's own caches are left
        as they are.
        """
        _fill(self._arena, self._refills, self._pool)
        samples = []
        for _ in range(count):
            if cold:
                for launch in self._launches:
                    launch.a.clear()
                    launch.b.clear()
            started = perf_counter()
            self.run()
            samples.append(Sample(perf_counter() - started))
        return samples

    def sustain(self, seconds: float, watch: Callable[[], None]) -> list[Sample]:
        """Samples of a warm run each until so many seconds have passed; C in place as ever."""
        deadline = perf_counter() + seconds
        samples: list[Sample] = []
        while not samples or perf_counter() < deadline:
            samples += self.time(1, cold=False)
            watch()
        return samples

    def poison(self) -> None:
        """Fill the D region of the arena, fences included, with POISON; C in place anew."""
        _poison(self._arena[self._plan.layout.d_begin : self._plan.layout.d_end], self._pool)
        _fill(self._arena, self._refills, self._pool)

    def digests(self) -> npt.NDArray[np.uint64]:
        """A hash of each group's D as it is now; 0 for an empty one."""
        groups, offsets = self._plan.exchanged.groups, self._plan.layout.d.tolist()

        def of(index: int) -> int:
            group = groups[index]
            dtype = dtypes.BY_NAME[group.d]
            place = (offsets[index], group.m, group.d_columns, group.ldd, dtype)
            return digest(data.matrix(self._arena, *place))

        return np.array(list(self._pool.map(of, range(len(groups)))), np.uint64)

    def read(self, begin: int, end: int) -> Bytes:
        """A view of the arena's bytes [begin, end)."""
        return self._arena[begin:end]


# What running an entry of the tile list takes, in this order.
_READ = [
    *("group", "m0", "n0", "width", "k0", "k_tiles"),
    *("alpha", "beta", "splits", "slot", "row"),
]


class _Launch:
    """One launch's tables, and how to work through them."""

    def __init__(self, kernel: Kernel, table: Tables, arena: Bytes, base: int) -> None:
        self.kernel = kernel
        operand = dtypes.BY_NAME[kernel.operand]
        self.a = _Operands(arena, base, operand, kernel.a_across, woven=kernel.b_unaligned)
        self.b = _Operands(arena, base, operand, kernel.b_across)
        self._arena, self._base = arena, base
        # Python's numbers are several times faster than numpy's one at a time.
        self._columns = {field.name: getattr(table, field.name).tolist() for field in fields(table)}
        self._columns["tiles"] = table.tiles[_READ].tolist()
        self._adds_up = (table.tiles["splits"] > 0) & (table.tiles["k_tiles"] == 0)
        self._parts: dict[int, npt.NDArray[np.float32]] = {}

    def rounds(self) -> Iterator[list[list[Any]]]:
        """The tile list in shares for threads to take, small tiles many at a time.

        First what multiplies, then what adds up the parts of split sums.
        """
        for adds_up in (False, True):
            tiles = list(compress(self._columns["tiles"], self._adds_up == adds_up))
            size = max(1, min(32, len(tiles) // (4 * blas.THREADS)))
            yield [tiles[i : i + size] for i in range(0, len(tiles), size)]

    def run(self, tiles: list[Any]) -> None:
        """Compute some tiles."""
        t = self._columns
        for tile in tiles:
            g, m0, n0, width, k0, k_tiles, alpha, beta, splits, slot, row = tile
            m, n, k, gate = t["m"][g], t["n"][g], t["k"][g], GATES[t["gate"][g]]
            halved = 1 if gate == "none" else 2
            stop = min(n0 + self.kernel.columns_per_tile, n) // halved
            rows, d_cols = range(m0, min(m0 + width, m)), range(n0 // halved, stop)
            cols = factors(gate, n, d_cols)
            a, tiny_a = self.a.get(t["ptr_a"][g], m, k, t["ld_a"][g])
            b, tiny_b = self.b.get(t["ptr_b"][g], n, k, t["ld_b"][g])
            with np.errstate(all="ignore"):
                result = np.zeros((len(rows), sum(map(len, cols))), np.float32)
                if k_tiles == 0:
                    for part in range(slot, slot + splits):
                        result += self._parts[part][row : row + len(result)]
                end = (k0 + k_tiles) * K_TILE
                for start in range(k0 * K_TILE, end, K_BLOCK):
                    ks = slice(start, min(start + K_BLOCK, end))
                    left: Floats = a[_place(rows), ks]
                    if tiny_a or tiny_b:
                        left = left.astype(np.float64)
                    result += left @ b[_place(*cols), ks].T
                if splits > 0 and k_tiles > 0:
                    self._parts[slot] = result
                    continue
                if alpha != 1:
                    result *= alpha
                self._store(g, rows, cols, d_cols, result, beta)

    def _store(
        self,
        group: int,
        rows: range,
        cols: tuple[range, ...],
        d_cols: range,
        result: npt.NDArray[np.float32],
        beta: float,
    ) -> None:
        """Make elements of D of alpha A B at ``rows`` x ``cols``, which this writes over."""
        t = {name: values[group] for name, values in self._columns.items() if name != "tiles"}
        m, n = t["m"], t["n"]
        if beta != 0:
            c = self._matrix("c", t, m, n, t["ld_c"], _BY_CODE[t["type_c"]])
            result += beta * _BY_CODE[t["type_c"]].to_f32(c[_place(rows), _place(*cols)])
        along, type_bias = BIASES[t["bias_along"]], _BY_CODE[t["type_bias"]]
        if along == "n":
            bias = self._matrix("bias", t, 1, n, n, type_bias)
            result += type_bias.to_f32(bias[:, _place(*cols)])
        if along == "m":
            bias = self._matrix("bias", t, m, 1, 1, type_bias)
            result += type_bias.to_f32(bias[_place(rows)])
        factor, *others = np.split(result, len(cols), axis=1)
        product = activate(ACTIVATIONS[t["activation"]], factor)
        for other in others:
            product = product * other
        output = dtypes.BY_NAME[self.kernel.output]
        d = self._matrix("d", t, m, d_cols.stop, t["ld_d"], output, self.kernel.d_across)
        d[_place(rows), _place(d_cols)] = output.from_float(product)

    def _matrix(
        self,
        operand: str,
        t: dict[str, int],
        rows: int,
        cols: int,
        ld: int,
        dtype: DType,
        across: bool = False,
    ) -> Bits:
        place = t[f"ptr_{operand}"] - self._base, rows, cols, ld
        return data.matrix(self._arena, *place, dtype, across)


def _place(*ranges: range) -> slice | npt.NDArray[np.int64]:
    """How to index an array by ranges one after the other; a view where there is one."""
    if len(ranges) == 1:
        return slice(ranges[0].start, ranges[0].stop)
    return np.concatenate(ranges)


class _Operands:
    """Matrices as float32, converted when they are first used; the last ones used are kept.

    With each is kept whether it has subnormal numbers, with which a CPU multiplies a hundred times
    as long. They are normal ones in float64.
    """

    def __init__(
        self, arena: Bytes, base: int, dtype: DType, across: bool, woven: bool = False
    ) -> None:
        self._arena, self._base, self._dtype, self._across = arena, base, dtype, across
        self._woven = woven
        self._kept: OrderedDict[tuple[int, int, int], tuple[Singles, bool]] = OrderedDict()
        self._kept_bytes = 0
        self._lock = Lock()

    def get(self, ptr: int, rows: int, cols: int, ld: int) -> tuple[Singles, bool]:
        """The matrix at an address, and whether it has subnormal numbers."""
        key = (ptr, rows, cols)
        with self._lock:
            if key not in self._kept:
                woven = self._woven and cols > 0
                place = ptr - self._base, rows, ld if woven else cols, ld
                bits = data.matrix(self._arena, *place, self._dtype, self._across)
                if woven:
                    bits = packing.unweave(bits)[:, :cols]
                values = self._dtype.to_f32(bits)
                self._kept[key] = values, _any_subnormal(bits, self._dtype)
                self._kept_bytes += values.nbytes
                while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
                    _, (dropped, _) = self._kept.popitem(last=False)
                    self._kept_bytes -= dropped.nbytes
            self._kept.move_to_end(key)
            return self._kept[key]

    def clear(self) -> None:
        """Forget all of them."""
        self._kept.clear()
        self._kept_bytes = 0


def _any_subnormal(bits: Bits, dtype: DType) -> bool:
    """Whether any of these is a subnormal number of float32."""
    if dtype.smallest_normal > dtypes.F32.smallest_normal:
        return False
    doubled = bits << 1  # without the sign
    doubled -= 1  # a zero becomes the largest of all
    return bool((doubled < (2 << dtype.mantissa_bits) - 1).any())


def _converted_bytes(plan: Plan) -> int:
    """Bytes of A and B in float32 that all launches keep, each KEPT_BYTES or its largest matrix."""
    columns = plan.exchanged.columns
    found = 0
    for launch in plan.launches:
        m, n, k = (each[launch.groups] for each in (columns.m, columns.n, columns.depth))
        for sizes in (m * k * FLOAT32_BYTES, n * k * FLOAT32_BYTES):
            found += min(int(sizes.sum()), max(KEPT_BYTES, int(sizes.max())))
    return found


def _poison(memory: Bytes, pool: Executor) -> None:
    """Write POISON everywhere."""

    def write(begin: int) -> None:
        memory[begin : begin + _FILL_BYTES] = POISON

    list(pool.map(write, range(0, len(memory), _FILL_BYTES)))


def _fill(arena: Bytes, fills: npt.NDArray[np.void], pool: Executor) -> None:
    """Write operands by their FILL records, whose addresses are offsets in the arena."""

    def write(part: tuple[Bits, Operand, range]) -> None:
        matrix, operand, rows = part
        matrix[rows.start : rows.stop] = operand.bits(rows, operand.length)

    parts = []
    for ptr, row_step, col_step, rows, cols, key, code, recipe, limit in fills.tolist():
        operand = Operand(recipe, key, limit, cols, _BY_CODE[code])
        across = col_step > 1
        place = ptr, rows, cols, max(row_step, col_step)
        matrix = data.matrix(arena, *place, operand.dtype, across)
        step = max(1, _FILL_BYTES // (cols * matrix.itemsize))
        for first in range(0, rows, step):
            parts.append((matrix, operand, range(first, min(first + step, rows))))
    list(pool.map(write, parts))


def _processor() -> str:
    """The processor's name and its number of cores."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = model[1] if model else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_bytes() -> int:
    """Memory that can be had without swapping; all of it where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return _memory_bytes()
    available = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return next(available, _memory_bytes())
