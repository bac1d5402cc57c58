"""The JSON Schema of problem lists, for editors."""

from __future__ import annotations

from typing import Any

from gemmctl.lists.fields import FIELDS, FORMAT, OPERANDS, TYPES
from gemmctl.lists.problem import GATES

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
    several numbers, a look at other problems, or defaults and a group that contradict each other;
    nor what only holds because of what a key is by default.
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
                "allOf": _together(),
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


def _together() -> list[Schema]:
    """What keys that stand in one place have to be if some others are what they are."""
    along_k = _properties(a_layout="row", b_layout="col")
    other = dict(zip(OPERANDS, reversed(OPERANDS), strict=True))
    gated = _given(gate={"enum": [gate for gate in GATES if gate != "none"]})
    lie = _properties(b_layout="col", d_layout="row", inplace=False)
    lie["properties"]["n"] = {"multipleOf": 2}
    return [
        _if({"required": ["a", "b"]}, {"anyOf": [_properties(a=own, b=own) for own in OPERANDS]}),
        _if(gated, lie),
        _if(
            _given(inplace={"const": True}, c={}, d={}),
            {"anyOf": [_properties(c=own, d=own) for own in TYPES]},
        ),
        *(_if(_given(a={"const": own}, d={"const": d}), along_k) for own, d in other.items()),
    ]


def _if(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}


def _given(**properties: Schema) -> Schema:
    return {"required": list(properties), "properties": properties}


def _properties(**constants: str | bool) -> Schema:
    return {"properties": {key: {"const": value} for key, value in constants.items()}}


def _required(key: str) -> Schema:
    """Every group has a key, or its problem's defaults have it, or those of the list."""

    def else_every(items: str, of: Schema) -> Schema:
        given = _given(defaults={"required": [key]})
        return _if({"not": given}, {"properties": {items: {"items": of}}})

    return else_every("problems", else_every("groups", {"required": [key]}))
