"""cublasLt through ctypes: every shape by the fastest of the kernels that its heuristics name.

Bias and activation are fused into them where cublasLt means what we do: a bias along n, of D's
type, relu, and the tanh form of gelu.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any

from gemmctl.judging.manner import Manner
from gemmctl.lists.problem import Group
from gemmctl.measuring.baselines.base import (
    Calls,
    Inapplicable,
    NoGraph,
    Queue,
    active,
    require_none,
    trial,
)
from gemmctl.measuring.baselines.cublas import (
    COMPUTE_32F,
    STREAMS,
    TYPES,
    WORKSPACE_BYTES,
    Library,
    Product,
    products,
)
from gemmctl.planning.arena import ALIGNMENT
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

CANDIDATES = 8  # kernels that are timed for each shape, at most

# cublasLt.h: attributes, and values of theirs
DESC_TRANSA = 3
DESC_TRANSB = 4
DESC_EPILOGUE = 7
DESC_BIAS_POINTER = 8  # to numbers of D's type, as none other is asked for
PREF_MAX_WORKSPACE_BYTES = 1
PREF_REDUCTION_SCHEME_MASK = 3
PREF_MIN_ALIGNMENT_BYTES = (5, 6, 7, 8)  # of A, B, C and D
REDUCTION_COMPUTE_TYPE = 2  # parts of a split sum are kept in float32
EPILOGUE_DEFAULT, EPILOGUE_BIAS = 1, 4
EPILOGUES = {"none": 0, "relu": 2, "gelu_tanh": 32}  # added to that of a bias


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
        self._wish = self._made("MatmulPreference")
        room = ctypes.c_uint64(WORKSPACE_BYTES)
        self._set("MatmulPreference", self._wish, PREF_MAX_WORKSPACE_BYTES, room)
        scheme = ctypes.c_uint32(REDUCTION_COMPUTE_TYPE)
        self._set("MatmulPreference", self._wish, PREF_REDUCTION_SCHEME_MASK, scheme)
        self._layouts: dict[tuple[str, int, int, int], ctypes.c_void_p] = {}
        self._descs: dict[tuple[int, int, int, int], ctypes.c_void_p] = {}

    def layouts(self, product: Product) -> tuple[ctypes.c_void_p, ...]:
        """How A, B, C and D lie."""
        return tuple(self._layout(*layout) for layout in product.layouts)

    def candidates(self, product: Product) -> list[Algo]:
        """The kernels that the heuristics name, the most promising first.

        Raises Inapplicable if there is none.
        """
        for attribute, bytes_ in zip(PREF_MIN_ALIGNMENT_BYTES, alignments(product), strict=True):
            self._set("MatmulPreference", self._wish, attribute, ctypes.c_uint32(bytes_))
        found, count = (Heuristic * CANDIDATES)(), ctypes.c_int()
        told = self._handle, self._desc(product), *self.layouts(product), self._wish
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
            *(self._handle, self._desc(product), (ctypes.c_float * 1)(product.alpha)),
            *(ctypes.c_void_p(product.a), a, ctypes.c_void_p(product.b), b),
            *((ctypes.c_float * 1)(product.beta), ctypes.c_void_p(product.c), c),
            *(ctypes.c_void_p(product.d), d, ctypes.byref(algo)),
            *(ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES)),
            ctypes.c_void_p(stream),
        )

    def _desc(self, product: Product) -> ctypes.c_void_p:
        """What is to be computed."""
        key = epilogue(product), product.bias, product.op_a, product.op_b
        if key not in self._descs:
            types = ctypes.c_int(COMPUTE_32F), ctypes.c_int(TYPES["f32"])
            self._descs[key] = made = self._made("MatmulDesc", *types)
            self._set("MatmulDesc", made, DESC_TRANSA, ctypes.c_int32(product.op_a))
            self._set("MatmulDesc", made, DESC_TRANSB, ctypes.c_int32(product.op_b))
            self._set("MatmulDesc", made, DESC_EPILOGUE, ctypes.c_uint32(key[0]))
            if product.bias:
                self._set("MatmulDesc", made, DESC_BIAS_POINTER, ctypes.c_void_p(product.bias))
        return self._descs[key]

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


def epilogue(product: Product) -> int:
    """cublasLtEpilogue_t of what follows a product."""
    of_bias = EPILOGUE_BIAS if product.bias else 0
    return of_bias + EPILOGUES[product.activation] or EPILOGUE_DEFAULT


def alignments(product: Product) -> tuple[int, ...]:
    """The powers of two, in bytes, that A, B, C and D lie on multiples of: ALIGNMENT at most."""
    return tuple(gcd(at, ALIGNMENT) for at in (product.a, product.b, product.c, product.d))


def _require_fusible(group: Group) -> None:
    """Raise Inapplicable if cublasLt fuses something else than a group's bias or activation."""
    if group.activation == "gelu":
        raise Inapplicable("cublasLt's gelu is the tanh form, and here it is the one with erf")
    if group.activation not in EPILOGUES:
        raise Inapplicable(f"cublasLt knows no {group.activation}")
    if group.bias == "m":
        raise Inapplicable("cublasLt's bias is along N, and here it is along M")
    if group.bias != "none" and group.bias_type != group.d:
        told = f"it is {group.bias_type}, D {group.d}"
        raise Inapplicable(f"cublasLt's bias is of D's type, and here {told}")


def fastest(session: CudaSession, plan: Plan) -> Calls:
    """cublasLtMatmul for each group, over one stream or several, whichever is faster.

    Each shape, with what follows the product, is multiplied by the kernel that was fastest on its
    first group, alone.
    """
    device, cleanup = session.device, session.cleanup
    groups = active(plan)
    require_none(plan, groups, "cublasLt", "gate")
    for i in groups:
        _require_fusible(plan.exchanged.groups[i])
    found = products(plan, session.base)
    manner: Manner = "fused" if any(epilogue(one) != EPILOGUE_DEFAULT for one in found) else ""
    matmul = Matmul(Library(session, "cublasLt"), cleanup)
    room = device.allocate(STREAMS * WORKSPACE_BYTES, cleanup)
    algos: dict[tuple[Any, ...], Algo] = {}
    kinds = [(one.layouts, alignments(one), one.op_a, one.op_b, epilogue(one)) for one in found]
    for product, kind in zip(found, kinds, strict=True):
        if kind not in algos:
            algos[kind] = _fastest_algo(session, matmul, product, room)
    ways = []
    for streams in (1, STREAMS):
        fan = device.fan(streams, cleanup)
        places = [(fan.streams[j], room + j * WORKSPACE_BYTES) for j in range(streams)]
        queues = [
            matmul.queue(product, algos[kind], *places[i % streams])
            for i, (product, kind) in enumerate(zip(found, kinds, strict=True))
        ]
        ways.append(Calls(session, partial(_spread, fan, queues), manner))
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
