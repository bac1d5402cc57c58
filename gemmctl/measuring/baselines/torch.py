"""PyTorch: a loop of products, one batched product, one grouped product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmctl.lists.problem import Group
from gemmctl.measuring.baselines.base import Inapplicable, active, require_same
from gemmctl.operands import dtypes
from gemmctl.planning.plan import Plan

if TYPE_CHECKING:
    from gemmctl.device.cuda.session import CudaSession

Call = Callable[..., object]
TYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


class Operands:
    """A plan's matrices as torch tensors that share the arena's memory."""

    def __init__(self, torch: Any, memory: Any, plan: Plan) -> None:
        """``memory`` is the arena as a tensor of bytes."""
        self.torch, self.memory, self.plan = torch, memory, plan

    def matrix(self, which: str, index: int) -> Any:
        """A (m x k), B (n x k), C or D of one group."""
        return self.stack(which, [index])[0]

    def stack(self, which: str, groups: Sequence[int]) -> Any:
        """One matrix of each of some groups of one shape, as a tensor of three dimensions.

        Raises Inapplicable if they are not evenly spaced.
        """
        group = self.plan.problem.groups[groups[0]]
        rows, cols, ld = {
            "a": (group.m, group.k, group.lda),
            "b": (group.n, group.k, group.ldb),
            "c": (group.m, group.n, group.ldc),
            "d": (group.m, group.n, group.ldd),
        }[which]
        name = getattr(group, which)
        size = dtypes.BY_NAME[name].size
        offsets = getattr(self.plan.layout, which)[list(groups)] // size
        steps = set(np.diff(offsets).tolist())
        if len(steps) > 1:
            raise Inapplicable(f"the groups' {which.upper()} are not evenly spaced")
        whole = self.memory.view(getattr(self.torch, TYPES[name]))
        strides = steps.pop() if steps else 0, ld, 1
        return whole.as_strided((len(groups), rows, cols), strides, int(offsets[0]))


@dataclass(frozen=True)
class Work:
    """The calls of one run, and those that then bring the result to D."""

    run: Sequence[Call]
    deliver: Sequence[Call] = ()


def loop(operands: Operands) -> Work:
    """torch.mm (or addmm) for each group."""
    torch, plan = operands.torch, operands.plan
    return Work(
        [
            _product(
                plan.problem.groups[i], partial(operands.matrix, index=i), torch.mm, torch.addmm
            )
            for i in active(plan)
        ]
    )


def batched(operands: Operands) -> Work:
    """torch.bmm (or baddbmm) for all groups; they have to be of one shape."""
    torch, plan = operands.torch, operands.plan
    groups = active(plan)
    require_same(plan, groups, "m", "n", "k", "a", "d", "lda", "ldb", "ldd", "alpha", "beta")
    first = plan.problem.groups[groups[0]]
    if first.beta != 0:
        require_same(plan, groups, "c", "ldc")
    stack = partial(operands.stack, groups=groups)
    return Work([_product(first, stack, torch.bmm, torch.baddbmm)])


def grouped(operands: Operands) -> Work:
    """torch's grouped_mm: groups share N and K.

    It takes the rows of all A in one piece, all B in another, and returns a new D, so the operands
    are gathered beforehand and D is scattered afterwards.
    """
    plan, torch = operands.plan, operands.torch
    groups = active(plan)
    require_same(plan, groups, "n", "k", "a", "d")
    found = [plan.problem.groups[i] for i in groups]
    if any(group.alpha != 1 or group.beta != 0 for group in found):
        raise Inapplicable("grouped_mm knows no alpha and beta")
    if found[0].a != found[0].d:
        raise Inapplicable(f"grouped_mm writes the type of its operands, {found[0].a}")
    multiply = getattr(torch.nn.functional, "grouped_mm", None) or getattr(
        torch, "_grouped_mm", None
    )
    if multiply is None:
        raise Inapplicable(f"torch {torch.__version__} has no grouped_mm")
    a = torch.cat([operands.matrix("a", i) for i in groups])
    b = torch.stack([operands.matrix("b", i) for i in groups]).transpose(-2, -1)
    ends = list(accumulate(group.m for group in found))
    offs = torch.tensor(ends, dtype=torch.int32, device=a.device)
    result: list[Any] = []

    def run() -> None:
        result.clear()  # so that its memory serves again
        result.append(multiply(a, b, offs=offs))

    def deliver() -> None:
        for index, group, end in zip(groups, found, ends, strict=True):
            operands.matrix("d", index).copy_(result[0][end - group.m : end])

    return Work([run], [deliver])


class Torch:
    """Calls of torch, one after another on the session's stream."""

    def __init__(self, session: CudaSession, plan: Plan, make: Callable[[Operands], Work]) -> None:
        device, size = session.device, plan.layout.size
        torch = _imported()
        on = torch.device("cuda", device.ordinal)
        torch.cuda.set_device(on)
        torch.cuda.set_stream(torch.cuda.ExternalStream(device.stream, device=on))
        self._work = Work([])
        session.cleanup.callback(self._free, torch)
        try:
            memory = torch.as_tensor(_Memory(session.base, size), device=on)
            self._work = make(Operands(torch, memory, plan))
            self.queue()
        except (RuntimeError, TypeError) as error:
            said = str(error).partition("\n")[0]
            raise Inapplicable(f"torch {torch.__version__} says: {said}") from None
        device.wait()

    def queue(self) -> None:
        """Queue one run on the session's stream."""
        for call in self._work.run:
            call()

    def deliver(self) -> None:
        """Queue copies to the session's D, if the result is elsewhere."""
        for call in self._work.deliver:
            call()

    def _free(self, torch: Any) -> None:
        """Give the memory of what was gathered back to the GPU."""
        self._work = Work([])
        torch.cuda.empty_cache()


class _Memory:
    """Bytes on the GPU as torch.as_tensor takes them, without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _product(
    group: Group, operand: Callable[[str], Any], multiply: Call, multiply_add: Call
) -> Call:
    """A call that sets D to alpha A B^T + beta C, of matrices or of stacks of them."""
    if group.beta != 0 and group.c != group.d:
        raise Inapplicable(f"torch adds a C of D's type, and C is {group.c}, D {group.d}")
    a, b, d = (operand(which) for which in "abd")
    wider = {} if group.d == group.a else {"out_dtype": d.dtype}
    b = b.transpose(-2, -1)
    if group.alpha == 1 and group.beta == 0:
        return partial(multiply, a, b, out=d, **wider)
    c = operand("c") if group.beta != 0 else d  # not read where beta is 0
    return partial(multiply_add, c, a, b, alpha=group.alpha, beta=group.beta, out=d, **wider)


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
