"""A session whose D a test writes itself, for tests of the checker."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.judging import verify
from gemmctl.judging.product import Device, Doubles, Product, products_of
from gemmctl.judging.verdict import Verdict
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec
from gemmctl.operands.dtypes import Bits
from gemmctl.planning.plan import Plan
from support import make_plans

INT, NORMAL, SPECIAL = (DataSpec(kind, 7) for kind in ("int", "normal", "special"))


def plan_of(*groups: str, defaults: str = "") -> Plan:
    """The plan of one problem; groups and defaults are written as in a list but for braces."""
    lines = "".join(f"      - {{{group}}}\n" for group in groups)
    (made,) = make_plans(
        f"gemmctl: 1\nproblems:\n  - name: some\n    defaults: {{{defaults}}}\n    groups:\n{lines}"
    )
    return made


class Written:
    """A session whose D a test writes itself; it starts as poison."""

    def __init__(self, made: Plan, spec: DataSpec) -> None:
        self.plan, self.spec = made, spec
        self.begin = made.layout.d_begin
        self.memory = np.full(made.layout.d_end - self.begin, 0xFF, np.uint8)

    def read(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        assert self.begin <= begin <= end <= self.begin + len(self.memory)
        return self.memory[begin - self.begin : end - self.begin]

    def product(self, group: int = 0) -> Product:
        return products_of(self.plan, self.spec, "cuda")[group]

    def d(self, group: int = 0) -> Bits:
        """The bits of a D, to be changed in place."""
        found = self.plan.problem.groups[group]
        offset = int(self.plan.layout.d[group]) - self.begin
        dtype = dtypes.BY_NAME[found.d]
        return data.matrix(self.memory, offset, found.m, found.d_columns, found.ldd, dtype)

    def operand(self, which: int, group: int = 0) -> Doubles:
        """A (0), B (1) or C (2) as the seed makes it, in float64."""
        found, made = self.plan.problem.groups[group], self.product(group)
        rows, cols = ((found.m, found.k), (found.n, found.k), (found.m, found.n))[which]
        return (made.a, made.b, made.c)[which].values(rows, cols).astype(np.float64)

    def write(
        self,
        sums: Doubles | None = None,
        group: int = 0,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        c: Doubles | None = None,
    ) -> Written:
        """Set D to alpha ``sums`` + beta C, rounded once; by default the right ones."""
        found = self.plan.problem.groups[group]
        with np.errstate(all="ignore"):
            if sums is None:
                sums = self.operand(0, group) @ self.operand(1, group).T
            alpha = found.alpha if alpha is None else alpha
            result = alpha * sums if alpha else np.zeros_like(sums)
            beta = found.beta if beta is None else beta
            if beta:
                result = result + beta * (self.operand(2, group) if c is None else c)
            self.d(group)[:] = dtypes.BY_NAME[found.d].from_float(result)
        return self

    def verify(self, device: Device = "cuda", **options: Any) -> list[Verdict]:
        session: Any = self
        return verify.verify(self.plan, session, self.spec, device=device, **options)
