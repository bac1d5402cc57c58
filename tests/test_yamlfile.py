from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmctl.errors import Mark
from gemmctl.lists import yamlfile
from gemmctl.lists.yamlfile import UNREADABLE, Errors, Node, load
from support import PROBLEMS

pytestmark = pytest.mark.usefixtures("each_parser")


def read(text: str) -> tuple[Node, list[tuple[int, int, str]]]:
    """The root, and every error as (line, column, message)."""
    errors: Errors = []
    node = load(text, "list.yaml", errors)
    return node, [(mark.line, mark.column, message) for mark, message in errors]


def plain(node: Node) -> Any:
    """The value without its marks."""
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {key: plain(entry.node) for key, entry in node.value.items()}
    return node.value


def value(text: str) -> Any:
    node, errors = read(text)
    assert errors == []
    return plain(node)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("-0", 0),
        ("+7", 7),
        ("0777", 777),
        ("0o17", 15),
        ("0xfF", 255),
        ("1e3", 1000.0),
        ("1e-3", 0.001),
        ("-.5E+2", -50.0),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, expected: Any) -> None:
    [got] = value(f"[{text},]") if text else value("-")
    assert (type(got), got) == (type(expected), expected)


def test_nan_is_a_number() -> None:
    assert math.isnan(value(".nan"))


def test_a_pair_of_escaped_surrogates_is_the_character_that_json_means_by_it() -> None:
    assert value(json.dumps({"name": "a \N{GRINNING FACE}"})) == {"name": "a \N{GRINNING FACE}"}
    assert value(r'"\ud83d \ude00"') == "\ud83d \ude00"  # no pair


@pytest.mark.parametrize(
    "text",
    ["no", "Yes", "on", "y", "1:30", "2026-11-20", "1_000", "0b1", "0o8", "-0x1", "1e", "=", "inf"],
)
def test_what_only_yaml_1_1_reads_otherwise_is_text(text: str) -> None:
    assert value(text) == text


@pytest.mark.parametrize("text", ['"12"', "'12'", "|-\n  12", ">-\n  12"])
def test_quoted_numbers_are_text(text: str) -> None:
    assert value(text) == "12"


def test_keys_are_text_as_written() -> None:
    assert value("{1: a, no: b, null: c, 'x y': d}") == {
        "1": "a",
        "no": "b",
        "null": "c",
        "x y": "d",
    }


def test_aliases_repeat_what_they_name() -> None:
    assert value("- &a {m: 1}\n- *a\n- &a 2\n- *a") == [{"m": 1}, {"m": 1}, 2, 2]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n...\n"])
def test_an_empty_document_is_nothing(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\x85", "\u2028"])
def test_keys_and_values_know_their_line_and_column(newline: str) -> None:
    node, _ = read(newline.join(["# a comment", "groups:", "  - {m: 17, kk: 3}"]))
    assert isinstance(node.value, dict)
    groups = node.value["groups"]
    assert isinstance(groups.node.value, list)
    [group] = groups.node.value
    assert isinstance(group.value, dict)
    last = "  - {m: 17, kk: 3}"
    assert groups.key.mark == Mark("list.yaml", 2, 1, "groups:")
    assert group.mark == Mark("list.yaml", 3, 5, last)
    assert group.value["kk"].key.mark == Mark("list.yaml", 3, 13, last)
    assert group.value["kk"].node.mark == Mark("list.yaml", 3, 17, last)


def test_a_byte_order_mark_does_not_count() -> None:
    node, errors = read("\ufeffa: 1")
    assert (plain(node), errors) == ({"a": 1}, [])
    assert node.mark == Mark("list.yaml", 1, 1, "a: 1")


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("{a: 1, a: 2}", 1, 8, "duplicate key 'a', first on line 1"),
        ("a: 1\nb: 2\n'a': 3", 3, 1, "duplicate key 'a', first on line 1"),
        ("x: &a [*a]", 1, 8, "alias '*a' stands inside what it names"),
        ("x: &a {y: [{z: *a}]}", 1, 16, "alias '*a' stands inside what it names"),
        ("x: *a", 1, 4, "nothing before this is called '&a'"),
        ("? [1]\n: 2", 1, 3, "a key is a plain word"),
        ("x: !!int 5", 1, 4, "tag '!!int' has no meaning here"),
        ("x: !mine {}", 1, 4, "tag '!mine' has no meaning here"),
        ("x: " + "9" * 500, 1, 4, "a number of 500 digits is too long"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document starts here"),
        ("x: " + "[" * 40, 1, 35, "nested deeper than 32 levels"),
        ("a: 1\n\tb: 2", 2, 1, "a tab cannot stand here; write spaces in its place"),
        ("a: b: c", 1, 5, "a ':' is not allowed here"),
        ("a:\n  - 1\n b: 2", 3, 2, "does not line up"),
        ("a: [1, 2\n", 2, 1, "close the bracket"),
        ("a: @b", 1, 4, "put the text in quotes"),
        ('"\\UFFFFFFFF"', 1, 4, "out of range"),
        ("a: 'b", 1, 6, "close the quotes"),
        ("{a: 1}}", 1, 7, "the list ended before this"),
        ("a: 1\nb: \x07", 2, 4, "character U+0007 is not allowed in YAML"),
        (b"a: caf\xe9".decode(errors="surrogateescape"), 1, 7, "byte 0xe9 is not UTF-8"),
    ],
)
def test_an_error_names_its_place(text: str, line: int, column: int, message: str) -> None:
    _, [(got_line, got_column, got)] = read(text)
    assert message in got
    assert (got_line, got_column) == (line, column)


