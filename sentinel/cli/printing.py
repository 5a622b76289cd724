"""What the verbs share in talking to people and to programs."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from sentinel import clock

PIPED_WIDTH: Final = 160
"""Columns where no terminal says how many there are: so that grep and less see whole names."""

console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH)
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


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things.

    >>> counted(1, "entry", "entries"), counted(2, "decision")
    ('1 entry', '2 decisions')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def print_plain(text: str, style: str | None = None) -> None:
    """Text as it is: what a run says of itself may look like markup."""
    console.print(text.rstrip(), style=style, markup=False, highlight=False)


def print_decision(decision: dict[str, Any]) -> None:
    """One decision with its reason and what was passed over, below its incident."""
    head = f"  step {decision['step']}: {decision['change']} -> [bold]{decision['rung']}[/] ({decision['outcome']})"
    console.print(head, highlight=False)
    print_plain(f"      {decision['reason']}")
    for other in decision.get("passed_over", ()):
        print_plain(f"      not step {other['step']}: {other['why']}", style="dim")
