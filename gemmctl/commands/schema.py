"""``gemmctl schema``: the format of problem lists, for editors."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of problem lists, for editors."""
    import json

    from gemmctl.lists import schema as lists

    typer.echo(json.dumps(lists.schema(), indent=2))