def test_all_errors_of_a_document_are_told_and_the_rest_is_read() -> None:
    node, errors = read("a: !!int 1\nb: *nowhere\nc: &c [*c, 2]\nc: 3\nd: 4")
    assert [(line, column) for line, column, _ in errors] == [(1, 4), (2, 4), (3, 8), (4, 1)]
    assert plain(node) == {"a": UNREADABLE, "b": UNREADABLE, "c": [UNREADABLE, 2], "d": 4}


def test_an_explanation_is_the_place_the_message_the_line_and_a_caret() -> None:
    assert Mark("list.yaml", 3, 6, "  - {kk: 64}").explain("unknown key 'kk'") == (
        "list.yaml:3:6: unknown key 'kk'\n"
        "    - {kk: 64}\n"
        "       ^"
    )  # fmt: skip


def test_the_caret_follows_tabs() -> None:
    assert Mark("f", 1, 4, "\ta\tb").explain("x") == "f:1:4: x\n  \ta\tb\n  \t \t^"


def test_the_caret_follows_what_is_two_columns_wide_or_none() -> None:
    assert Mark("f", 1, 6, "\u65e5\t\u672ce\u0301x").explain("x").split("\n")[2] == "    \t   ^"


@pytest.mark.parametrize("column", [1, 40, 500, 1000, 1001])
def test_a_long_line_is_cut_around_the_caret(column: int) -> None:
    line = "".join(chr(ord("a") + i % 26) for i in range(1000)) + "!"
    _, shown, caret = Mark("f", 1, column, line).explain("x").split("\n")
    assert len(shown) <= 102
    assert shown[caret.index("^")] == line[column - 1]


def test_a_line_that_a_terminal_might_obey_is_shown_without_its_control_characters() -> None:
    assert "\x1b" not in Mark("f", 1, 1, "\x1b[2J").explain("x")


yaml_text = st.text(st.sampled_from(list("{}[]()<>,:;-?&*!|>'\"%@`#~ \n\tab01.\\\ufeff\x00")))


@given(st.one_of(st.text(), yaml_text))
def test_any_text_is_read_or_explained(text: str) -> None:
    errors: Errors = []
    node = load(text, "f", errors)
    for mark, message in [*errors, (node.mark, "")]:
        assert mark.line >= 1
        assert 1 <= mark.column <= len(mark.text) + 1
        assert mark.explain(message)


# No characters that JSON leaves as they are and YAML folds or refuses.
letters = st.characters(exclude_categories=("Cc", "Cn", "Co", "Cs", "Zl", "Zp"))
json_scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(letters, max_size=20),
)
json_value = st.recursive(
    json_scalar,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(letters, max_size=10), inner, max_size=4),
    ),
    max_leaves=20,
)


@given(json_value, st.sampled_from([None, 2, "\t"]), st.sampled_from([": ", ":\t", "\t:\t"]))
def test_json_is_read_as_json(document: Any, indent: int | str | None, colon: str) -> None:
    # Only what stands in brackets is seen to be JSON.
    text = json.dumps(document, ensure_ascii=False, indent=indent, separators=(",\t", colon))
    if text[0] not in "[{":
        text = json.dumps(document, ensure_ascii=False)
    assert value(text) == document


def test_tabs_between_tokens_of_json_move_nothing_and_those_in_quotes_stay() -> None:
    text = '# a\tlist, don\'t\n[\n\t{"m":\t1, # it\'s\tone\n\t\'n\':\t"a\\"\tb"}\n]'
    assert value(text) == [{"m": 1, "n": 'a"\tb'}]
    node, _ = read(text)
    assert isinstance(node.value, list)
    (group,) = node.value
    assert isinstance(group.value, dict)
    assert group.value["n"].node.mark == Mark("list.yaml", 4, 7, '\t\'n\':\t"a\\"\tb"}')


