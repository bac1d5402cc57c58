"""A layer of experts: tokens choose some, and a GPU has a share of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmctl.errors import UsageError
from gemmctl.generating import models, passes
from gemmctl.generating.listing import Made
from gemmctl.generating.routing import Routing

WEIGHTS = ("experts", "topk", "n", "k")  # options in place of a model


@dataclass(frozen=True)
class Moe:
    """Groups of the experts that one of ``ep`` GPUs has, in their order; some may be empty.

    ``tokens`` are those of all GPUs together. Either ``model`` and ``layer`` say how many experts
    there are, how many a token chooses, and that an expert's weights are n x k, or the other four.
    """

    model: str | None
    layer: str | None
    experts: int | None
    topk: int | None
    n: int | None
    k: int | None
    tokens: int | None
    ep: int
    rank: int
    routing: Routing
    pass_: str
    swiglu: bool  # behind the forward pass: D has n/2 columns
    dtype: str
    seed: int
    name: str | None

    kind: ClassVar[str] = "moe"

    def made(self) -> tuple[Made, ...]:
        """One problem; raises UsageError for options that contradict each other or lack one."""
        title, experts, top_k, n, k = self._layer()
        self._check_swiglu(n)
        counts = self._counts(experts, top_k)
        share = experts // self.ep
        mine = counts[self.rank * share : (self.rank + 1) * share]
        layer = f"{title}, {passes.PASSES[self.pass_]}" + self.swiglu * " and SwiGLU"
        if self.tokens is None:
            routed = f"{layer}: tokens of {experts} experts as counted."
        else:
            choose = "chooses" if self.tokens == 1 else "choose"
            tokens = "1 token" if self.tokens == 1 else f"{self.tokens} tokens"
            routed = f"{layer}: {tokens} {choose} {top_k} of {experts} experts, {self.routing}."
        whose = f"Rank {self.rank} of {self.ep}" if self.ep > 1 else "One GPU"
        held = f"{whose} has {share} of them with {_spread(mine)}."
        keys = passes.element_types(self.pass_, self.dtype) | (passes.SWIGLU if self.swiglu else {})
        groups = passes.groups(self.pass_, mine, n, k, keys)
        return (Made(self.name or self._name(), (routed, held), groups),)

    def _layer(self) -> tuple[str, int, int, int, int]:
        """What it is, experts, top-k, and N and K of an expert's weights."""
        given = {key: getattr(self, key) for key in WEIGHTS}
        if self.model is not None:
            for key, value in given.items():
                if value is not None:
                    raise UsageError(f"--{key} is the model's; leave it out, or --model")
            found, layer = models.find(self.model), self.layer or "gate_up"
            title = f"{found.title}, {models.LAYERS[layer]}"
            return title, found.experts, found.top_k, *found.weights(layer)
        missing = [f"--{key}" for key, value in given.items() if value is None]
        if missing:
            told = "name a --model, or give --experts, --topk, --n and --k"
            raise UsageError(f"{told}; {' '.join(missing)} {_is(missing)} missing")
        if self.layer is not None:
            raise UsageError("--layer is a model's; --n and --k say what the weights are")
        experts, top_k, n, k = given.values()
        if top_k > experts:
            raise UsageError(f"--topk: a token cannot choose {top_k} of {experts} experts")
        return f"Experts with {n} x {k} weights", experts, top_k, n, k

    def _check_swiglu(self, n: int) -> None:
        """Raises UsageError where no gate can follow."""
        if self.swiglu and (self.pass_ != "forward" or self.layer == "down"):
            raise UsageError("--swiglu follows the gate and up projections of the forward pass")
        if self.swiglu and n % 2:
            raise UsageError(f"--swiglu pairs rows of the weights; --n must be even, not {n}")

    def _counts(self, experts: int, top_k: int) -> list[int]:
        """Tokens of every expert."""
        if experts % self.ep:
            raise UsageError(f"--ep: {experts} experts are not shared evenly by {self.ep}")
        if self.rank >= self.ep:
            raise UsageError(f"--rank: of {self.ep} the last is {self.ep - 1}, not {self.rank}")
        counted = self.routing.counts
        if counted is None:
            if self.tokens is None:
                raise UsageError("--tokens is missing: how many tokens are routed, of all GPUs")
            found: list[int] = self.routing.tokens_per_expert(
                experts, top_k, self.tokens, self.seed
            ).tolist()
            return found
        if self.tokens is not None:
            raise UsageError(f"--tokens: {self.routing} has the tokens already; leave it out")
        if len(counted) != experts:
            told = f"--routing: {self.routing} counts the tokens of {len(counted)} experts"
            raise UsageError(f"{told}, and there are {experts}")
        return list(counted)

    def _name(self) -> str:
        """What tells it from most others."""
        parts = [self.model or f"moe-{self.experts}x{self.n}x{self.k}"]
        if self.model is not None:
            parts.append(self.layer or "gate_up")
        if self.pass_ != "forward":
            parts.append(self.pass_)
        if self.swiglu:
            parts.append("swiglu")
        if self.tokens is not None:
            parts += [f"t{self.tokens}", f"{self.routing}".replace(":", "")]
        if self.ep > 1:
            parts.append(f"r{self.rank}of{self.ep}")
        return "-".join(parts)


def _spread(counts: list[int]) -> str:
    """Rows in all, the fewest and the most of an expert, how uneven that is, and the empty ones."""
    total, empty = sum(counts), counts.count(0)
    rows = "1 row" if total == 1 else f"{total} rows"
    uneven = f", max/mean {max(counts) * len(counts) / total:.2f}" if total else ""
    return f"{rows}, {min(counts)} to {max(counts)} an expert{uneven}, {empty} empty"


def _is(words: list[str]) -> str:
    return "is" if len(words) == 1 else "are"
