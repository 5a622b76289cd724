"""What the daemon is told: is it right, and where does it come from?"""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.table import Table

from sentinel import settings
from sentinel.cli.printing import AsJson, console, print_json

app = typer.Typer(help="Check or show the daemon's configuration.", no_args_is_help=True)


@app.command()
def check() -> None:
    """Check every variable, the policy and the token file; exit code 1 if one is wrong."""
    for warning in settings.check(settings.load()):
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    console.print("The configuration is right.")


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Show every setting with its value and where that came from; secrets are hidden."""
    rows = settings.rows(settings.load())
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    table = Table("setting", "value", "from", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.name, row.value, row.origin)
    console.print(table)
