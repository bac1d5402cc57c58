"""Judge what a device wrote: every D against its operands, made again from the seed.

With R = alpha A B + beta C in float64, an element D is right if

    round(R - t) <= D <= round(R + t),
    t = |alpha| g |A||B| + 3 * 2^-24 (|alpha A B| + |beta C|),

where round is to D's type, g bounds the error of the device's sum of k products over the sum of
their magnitudes (see ``_growth``), and the last term covers the product with alpha, that with beta
and their sum, each rounded to float32. Rounding is monotonic, so the ends need no half unit in the
last place. Where the device has nothing to round t is 0: sums of integers are exact in any order,
and so is the rest wherever alpha A B, beta C and R are float32 numbers.

Large groups are compared element by element on some random rows and on their last tiles; all the
rest goes through Freivalds' test (see ``_suspects``). What that finds suspicious is compared
element by element too, so that every verdict is that of the rule above.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from gemmctl.device import blas
from gemmctl.device.base import Session
from gemmctl.device.cpu import K_BLOCK, POISON
from gemmctl.errors import UsageError
from gemmctl.lists.problem import Group
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.operands.dtypes import Bits, DType
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import TILE

Device = Literal["cpu", "cuda"]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGE = 1 << 31  # multiply-adds of a group above which it is not compared as a whole
SAMPLED_ROWS = 32  # of a large group, besides its last tiles
VECTORS = 8  # of Freivalds' test: wrong integers in a row of a block hide with a chance of 2^-8
BLOCK_COLUMNS = 256  # of D, that Freivalds' test adds up: few, so that single elements count
SUSPICION = 4.0  # times what rounding adds up to; see _suspects
UNIT = 2.0**-24  # largest relative error of one rounding to float32

_SIDE = 512  # rows and columns of D that one thread compares at a time
_CHUNK = 1 << 20  # operand elements that one thread holds at a time
_BATCH_BYTES = 1 << 28  # of D held at a time
_BATCH_WORK = 1 << 34  # multiply-adds between two reports of progress


@dataclass(frozen=True)
class BadElement:
    """A wrong element of D: where it is, what it is, and what would have been right.

    tile: first row, first column and rows of the tile that holds it; None if no tile does.
    """

    row: int
    col: int
    tile: tuple[int, int, int] | None
    expected: float
    got: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """What was found about one group.

    method: ``exact`` (each element must be one certain number) or ``bounded``, then ``full``
    (every element was compared) or ``rows+freivalds``.
    bad: wrong elements among those that were compared.
    worst: the largest error over what is allowed: at most 1 if all is right, infinite for NaN.
    first: the bad element with the lowest row, then column.
    unwritten: elements that still hold the poison.
    outside: bytes changed in the fences around D and in the padding of its rows.
    """

    group: int
    method: str
    ok: bool
    bad: int
    worst: float
    first: BadElement | None
    unwritten: int
    outside: int
    message: str


def verify(
    plan: Plan,
    session: Session,
    spec: DataSpec,
    *,
    device: Device = "cuda",
    progress: Callable[[float], None] = lambda done: None,
) -> list[Verdict]:
    """Judge every group of a session that was opened with ``spec`` and has run once.

    ``device`` is the kind of the session's device: its arithmetic is what the bounds allow for.
    ``progress`` hears the share done, 0 to 1.
    """
    products = products_of(plan, spec, device)
    findings = [_Finding() for _ in products]
    strips = _strips(plan, products)
    work, total_work = 0, sum(strip.work for strip in strips)
    projections: dict[int, _Projection] = {}
    pool = ThreadPoolExecutor(blas.THREADS)
    try:
        with blas.single_threaded():
            for batch in _batches(strips):
                for check in _start(batch, session, projections, pool):
                    findings[check.strip.product.index] += check.finish()
                    work += check.strip.work
                    progress(work / total_work)
    finally:
        pool.shutdown(cancel_futures=True)
    return [_verdict(*pair) for pair in zip(products, findings, strict=True)]


def dump(plan: Plan, session: Session, group: int, folder: str, spec: DataSpec) -> None:
    """Leave one group's operands and result in ``folder``, and a list that reproduces it.

    Per matrix: ``a.npy`` has the values as float32, ``a_bits.npy`` the elements' bits, read from
    the device. C is left out where it is not read. Raises UsageError if a file cannot be written.
    """
    found, layout = plan.problem.groups[group], plan.layout
    matrices = [
        ("a", int(layout.a[group]), found.m, found.k, found.lda, found.a),
        ("b", int(layout.b[group]), found.n, found.k, found.ldb, found.b),
        ("d", int(layout.d[group]), found.m, found.n, found.ldd, found.d),
    ]
    if found.beta != 0:
        matrices.append(("c", int(layout.c[group]), found.m, found.n, found.ldc, found.c))
    # A group's operands depend on its place in the problem: empty groups keep that place.
    before = f"      - {{m: 0, n: 0, k: 0, count: {group}}}\n" if group else ""
    names = [field.name for field in fields(Group) if field.name != "marks"]
    keys = ", ".join(f"{key}: {getattr(found, key)}" for key in names)
    name = json.dumps(f"{plan.problem.name} group {group} {spec.kind}")
    text = (
        f"# gemmctl verify --data {spec.kind} --seed {spec.seed} problem.yaml\n"
        f"gemmctl: 1\nproblems:\n  - name: {name}\n    groups:\n{before}      - {{{keys}}}\n"
    )
    try:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / "problem.yaml").write_text(text, encoding="utf-8")
        for operand, offset, rows, cols, ld, element in matrices:
            dtype = dtypes.BY_NAME[element]
            memory = session.read(offset, offset + rows * ld * dtype.size)
            bits = data.matrix(memory, 0, rows, cols, ld, dtype)
            np.save(path / f"{operand}_bits.npy", bits)
            np.save(path / f"{operand}.npy", dtype.to_f32(bits))
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from None


@dataclass(frozen=True, eq=False)
class Product:
    """One group's product: how it is computed, and its operands made from the seed."""

    index: int
    group: Group
    a: DType
    b: DType
    c: DType
    d: DType
    spec: DataSpec
    keys: tuple[int, int, int]  # of A, B and C
    growth: float  # g above
    exact_sums: bool  # of integers that float32 holds, in whatever order they are added
    tiles: npt.NDArray[np.void]  # the group's entries of the tile list
    tile_columns: int

    @property
    def large(self) -> bool:
        """Whether there is too much to compare all of it."""
        return self.group.m * self.group.n * self.group.k > LARGE

    @property
    def exact(self) -> bool:
        """Whether no element leaves the device a choice."""
        unscaled = self.group.alpha == 1 and self.group.beta in (0, 1)
        return self.group.k == 0 or (self.exact_sums and unscaled)

    def sums(self, rows: Indices, cols: range) -> tuple[Doubles, Doubles]:
        """A B and |A||B| there, of shape (rows, cols); the latter 0 for exact sums.

        A B is exact: float64 holds sums of 2^35 products of multiples of 2^-8 that are at most 2.
        |A||B| is never too small.
        """
        total = np.zeros((len(rows), len(cols)))
        magnitude = np.zeros_like(total)
        step = max(1, _CHUNK // (len(rows) + len(cols)))
        for ks in ranges(0, self.group.k, step):
            a = data.values(self.spec, self.keys[0], rows, ks, self.a)
            b = data.values(self.spec, self.keys[1], cols, ks, self.b)
            if self.exact_sums:
                total += a @ b.T
            else:
                total += a.astype(np.float64) @ b.astype(np.float64).T
                magnitude += np.abs(a, out=a) @ np.abs(b, out=b).T
        magnitude *= 1 + step * UNIT
        return total, magnitude

    def addend(self, rows: Indices, cols: range) -> Doubles:
        """The values of C there."""
        return data.values(self.spec, self.keys[2], rows, cols, self.c).astype(np.float64)

    def expected(self, rows: Indices, cols: range) -> tuple[Doubles, Doubles]:
        """R and t of the elements at ``rows`` x ``cols``."""
        total, magnitude = self.sums(rows, cols)
        alpha, beta = self.group.alpha, self.group.beta
        scaled = alpha * total
        added = beta * self.addend(rows, cols) if beta != 0 else np.zeros_like(total)
        result = scaled + added
        if self.group.k == 0:  # beta C is rounded once, and that is all
            return result.astype(np.float32).astype(np.float64), magnitude
        if self.exact:
            return result, magnitude
        rounding = 3 * UNIT * (np.abs(scaled) + np.abs(added))
        if self.exact_sums:
            rounding[_is_single(scaled) & _is_single(added) & _is_single(result)] = 0
        return result, abs(alpha) * self.growth * magnitude + rounding

    def tile(self, row: int, col: int) -> tuple[int, int, int] | None:
        """First row, first column and rows of the tile that holds an element."""
        m0, n0, width = (self.tiles[name].astype(np.int64) for name in ("m0", "n0", "width"))
        holds = (m0 <= row) & (row < m0 + width) & (n0 <= col) & (col < n0 + self.tile_columns)
        return next(((int(m0[i]), int(n0[i]), int(width[i])) for i in np.flatnonzero(holds)), None)


def products_of(plan: Plan, spec: DataSpec, device: Device) -> list[Product]:
    """The products of all groups, in order; ``device`` is the kind whose arithmetic is judged."""
    groups = plan.problem.groups
    keys = [data.keys(spec.seed, x, np.arange(len(groups))).tolist() for x in range(3)]
    tiles = [(np.empty(0, TILE), 0)] * len(groups)
    for launch in plan.launches:
        order = np.argsort(launch.tiles["group"], kind="stable")
        ends = np.cumsum(np.bincount(launch.tiles["group"], minlength=len(launch.groups)))
        parts = np.split(launch.tiles[order], ends[:-1])
        for index, part in zip(launch.groups.tolist(), parts, strict=True):
            tiles[index] = part, launch.kernel.columns_per_tile
    products = []
    for index, group in enumerate(groups):
        a, b, c, d = (dtypes.BY_NAME[name] for name in (group.a, group.b, group.c, group.d))
        exact_sums = spec.kind == "int" and 4 * (group.k + 1) <= 1 << 24
        products.append(
            Product(
                index=index,
                group=group,
                a=a,
                b=b,
                c=c,
                d=d,
                spec=spec,
                keys=(keys[0][index], keys[1][index], keys[2][index]),
                growth=0.0 if exact_sums else _growth(a, group.k, tiles[index][0], device),
                exact_sums=exact_sums,
                tiles=tiles[index][0],
                tile_columns=tiles[index][1],
            )
        )
    return products


def _growth(operand: DType, k: int, tiles: npt.NDArray[np.void], device: Device) -> float:
    """Largest error of a device's sum of k products over the sum of their magnitudes.

    On a CPU, a product takes part in at most K_BLOCK roundings of BLAS, in whatever order, and one
    for each block after it (Higham, "Accuracy and Stability of Numerical Algorithms", section
    3.1); products of 16-bit elements are exact. On a GPU, twice the truncation of each step of the
    tensor core, one step more than there are blocks along K. Either way one more rounding for each
    part of a split sum.
    """
    parts = int(tiles["splits"].max(initial=0))
    if device == "cpu":
        error = (min(k, K_BLOCK) + -(-k // K_BLOCK) + 2 * parts) * UNIT
        return error / (1 - error)
    steps = -(-k // operand.accumulate_block) + 1
    return 2 * steps * operand.accumulate_unit + parts * UNIT


@dataclass(frozen=True)
class _Finding:
    """What a part of a group adds to its verdict."""

    compared: int = 0
    bad: int = 0
    worst: float = 0.0
    first: BadElement | None = None
    unwritten: int = 0
    outside: int = 0

    def __add__(self, other: _Finding) -> _Finding:
        firsts = [first for first in (self.first, other.first) if first]
        return _Finding(
            self.compared + other.compared,
            self.bad + other.bad,
            max(self.worst, other.worst),
            min(firsts, key=lambda bad: (bad.row, bad.col), default=None),
            self.unwritten + other.unwritten,
            self.outside + other.outside,
        )


@dataclass(frozen=True)
class _Strip:
    """Some rows of a group's D, and the bytes of the arena from there to the next strip."""

    product: Product
    rows: range
    offset: int  # of the first row, from ``begin``
    begin: int
    end: int

    @property
    def work(self) -> int:
        """Multiply-adds, about: making an element of B takes as long as 64 of them."""
        return 1 + (len(self.rows) + 64) * self.product.group.n * self.product.group.k


def _strips(plan: Plan, products: Sequence[Product]) -> list[_Strip]:
    """Cut the D region, fences and all, in the order of addresses."""
    strips = []
    begin = plan.layout.d_begin
    order = np.argsort(plan.layout.d, kind="stable").tolist()
    offsets = plan.layout.d.tolist()
    for index, following in zip(order, [*order[1:], None], strict=True):
        product = products[index]
        region_end = plan.layout.d_end if following is None else offsets[following]
        rows = product.group.m if product.group.n else 0
        pitch = product.group.ldd * product.d.size
        parts = list(ranges(0, rows, max(1, _BATCH_BYTES // pitch))) or [range(0)]
        for part in parts:
            start = offsets[index] + part.start * pitch
            end = region_end if part is parts[-1] else offsets[index] + part.stop * pitch
            strips.append(_Strip(product, part, start - begin, begin, end))
            begin = end
    return strips


def _batches(strips: Sequence[_Strip]) -> Iterator[list[_Strip]]:
    """Neighbouring strips that are read and judged together."""
    batch: list[_Strip] = []
    work = 0
    for strip in strips:
        if batch and (strip.end - batch[0].begin > _BATCH_BYTES or work > _BATCH_WORK):
            yield batch
            batch, work = [], 0
        batch.append(strip)
        work += strip.work
    if batch:
        yield batch


def _start(
    batch: Sequence[_Strip], session: Session, projections: dict[int, _Projection], pool: Executor
) -> list[_Check]:
    """Read some strips and have the threads begin with them.

    ``projections`` holds that of the last large group, which may go on in the next batch.
    """
    begin = batch[0].begin
    memory = session.read(begin, batch[-1].end)
    checks = []
    for strip in batch:
        index = strip.product.index
        if strip.product.large and index not in projections:
            projections.clear()
            projections[index] = _Projection(strip.product, pool)
        part = memory[strip.begin - begin : strip.end - begin]
        checks.append(_Check(strip, part, projections.get(index), pool))
    return checks


class _Check:
    """A strip that the threads of a pool are at work on."""

    def __init__(
        self, strip: _Strip, memory: Bytes, projection: _Projection | None, pool: Executor
    ) -> None:
        product = strip.product
        self.strip = strip
        self._pool, self._projection = pool, projection
        self._bits = data.matrix(
            memory, strip.offset, len(strip.rows), product.group.n, product.group.ldd, product.d
        )
        self._findings = [pool.submit(_surroundings, strip, memory, self._bits)]
        self._suspects: list[tuple[Indices, Future[Flags]]] = []
        rows = np.arange(strip.rows.start, strip.rows.stop)
        if projection is None:
            self._compare(rows, range(product.group.n))
            return
        sampled = np.isin(rows, projection.rows)
        self._compare(rows[sampled], range(product.group.n))
        self._compare(rows[~sampled], projection.columns)
        for part in ranges(0, len(rows), _SIDE):
            some = rows[part.start : part.stop]
            bits = self._bits[part.start : part.stop]
            self._suspects.append((some, pool.submit(_suspects, projection, some, bits)))

    def finish(self) -> _Finding:
        """Wait for the threads, and compare what is suspicious until something there is bad."""
        finding = self._collect()
        for rows, job in self._suspects:
            assert self._projection
            compared = np.isin(rows, self._projection.rows)
            suspects = job.result() & ~compared[:, None]
            for block, cols in enumerate(_blocks(self.strip.product)):
                uncompared = range(cols.start, min(cols.stop, self._projection.columns.start))
                self._compare(rows[suspects[:, block]], uncompared)
            doubted = self._collect()
            finding += doubted
            if doubted.bad:
                break
        return finding

    def _compare(self, rows: Indices, cols: range) -> None:
        """Have elements compared one by one."""
        product, start = self.strip.product, self.strip.rows.start
        for i in ranges(0, len(rows), _SIDE):
            some = rows[i.start : i.stop]
            for j in ranges(cols.start, cols.stop, _SIDE):
                bits = self._bits[:, j.start : j.stop]
                job = self._pool.submit(_judge, product, some, j, bits, some - start)
                self._findings.append(job)

    def _collect(self) -> _Finding:
        finding = sum((job.result() for job in self._findings), _Finding())
        self._findings.clear()
        return finding


def _surroundings(strip: _Strip, memory: Bytes, bits: Bits) -> _Finding:
    """Count what should not be poison and is, and what should be and is not."""
    product = strip.product
    pitch = product.group.ldd * product.d.size
    used = product.group.n * product.d.size
    last = strip.offset + max(0, len(strip.rows) - 1) * pitch  # where the last row begins
    outside = [
        memory[: strip.offset],
        memory[strip.offset : last].reshape(-1, pitch)[:, used:],
        memory[last + (used if strip.rows else 0) :],
    ]
    return _Finding(
        unwritten=int(np.count_nonzero(bits == np.iinfo(bits.dtype).max)),
        outside=sum(int(np.count_nonzero(part != POISON)) for part in outside),
    )


def _judge(product: Product, rows: Indices, cols: range, bits: Bits, places: Indices) -> _Finding:
    """Compare the elements at ``rows`` x ``cols``; ``places`` are those rows in ``bits``."""
    with np.errstate(all="ignore"):
        expected, allowed = product.expected(rows, cols)
        got = product.d.to_f32(bits[places])
        low = rounded(expected - allowed, product.d)
        high = rounded(expected + allowed, product.d)
        good = (low <= got) & (got <= high)
        ratio = np.abs(got - expected) / (allowed + half_ulps(got, product.d))
    ratio[np.isnan(ratio)] = np.inf  # D is NaN or infinite; the latter can be right
    ratio[good & np.isinf(got)] = 0
    bad = np.argwhere(~good)
    first = None
    if len(bad):
        i, j = bad[0].tolist()
        row, col = int(rows[i]), cols[j]
        numbers = (float(x[i, j]) for x in (expected, got, low, high))
        first = BadElement(row, col, product.tile(row, col), *numbers)
    return _Finding(good.size, len(bad), float(ratio.max(initial=0)), first)


def rounded(values: Doubles, dtype: DType) -> Singles:
    """Values as an element type has them."""
    return dtype.to_f32(dtype.from_float(values))


def half_ulps(values: Singles, dtype: DType) -> Doubles:
    """Half of the distance from each value to the next larger one in magnitude."""
    binades = (values.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    half_at_one, smallest = _half_steps(dtype)
    return np.maximum(binades * half_at_one, smallest)


@cache
def _half_steps(dtype: DType) -> tuple[np.float64, np.float64]:
    """Half the distance of neighbours at 1, and at 0."""
    one = dtype.from_float(np.ones(1))
    next_to_one = dtype.to_f32(one + one.dtype.type(1))[0]
    smallest = dtype.to_f32(np.ones(1, dtype.storage))[0]
    return (np.float64(next_to_one) - 1) / 2, np.float64(smallest) / 2


def _is_single(values: Doubles) -> Flags:
    """Where a value is a float32 number."""
    single: Flags = values.astype(np.float32) == values
    return single


class _Projection:
    """A large group's B times random signs, and the rows and columns to compare one by one.

    ``products`` holds, for each block of D's columns, B X for VECTORS columns X of random signs.
    It is exact: float32 holds sums of BLOCK_COLUMNS multiples of 2^-8 that are at most 2.
    ``squares`` holds, for each block, the sum of the squares of B's elements, or a little more.
    """

    def __init__(self, product: Product, pool: Executor) -> None:
        m, n, k = product.group.m, product.group.n, product.group.k
        random = np.random.default_rng([product.spec.seed, product.index])
        last_row = int(product.tiles["m0"].max(initial=0))
        sampled = random.choice(m, min(m, SAMPLED_ROWS), replace=False)
        self.product = product
        self.rows = np.union1d(sampled, np.arange(last_row, m))
        self.columns = range(int(product.tiles["n0"].max(initial=0)), n)
        self.signs = random.choice(np.array([-1, 1], np.float32), (n, VECTORS))
        blocks = _blocks(product)
        self.products = np.empty((k, VECTORS * len(blocks)), np.float32)
        self.squares = np.array(list(pool.map(self._project, range(len(blocks)), blocks)))

    def _project(self, block: int, cols: range) -> float:
        product = self.product
        signs = self.signs[cols.start : cols.stop]
        into = self.products[:, VECTORS * block : VECTORS * (block + 1)]
        squares = 0.0
        for ks in ranges(0, product.group.k, _CHUNK // BLOCK_COLUMNS):
            b = data.values(product.spec, product.keys[1], cols, ks, product.b)
            into[ks.start : ks.stop] = b.T @ signs
            squares += float(np.vdot(b, b))
        return squares * (1 + _CHUNK * UNIT)


def _blocks(product: Product) -> list[range]:
    """The blocks of D's columns that Freivalds' test adds up."""
    return list(ranges(0, product.group.n, BLOCK_COLUMNS))


def _suspects(projection: _Projection, rows: Indices, bits: Bits) -> Flags:
    """The rows of each block of columns that Freivalds' test doubts, of shape (rows, blocks).

    For signs x, D x should be alpha A (B x) + beta C x. If a row of D is right, the two differ by
    the sum of +-e over its elements, where e is at most t plus half a unit in D's last place. Our
    signs are independent of e, so the sum exceeds s sqrt(sum e^2) with a chance of at most
    2 exp(-s^2 / 2) (Hoeffding): 7e-4 for s = SUSPICION. |A||B| of an element, for t, is at most
    the norm of A's row times that of B's column (Cauchy and Schwarz).
    """
    product = projection.product
    group, d = product.group, product.d
    blocks = _blocks(product)
    wanted = np.zeros((len(rows), VECTORS * len(blocks)))
    squares = np.zeros(len(rows))
    for ks in ranges(0, group.k, _CHUNK // _SIDE):
        a = data.values(product.spec, product.keys[0], rows, ks, product.a).astype(np.float64)
        wanted += a @ projection.products[ks.start : ks.stop].astype(np.float64)
        squares += np.einsum("ij,ij->i", a, a)
    wanted *= group.alpha
    drift = 0.0 if product.exact else abs(group.alpha) * (product.growth + 3 * UNIT)
    suspects = np.empty((len(rows), len(blocks)), np.bool_)
    with np.errstate(all="ignore"):
        for block, cols in enumerate(blocks):
            signs = projection.signs[cols.start : cols.stop].astype(np.float64)
            got = d.to_f32(bits[:, cols.start : cols.stop])
            difference = got.astype(np.float64) @ signs
            difference -= wanted[:, VECTORS * block : VECTORS * (block + 1)]
            halves = half_ulps(got, d)
            if product.exact:
                halves[halves < 1] = 0  # neighbours at most 1 apart hold every integer
            error = np.sqrt(np.einsum("ij,ij->i", halves, halves))
            error += drift * np.sqrt(squares * projection.squares[block])
            if group.beta != 0:
                c = group.beta * product.addend(rows, cols)
                difference -= c @ signs
                if not product.exact:
                    error += 3 * UNIT * np.sqrt(np.einsum("ij,ij->i", c, c))
            right = np.abs(difference) <= SUSPICION * error[:, None]
            suspects[:, block] = ~right.all(axis=1)
    return suspects


def _verdict(product: Product, finding: _Finding) -> Verdict:
    group = product.group
    size = group.m * group.n
    wrong = []
    if finding.bad:
        wrong.append(_told(finding))
    if finding.unwritten:
        wrong.append(f"{finding.unwritten} of {size} elements were never written")
    if finding.outside:
        wrong.append(f"{finding.outside} bytes outside D were changed")
    message = "; ".join(wrong) or f"all of {finding.compared} elements compared are right"
    exactness = "exact" if product.exact else "bounded"
    coverage = "rows+freivalds" if product.large else "full"
    return Verdict(
        group=product.index,
        method=f"{exactness} {coverage}",
        ok=not wrong,
        bad=finding.bad,
        worst=finding.worst,
        first=finding.first,
        unwritten=finding.unwritten,
        outside=finding.outside,
        message=f"group {product.index}: {message}",
    )


def _told(finding: _Finding) -> str:
    """The first bad element, and how many there are."""
    bad = finding.first
    assert bad is not None
    tile = "in no tile"
    if bad.tile:
        m0, n0, width = bad.tile
        tile = f"tile of {width} rows at row {m0}, column {n0}"
    right = f"{bad.low:.9g}" if bad.low == bad.high else f"{bad.low:.9g} to {bad.high:.9g}"
    return (
        f"{finding.bad} of {finding.compared} elements compared are wrong, the first at row "
        f"{bad.row}, column {bad.col} ({tile}): got {bad.got:.9g}, expected {bad.expected:.9g}, "
        f"allowed {right}"
    )


def ranges(start: int, stop: int, step: int) -> Iterator[range]:
    """Consecutive ranges of at most ``step`` that make up [start, stop)."""
    return (range(i, min(i + step, stop)) for i in range(start, stop, step))
