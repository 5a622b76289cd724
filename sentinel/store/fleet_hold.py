"""The hold of all runs: a run that is taken up later, or begins later, is told of it before anything else.

What decides is the request in each run's own log; this row is how the daemon knows whom it has still to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select

from sentinel.store.tables import holds
from sentinel.store.writing import upsert

NAME: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHold:
    """What was last asked of all runs."""

    is_held: bool = False
    by: str = ""
    reason: str = ""


def read(connection: Connection) -> FleetHold:
    """What holds for all runs now."""
    row = connection.execute(select(holds).where(holds.c.name == NAME)).mappings().first()
    return FleetHold() if row is None else FleetHold(is_held=row["is_held"], by=row["by"], reason=row["reason"])


def put(connection: Connection, hold: FleetHold, *, at: float) -> None:
    """Notes what is asked of all runs from now on."""
    row = {"name": NAME, "is_held": hold.is_held, "by": hold.by, "reason": hold.reason, "at": at}
    upsert(connection, holds, [row])
