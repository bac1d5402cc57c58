"""Stand-ins for a GPU and for the libraries that queue on it, in this process's memory.

What a library queues happens at once, or when the graph is launched that it was captured into. Time
passes only as the GPU's fields say.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from gemmctl.device.base import Sample
from gemmctl.device.cpu import CpuDevice, CpuSession
from gemmctl.errors import DeviceFailed
from gemmctl.measuring.baselines.cublaslt import Algo, Heuristic
from gemmctl.operands import dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.planning.plan import Plan

TYPES = {0: dtypes.F32, 2: dtypes.F16, 14: dtypes.BF16}
NOT_SUPPORTED = 15
Work = Callable[[], None]


class FakeGpu:
    """What baselines need of a GPU."""

    stream = 100
    ordinal = 0

    def __init__(self, *libraries: Any) -> None:
        self.libraries = {library.file: library for library in libraries}
        for library in libraries:
            library.gpu = self
        self.memory: list[Any] = []
        self.capturing: list[Work] | None = None
        self.refuses_graphs = ""  # with these words
        self.forgets_graphs = False  # a graph does nothing
        self.graphs: list[list[Work]] = []  # as they were captured
        self.now = 0.0
        self.call_s, self.graph_s = 1.0, 0.0  # of every call of a library, and of every graph
        self.fan_s: dict[int, float] = {}  # of a run over so many streams
        self.copied_on: list[int] = []  # streams, one for each copy

    def library(self, name: str) -> Any:
        return self.libraries.get(name)

    def allocate(self, nbytes: int, cleanup: ExitStack) -> int:
        self.memory.append(np.empty(nbytes, np.uint8))
        return int(self.memory[-1].ctypes.data)

    def upload(self, to: int, array: Any) -> None:
        ctypes.memmove(to, array.ctypes.data, array.nbytes)

    def copy_rows(
        self, to: tuple[int, int], source: tuple[int, int], row_bytes: int, rows: int, stream: int
    ) -> None:
        def work() -> None:
            for i in range(rows):
                ctypes.memmove(to[0] + i * to[1], source[0] + i * source[1], row_bytes)

        self.copied_on.append(stream)
        self.queue(work)

    def wait(self) -> None:
        assert self.capturing is None, "waiting ends a capture"

    def fan(self, count: int, cleanup: ExitStack) -> Any:
        @contextmanager
        def spread() -> Iterator[None]:
            yield
            self.queue(lambda: None, self.fan_s.get(count, 0.0))

        return SimpleNamespace(streams=[self.stream + i for i in range(count)], spread=spread)

    def queue(self, work: Work, seconds: float = 0.0) -> None:
        """Do something that takes so long, or keep it for the graph that is being captured."""

        def run() -> None:
            self.now += seconds
            work()

        if self.capturing is None:
            run()
        else:
            self.capturing.append(run)

    def called(self) -> None:
        """A library's function takes the host some time; none while it is captured."""
        self.now += 0 if self.capturing is not None else self.call_s

    def capture(self, queue: Work, cleanup: ExitStack) -> list[Work]:
        self.begin_capture()
        try:
            queue()
        finally:
            captured = self.end_capture()
        return self.adopt(captured, cleanup)

    def begin_capture(self) -> None:
        assert self.capturing is None
        self.capturing = []

    def end_capture(self) -> int:
        assert self.capturing is not None
        self.graphs.append(self.capturing)
        self.capturing = None
        return len(self.graphs) - 1

    def adopt(self, graph: int, cleanup: ExitStack) -> list[Work]:
        if self.refuses_graphs:
            raise DeviceFailed(self.refuses_graphs)
        return self.graphs[graph]

    def launch_graph(self, graph: list[Work]) -> None:
        self.now += self.graph_s
        for work in [] if self.forgets_graphs else graph:
            work()

    def time(self, count: int, *, cold: bool, queue: Work) -> list[Sample]:
        """What the session's ``time`` does."""
        samples = []
        for _ in range(count):
            before = self.now
            queue()
            samples.append(Sample(self.now - before))
        return samples


