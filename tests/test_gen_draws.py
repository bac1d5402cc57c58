"""Random numbers of generated lists, and which experts tokens choose."""

from __future__ import annotations

import io
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmctl.errors import UsageError
from gemmctl.generating import draws, routing
from gemmctl.generating.routing import TOTAL, Routing, parse

patient = settings(max_examples=60)  # each takes long
HELD = ["uniform", "zipf:0", "zipf:1.2", "zipf:4", "lognormal:0.8", "hot:1"]
ROUTINGS = [*HELD, "zipf:20", "lognormal:20"]  # the last two where every expert is chosen, or one
seeds = st.integers(0, 2**64)


def route(text: str, experts: int, top_k: int, tokens: int, seed: int = 0) -> list[int]:
    """Tokens of each expert."""
    found: list[int] = Routing.of(text).tokens_per_expert(experts, top_k, tokens, seed).tolist()
    return found


# Numbers


def test_words_are_those_of_shake128() -> None:
    # printf 'm 7' | openssl dgst -shake128 -xoflen 12
    printed = "5e3a5ea18741ff67c47fbb30"
    words = draws.words(3, 7, "m").astype("<u4")
    assert words.tobytes().hex() == printed


@patient
@given(st.integers(0, 10**9), st.integers(0, 10**6), seeds)
def test_uniform_and_log_uniform_numbers_lie_in_their_range(low: int, more: int, seed: int) -> None:
    high = low + more
    assert all(low <= x <= high for x in draws.uniform(low, high, 20, seed, "p"))
    low, high = low + 1, high + 1
    assert all(low <= x <= high for x in draws.log_uniform(low, high, 20, seed, "p"))


def test_every_number_of_a_range_is_as_likely() -> None:
    counted = Counter(draws.uniform(3, 12, 20_000, 0, "p"))
    assert sorted(counted) == list(range(3, 13))
    assert all(abs(count - 2000) < 5 * math.sqrt(2000) for count in counted.values())


def test_log_uniform_numbers_have_the_logarithm_of_their_range() -> None:
    counted = Counter(draws.log_uniform(1, 7, 20_000, 0, "p"))
    for value in range(1, 8):
        expected = 20_000 * math.log((value + 1) / value) / math.log(8)
        assert abs(counted[value] - expected) < 5 * math.sqrt(expected)


def test_shuffled_is_every_number_once() -> None:
    assert sorted(draws.shuffled(1000, 5, "p").tolist()) == list(range(1000))
    assert draws.shuffled(1000, 5, "p").tolist() != draws.shuffled(1000, 6, "p").tolist()


def test_normal_numbers_are_normal() -> None:
    found = sorted(map(float, draws.normal(4000, 0, "p")))
    assert abs(mean(found)) < 5 / math.sqrt(4000)
    assert abs(stdev(found) - 1) < 5 / math.sqrt(8000)
    # Kolmogorov and Smirnov: 1.95 / sqrt(n) is passed by one sample in a thousand.
    normal = NormalDist()
    gap = max(abs(normal.cdf(x) - (i + 0.5) / 4000) for i, x in enumerate(found))
    assert gap < 1.95 / math.sqrt(4000)


# Routing


def one_after_another(text: str, experts: int, top_k: int, tokens: int, seed: int) -> list[int]:
    """The same as ``route``, a token at a time, as its definition has it."""
    weights = Routing.of(text)._weights(experts, seed)
    counts = [0] * experts
    words = [draws.words(tokens, seed, f"choice {choice}").tolist() for choice in range(top_k)]
    for token in range(tokens):
        free = list(range(experts))
        for choice in range(top_k):
            point = words[choice][token] * sum(weights[e] for e in free) >> 32
            for expert in free:
                if point < weights[expert]:
                    break
                point -= weights[expert]
            free.remove(expert)
            counts[expert] += 1
    return counts


@patient
@given(st.sampled_from(HELD), st.integers(2, 20), st.integers(1, 9), st.integers(1, 30), seeds)
def test_a_token_chooses_by_weight_among_the_experts_that_it_has_not_chosen(
    text: str, experts: int, top_k: int, tokens: int, seed: int
) -> None:
    top_k = min(top_k, experts)
    found = route(text, experts, top_k, tokens, seed)
    assert found == one_after_another(text, experts, top_k, tokens, seed)


