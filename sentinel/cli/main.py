"""The command's root: its verbs, and what the shell gets when one fails."""

from __future__ import annotations

import sys
from typing import Final

import typer

from sentinel.cli import config, database, incidents, tokens
from sentinel.cli.asking import hold, release, rollback
from sentinel.cli.collect import collect
from sentinel.cli.decisions import decisions
from sentinel.cli.demo import demo
from sentinel.cli.printing import errors
from sentinel.cli.replay import replay
from sentinel.cli.scan import scan_command
from sentinel.cli.serve import serve
from sentinel.cli.status import status
from sentinel.domain.errors import SentinelError

FAILED: Final = 1

app = typer.Typer(
    name="sentinel",
    help="Watches training runs, says what went wrong, and brings them back to the last good checkpoint.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(demo)
app.command()(collect)
app.command()(status)
app.add_typer(incidents.app, name="incidents")
app.command()(decisions)
app.command()(hold)
app.command()(release)
app.command()(rollback)
app.command()(replay)
app.command("scan")(scan_command)
app.add_typer(config.app, name="config")
app.add_typer(database.app, name="database")
app.add_typer(tokens.app, name="tokens")


def main() -> None:
    """Runs the command; an error that was raised on purpose is one line, not a traceback."""
    try:
        app()
    except SentinelError as error:
        errors.print(f"sentinel: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
