"""The JSON Schema of problem lists, for editors."""

from __future__ import annotations

from typing import Any

from gemmctl.lists.fields import FIELDS, FORMAT


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a problem list, for editors."""

    def mapping(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": required,
            "additionalProperties": False,
            "properties": properties,
        }

    def items(of: str) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": {"$ref": f"#/definitions/{of}"}}

    group = {"$ref": "#/definitions/group"}
    name = {"type": "string", "pattern": r"^\S(.*\S)?$", "description": "unlike any other's"}
    version = {"const": FORMAT, "description": "format version"}
    top = {"gemmctl": version, "defaults": group, "problems": items("problem")}
    problem = {"name": name, "defaults": group, "groups": items("group")}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gemmctl problem list",
        **mapping(["gemmctl", "problems"], top),
        "definitions": {
            "problem": mapping(["name", "groups"], problem),
            "group": mapping([], {key: kind.schema() for key, kind in FIELDS.items()}),
        },
    }
