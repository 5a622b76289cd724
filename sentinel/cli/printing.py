"""What the verbs share in talking to people and to programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from sentinel import clock

console = Console()
errors = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]


def print_json(value: Any) -> None:
    """One JSON text on standard output, never wrapped or coloured."""
    typer.echo(json.dumps(value, indent=2))


def ago(at: float) -> str:
    """How long ago a moment was, as a person says it.

    >>> ago(clock.now() - 90)
    '1 min'
    """
    seconds = max(0.0, clock.now() - at)
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def moment(at: float) -> str:
    """A moment in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def number(value: Any) -> str:
    """A loss for people: four digits, NaN and infinity as they are, a dash when it is not known."""
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"
