"""Judge what a device wrote: every D against its operands, made again from the seed.

Large groups are compared element by element on some random rows and on their last tiles; all the
rest goes through Freivalds' test or, behind an activation or gate, is computed again in float32.
What is doubted then is compared element by element too, so that every verdict is that of
product.py's rule. The errors of what was not picked for being doubtful make up the statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmctl.device import blas
from gemmctl.device.base import Session
from gemmctl.device.heap import keep_freed_memory
from gemmctl.judging import interval
from gemmctl.judging.freivalds import Projection
from gemmctl.judging.product import Device, Indices, Product, products_of, ranges
from gemmctl.judging.recomputed import Recomputed
from gemmctl.judging.rounding import Flags
from gemmctl.judging.sampling import Sample, sample
from gemmctl.judging.statistic import NO_ERRORS
from gemmctl.judging.verdict import Finding, Verdict, verdict
from gemmctl.operands import data
from gemmctl.operands.data import DataSpec
from gemmctl.operands.dtypes import Bits
from gemmctl.planning.arena import POISON
from gemmctl.planning.plan import Plan

Bytes = npt.NDArray[np.uint8]

MANY_DOUBTS = 0.01  # of the rows of blocks; where all is right it is 0.0004

_SIDE = 512  # rows and columns of D that one thread compares at a time
_BATCH_BYTES = 1 << 28  # of D held at a time
_BATCH_WORK = 1 << 34  # multiply-adds between two reports of progress


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
    keep_freed_memory()
    products = products_of(plan, spec, device)
    findings = [Finding() for _ in products]
    strips = _strips(plan, products)
    work, total_work = 0, sum(strip.work for strip in strips)
    filters: dict[int, Filter] = {}
    blas.keep_to_callers()
    pool = ThreadPoolExecutor(blas.THREADS)
    try:
        for batch in _batches(strips):
            for check in _start(batch, session, filters, pool):
                findings[check.strip.product.index] += check.finish()
                work += check.strip.work
                progress(work / total_work)
    finally:
        pool.shutdown(cancel_futures=True)
    return [verdict(*pair) for pair in zip(products, findings, strict=True)]


@dataclass(frozen=True, eq=False)
class Filter:
    """What of a large group is compared in any case, and what says of the rest what to doubt."""

    sample: Sample
    doubts: Projection | Recomputed


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
        rows = product.group.m if product.group.d_columns else 0
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
    batch: Sequence[_Strip], session: Session, filters: dict[int, Filter], pool: Executor
) -> list[_Check]:
    """Read some strips and have the threads begin with them.

    ``filters`` holds that of the last large group, which may go on in the next batch.
    """
    begin = batch[0].begin
    memory = session.read(begin, batch[-1].end)
    checks = []
    for strip in batch:
        product = strip.product
        if product.large and product.index not in filters:
            filters.clear()
            doubts = Projection(product, pool) if product.group.linear else Recomputed(product)
            filters[product.index] = Filter(sample(product), doubts)
        part = memory[strip.begin - begin : strip.end - begin]
        checks.append(_Check(strip, part, filters.get(product.index), pool))
    return checks


class _Check:
    """A strip that the threads of a pool are at work on."""

    def __init__(self, strip: _Strip, memory: Bytes, filter: Filter | None, pool: Executor) -> None:
        group = strip.product.group
        self.strip = strip
        self._pool, self._filter = pool, filter
        self._bits = data.matrix(
            memory, strip.offset, len(strip.rows), group.d_columns, group.ldd, strip.product.d
        )
        self._findings = [pool.submit(_surroundings, strip, memory, self._bits)]
        self._suspects: list[Future[Flags]] = []
        self._rows = rows = np.arange(strip.rows.start, strip.rows.stop)
        if filter is None:
            self._compare(rows, range(group.d_columns))
            return
        sampled = np.isin(rows, filter.sample.rows)
        self._compare(rows[sampled], range(group.d_columns))
        self._compare(rows[~sampled], filter.sample.columns)
        for part in ranges(0, len(rows), _SIDE):
            some = rows[part.start : part.stop]
            bits = self._bits[part.start : part.stop]
            self._suspects.append(pool.submit(filter.doubts.suspects, some, bits))

    def finish(self) -> Finding:
        """Wait for the threads, and compare what is suspicious until something there is bad."""
        finding = self._collect()
        if self._filter is None:
            return finding
        sampled = self._filter.sample
        doubted = np.concatenate([job.result() for job in self._suspects])
        doubted &= ~np.isin(self._rows, sampled.rows)[:, None]
        # What is honest leaves few doubts, for which each block of B is made once. Where there are
        # many, the first wrong ones are enough.
        few = doubted.mean() <= MANY_DOUBTS
        for part in [range(len(doubted))] if few else ranges(0, len(doubted), _SIDE):
            rows = self._rows[part.start : part.stop]
            for block, cols in enumerate(self._filter.doubts.blocks):
                uncompared = range(cols.start, min(cols.stop, sampled.columns.start))
                chosen = doubted[part.start : part.stop, block]
                self._compare(rows[chosen], uncompared, picked=True)
            finding += self._collect()
            if finding.bad:
                break
        return finding

    def _compare(self, rows: Indices, cols: range, *, picked: bool = False) -> None:
        """Have elements compared one by one."""
        product, start = self.strip.product, self.strip.rows.start
        for i in ranges(0, len(rows), _SIDE):
            some = rows[i.start : i.stop]
            for j in ranges(cols.start, cols.stop, _SIDE):
                bits = self._bits[:, j.start : j.stop]
                job = self._pool.submit(_judge, product, some, j, bits, some - start, picked=picked)
                self._findings.append(job)

    def _collect(self) -> Finding:
        finding = sum((job.result() for job in self._findings), Finding())
        self._findings.clear()
        return finding


def _surroundings(strip: _Strip, memory: Bytes, bits: Bits) -> Finding:
    """Count what should not be poison and is, and what should be and is not."""
    product = strip.product
    pitch = product.group.ldd * product.d.size
    used = product.group.d_columns * product.d.size
    last = strip.offset + max(0, len(strip.rows) - 1) * pitch  # where the last row begins
    outside = [
        memory[: strip.offset],
        memory[strip.offset : last].reshape(-1, pitch)[:, used:],
        memory[last + (used if strip.rows else 0) :],
    ]
    return Finding(
        unwritten=int(np.count_nonzero(bits == np.iinfo(bits.dtype).max)),
        outside=sum(int(np.count_nonzero(part != POISON)) for part in outside),
    )


def _judge(
    product: Product, rows: Indices, cols: range, bits: Bits, places: Indices, *, picked: bool
) -> Finding:
    """Compare the elements at ``rows`` x ``cols``; ``places`` are those rows in ``bits``.

    What was ``picked`` for being doubtful says nothing about errors as a whole.
    """
    found = interval.compare(product, rows, cols, bits[places])
    return Finding(
        compared=found.count,
        bad=found.bad,
        worst=found.worst,
        first=found.first,
        errors=NO_ERRORS if picked else found.errors,
    )
