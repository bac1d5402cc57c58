"""cublasLt through ctypes: every shape by the fastest of the kernels that its heuristics name."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from gemmctl.measuring.baselines.base import Calls, Inapplicable, NoGraph, Queue, trial
from gemmctl.measuring.baselines.cublas import (
    COMPUTE_32F,
    STREAMS,
    TYPES,
    WORKSPACE_BYTES,
    Library,
    Product,
    T,
    products,
)
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

CANDIDATES = 8  # kernels that are timed for each shape, at most

# cublasLt.h: attributes, and values of theirs
DESC_TRANSA = 3
PREF_MAX_WORKSPACE_BYTES = 1
PREF_REDUCTION_SCHEME_MASK = 3
REDUCTION_COMPUTE_TYPE = 2  # parts of a split sum are kept in float32


class Algo(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", Algo),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class Matmul:
    """cublasLtMatmul and what it is told, for products that sum in float32 throughout."""

    def __init__(self, library: Library, cleanup: ExitStack) -> None:
        self._library, self._cleanup = library, cleanup
        self._call = library.function("cublasLtMatmul")
        self._heuristics = library.function("cublasLtMatmulAlgoGetHeuristic")
        self._handle = library.made("cublasLtCreate", "cublasLtDestroy", cleanup)
        types = ctypes.c_int(COMPUTE_32F), ctypes.c_int(TYPES["f32"])
        self._desc = self._made("MatmulDesc", *types)
        self._set("MatmulDesc", self._desc, DESC_TRANSA, ctypes.c_int32(T))
        self._wish = self._made("MatmulPreference")
        room = ctypes.c_uint64(WORKSPACE_BYTES)
        self._set("MatmulPreference", self._wish, PREF_MAX_WORKSPACE_BYTES, room)
        scheme = ctypes.c_uint32(REDUCTION_COMPUTE_TYPE)
        self._set("MatmulPreference", self._wish, PREF_REDUCTION_SCHEME_MASK, scheme)
        self._layouts: dict[tuple[str, int, int, int], ctypes.c_void_p] = {}

    def layouts(self, product: Product) -> tuple[ctypes.c_void_p, ...]:
        """How A, B, C and D lie."""
        return tuple(self._layout(*layout) for layout in product.layouts)

    def candidates(self, product: Product) -> list[Algo]:
        """The kernels that the heuristics name, the most promising first.

        They are for operands on multiples of 256 bytes, where the arena has them. Raises
        Inapplicable if there is none.
        """
        found, count = (Heuristic * CANDIDATES)(), ctypes.c_int()
        told = self._handle, self._desc, *self.layouts(product), self._wish
        self._heuristics(*told, ctypes.c_int(CANDIDATES), found, ctypes.byref(count))
        algos = [one.algo for one in found[: count.value] if one.state == 0]
        if not algos:
            raise Inapplicable("cublasLt's heuristics name no kernel")
        return algos

    def queue(self, product: Product, algo: Algo, stream: int, workspace: int) -> Queue:
        """What queues a product by one kernel; raises Inapplicable when called if that refuses."""
        a, b, c, d = self.layouts(product)
        return partial(
            self._call,
            *(self._handle, self._desc, (ctypes.c_float * 1)(product.alpha)),
            *(ctypes.c_void_p(product.a), a, ctypes.c_void_p(product.b), b),
            *((ctypes.c_float * 1)(product.beta), ctypes.c_void_p(product.c), c),
            *(ctypes.c_void_p(product.d), d, ctypes.byref(algo)),
            *(ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES)),
            ctypes.c_void_p(stream),
        )

    def _layout(self, dtype: str, rows: int, cols: int, ld: int) -> ctypes.c_void_p:
        key = dtype, rows, cols, ld
        if key not in self._layouts:
            extents = ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(ld)
            made = self._made("MatrixLayout", ctypes.c_int(TYPES[dtype]), *extents)
            self._layouts[key] = made
        return self._layouts[key]

    def _made(self, kind: str, *arguments: Any) -> ctypes.c_void_p:
        names = f"cublasLt{kind}Create", f"cublasLt{kind}Destroy"
        return self._library.made(*names, self._cleanup, *arguments)

    def _set(self, kind: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        call = self._library.function(f"cublasLt{kind}SetAttribute")
        call(of, ctypes.c_int(attribute), ctypes.byref(value), size)


def fastest(session: CudaSession, plan: Plan) -> Calls:
    """cublasLtMatmul for each group, over one stream or several, whichever is faster.

    Each shape is multiplied by the kernel that was fastest on its first group, alone.
    """
    device, cleanup = session.device, session.cleanup
    found = products(plan, session.base)
    matmul = Matmul(Library(session, "cublasLt"), cleanup)
    room = device.allocate(STREAMS * WORKSPACE_BYTES, cleanup)
    algos: dict[tuple[Any, ...], Algo] = {}
    for product in found:
        if product.layouts not in algos:
            algos[product.layouts] = _fastest_algo(session, matmul, product, room)
    ways = []
    for streams in (1, STREAMS):
        fan = device.fan(streams, cleanup)
        places = [(fan.streams[j], room + j * WORKSPACE_BYTES) for j in range(streams)]
        queues = [
            matmul.queue(product, algos[product.layouts], *places[i % streams])
            for i, product in enumerate(found)
        ]
        ways.append(Calls(session, partial(_spread, fan, queues)))
    for way in ways:
        way.queue()
        device.wait()
    if len(found) == 1:
        return ways[0]
    try:
        seconds = trial(session, [way.graph(1) for way in ways])
    except NoGraph:
        return ways[-1]
    return min(zip(seconds, ways, strict=True), key=lambda pair: pair[0])[1]


def _spread(fan: Any, queues: Sequence[Queue]) -> None:
    with fan.spread():
        for queue in queues:
            queue()


def _fastest_algo(session: CudaSession, matmul: Matmul, product: Product, workspace: int) -> Algo:
    """The kernel that takes least time for a product alone, cold; raises Inapplicable if none runs.

    Products of one shape have it whatever their alpha and beta.
    """
    device, runnable = session.device, []
    refused = Inapplicable("")
    for algo in matmul.candidates(product):
        queue = matmul.queue(product, algo, device.stream, workspace)
        try:
            queue()
            runnable.append((algo, queue))
        except Inapplicable as error:
            refused = error
        device.wait()
    if not runnable:
        raise refused
    if len(runnable) == 1:
        return runnable[0][0]
    seconds = trial(session, [queue for _, queue in runnable])
    return runnable[seconds.index(min(seconds))][0]
