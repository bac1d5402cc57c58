"""PyTorch: a loop of products, one batched product, one grouped product.

A bias is what is added to a product where that has no C. All else that follows, activation, gate
and a bias beside a C, are torch's kernels for that, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmctl.errors import DeviceFailed
from gemmctl.judging.manner import Manner
from gemmctl.lists.problem import Group, factors
from gemmctl.measuring.baselines.base import (
    Inapplicable,
    NoGraph,
    Queue,
    active,
    require_none,
    require_same,
    require_words,
)
from gemmctl.operands import dtypes
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

Call = Callable[..., object]
CALLED = {"a": "A", "b": "B", "c": "C", "d": "D", "bias": "biases"}
TYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


class Operands:
    """A plan's matrices as torch tensors that share the arena's memory."""

    def __init__(self, torch: Any, memory: Any, plan: Plan) -> None:
        """``memory`` is the arena as a tensor of bytes."""
        self.torch, self.memory, self.plan = torch, memory, plan

    def matrix(self, which: str, index: int) -> Any:
        """A (m x depth), B (n x depth), C, D or bias of one group, in whatever layout.

        A bias along n is a vector, as torch takes it to be one; one along m a matrix of a column.
        """
        found = self.stack(which, [index])[0]
        along_n = which == "bias" and self.plan.problem.groups[index].bias == "n"
        return found[0] if along_n else found

    def stack(self, which: str, groups: Sequence[int]) -> Any:
        """One matrix of each of some groups of one shape, as a tensor of three dimensions.

        Raises Inapplicable if they are not evenly spaced.
        """
        group = self.plan.problem.groups[groups[0]]
        name, rows, cols, ld = {
            "a": (group.a, group.m, group.depth, group.lda),
            "b": (group.b, group.n, group.depth, group.ldb),
            "c": (group.c, group.m, group.n, group.ldc),
            "d": (group.d, group.m, group.d_columns, group.ldd),
            "bias": (group.bias_type, *((1, group.n) if group.bias == "n" else (group.m, 1)), 1),
        }[which]
        size = dtypes.BY_NAME[name].size
        offsets = getattr(self.plan.layout, which)[list(groups)] // size
        steps = set(np.diff(offsets).tolist())
        if len(steps) > 1:
            raise Inapplicable(f"the groups' {CALLED.get(which)} are not evenly spaced")
        whole = self.memory.view(getattr(self.torch, TYPES[name]))
        across = which in "abcd" and group.across(which)
        strides = steps.pop() if steps else 0, *((1, ld) if across else (ld, 1))
        return whole.as_strided((len(groups), rows, cols), strides, int(offsets[0]))


@dataclass(frozen=True)
class Work:
    """The calls of one run, and those that then bring the result to D.

    results holds what the last run wrote elsewhere than to D.
    """

    run: Sequence[Call]
    deliver: Sequence[Call] = ()
    results: list[Any] = field(default_factory=list)
    manner: Manner = ""


def loop(operands: Operands) -> Work:
    """torch.mm (or addmm) for each group."""
    torch, plan = operands.torch, operands.plan
    found = [(plan.problem.groups[i], partial(operands.matrix, index=i)) for i in active(plan)]
    return _work(torch, found, torch.mm, torch.addmm)


def batched(operands: Operands) -> Work:
    """torch.bmm (or baddbmm) for all groups; they have to be of one shape."""
    torch, plan = operands.torch, operands.plan
    groups = active(plan)
    numbers = "m", "n", "k", "a", "d", "lda", "ldb", "ldd", "alpha", "beta"
    layouts = "a_layout", "b_layout", "d_layout"
    require_same(plan, groups, *numbers, *layouts, "bias", "activation", "gate")
    first = plan.problem.groups[groups[0]]
    if first.beta != 0:
        require_same(plan, groups, "c", "ldc")
    if first.bias != "none":
        require_same(plan, groups, "bias_type")
    stack = partial(operands.stack, groups=groups)
    return _work(torch, [(first, stack)], torch.bmm, torch.baddbmm)


def grouped(operands: Operands) -> Work:
    """torch's grouped_mm: groups share N and K, or M and N as in a gradient of weights.

    It takes all A in one piece, all B in another, and returns a new D, so the operands are gathered
    beforehand, in their layouts, and D is scattered afterwards.
    """
    plan, torch = operands.plan, operands.torch
    groups = active(plan)
    found = [plan.problem.groups[i] for i in groups]
    along_k = len({group.k for group in found}) > 1 == len({group.m for group in found})
    shared = ("m", "n") if along_k else ("n", "k")
    require_same(plan, groups, *shared, "a", "d", "a_layout", "b_layout", "activation", "gate")
    require_none(plan, groups, "grouped_mm", "bias")
    require_words(plan, groups, "grouped_mm")
    if any(group.d_layout == "col" for group in found):
        raise Inapplicable("grouped_mm writes D by rows")
    if any(group.alpha != 1 or group.beta != 0 for group in found):
        raise Inapplicable("grouped_mm knows no alpha and beta")
    if found[0].a != found[0].d:
        raise Inapplicable(f"grouped_mm writes the type of its operands, {found[0].a}")
    multiply = getattr(torch.nn.functional, "grouped_mm", None) or getattr(
        torch, "_grouped_mm", None
    )
    if multiply is None:
        raise Inapplicable(f"torch {torch.__version__} has no grouped_mm")
    together = partial(_together, torch, operands, groups)
    if along_k:
        a, b = together("a", along_k), together("b", along_k).transpose(-2, -1)
    else:
        a, b = together("a", along_k), _stacked(torch, operands, groups, "b").transpose(-2, -1)
    ends = list(accumulate(group.k if along_k else group.m for group in found))
    offs = torch.tensor(ends, dtype=torch.int32, device=a.device)
    results: list[Any] = []

    def run() -> None:
        results.clear()  # so that its memory serves again
        results.append(_finished(torch, found[0], multiply(a, b, offs=offs)))

    def deliver() -> None:
        for place, (index, group, end) in enumerate(zip(groups, found, ends, strict=True)):
            part = results[0][place] if along_k else results[0][end - group.m : end]
            operands.matrix("d", index).copy_(part)

    return Work([run], [deliver], results, "" if found[0].linear else "unfused")


def _together(
    torch: Any, operands: Operands, groups: Sequence[int], which: str, along_k: bool
) -> Any:
    """All A or all B behind each other along their rows or along K, in the layout of each."""
    found = [operands.matrix(which, i) for i in groups]
    if operands.plan.problem.groups[groups[0]].across(which):
        turned = [matrix.transpose(-2, -1) for matrix in found]
        return torch.cat(turned, 0 if along_k else 1).transpose(-2, -1)
    return torch.cat(found, 1 if along_k else 0)


def _stacked(torch: Any, operands: Operands, groups: Sequence[int], which: str) -> Any:
    """All A or all B on top of each other, in the layout of each."""
    found = [operands.matrix(which, i) for i in groups]
    if operands.plan.problem.groups[groups[0]].across(which):
        return torch.stack([matrix.transpose(-2, -1) for matrix in found]).transpose(-2, -1)
    return torch.stack(found)


class Torch:
    """Calls of torch, or of what takes its tensors, one after another on the session's stream."""

    def __init__(self, session: CudaSession, plan: Plan, make: Callable[[Operands], Work]) -> None:
        self._device, self._cleanup = session.device, session.cleanup
        self._torch = torch = _imported()
        on = torch.device("cuda", self._device.ordinal)
        torch.cuda.set_device(on)
        self._stream = torch.cuda.ExternalStream(self._device.stream, device=on)
        torch.cuda.set_stream(self._stream)
        self._work = Work([])
        self._graphs: list[Any] = []
        self._captured: list[list[Any]] = []  # results of each graph
        self._cleanup.callback(self._free)
        try:
            memory = torch.as_tensor(_Memory(session.base, plan.layout.size), device=on)
            self._work = make(Operands(torch, memory, plan))
            self.queue()
        except (RuntimeError, TypeError) as error:
            raise Inapplicable(self._said(error)) from None
        self._device.wait()

    @property
    def manner(self) -> Manner:
        """As in manner.py."""
        return self._work.manner

    def queue(self) -> None:
        """Queue one run on the session's stream."""
        for call in self._work.run:
            call()

    def graph(self, runs: int) -> Queue:
        """What queues so many runs as one CUDA graph; raises NoGraph.

        torch captures it, so that whatever it allocates meanwhile is kept for the graph.
        """
        torch, device, results = self._torch, self._device, self._work.results
        try:
            made = torch.cuda.CUDAGraph(keep_graph=True)
            mode = {"stream": self._stream, "capture_error_mode": "thread_local"}
            with torch.cuda.graph(made, **mode):
                for _ in range(runs):
                    self.queue()
            self._graphs.append(made)
            ready = device.adopt(made.raw_cuda_graph(), self._cleanup)
        except (DeviceFailed, Inapplicable) as error:
            raise NoGraph(str(error)) from None
        except (RuntimeError, TypeError) as error:
            raise NoGraph(self._said(error)) from None
        captured = list(results)
        self._captured.append(captured)

        def launch() -> None:
            device.launch_graph(ready)
            results[:] = captured

        return launch

    def poison(self) -> None:
        """Queue NaN over the last run's result, where that is not the session's D."""
        for tensor in self._work.results:
            tensor.fill_(float("nan"))

    def deliver(self) -> None:
        """Queue copies to the session's D, if the result is elsewhere."""
        for call in self._work.deliver:
            call()

    def _said(self, error: Exception) -> str:
        said = str(error).partition("\n")[0]
        return f"torch {self._torch.__version__} says: {said}"

    def _free(self) -> None:
        """Give the memory of what was gathered or captured back to the GPU."""
        for results in (self._work.results, *self._captured):
            results.clear()  # which a closure may hold still
        self._work = Work([])
        self._graphs.clear()
        self._torch.cuda.empty_cache()


