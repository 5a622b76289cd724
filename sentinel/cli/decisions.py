"""Every decision of a run, doing nothing included."""

from __future__ import annotations

from typing import Annotated

import typer

from sentinel.cli.printing import AsJson, console, print_decision, print_json
from sentinel.client import DEFAULT_URL, Client, Url


def decisions(
    run: str,
    *,
    would_have: Annotated[
        bool,
        typer.Option("--would-have", help="Only what was not done: the run is observed, or a limit stood in the way."),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a run's decisions with their reasons, in the order in which they were taken."""
    with Client(url) as client:
        taken = client.get(f"/v1/runs/{run}/decisions")["decisions"]
    if would_have:
        taken = [decision for decision in taken if decision["outcome"] in ("would_have", "withheld")]
    if as_json:
        print_json(taken)
        return
    if not taken:
        console.print("Nothing was held back." if would_have else "No decisions.")
        return
    incident = ""
    for decision in taken:
        if decision["incident"] != incident:
            incident = decision["incident"]
            console.print(f"[bold]{incident}[/]", highlight=False)
        print_decision(decision)
