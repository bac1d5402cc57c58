"""Groups of few rows in a launch of their own, on SMs that those of many leave to it."""

from __future__ import annotations

import pytest

from gemmctl.kernels import cubins
from gemmctl.measuring.tune import candidates
from gemmctl.planning import apart, plan
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import Choice, Machine
from support import planned

KERNELS = cubins.manifest().kernels
NAME = "128x256-c2"
# A hot expert and forty others, whose weights take half as long as it multiplies.
HOT = [{"m": 8192, "n": 4096, "k": 7168}, {"m": 16, "n": 4096, "k": 7168, "count": 40}]
FEW_SMS, MANY_SMS, LONGER_SMS = 40, 92, 80  # of 132; 80 are left to many where few take longer


def test_a_hot_expert_and_others_of_few_rows_are_two_launches() -> None:
    made = planned(*HOT)
    many, few = made.launches
    assert (many.groups.tolist(), few.groups.tolist()) == ([0], list(range(1, 41)))
    assert many.kernel.name == few.kernel.name == NAME
    assert many.clusters * 2 == MANY_SMS
    assert made.streams == 2 and made.queue[0][0] == 0  # many rows first
    assert few.stages > many.stages


def test_few_rows_that_take_longer_get_all_sms_in_the_end() -> None:
    """Each cluster that comes late has two tiles to do, though others be free."""
    alone, later = planned(*HOT), planned({**HOT[0], "m": 2048}, HOT[1])
    assert [choice.sms for choice in alone.choices] == [MANY_SMS, FEW_SMS]
    assert alone.launches[1].clusters * 2 == FEW_SMS
    assert [choice.sms for choice in later.choices] == [LONGER_SMS, 0]
    assert later.launches[1].clusters * 2 == 132


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([HOT[0]], "all have many"),
        ([HOT[1]], "all have few"),
        ([*HOT, {**HOT[0], "m": 511}], "one lies between"),
        ([HOT[0], {**HOT[1], "m": 129}], "129 are not few"),
        ([{**HOT[0], "k": 2559}, HOT[1]], "a short sum"),
        ([HOT[0], {**HOT[1], "k": 7104}], "sums of two lengths"),
        ([{**one, "k": 2048} for one in HOT], "short sums"),
        ([{**HOT[0], "n": 256}, {**HOT[1], "count": 2}], "a short launch"),
        ([HOT[0], {**HOT[1], "count": 1}], "nothing to gain by the model"),
    ],
)
def test_other_lists_stay_one_launch(groups: list[dict[str, object]], why: str) -> None:
    made = planned(*groups)
    assert not made.apart
    assert len(made.launches) == 1


@pytest.mark.parametrize("launch", ["serial", "streams"])
def test_groups_that_are_launched_one_by_one_are_not_put_apart(launch: plan.Launching) -> None:
    (made,) = plan.make([planned(*HOT).problem], KERNELS, launch=launch)
    assert len(made.launches) == 41 and not made.apart


def test_a_gpu_of_few_sms_has_none_to_give_away() -> None:
    (made,) = plan.make([planned(*HOT).problem], KERNELS, Machine(2))
    assert not made.apart


def test_what_is_chosen_so_is_planned_so_again() -> None:
    made = planned(*HOT)
    (again,) = plan.make([made.problem], KERNELS, chosen={"p": made.choices})
    assert again.choices == made.choices
    assert again.apart
    for one, other in zip(made.launches, again.launches, strict=True):
        assert one.tiles.tobytes() == other.tiles.tobytes()


def test_two_choices_for_a_list_that_has_nothing_to_put_apart_are_an_error() -> None:
    some = planned(HOT[0])
    with pytest.raises(ValueError, match="zip"):
        plan.make([some.problem], KERNELS, chosen={"p": planned(*HOT).choices})


@pytest.mark.parametrize(
    "choice",
    [Choice(NAME, 256), Choice(NAME, 64, 3), Choice(NAME, 64, 1, 40), Choice("x", 16, 2, 8)],
)
def test_a_choice_is_read_as_it_is_written(choice: Choice) -> None:
    assert Choice.parsed(str(choice)) == choice


def test_the_estimate_is_no_less_than_the_memory_takes_for_both_launches() -> None:
    """Each launch by itself is believed to have all of the memory."""
    made = planned({**HOT[0], "m": 2048}, {**HOT[1], "count": 400})
    assert made.estimate_s > made.bytes / 5.7e12  # what memory_bytes are, of 132 SMs at 1.98 GHz


# Candidates of tune


def forms(made: Plan, launch: int) -> list[tuple[int, ...]]:
    """How many SMs each launch of each candidate is given."""
    return [
        tuple(choice.sms for choice in one.choices) for one in candidates(made, KERNELS, launch)
    ]


def test_tune_tries_one_launch_beside_two() -> None:
    made = planned(*HOT)
    first, second = (set(forms(made, launch)) for launch in (0, 1))
    own = tuple(choice.sms for choice in made.choices)
    assert first == {own, (0,)}
    assert second == {own}


def test_tune_tries_two_launches_beside_one() -> None:
    choice = Choice("128x192-c2p", 192)
    (made,) = plan.make([planned(*HOT).problem], KERNELS, chosen={"p": [choice]})
    assert set(forms(made, 0)) == {(0,), (MANY_SMS, FEW_SMS), (LONGER_SMS, 0)}


def test_kernels_that_put_two_ctas_on_an_sm_are_not_tried_beside_others() -> None:
    made = planned(*HOT)
    for launch in range(2):
        for one in candidates(made, KERNELS, launch):
            if one.apart:
                assert all(of.kernel.ctas_per_sm == 1 and not of.slots for of in one.launches)


def test_sides_are_the_groups_of_many_rows_and_those_of_few() -> None:
    made = planned(HOT[1], HOT[0])
    groups = next(iter(plan.alike(made.exchanged, KERNELS)))[0]
    many, few = apart.sides(made.exchanged, groups)
    assert (many.tolist(), few.tolist()) == ([40], list(range(40)))
