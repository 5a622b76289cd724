"""The database's schema."""

from __future__ import annotations

from typing import Annotated

import typer

from sentinel import settings
from sentinel.cli.printing import console
from sentinel.store.session import lock, migrate, open_database, revision

app = typer.Typer(help="Bring the database to this release's schema.", no_args_is_help=True)


@app.callback()
def database() -> None:
    """Bring the database to this release's schema."""


@app.command()
def upgrade(
    *, database_url: Annotated[str | None, typer.Option(help="Default: SENTINEL_DATABASE_URL.")] = None
) -> None:
    """Upgrade the schema. An embedded SQLite needs no call: `sentinel serve` does it by itself."""
    given = settings.load(database_url=database_url)
    opened = open_database(given.database_url)
    held = lock(given.database_url)
    try:
        before = revision(opened)
        migrate(opened)
        console.print(f"schema {before or 'empty'} -> {revision(opened)}")
    finally:
        if held is not None:
            held.close()
