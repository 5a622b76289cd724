"""All runs, one line each."""

from __future__ import annotations

from typing import Final

from rich.table import Column, Table

from sentinel.cli.printing import AsJson, ago, console, number, print_json
from sentinel.client import DEFAULT_URL, Client, Url

_STYLES: Final = {"training": "green", "silent": "yellow", "failed": "red", "interrupted": "yellow"}


def status(*, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show all runs, one line each."""
    with Client(url) as client:
        runs = client.get("/v1/runs")["runs"]
    if as_json:
        print_json(runs)
        return
    if not runs:
        console.print(f"No run has reported to {url} yet: add SentinelCallback() to a Lightning trainer's callbacks.")
        return
    table = Table(
        Column("run", overflow="fold"),
        "phase",
        "step",
        "loss",
        "mode",
        "open incidents",
        "heard",
        box=None,
        pad_edge=False,
    )
    for run in runs:
        of = f" / {run['max_steps']}" if run.get("max_steps") else ""
        phase = run["phase"] + (" (held)" if run.get("held_by") or run.get("all_held_by") else "")
        table.add_row(
            run["run"],
            f"[{_STYLES.get(run['phase'], 'dim')}]{phase}[/]",
            f"{run['step']}{of}",
            number(run.get("loss")),
            run["mode"],
            f"[red]{run['open_incidents']}[/]" if run["open_incidents"] else "0",
            f"{ago(run['last_at'])} ago",
        )
    console.print(table)