@patient
@given(st.sampled_from(ROUTINGS), st.integers(2, 40), st.integers(1, 50), seeds)
def test_who_chooses_all_experts_chooses_each_once(
    text: str, experts: int, tokens: int, seed: int
) -> None:
    assert route(text, experts, experts, tokens, seed) == [tokens] * experts


@patient
@given(st.sampled_from(ROUTINGS), st.integers(2, 600), seeds)
def test_every_expert_has_a_weight_and_all_fit_their_total(
    text: str, experts: int, seed: int
) -> None:
    weights = Routing.of(text)._weights(experts, seed)
    assert len(weights) == experts
    assert min(weights) >= 1
    assert TOTAL // 2 < sum(weights) <= TOTAL


def test_uniform_experts_are_alike() -> None:
    assert len(set(Routing.of("uniform")._weights(100, 0))) == 1


@pytest.mark.parametrize("skew", ["0.5", "1.2"])
def test_zipf_weights_fall_as_a_power_of_the_rank(skew: str) -> None:
    weights = sorted(Routing.of(f"zipf:{skew}")._weights(64, 3), reverse=True)
    for rank, weight in enumerate(weights, 1):
        assert weight / weights[0] == pytest.approx(rank ** -float(skew), rel=1e-6)


def test_lognormal_weights_have_that_deviation_of_their_logarithms() -> None:
    logs = [math.log(weight) for weight in Routing.of("lognormal:0.8")._weights(2000, 0)]
    assert stdev(logs) == pytest.approx(0.8, rel=5 / math.sqrt(4000))


def test_hot_experts_have_nine_tenths_of_the_weight_between_them() -> None:
    weights = sorted(Routing.of("hot:16")._weights(256, 0), reverse=True)
    assert len(set(weights[:16])) == len(set(weights[16:])) == 1
    assert Fraction(sum(weights[:16]), sum(weights)) == pytest.approx(0.9, rel=1e-6)


def last_choice(text: str, experts: int, top_k: int) -> list[Fraction]:
    """How likely each is that is left where a token has chosen the likeliest before."""
    left = sorted(Routing.of(text)._weights(experts, 0))[: experts - top_k + 1]
    return [Fraction(weight, sum(left)) for weight in left]


@pytest.mark.parametrize("kind", ["zipf", "lognormal"])
@pytest.mark.parametrize(("experts", "top_k"), [(32, 4), (64, 8), (256, 8)])
def test_the_largest_s_is_named_and_sends_one_token_in_a_thousand_astray_at_most(
    kind: str, experts: int, top_k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=f"too uneven for {top_k} of {experts}: ") as refused:
        route(f"{kind}:20", experts, top_k, 1)
    most = str(refused.value).split()[-1]
    assert sum(route(f"{kind}:{most}", experts, top_k, 9)) == 9 * top_k
    with pytest.raises(UsageError):
        route(f"{kind}:{Decimal(most) + Decimal('0.1')}", experts, top_k, 9)
    found = last_choice(f"{kind}:{most}", experts, top_k)
    monkeypatch.setattr(routing, "TOTAL", 2**128)
    right = last_choice(f"{kind}:{most}", experts, top_k)
    assert sum(abs(a - b) for a, b in zip(found, right, strict=True)) / 2 < Fraction(1, 1000)


@pytest.mark.parametrize("text", ["zipf:20", "lognormal:20"])
def test_the_first_choice_may_be_as_uneven_as_there_is(text: str) -> None:
    assert sum(route(text, 500, 1, 1000)) == 1000


def test_which_experts_are_popular_depends_on_the_seed() -> None:
    first = [np.argmax(route("zipf:1.2", 64, 1, 500, seed)) for seed in range(6)]
    assert len(set(first)) > 3


def test_what_is_written_is_what_is_read() -> None:
    for text in (*ROUTINGS, "hot:16", "zipf:0.123456"):
        assert str(parse(text, io.BytesIO())) == text
    assert parse("zipf:1.20", io.BytesIO()).amount == Decimal("1.2")
    assert parse("counts:-", io.BytesIO(b"1 2")).counts == (1, 2)
