"""The JSON Schema refuses what gemmctl refuses, and nothing else, as far as a schema can."""

from __future__ import annotations

import dataclasses
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bad_lists import BAD, BEYOND, GROUP, listed
from gemmctl.kernels import cubins
from gemmctl.lists import reading, schema
from gemmctl.lists.fields import FIELDS, OPERANDS, Choice
from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES, Group
from gemmctl.planning.refusals import refusals
from support import PROBLEMS, ROOT

KERNELS = cubins.manifest().kernels
FILE = ROOT / "gemmctl" / "problem-list.schema.json"
VALIDATOR = jsonschema.Draft7Validator(schema.schema())


def refused(document: Any) -> list[str]:
    """What gemmctl says against a list that is written as JSON, which is YAML, too."""
    found = reading.read(["-"], io.StringIO(json.dumps(document)))
    planned = [said for problem in found.problems for _, said in refusals(problem, KERNELS)]
    return [said for _, said in found.errors] + planned


def beyond_a_schema(said: str) -> bool:
    return any(words in said for words, _ in BEYOND)


# The file


def test_the_schema_file_is_the_schema() -> None:
    assert FILE.read_text() == json.dumps(schema.schema(), indent=2) + "\n"


def test_the_schema_has_the_keys_of_the_dataclass_and_count() -> None:
    fields = {field.name for field in dataclasses.fields(Group)}
    keys = schema.schema()["definitions"]["group"]["properties"].keys()
    assert set(keys) == fields - {"marks"} | {"count"}


def test_the_schema_is_draft_7() -> None:
    jsonschema.Draft7Validator.check_schema(schema.schema())


# What some kernel can run


def test_a_list_may_name_the_types_that_the_kernels_multiply_and_write() -> None:
    assert set(OPERANDS) == {kernel.operand for kernel in KERNELS}
    for key, types in (("a", "operand"), ("b", "operand"), ("c", "output"), ("d", "output")):
        kind = FIELDS[key]
        assert isinstance(kind, Choice)
        assert set(kind.runs) == {getattr(kernel, types) for kernel in KERNELS}


@pytest.mark.parametrize("key", [key for key, kind in FIELDS.items() if isinstance(kind, Choice)])
def test_of_the_words_that_mean_something_the_plan_refuses_those_that_no_kernel_runs(
    key: str,
) -> None:
    kind = FIELDS[key]
    assert isinstance(kind, Choice)
    for word in kind.names:
        both = {"a": word, "b": word} if key in ("a", "b") else {key: word}
        assert (refused(listed({**GROUP, **both})) == []) == (word in kind.runs), word


# Both ways


@pytest.mark.parametrize("document", BAD, ids=lambda document: json.dumps(document)[:80])
def test_what_is_wrong_with_a_list_gemmctl_and_the_schema_both_see(document: Any) -> None:
    assert refused(document)
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize(("words", "document"), BEYOND, ids=[words for words, _ in BEYOND])
def test_what_a_schema_cannot_say_gemmctl_says(words: str, document: Any) -> None:
    (said,) = refused(document)
    assert words in said
    assert VALIDATOR.is_valid(document)


@pytest.mark.parametrize("path", sorted(PROBLEMS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schema_accepts_the_lists_that_ship(path: Path) -> None:
    (found,) = reading.load([str(path)], io.StringIO())
    keys = [field.name for field in dataclasses.fields(Group) if field.name != "marks"]
    groups = [{key: getattr(group, key) for key in keys} for group in dict.fromkeys(found.groups)]
    VALIDATOR.validate(listed(*groups, name=found.name))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{key: st.sampled_from([0, 8, 64, 1e3, 200]) for key in "mnk"},
    "count": st.integers(1, 3),
    **{key: st.sampled_from(["bf16", "f16", "f32"]) for key in "abcd"},
    **{f"{key}_layout": st.sampled_from(["row", "col"]) for key in "abd"},
    **{f"ld{key}": st.sampled_from([200, 1000, 1024]) for key in "abcd"},
    **{key: st.integers(-3, 3) | st.floats(-1e39, 1e39) for key in ("alpha", "beta")},
    "inplace": st.booleans(),
    "bias": st.sampled_from(BIASES),
    "bias_type": st.sampled_from(["bf16", "f16", "f32"]),
    "activation": st.sampled_from(ACTIVATIONS),
    "gate": st.sampled_from(GATES),
}
WRONG = st.sampled_from([None, True, -1, 1.5, "", "x", "64", [], {}, 1 << 64, "fp8"])


@st.composite
def fields(draw: st.DrawFn, most: float) -> dict[str, Any]:
    """Some keys of a group; nearly all of its sizes, few others, some of them wrong."""
    written = {key: draw(VALUES[key]) for key in "mnk" if draw(st.floats(0, 1)) < most}
    for key in draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2)):
        written[key] = draw(VALUES[key] if draw(st.integers(0, 9)) else WRONG)
    if not draw(st.integers(0, 19)):
        written[draw(st.sampled_from(["M", "kk", "x", "name"]))] = 8
    return written


@st.composite
def lists(draw: st.DrawFn) -> dict[str, Any]:
    def mapping(names: list[str]) -> dict[str, Any]:
        problem: dict[str, Any] = {"name": names[0]}
        if draw(st.booleans()):
            problem["defaults"] = draw(fields(0.3))
        return problem | {"groups": draw(st.lists(fields(0.9), min_size=1, max_size=3))}

    document: dict[str, Any] = {"gemmctl": 1}
    if draw(st.booleans()):
        document["defaults"] = draw(fields(0.3))
    names = draw(st.lists(st.sampled_from(["p", "q", "r s"]), min_size=1, max_size=2, unique=True))
    return document | {"problems": [mapping([name]) for name in names]}


def no_kernel_runs_a_default(document: dict[str, Any]) -> bool:
    """The schema minds that even where every group overrides it, and gemmctl does not."""
    alone = jsonschema.Draft7Validator(schema.schema()["definitions"]["group"])
    given = [document, *document["problems"]]
    return any(not alone.is_valid(of["defaults"]) for of in given if "defaults" in of)


@settings(max_examples=250)
@given(lists())
def test_whatever_gemmctl_accepts_the_schema_accepts_and_the_other_way_round(
    document: dict[str, Any],
) -> None:
    errors = refused(document)
    if VALIDATOR.is_valid(document):
        assert [said for said in errors if not beyond_a_schema(said)] == []
    else:
        assert errors or no_kernel_runs_a_default(document)


def test_the_name_of_a_problem_may_have_every_character_that_prints_and_no_other() -> None:
    unsure = ("Cn", "Cs")  # not assigned, or half of a pair
    problem = schema.schema()["definitions"]["problem"]
    of_name = jsonschema.Draft7Validator(problem["properties"]["name"])
    for code in range(0x10000):
        name = f"a{chr(code)}b"
        if unicodedata.category(chr(code)) not in unsure:
            assert of_name.is_valid(name) == name.isprintable(), hex(code)
