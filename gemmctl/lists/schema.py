"""The JSON Schema of problem lists, for editors."""

from __future__ import annotations

from typing import Any

from gemmctl.lists.fields import FIELDS, FORMAT, OPERANDS

Schema = dict[str, Any]

# A line of text without blanks around: no control, format, private or separator characters. Those
# beyond U+FFFF and those that Unicode has not assigned only gemmctl itself refuses.
_UNPRINTABLE = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\ufffb"
)
_NAME = rf"^(?! )(?![\s\S]*[{_UNPRINTABLE}])(?![\s\S]* $)"


def schema() -> Schema:
    """The JSON Schema (draft 7) of a problem list, for editors.

    It refuses what gemmctl refuses, as far as draft 7 can tell: not what takes arithmetic with
    several numbers, a look at other problems, or defaults and a group that contradict each other.
    A default that no kernel runs it refuses even where every group overrides it.
    """
    group = {"$ref": "#/definitions/group"}
    name = {
        "type": "string",
        "minLength": 1,
        "pattern": _NAME,
        "description": "unlike any other's",
    }
    version = {"const": FORMAT, "description": "format version"}
    top = {"gemmctl": version, "defaults": group, "problems": _items("problem")}
    problem = {"name": name, "defaults": group, "groups": _items("group")}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gemmctl problem list",
        **_mapping(["gemmctl", "problems"], top),
        "allOf": [_required(key) for key in ("m", "n", "k")],
        "definitions": {
            "problem": _mapping(["name", "groups"], problem),
            "group": {
                **_mapping([], {key: kind.schema() for key, kind in FIELDS.items()}),
                "if": {"required": ["a", "b"]},
                "then": {"anyOf": [_properties(a=type_, b=type_) for type_ in OPERANDS]},
            },
        },
    }


def _mapping(required: list[str], properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


def _items(of: str) -> Schema:
    return {"type": "array", "minItems": 1, "items": {"$ref": f"#/definitions/{of}"}}


def _properties(**constants: str) -> Schema:
    return {"properties": {key: {"const": value} for key, value in constants.items()}}


def _required(key: str) -> Schema:
    """Every group has a key, or its problem's defaults have it, or those of the list."""

    def else_every(items: str, of: Schema) -> Schema:
        given = {"required": ["defaults"], "properties": {"defaults": {"required": [key]}}}
        return {"if": {"not": given}, "then": {"properties": {items: {"items": of}}}}

    return else_every("problems", else_every("groups", {"required": [key]}))