@contextmanager
def opened(plan: Plan, spec: DataSpec, *libraries: Any) -> Iterator[Any]:
    """A CPU session dressed as one on a GPU that has these libraries."""
    with CpuDevice().open(plan, spec) as session, ExitStack() as cleanup:
        assert isinstance(session, CpuSession)
        dressed: Any = session
        dressed.base = session._arena.ctypes.data
        dressed.device = FakeGpu(*libraries)
        dressed.cleanup = cleanup
        dressed.time = dressed.device.time
        yield session


def columns(address: int, dtype: dtypes.DType, rows: int, cols: int, ld: int) -> Any:
    """A matrix stored by columns: a column is ``rows`` contiguous elements."""
    extent = ((cols - 1) * ld + rows) * dtype.size
    memory = (ctypes.c_uint8 * extent).from_address(address)
    strides = dtype.size, ld * dtype.size
    return np.ndarray((rows, cols), dtype.storage, memory, strides=strides)


def values(address: int, dtype: dtypes.DType, rows: int, cols: int, ld: int) -> Any:
    return dtype.to_f32(columns(address, dtype, rows, cols, ld)).astype(np.float64)


def stored(op: int, rows: int, cols: int) -> tuple[int, int]:
    """Rows and columns of an operand as it lies, with the operation that makes it this."""
    assert op in (0, 1)
    return (cols, rows) if op else (rows, cols)


def plain(argument: Any) -> Any:
    """A ctypes argument as numbers."""
    return list(argument) if isinstance(argument, ctypes.Array) else argument.value


