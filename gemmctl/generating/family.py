"""Lists of every kind, drawn at random: the same ones from the same seed.

Options of each list are drawn until its problems take between 10 us and 3 ms on an H200, by its
floors: long enough to be measured well, short enough that all of them are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gemmctl.generating import draws, models, passes
from gemmctl.generating.batched import Batched
from gemmctl.generating.listing import Group, Request, how_many
from gemmctl.generating.lora import LAYERS, Lora
from gemmctl.generating.mixed import Random
from gemmctl.generating.moe import Moe
from gemmctl.generating.ranges import doubled
from gemmctl.generating.routing import Routing
from gemmctl.generating.sweep import Sweep
from gemmctl.generating.wgrad import Wgrad
from gemmctl.operands import dtypes
from gemmctl.operands.data import MAX_SEED

# About what an H200 does at its power cap, and what it copies; they decide on sizes only.
FLOP_PER_S = 600e12
BYTES_PER_S = 4e12
SHORTEST_S, LONGEST_S = 10e-6, 3e-3

T = TypeVar("T")


class Picks:
    """Choices of one list, one after another."""

    def __init__(self, seed: int, of: str) -> None:
        """``of`` names the list and the try: another has other choices."""
        self._seed, self._of, self._made = seed, of, 0

    def __call__(self, choices: Sequence[T]) -> T:
        """One of them, each as likely."""
        self._made += 1
        purpose = f"{self._of} {self._made}"
        return choices[draws.uniform(0, len(choices) - 1, 1, self._seed, purpose)[0]]


def names() -> list[str]:
    """What the lists are called."""
    return [
        _name(kind, number) for kind, (count, _) in KINDS.items() for number in range(1, count + 1)
    ]


def family(seed: int) -> Iterator[tuple[str, Request]]:
    """Every list and what it is called, ``kind-NNN``, which its problem is called, too."""
    for kind, (count, draw) in KINDS.items():
        for number in range(1, count + 1):
            name, tries = _name(kind, number), 0
            while True:
                own = (seed + number) % (MAX_SEED + 1)  # one that its command takes
                request = draw(Picks(seed, f"{name} {tries}"), own, name)
                times = [estimate_s(problem.groups) for problem in request.made()]
                if min(times) >= SHORTEST_S and max(times) <= LONGEST_S:
                    yield name, request
                    break
                tries += 1


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number:03}"


def estimate_s(groups: Sequence[Group]) -> float:
    """The longer of what the arithmetic and what the bytes of a problem take, in seconds.

    Of a group without D, an expert that no token chose, nothing is read.
    """
    flop = size = 0
    for group in groups:
        m, n, k = (int(group[key]) for key in ("m", "n", "k"))
        a, b, d = (dtypes.BY_NAME[str(group[key])].size for key in ("a", "b", "d"))
        if m * n:
            count = how_many([group])
            flop += count * 2 * m * n * k
            size += count * (a * m * k + b * n * k + d * m * n * (2 if group.get("beta") else 1))
    return max(flop / FLOP_PER_S, size / BYTES_PER_S)


def _routing(pick: Picks) -> Routing:
    kind = pick(["uniform", "zipf", "lognormal", "hot"])
    if kind == "uniform":
        return Routing.of(kind)
    amounts = {"zipf": ["0.6", "0.9", "1.2"], "lognormal": ["0.5", "0.8", "1.2"], "hot": ["2", "4"]}
    return Routing.of(f"{kind}:{pick(amounts[kind])}")


def _moe(pass_: str, tokens: Sequence[int]) -> Callable[[Picks, int, str], Request]:
    def draw(pick: Picks, seed: int, name: str) -> Request:
        model = pick(list(models.models()))
        ep = pick([ep for ep in (1, 2, 4, 8, 16, 32) if models.find(model).experts % ep == 0])
        return Moe(
            model=model, layer=pick(list(models.LAYERS)), experts=None, topk=None, n=None, k=None,
            tokens=pick(tokens), ep=ep, rank=pick(range(ep)), routing=_routing(pick), pass_=pass_,
            swiglu=False, dtype=passes.usual_type(pass_), seed=seed, name=name,
        )  # fmt: skip

    return draw


def _lora(pick: Picks, seed: int, name: str) -> Request:
    return Lora(
        layer=pick(list(LAYERS)), adapters=pick([8, 32, 64, 128, 256, 512]),
        ranks=pick(["8", "16", "32", "64", "128", "16,32,64", "8,16,32,64,128,256"]),
        hidden=pick([2048, 3072, 4096, 5120, 7168, 8192]), tokens=pick(doubled(256, 65536)),
        routing=_routing(pick), dtype=pick(["bf16", "bf16:f32"]), seed=seed, name=name,
    )  # fmt: skip


def _batched(pick: Picks, seed: int, name: str) -> Request:
    m, n, k = (pick([32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096]) for _ in "mnk")
    return Batched(
        mnk=(f"{m}x{n}x{k}",), count=pick([1, 2, 4, 10, 16, 32, 64, 100, 256, 512, 1024]),
        dtype=pick(["bf16", "f16", "bf16:f32", "f16:f32"]), name=name,
    )  # fmt: skip


def _wgrad(pick: Picks, seed: int, name: str) -> Request:
    shapes = ["256x256", "512x2048", "768x3072", "1024x4096", "2048x2048", "2048x768", "4096x4096",
              "4096x1536", "4096x7168", "7168x2048"]  # fmt: skip
    weights = tuple(f"{pick(shapes)}:{pick([1, 2, 4, 8])}" for _ in range(pick([1, 1, 2, 3])))
    tokens = pick([512, 1024, 2048, 4096, 8192, 16384, 65536])
    spread = pick([f"{tokens}", f"{tokens * 7 // 10}:{tokens * 13 // 10}", f"0:{tokens}"])
    return Wgrad(
        weights=tuple(dict.fromkeys(weights)), tokens=spread, dtype=pick(["bf16:f32", "bf16"]),
        seed=seed, name=name,
    )  # fmt: skip


def _random(pick: Picks, seed: int, name: str) -> Request:
    ranges = {key: pick(["8:256", "64:1024", "64:4096", "256:8192", "16:64"]) for key in "mnk"}
    return Random(
        groups=pick([4, 16, 64, 200, 1000]), **ranges, log_uniform=pick([False, True]),
        align=pick(["1x8x8", "8", "64", "1x1x8"]), seed=seed, name=name,
        dtype=pick(["bf16", "bf16", "f16:f32", "bf16,bf16:f32"]),
    )  # fmt: skip


def _sweep(pick: Picks, seed: int, name: str) -> Request:
    sizes = {key: f"{pick([256, 512, 1024, 2048, 4096])}" for key in "mnk"}
    sizes[pick("mnk")] = pick(["64:1024", "128:4096", "200:1000:200", "96,160,224,352"])
    return Sweep(**sizes, count=pick([1, 4, 8, 32]), dtype=pick(["bf16", "f16"]), name=name)


# Of each kind how many, and how one is drawn from a list's choices, seed and name.
KINDS: dict[str, tuple[int, Callable[[Picks, int, str], Request]]] = {
    "decode": (16, _moe("forward", doubled(1, 512))),
    "prefill": (24, _moe("forward", doubled(1024, 65536))),
    "dgrad": (12, _moe("dgrad", doubled(1024, 32768))),
    "wgrad": (12, _moe("wgrad", doubled(1024, 32768))),
    "dense-wgrad": (12, _wgrad),
    "lora": (16, _lora),
    "batched": (20, _batched),
    "random": (20, _random),
    "sweep": (8, _sweep),
}
