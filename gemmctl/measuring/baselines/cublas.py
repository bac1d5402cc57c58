"""cuBLAS through ctypes: the grouped call, and a call per group on one stream or several.

cuBLAS stores matrices by columns. Our D = A B by rows is D^T = B^T A^T by columns: its first
operand is our B, its second our A, each transposed if it lies so. It adds to D, so a C in place; a
C apart is copied to D first, which is part of the run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemmctl.measuring.baselines.base import Calls, Inapplicable, active, require_none
from gemmctl.operands import dtypes
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

WORKSPACE_BYTES = 64 << 20  # for every stream; more than any of its algorithms asks for on Hopper
STREAMS = 8
INT_MAX = 2**31 - 1

# cublas_api.h and library_types.h
N, T = 0, 1
COMPUTE_32F = 68
GEMM_DEFAULT = -1
DISALLOW_REDUCED_PRECISION_REDUCTION = 16
TYPES = {"f32": 0, "f16": 2, "bf16": 14}


@dataclass(frozen=True)
class Product:
    """One product in cuBLAS's terms: D = act(alpha A B + beta C + bias), by columns, m x n.

    A and B are stored so, or transposed, as ``op_a`` and ``op_b`` say: N or T.
    """

    m: int
    n: int
    k: int
    alpha: float
    a: int
    lda: int
    op_a: int
    b: int
    ldb: int
    op_b: int
    beta: float
    c: int  # D where beta is 0
    ldc: int
    d: int
    ldd: int
    operand: str
    addend: str  # the output's where beta is 0
    output: str
    bias: int  # one number of the output's type for each row of D; 0: there is none
    activation: str

    @property
    def shape(self) -> tuple[float, ...]:
        """What products of one group of a grouped call have in common."""
        sizes = self.m, self.n, self.k, self.lda, self.ldb, self.ldd
        return *sizes, self.alpha, self.beta, self.op_a, self.op_b

    @property
    def copy(self) -> tuple[tuple[int, int], tuple[int, int], int, int] | None:
        """Of Gpu.copy_rows, before the stream: C to D; None if C is D, or not read.

        Raises Inapplicable if they are of different types, or their rows too far apart.
        """
        if self.c == self.d:
            return None
        if self.addend != self.output:
            told = f"C is {self.addend}, D {self.output}"
            raise Inapplicable(f"cuBLAS adds to D in place, and {told}")
        size = dtypes.BY_NAME[self.output].size
        if max(self.ldd, self.ldc) * size > INT_MAX:  # CU_DEVICE_ATTRIBUTE_MAX_PITCH
            raise Inapplicable(f"C is copied to D, and rows lie above {INT_MAX} bytes apart")
        return (self.d, self.ldd * size), (self.c, self.ldc * size), self.m * size, self.n

    @property
    def layouts(self) -> tuple[tuple[str, int, int, int], ...]:
        """Type, rows, columns and leading dimension of A, B, C and D as they are stored."""
        a = (self.m, self.k) if self.op_a == N else (self.k, self.m)
        b = (self.k, self.n) if self.op_b == N else (self.n, self.k)
        return (
            (self.operand, *a, self.lda),
            (self.operand, *b, self.ldb),
            (self.addend, self.m, self.n, self.ldc),
            (self.output, self.m, self.n, self.ldd),
        )

    def arguments(self) -> tuple[Any, ...]:
        """Of cublasGemmEx, after the handle; its C is D."""
        operand, output = ctypes.c_int(TYPES[self.operand]), ctypes.c_int(TYPES[self.output])
        return (
            *_ints(self.op_a, self.op_b, self.m, self.n, self.k),
            _floats([self.alpha]),
            *(ctypes.c_void_p(self.a), operand, ctypes.c_int(self.lda)),
            *(ctypes.c_void_p(self.b), operand, ctypes.c_int(self.ldb)),
            _floats([self.beta]),
            *(ctypes.c_void_p(self.d), output, ctypes.c_int(self.ldd)),
            *_ints(COMPUTE_32F, GEMM_DEFAULT),
        )


@dataclass(frozen=True)
class Batch:
    """Products of one pair of element types, equal ones next to each other: one grouped call."""

    groups: tuple[tuple[Product, ...], ...]

    def pointers(self) -> npt.NDArray[np.uint64]:
        """The addresses of all A, then all B, then all D: what the call wants on the device."""
        products = [product for group in self.groups for product in group]
        addresses = [getattr(product, which) for which in "abd" for product in products]
        return np.array(addresses, np.uint64)

    def arguments(self, pointers: int) -> tuple[Any, ...]:
        """Of cublasGemmGroupedBatchedEx, after the handle; ``pointers`` is where they lie."""
        firsts, count = [group[0] for group in self.groups], len(self.groups)
        step = 8 * sum(map(len, self.groups))
        a, b, d = (ctypes.c_void_p(pointers + i * step) for i in range(3))
        operand, output = (ctypes.c_int(TYPES[x]) for x in (firsts[0].operand, firsts[0].output))

        def array(values: Iterable[int]) -> Any:
            return (ctypes.c_int * count)(*values)

        return (
            *(array(getattr(first, op) for first in firsts) for op in ("op_a", "op_b")),
            *(array(getattr(first, x) for first in firsts) for x in "mnk"),
            _floats([first.alpha for first in firsts]),
            *(a, operand, array(first.lda for first in firsts)),
            *(b, operand, array(first.ldb for first in firsts)),
            _floats([first.beta for first in firsts]),
            *(d, output, array(first.ldd for first in firsts)),
            ctypes.c_int(count),
            array(map(len, self.groups)),
            ctypes.c_int(COMPUTE_32F),
        )


def products(plan: Plan, base: int) -> list[Product]:
    """All products of a plan whose operands lie at ``base``; raises Inapplicable."""
    layout, found = plan.layout, []
    of_a, of_b = plan.operands
    for i in active(plan):
        group = plan.exchanged.groups[i]
        adds = group.beta != 0
        if max(group.lda, group.ldb, group.ldc if adds else 0, group.ldd) > INT_MAX:
            raise Inapplicable(f"a leading dimension is above {INT_MAX}")
        found.append(
            Product(
                m=group.n,
                n=group.m,
                k=group.depth,
                alpha=group.alpha,
                a=base + int(of_b[i]),
                lda=group.ldb,
                op_a=N if group.across("b") else T,
                b=base + int(of_a[i]),
                ldb=group.lda,
                op_b=T if group.across("a") else N,
                beta=group.beta,
                c=base + int((layout.c if adds else layout.d)[i]),
                ldc=group.ldc if adds else group.ldd,
                d=base + int(layout.d[i]),
                ldd=group.ldd,
                operand=group.a,
                addend=group.c if adds else group.d,
                output=group.d,
                bias=base + int(layout.bias[i]) if group.bias != "none" else 0,
                activation=group.activation,
            )
        )
    return found


def batches(found: Sequence[Product]) -> list[Batch]:
    """Products as grouped calls: as few as the element types allow, equal shapes as one group."""
    by_types: dict[tuple[str, str], dict[tuple[float, ...], list[Product]]] = {}
    for product in found:
        by_shape = by_types.setdefault((product.operand, product.output), {})
        by_shape.setdefault(product.shape, []).append(product)
    return [Batch(tuple(map(tuple, by_shape.values()))) for by_shape in by_types.values()]


class Library:
    """The functions of a libcublas, or of the libcublasLt beside it."""

    def __init__(self, session: CudaSession, name: str = "cublas") -> None:
        """Raises Inapplicable if there is none of that name."""
        found = session.device.library(name)
        if found is None:
            raise Inapplicable(
                f"there is no lib{name}; pip install nvidia-cublas, or CUDA, brings it"
            )
        self._functions: Any = found
        self._prefix = name

    def function(self, name: str) -> Callable[..., None]:
        """One that raises Inapplicable if the library has no such function, or it fails."""
        try:
            found = getattr(self._functions, name)
        except AttributeError:
            raise Inapplicable(f"this cuBLAS is too old: it has no {name}") from None

        def call(*arguments: Any) -> None:
            if status := found(*arguments):
                raise Inapplicable(f"{name} says {self._name(status)}")

        return call

    def _name(self, status: int) -> str:
        status_name = getattr(self._functions, f"{self._prefix}GetStatusName")
        status_name.restype = ctypes.c_char_p
        name: bytes = status_name(status)
        return name.decode()

    def made(
        self, create: str, destroy: str, cleanup: ExitStack, *arguments: Any
    ) -> ctypes.c_void_p:
        """A new object, destroyed by ``cleanup``; ``arguments`` come behind the place for it."""
        made = ctypes.c_void_p()
        self.function(create)(ctypes.byref(made), *arguments)
        cleanup.callback(getattr(self._functions, destroy), made)
        return made

    def handle(self, stream: int, workspace: int, cleanup: ExitStack) -> ctypes.c_void_p:
        """A handle that queues on a stream, sums in float32 throughout, and has a workspace."""
        made = self.made("cublasCreate_v2", "cublasDestroy_v2", cleanup)
        self.function("cublasSetStream_v2")(made, ctypes.c_void_p(stream))
        room = ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES)
        self.function("cublasSetWorkspace_v2")(made, *room)
        math = ctypes.c_int(DISALLOW_REDUCED_PRECISION_REDUCTION)
        self.function("cublasSetMathMode")(made, math)
        return made


def grouped(session: CudaSession, plan: Plan) -> Calls:
    """cublasGemmGroupedBatchedEx, once for each pair of element types."""
    device, cleanup = session.device, session.cleanup
    require_none(plan, active(plan), "cuBLAS", "bias", "activation", "gate")
    found = products(plan, session.base)
    copies = [copy for product in found if (copy := product.copy)]
    library = Library(session)
    call = library.function("cublasGemmGroupedBatchedEx")
    workspace = device.allocate(WORKSPACE_BYTES, cleanup)
    handle = library.handle(device.stream, workspace, cleanup)
    calls = []
    for batch in batches(found):
        pointers = batch.pointers()
        at = device.allocate(pointers.nbytes, cleanup)
        device.upload(at, pointers)
        device.wait()
        calls.append((handle, *batch.arguments(at)))

    def queue() -> None:
        for copy in copies:
            device.copy_rows(*copy, device.stream)
        for arguments in calls:
            call(*arguments)

    queue()
    device.wait()
    return Calls(session, queue, "copied" if copies else "")


def per_group(session: CudaSession, plan: Plan, streams: int) -> Calls:
    """cublasGemmEx for each group, in turn over some streams."""
    device, cleanup = session.device, session.cleanup
    require_none(plan, active(plan), "cuBLAS", "bias", "activation", "gate")
    found = [(one.copy, one.arguments()) for one in products(plan, session.base)]
    library = Library(session)
    call = library.function("cublasGemmEx")
    fan = device.fan(streams, cleanup)
    room = device.allocate(streams * WORKSPACE_BYTES, cleanup)
    handles = [
        library.handle(stream, room + i * WORKSPACE_BYTES, cleanup)
        for i, stream in enumerate(fan.streams)
    ]

    def queue() -> None:
        with fan.spread():
            for i, (copy, arguments) in enumerate(found):
                if copy:
                    device.copy_rows(*copy, fan.streams[i % streams])
                call(handles[i % streams], *arguments)

    queue()
    device.wait()
    return Calls(session, queue, "copied" if any(copy for copy, _ in found) else "")


def _ints(*values: int) -> tuple[ctypes.c_int, ...]:
    return tuple(map(ctypes.c_int, values))


def _floats(values: Sequence[float]) -> Any:
    return (ctypes.c_float * len(values))(*values)