class Library:
    """A library's functions as attributes, by the methods of their names without the prefix."""

    file: str
    prefix: str

    def __init__(self, *, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self.status = 0  # that everything but housekeeping answers
        self.capture_status = 0  # that it answers while it is captured
        self.gpu: FakeGpu
        self.objects: dict[int, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        method = f"on_{name.removeprefix(self.prefix)}"
        if (
            not name.startswith(self.prefix)
            or name in self.missing
            or not hasattr(type(self), method)
        ):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            return getattr(self, method)(*arguments) or 0

        return function

    @property
    def status_name(self) -> Any:
        class Name:
            def __call__(self, status: int) -> bytes:
                return {15: b"CUBLAS_STATUS_NOT_SUPPORTED"}[status]

        return Name()

    def made(self, place: Any, **fields: Any) -> None:
        place._obj.value = handle = len(self.objects) + 1
        self.objects[handle] = fields

    def gone(self, handle: Any) -> None:
        assert not self.objects[handle.value].get("gone")
        self.objects[handle.value]["gone"] = True

    def answer(self) -> int:
        return self.status or (self.capture_status if self.gpu.capturing is not None else 0)


class FakeCublas(Library):
    """Column-major products, one at a time or grouped."""

    file = prefix = "cublas"

    def __init__(self, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(missing=missing)
        self.used: list[int] = []  # handles, one for each product

    @property
    def cublasGetStatusName(self) -> Any:
        return self.status_name

    def on_Create_v2(self, place: Any) -> None:
        self.made(place)

    def on_Destroy_v2(self, handle: Any) -> None:
        self.gone(handle)

    def on_SetStream_v2(self, handle: Any, stream: Any) -> None:
        self.objects[handle.value] = {"stream": stream.value}  # no workspace left

    def on_SetWorkspace_v2(self, handle: Any, workspace: Any, nbytes: Any) -> None:
        self.objects[handle.value]["workspace"] = workspace.value, nbytes.value

    def on_SetMathMode(self, handle: Any, mode: Any) -> None:
        self.objects[handle.value]["math"] = mode.value

    def on_GemmEx(self, handle: Any, *arguments: Any) -> int:
        self.gpu.called()
        if status := self.answer():
            return status
        self.used.append(handle.value)
        told = [plain(argument) for argument in arguments]
        self.gpu.queue(lambda: self.multiply(*told))
        return 0

    def on_GemmGroupedBatchedEx(self, handle: Any, *arguments: Any) -> int:
        self.gpu.called()
        if status := self.answer():
            return status
        told = [plain(argument) for argument in arguments]
        self.gpu.queue(lambda: self.multiply_groups(*told))
        return 0

    @staticmethod
    def multiply(
        op_a: int, op_b: int, m: int, n: int, k: int, alpha: list[float], a: int, a_type: int,
        lda: int, b: int, b_type: int, ldb: int, beta: list[float], c: int, c_type: int, ldc: int,
        compute: int, algorithm: int,
    ) -> None:  # fmt: skip
        assert (compute, algorithm) == (68, -1)
        of_a, of_b = stored(op_a, m, k), stored(op_b, k, n)
        assert lda >= max(1, of_a[0]) and ldb >= max(1, of_b[0]) and ldc >= max(1, m)
        left, right = values(a, TYPES[a_type], *of_a, lda), values(b, TYPES[b_type], *of_b, ldb)
        product = (left.T if op_a else left) @ (right.T if op_b else right)
        dtype = TYPES[c_type]
        result = alpha[0] * product
        if beta[0]:
            result += beta[0] * values(c, dtype, m, n, ldc)
        columns(c, dtype, m, n, ldc)[:] = dtype.from_float(result)

    def multiply_groups(
        self, op_a: list[int], op_b: list[int], m: list[int], n: list[int], k: list[int],
        alpha: list[float], a: int, a_type: int, lda: list[int], b: int, b_type: int,
        ldb: list[int], beta: list[float], c: int, c_type: int, ldc: list[int],
        count: int, sizes: list[int], compute: int,
    ) -> None:  # fmt: skip
        for array in (op_a, op_b, m, n, k, alpha, lda, ldb, beta, ldc, sizes):
            assert len(array) == count
        total = sum(sizes)
        pointers = [(ctypes.c_uint64 * total).from_address(array) for array in (a, b, c)]
        index = 0
        for i, size in enumerate(sizes):
            for _ in range(size):
                self.multiply(
                    op_a[i], op_b[i], m[i], n[i], k[i], [alpha[i]], pointers[0][index], a_type,
                    lda[i], pointers[1][index], b_type, ldb[i], [beta[i]], pointers[2][index],
                    c_type, ldc[i], compute, -1,
                )  # fmt: skip
                index += 1


class FakeCublasLt(Library):
    """Column-major products by kernels of different speed, as heuristics name them."""

    file = prefix = "cublasLt"

    def __init__(self) -> None:
        super().__init__()
        self.kernels = {1: 3.0, 2: 1.0, 3: 2.0}  # seconds of each, by its number
        self.refused: set[int] = set()  # kernels that are named and then do not run
        self.asked: list[tuple[tuple[int, ...], ...]] = []  # layouts of A, B, C, D
        self.used: list[tuple[int, int, int]] = []  # kernel, stream and workspace of each product

    @property
    def cublasLtGetStatusName(self) -> Any:
        return self.status_name

    def on_Create(self, place: Any) -> None:
        self.made(place)

    def on_MatmulDescCreate(self, place: Any, compute: Any, scale: Any) -> None:
        assert (compute.value, scale.value) == (68, 0)
        self.made(place)

    def on_MatmulPreferenceCreate(self, place: Any) -> None:
        self.made(place)

    def on_MatrixLayoutCreate(self, place: Any, kind: Any, rows: Any, cols: Any, ld: Any) -> int:
        if not rows.value or not cols.value:
            return NOT_SUPPORTED
        assert ld.value >= rows.value
        self.made(place, layout=(kind.value, rows.value, cols.value, ld.value))
        return 0

    def on_Destroy(self, handle: Any) -> None:
        self.gone(handle)

    on_MatmulDescDestroy = on_MatmulPreferenceDestroy = on_MatrixLayoutDestroy = on_Destroy

    def on_MatmulDescSetAttribute(self, of: Any, attribute: Any, value: Any, size: Any) -> None:
        assert size.value == ctypes.sizeof(value._obj)
        self.objects[of.value][attribute.value] = value._obj.value

    on_MatmulPreferenceSetAttribute = on_MatmulDescSetAttribute

    def layouts(self, desc: Any, *handles: Any) -> tuple[tuple[int, ...], ...]:
        """Of A, B, C and D, which fit together."""
        found = tuple(self.objects[handle.value]["layout"] for handle in handles)
        (_, *a, _), (_, *b, _), (_, *c, _), (_, *d, _) = found
        *_, op_a, op_b = self.told(desc)
        (m, k), (b_k, n) = stored(op_a, *a), stored(op_b, *b)
        assert (k, [m, n], [m, n]) == (b_k, c, d)
        return found

    def on_MatmulAlgoGetHeuristic(
        self, handle: Any, desc: Any, a: Any, b: Any, c: Any, d: Any, wish: Any, wanted: Any,
        results: Any, count: Any,
    ) -> int:  # fmt: skip
        told = self.told(desc)
        wished = dict(self.objects[wish.value])
        lies = tuple(wished.pop(attribute) for attribute in (5, 6, 7, 8))  # A, B, C and D
        assert wished == {1: 64 << 20, 3: 2}  # workspace; float32 sums
        assert wanted.value == len(results)
        self.asked.append((*self.layouts(desc, a, b, c, d), told[:1]))
        operand, _, addend, output = (layout[0] for layout in self.asked[-1][:4])
        if addend != output or (operand, output) == (14, 2):
            return NOT_SUPPORTED
        named = [(-1, NOT_SUPPORTED), *((kernel, 0) for kernel in self.kernels)][: wanted.value]
        for i, (kernel, state) in enumerate(named):
            results[i] = Heuristic(algo=Algo((kernel, *lies)), state=state)
        count._obj.value = len(named)
        return 0

    def told(self, desc: Any) -> tuple[int, int, int, int]:
        """The epilogue, where its bias lies, and whether A and B are transposed."""
        of = self.objects[desc.value]
        assert set(of) <= {3, 4, 7, 8} and (8 in of) == bool(of[7] & 4)
        return of[7], of.get(8, 0), of[3], of[4]

    def on_Matmul(
        self, handle: Any, desc: Any, alpha: Any, a: Any, layout_a: Any, b: Any, layout_b: Any,
        beta: Any, c: Any, layout_c: Any, d: Any, layout_d: Any, algo: Any, workspace: Any,
        nbytes: Any, stream: Any,
    ) -> int:  # fmt: skip
        kernel, *lies = algo._obj.data[:5]
        assert not any(x.value % lie for x, lie in zip((a, b, c, d), lies, strict=True))
        assert nbytes.value == 64 << 20
        self.gpu.called()
        if status := self.answer() or (NOT_SUPPORTED if kernel in self.refused else 0):
            return status
        found = self.layouts(desc, layout_a, layout_b, layout_c, layout_d)
        self.used.append((kernel, stream.value, workspace.value))
        scalars = alpha[0], beta[0]
        addresses = [x.value for x in (a, b, c, d)]
        told = self.told(desc)
        work = partial(self.multiply, found, addresses, scalars, *told)
        self.gpu.queue(work, self.kernels[kernel])
        return 0

    @staticmethod
    def multiply(
        layouts: Sequence[tuple[int, ...]],
        at: Sequence[int],
        scalars: tuple[float, float],
        epilogue: int,
        bias: int,
        op_a: int,
        op_b: int,
    ) -> None:
        kinds = [TYPES[layout[0]] for layout in layouts]
        a, b = (values(at[i], kinds[i], *layouts[i][1:]) for i in (0, 1))
        result = scalars[0] * ((a.T if op_a else a) @ (b.T if op_b else b))
        if scalars[1]:
            result += scalars[1] * values(at[2], kinds[2], *layouts[2][1:])
        if epilogue & 4:
            rows = layouts[3][1]
            result += values(bias, kinds[3], rows, 1, rows)
        function = {0: lambda x: x, 1: lambda x: x, 2: relu, 32: gelu_tanh}[epilogue & ~4]
        result = function(result)
        columns(at[3], kinds[3], *layouts[3][1:])[:] = kinds[3].from_float(result)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def gelu_tanh(x: Any) -> Any:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def silu(x: Any) -> Any:
    return x * (1 + np.tanh(x / 2)) / 2


class Tensor(np.ndarray[Any, Any]):
    """What of a torch tensor baselines use."""

    device = "a gpu"

    def view(self, dtype: Any) -> Any:
        return super().view(dtype)

    def as_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        steps = [step * self.itemsize for step in strides]
        return np.lib.stride_tricks.as_strided(self[offset:], shape, steps, subok=True)

    def transpose(self, one: int, other: int) -> Any:  # type: ignore[override]
        return self.swapaxes(one, other)

    def expand(self, *shape: int) -> Any:
        return np.broadcast_to(self, shape, subok=True)

    def copy_(self, source: Any) -> None:
        self[...] = source

    def fill_(self, value: float) -> None:
        self[...] = value


class FakeTorch:
    """torch on numpy arrays: what computes is queued on the GPU, all else happens at once."""

    __version__ = "2.11"
    bfloat16, float16, float32, int32 = ml_dtypes.bfloat16, np.float16, np.float32, np.int32

    def __init__(self) -> None:
        self.gpu: FakeGpu
        self.refuses_capture = False
        self.grouped_d: Any = None  # the allocator gives the same memory again
        self.captured_d: Any = None  # and a graph memory of its own, with what was there before
        self.nn = SimpleNamespace(
            functional=SimpleNamespace(
                grouped_mm=self.grouped_mm,
                relu=partial(self.elementwise, relu),
                silu=partial(self.elementwise, silu),
                gelu=lambda x, *, approximate="none": self.elementwise(
                    {"none": gelu, "tanh": gelu_tanh}[approximate], x
                ),
            )
        )
        self.mul = partial(self.elementwise, np.multiply)
        self.add = partial(self.elementwise, np.add)
        self.current: Any = None
        self.emptied = 0
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            set_device=lambda device: None,
            ExternalStream=lambda stream, device: stream,
            set_stream=lambda stream: setattr(self, "current", stream),
            CUDAGraph=self.CUDAGraph,
            graph=self.graph,
            empty_cache=lambda: setattr(self, "emptied", self.emptied + 1),
        )

    @staticmethod
    def device(kind: str, ordinal: int) -> str:
        return f"{kind}:{ordinal}"

    @staticmethod
    def as_tensor(memory: Any, device: str) -> Any:
        told = memory.__cuda_array_interface__
        (nbytes,), (address, _) = told["shape"], told["data"]
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).view(Tensor)

    class CUDAGraph:
        def __init__(self, keep_graph: bool = False) -> None:
            assert keep_graph, "one that is gone cannot be adopted"
            self.number = -1

        def raw_cuda_graph(self) -> int:
            return self.number

    @contextmanager
    def graph(self, graph: Any, *, stream: Any, capture_error_mode: str) -> Iterator[None]:
        assert stream == self.current == self.gpu.stream
        self.gpu.begin_capture()
        try:
            yield
        finally:
            graph.number = self.gpu.end_capture()

    def queue(self, work: Work) -> None:
        """A multiplication, as torch calls it."""
        if self.refuses_capture and self.gpu.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        self.gpu.called()
        self.gpu.queue(work)

    def elementwise(self, function: Any, *inputs: Any, out: Any = None) -> Any:
        """A kernel that computes in more bits than it is given, and rounds to the first's type."""
        d = self.new(np.broadcast_shapes(*(x.shape for x in inputs)), inputs[0], out)

        def work() -> None:
            d[...] = function(*(x.astype(np.float64) for x in inputs))

        self.queue(work)
        return d

    def mm(self, a: Any, b: Any, *, out: Any = None, out_dtype: Any = None) -> Any:
        shape = *a.shape[:-1], b.shape[-1]
        c = a[..., :1].expand(*shape)
        return self.addmm(c, a, b, beta=0.0, out=out, out_dtype=out_dtype)

    def addmm(
        self,
        c: Any,
        a: Any,
        b: Any,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        out: Any = None,
        out_dtype: Any = None,
    ) -> Any:
        shape = *a.shape[:-1], b.shape[-1]
        assert np.broadcast_shapes(c.shape, shape) == shape
        wanted = np.dtype(out_dtype or a.dtype)
        d = self.new(shape, np.empty(0, wanted), out)
        assert d.dtype == wanted and (not beta or c.dtype == wanted)
        assert wanted == a.dtype or c.shape == shape, "some releases go by the shape of C"

        def work() -> None:
            added = beta * c.astype(np.float64) if beta else 0
            d[...] = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + added

        self.queue(work)
        return d

    def new(self, shape: Sequence[int], like: Any, out: Any) -> Any:
        """``out``, or memory that something else was in before."""
        return self.empty(shape, dtype=like.dtype, device="") if out is None else out

    bmm, baddbmm = mm, addmm

    def grouped_mm(self, a: Any, b: Any, *, offs: Any) -> Any:
        along_k = b.ndim == 2
        if self.grouped_d is None:
            shape = (*((len(offs),) if along_k else ()), len(a), b.shape[-1])
            self.grouped_d = self.empty(shape, dtype=a.dtype, device=a.device)
        if self.gpu.capturing is not None and self.captured_d is None:
            self.captured_d = self.grouped_d.copy()
        d = self.grouped_d if self.gpu.capturing is None else self.captured_d
        ends = offs.tolist()

        def work() -> None:
            wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
            for i, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
                if along_k:
                    d[i] = wide_a[:, begin:end] @ wide_b[begin:end]
                else:
                    d[begin:end] = wide_a[begin:end] @ wide_b[i]

        self.queue(work)
        return d

    def cat(self, tensors: Sequence[Any], dim: int = 0) -> Any:
        assert all(
            tensor.shape[1] == 1 or tensor.strides[1] == tensor.itemsize for tensor in tensors
        )
        return np.concatenate(tensors, dim).view(Tensor)

    def stack(self, tensors: Sequence[Any]) -> Any:
        return np.stack(tensors).view(Tensor)

    def tensor(self, numbers: Sequence[int], *, device: str, dtype: Any = np.int64) -> Any:
        return np.array(numbers, dtype).view(Tensor)

    def arange(self, count: int, *, dtype: Any, device: str) -> Any:
        return np.arange(count, dtype=dtype).view(Tensor)

    def repeat_interleave(self, numbers: Any, counts: Any) -> Any:
        return np.repeat(numbers, counts).view(Tensor)

    def zeros(self, shape: Sequence[int], *, dtype: Any, device: str) -> Any:
        return np.zeros(shape, dtype).view(Tensor)

    def empty(self, shape: Sequence[int], *, dtype: Any, device: str) -> Any:
        return np.full(shape, 7, dtype).view(Tensor)  # old results, not NaN


class FakeDeepGemm:
    """deep_gemm on the same arrays, as strict about its layouts as it is."""

    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch
        self.called: list[str] = []

    def get_mk_alignment_for_contiguous_layout(self) -> int:
        return 128

    def m_grouped_bf16_gemm_nt_contiguous(self, a: Any, b: Any, d: Any, of_rows: Any) -> None:
        self.called.append("contiguous")
        self.check(a, b, d, of_rows)
        assert a.shape == (len(of_rows), b.shape[2]) and d.shape == (len(of_rows), b.shape[1])
        for tile in of_rows.reshape(-1, 128):
            assert (tile == tile[0]).all(), "a tile has rows of one group only"

        def work() -> None:
            for i, weights in enumerate(b):
                rows = of_rows == i
                d[rows] = a[rows].astype(np.float64) @ weights.astype(np.float64).T

        self.torch.queue(work)

    def m_grouped_bf16_gemm_nt_masked(
        self, a: Any, b: Any, d: Any, rows: Any, expected: int
    ) -> None:
        self.called.append("masked")
        self.check(a, b, d, rows)
        groups, height, k = a.shape
        assert b.shape == (groups, d.shape[2], k) and d.shape[:2] == (groups, height)
        assert height % 128 == 0, "a store of whole tiles would reach into the next group"
        assert 0 < expected <= rows.max() <= height

        def work() -> None:
            for i, m in enumerate(rows.tolist()):
                d[i, :m] = a[i, :m].astype(np.float64) @ b[i].astype(np.float64).T

        self.torch.queue(work)

    @staticmethod
    def check(a: Any, b: Any, d: Any, told: Any) -> None:
        assert {a.dtype, b.dtype, d.dtype} == {np.dtype(ml_dtypes.bfloat16)}
        assert told.dtype == np.int32
        if a.shape[-1] % 64:
            raise RuntimeError("Assertion error (sm90_bf16_gemm.hpp:118): k % 64 == 0")