class _Memory:
    """Bytes on the GPU as torch.as_tensor takes them, without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _work(
    torch: Any,
    found: Sequence[tuple[Group, Callable[[str], Any]]],
    multiply: Call,
    multiply_add: Call,
) -> Work:
    """Each group by itself, or several in a stack: D where D is linear, else a new result."""
    results: list[Any] = []
    run: list[Call] = [results.clear]  # so that its memory serves again
    deliver: list[Call] = []

    def finish(group: Group, product: Call) -> None:
        results.append(_finished(torch, group, product()))

    def copy(place: int, d: Any) -> None:
        d.copy_(results[place])

    for group, operand in found:
        product = _product(torch, group, operand, multiply, multiply_add)
        if group.linear:
            run.append(partial(product, out=operand("d")))
        else:
            run.append(partial(finish, group, product))
            deliver.append(partial(copy, len(deliver), operand("d")))
    unfused = any(not (group.plain or (_added(group) and group.linear)) for group, _ in found)
    return Work(run, deliver, results, "unfused" if unfused else "")


def _product(
    torch: Any,
    group: Group,
    operand: Callable[[str], Any],
    multiply: Call,
    multiply_add: Call,
) -> Call:
    """What gives x = alpha A B^T + beta C + bias, of matrices or stacks; in ``out``, or new."""
    if group.beta != 0 and group.c != group.d:
        raise Inapplicable(f"torch adds a C of D's type, and C is {group.c}, D {group.d}")
    a, b, d = (operand(which) for which in "abd")
    wider = {} if group.d == group.a else {"out_dtype": d.dtype}
    b = b.transpose(-2, -1)
    bias = operand("bias") if group.bias != "none" else None
    if _added(group):
        return partial(multiply_add, bias, a, b, alpha=group.alpha)
    if group.alpha == 1 and group.beta == 0:
        product = partial(multiply, a, b, **wider)
    else:
        unread = d if group.linear else d[..., :1].expand(*a.shape[:-1], group.n)
        c = operand("c") if group.beta != 0 else unread
        product = partial(multiply_add, c, a, b, alpha=group.alpha, beta=group.beta, **wider)
    if bias is None:
        return product

    def add(**out: Any) -> Any:
        x = product(**out)
        return torch.add(x, bias, out=x)

    return add


def _added(group: Group) -> bool:
    """Whether a bias is added where a C would be.

    Not where D is wider than A: in some releases of torch, addmm then wants a C of A's type, and
    baddbmm adds what is in ``out``, whatever C is.
    """
    alike = group.a == group.d == group.bias_type
    return group.bias != "none" and group.beta == 0 and alike


def _finished(torch: Any, group: Group, x: Any) -> Any:
    """Activation and gate of x, by a kernel each."""
    functions = torch.nn.functional
    activate: Callable[[Any], Any] = {
        "none": lambda x: x,
        "relu": functions.relu,
        "gelu": functions.gelu,
        "gelu_tanh": partial(functions.gelu, approximate="tanh"),
        "silu": functions.silu,
    }[group.activation]
    if group.gate == "none":
        return activate(x)
    first, second = (
        x[..., part.start : part.stop : part.step]
        for part in factors(group.gate, group.n, range(group.d_columns))
    )
    return torch.mul(activate(first), second)


def _imported() -> Any:
    """The torch module, told to sum in float32 throughout; raises Inapplicable."""
    try:
        import torch
    except ImportError:
        raise Inapplicable("torch is not installed") from None
    except OSError as error:  # a library that it needs
        raise Inapplicable(f"torch cannot be loaded: {error}") from None
    if not torch.cuda.is_available():
        raise Inapplicable(f"torch {torch.__version__} cannot use this GPU")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return torch
