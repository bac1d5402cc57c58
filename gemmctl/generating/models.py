"""The expert layers of published models; models.json says where the numbers stand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmctl.errors import UsageError, unknown

LAYERS = {"gate_up": "gate and up projections", "down": "down projection"}


@dataclass(frozen=True)
class Model:
    """Experts of two layers: hidden -> 2 x intermediate and, after SwiGLU, back to hidden."""

    title: str
    experts: int
    top_k: int  # experts that a token chooses
    hidden: int
    intermediate: int
    source: str  # the model's id, the file that has the numbers, and what they are called there

    def weights(self, layer: str) -> tuple[int, int]:
        """Rows N and columns K of an expert's weights in a layer of LAYERS."""
        if layer == "gate_up":
            return 2 * self.intermediate, self.hidden
        return self.hidden, self.intermediate


@cache
def models() -> dict[str, Model]:
    """All of them by name."""
    table = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    return {name: Model(**numbers) for name, numbers in table.items()}


def find(name: str) -> Model:
    """The model of that name; raises UsageError if there is none."""
    known = models()
    if name not in known:
        raise UsageError(unknown(f"--model: there is no '{name}'", name.lower(), list(known)))
    return known[name]
