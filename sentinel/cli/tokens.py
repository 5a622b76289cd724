"""Tokens of the daemon: made, listed, revoked, in its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.table import Table

from sentinel import clock, settings
from sentinel.cli.printing import AsJson, console, errors, moment, print_json
from sentinel.domain.access import Role
from sentinel.domain.errors import InvalidInput
from sentinel.protocol.ids import NAME_RULE, is_name
from sentinel.store import tokens
from sentinel.store.session import Connection, open_current

app = typer.Typer(help="Make, list or revoke the tokens that callers show.", no_args_is_help=True)
DatabaseUrl = Annotated[str | None, typer.Option(help="Default: SENTINEL_DATABASE_URL.")]


@app.command()
def create(
    name: str,
    *,
    role: Annotated[Role, typer.Option(help="ingest: report only; viewer: read only; operator: everything.")],
    runs: Annotated[str, typer.Option(help="Runs that an ingest token may report on, such as 'team-a-*'.")] = "*",
    database_url: DatabaseUrl = None,
) -> None:
    """Make a token and print it, this once. From the first one on every caller must show one."""
    if not is_name(name):
        raise InvalidInput("NAME", f"expected {NAME_RULE}")
    with _transaction(database_url) as connection:
        is_first = not tokens.stored(connection)
        typer.echo(tokens.create(connection, name, role, runs=runs, at=clock.now()))
    if is_first and role != "operator":
        errors.print(
            "This is the first token: from now on agents and people need one too. Make an operator's for yourself and "
            "an ingester's for the trainings, unless the daemon has SENTINEL_TOKEN_FILE.",
            highlight=False,
        )


@app.command("list")
def list_tokens(*, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List the tokens, never what they are."""
    with _transaction(database_url) as connection:
        found = tokens.stored(connection)
    if as_json:
        print_json(
            [
                {"name": each.caller.name, "role": each.caller.role, "runs": each.caller.runs}
                | {"created_at": each.created_at, "revoked_at": each.revoked_at}
                for each in found
            ]
        )
        return
    table = Table("token", "role", "runs", "made (UTC)", "revoked (UTC)", box=None, pad_edge=False)
    for each in found:
        revoked = "" if each.revoked_at is None else moment(each.revoked_at)
        table.add_row(each.caller.name, each.caller.role, each.caller.runs, moment(each.created_at), revoked)
    console.print(table if found else "No tokens.")


@app.command()
def revoke(name: str, *, database_url: DatabaseUrl = None) -> None:
    """Revoke a token: within seconds it opens nothing any more."""
    with _transaction(database_url) as connection:
        tokens.revoke(connection, name, at=clock.now())
    console.print(f"The token {name} is revoked.", highlight=False)


@contextmanager
def _transaction(database_url: str | None) -> Iterator[Connection]:
    database = open_current(settings.load(database_url=database_url).database_url)
    try:
        with database.transaction() as connection:
            yield connection
    finally:
        database.close()
