"""``gemmctl schema``: the format of problem lists, for editors."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of problem lists, for editors."""
    import json

    from gemmctl.lists import problem

    typer.echo(json.dumps(problem.schema(), indent=2))