def test_tabs_are_no_indentation_in_yaml_without_brackets() -> None:
    _, errors = read("a:\n\tb: [1,\n\t2]")
    assert errors == [(2, 1, "a tab cannot stand here; write spaces in its place")]


@pytest.mark.parametrize("text", ["!{}", "[*{}]", "{{a: &{0} [*{0}]}}", "{{{0}: 1, {0}: 2}}"])
def test_long_words_are_cut_in_messages(text: str) -> None:
    _, errors = read(text.format("x" * 900))
    assert errors
    assert all(len(message) < 200 for _, _, message in errors)


# libyaml and PyYAML's own parser


def places(node: Node) -> Any:
    """The value with the line and column of every part, and its type."""
    value = node.value
    if isinstance(value, list):
        return node.line, node.column, [places(item) for item in value]
    if isinstance(value, dict):
        parts = {key: (places(entry.key), places(entry.node)) for key, entry in value.items()}
        return node.line, node.column, parts
    return node.line, node.column, type(value), repr(value)


def without_libyaml(text: str) -> tuple[Node, list[tuple[int, int, str]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamlfile, "FastParser", None)
        return read(text)


pieces = st.sampled_from(
    [
        *(
            "a",
            "b: ",
            "a: ",
            "- ",
            "1",
            "1e3",
            "null",
            "x y",
            "é",
            "\U0001d518",
            "''",
            '""',
            "gemmctl: 1\n",
        ),
        *("{m: 1, n: 2}", "[", "]", "{", "}", ",", ", ", ":", ": ", "\n", "\n  ", "\n    ", "\r\n"),
        *(
            "#",
            " # why? 50% > |\n",
            "\n# a > b?\n",
            " ",
            "'",
            '"',
            "?",
            "? ",
            "-",
            "&a ",
            "*a",
            "!x ",
        ),
        *(
            "|\n",
            ">",
            "%",
            "@",
            "~",
            "\\",
            "---",
            "...",
            "\n---\n",
            "<<",
            "\t",
            "\r",
            "\x85",
            "\ufeff",
        ),
        *("%YAML 1.2\n---\n", "!!int 5", '"\\x41"', "'a\n\n b'", "&c [*c]", "\ud800", "\x07"),
    ]
)


@settings(max_examples=1000)
@given(st.lists(pieces, max_size=16).map("".join))
def test_any_text_means_the_same_and_has_the_same_errors_with_libyaml_and_without(
    text: str,
) -> None:
    (node, errors), (expected, expected_errors) = read(text), without_libyaml(text)
    assert errors == expected_errors
    assert places(node) == places(expected)


@pytest.mark.parametrize(
    "text",
    [
        "a: |# no blank before\n  b",  # libyaml takes all these
        "[a?b, c? ]",
        "a: 1\t",
        "{a: 1,\tb: 2}",
        "%YAML 1.3\n---\na: 1",
        "%FOO\n---\na: 1",
        "a: 1\n\ufeffb: 2",
        "? ",  # which it places elsewhere
        "a: [b: ]",
        "{a: , b: 2}",
    ],
)
def test_what_libyaml_reads_otherwise_is_read_as_pyyaml_reads_it(text: str) -> None:
    (node, errors), (expected, expected_errors) = read(text), without_libyaml(text)
    assert errors == expected_errors
    assert places(node) == places(expected)


@pytest.mark.parametrize("path", sorted(PROBLEMS.glob("*.yaml")), ids=lambda path: path.stem)
def test_lists_that_ship_are_read_by_libyaml_alone_and_mean_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = path.read_text()
    expected, _ = without_libyaml(text)
    if yamlfile.FastParser:
        monkeypatch.delattr(yaml, "SafeLoader")
    node, errors = read(text)
    assert errors == []
    assert places(node) == places(expected)


def test_comments_may_hold_what_libyaml_and_pyyaml_dispute(monkeypatch: pytest.MonkeyPatch) -> None:
    if yamlfile.FastParser:
        monkeypatch.delattr(yaml, "SafeLoader")
    assert value("# 50%, or more?\na: 1\n  # > | ?\nb: 2\n") == {"a": 1, "b": 2}


def test_progress_grows_with_the_lines() -> None:
    heard: list[float] = []
    load("\n".join(["a:", *["- 1"] * 9999]), "f", [], heard.append)
    assert heard == sorted(heard)
    assert heard[0] < 0.2 and 0.8 < heard[-1] <= 1
