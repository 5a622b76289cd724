"""A row that is written for the sake of writing."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from sentinel.store.tables import heartbeats
from sentinel.store.writing import upsert

NAME: Final = "daemon"


def write(connection: Connection, *, at: float) -> None:
    """Notes that the daemon lives: succeeds only where something can be kept."""
    upsert(connection, heartbeats, [{"name": NAME, "at": at}])
