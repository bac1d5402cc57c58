"""Adapters of low rank beside a layer: every token goes through one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from gemmctl.errors import UsageError
from gemmctl.generating import draws
from gemmctl.generating.listing import Made, element_types, extents
from gemmctl.generating.ranges import number
from gemmctl.generating.routing import Routing

LAYERS = {"down": "hidden -> rank", "up": "rank -> hidden"}


@dataclass(frozen=True)
class Lora:
    """A group for each adapter: tokens x rank x hidden (down) or tokens x hidden x rank (up).

    The rank of each is drawn from ``ranks``, ``16,32,64``; its tokens by ``routing``.
    """

    layer: str
    adapters: int
    ranks: str
    hidden: int
    tokens: int
    routing: Routing
    dtype: str
    seed: int
    name: str | None

    kind: ClassVar[str] = "lora"

    def made(self) -> tuple[Made, ...]:
        """One problem; raises UsageError for ranks that are none, or counts of tokens."""
        if not re.fullmatch(r"[0-9]+(,[0-9]+)*", self.ranks):
            raise UsageError(f"--ranks: '{self.ranks}' are no ranks; write 16, or 16,32,64")
        if self.routing.counts is not None:
            raise UsageError("--routing: counts are of experts; import them with --n and --k")
        ranks = [number("--ranks", rank, 1) for rank in self.ranks.split(",")]
        which = draws.uniform(0, len(ranks) - 1, self.adapters, self.seed, "rank of adapter")
        rows = self.routing.tokens_per_expert(self.adapters, 1, self.tokens, self.seed).tolist()
        types = element_types(self.dtype)
        groups = []
        for m, rank in zip(rows, (ranks[choice] for choice in which), strict=True):
            n, k = (rank, self.hidden) if self.layer == "down" else (self.hidden, rank)
            groups.append(types | {"m": m, "n": n, "k": k})
        about = (
            f"LoRA, {LAYERS[self.layer]}: {self.tokens} tokens go through {self.adapters} "
            f"adapters, {self.routing}; {extents(groups)}, {rows.count(0)} empty."
        )
        name = self.name or f"lora-{self.layer}-{self.adapters}x{self.hidden}-t{self.tokens}"
        return (Made(name, (about,), groups),)
