"""Runs the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentinel import settings
from sentinel.app import run


def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on; beyond loopback only with a token.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any that is free.")] = None,
    database_url: Annotated[str | None, typer.Option(help="SQLite file or PostgreSQL server.")] = None,
    policy_file: Annotated[Path | None, typer.Option(help="TOML; by default the packaged policy.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Holds the bearer token that callers must show.")] = None,
    webhook_url: Annotated[str | None, typer.Option(help="Gets each alert as a JSON POST.")] = None,
    alerts_file: Annotated[
        Path | None, typer.Option(help="TOML: more channels for alerts, chosen by severity and run.")
    ] = None,
    heartbeat_url: Annotated[str | None, typer.Option(help="Is asked for each minute while the daemon works.")] = None,
) -> None:
    """Run the daemon. Each option is also an environment variable, SENTINEL_HOST and so on."""
    given = settings.load(
        host=host,
        port=port,
        database_url=database_url,
        policy_file=policy_file,
        token_file=token_file,
        webhook_url=webhook_url,
        alerts_file=alerts_file,
        heartbeat_url=heartbeat_url,
    )
    run(given)
