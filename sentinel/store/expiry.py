"""The old part of a log: which entries may go, and their removal."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, select

from sentinel.protocol.ids import RunId
from sentinel.store.tables import observations, runs

LOOKED_AT: Final = 2000
"""Entries in one look."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A run, and how far it has come."""

    run: RunId
    sequence: int
    """Of the newest entry of its log."""
    last_at: float
    """When one of its senders was heard last, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Old:
    """What a look at the log has found."""

    sequences: list[int]
    """Entries that are old enough to go."""
    until: int
    """The last entry that was looked at."""
    is_end: bool
    """Whether what comes next is too young, or too new."""


def runs_heard(connection: Connection) -> list[Heard]:
    """Every run."""
    return [Heard(*row) for row in connection.execute(select(runs.c.run, runs.c.sequence, runs.c.last_at))]


def old_entries(
    connection: Connection, run: RunId, kinds: Collection[str], *, after: int, before: int, received_before: float
) -> Old:
    """Entries of some kinds between two sequences that were received before a moment (Unix seconds), oldest first."""
    query = (
        select(observations.c.sequence, observations.c.kind, observations.c.received_at)
        .where(observations.c.run == run, observations.c.sequence > after, observations.c.sequence < before)
        .order_by(observations.c.sequence)
        .limit(LOOKED_AT)
    )
    rows = connection.execute(query).all()
    found: list[int] = []
    for sequence, kind, received_at in rows:
        if received_at >= received_before:
            return Old(found, after, is_end=True)
        after = sequence
        if kind in kinds:
            found.append(sequence)
    return Old(found, after, is_end=len(rows) < LOOKED_AT)


def remove(connection: Connection, run: RunId, sequences: Collection[int]) -> int:
    """Removes entries; returns how many there were."""
    done = connection.execute(
        delete(observations).where(observations.c.run == run, observations.c.sequence.in_(sequences))
    )
    return done.rowcount
