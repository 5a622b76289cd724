"""Snapshots of the pipelines: where a restart or a replay may begin to fold; and what incidents still need of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select

from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import RunId
from sentinel.store.tables import decisions, incidents, snapshots
from sentinel.store.writing import upsert

KEPT: Final = 2
"""Of each run, beside those that incidents need: an incident may turn out to have begun before the newest."""
EVIDENCE_BEFORE: Final = 200
"""Entries before an incident was opened that belong to its evidence: what its page shows of the steps before."""


def put(connection: Connection, run: RunId, sequence: int, snapshot: Mapping[str, Any]) -> None:
    """Keeps a snapshot, and lets older ones go that no incident needs."""
    row = {"run": run, "sequence": sequence, "version": snapshot["version"], "document": dumps(dict(snapshot))}
    upsert(connection, snapshots, [row])
    known = _sequences(connection, run)
    spare = set(known[:-KEPT]) - _pinned(known, _evidence(connection, run))
    if spare:
        connection.execute(delete(snapshots).where(snapshots.c.run == run, snapshots.c.sequence.in_(spare)))


def newest_first(connection: Connection, run: RunId, version: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The snapshots of this pipeline version with their sequences; each is read when it is asked for."""
    for sequence in reversed(_sequences(connection, run, version)):
        yield sequence, _read(connection, run, sequence)


def oldest_first(
    connection: Connection, run: RunId, version: str, *, since: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Likewise in the order of the log, from a sequence on."""
    for sequence in _sequences(connection, run, version):
        if sequence >= since:
            yield sequence, _read(connection, run, sequence)


def newest(connection: Connection, run: RunId, version: str, *, place: int = 0) -> int:
    """The sequence of the newest snapshot of this pipeline version, or of the one ``place`` before it; else 0."""
    known = _sequences(connection, run, version)
    return known[-1 - place] if len(known) > place else 0


def needed(connection: Connection, run: RunId) -> list[tuple[int, int]]:
    """The stretches of the log, first and last sequence, from which the decisions about each incident follow.

    From the snapshot before its evidence to its close; an incident that is open needs all that comes.
    """
    known = [0, *_sequences(connection, run)]
    return [(max(each for each in known if each <= first) + 1, last) for first, last in _evidence(connection, run)]


def _evidence(connection: Connection, run: RunId) -> list[tuple[int, int]]:
    decided = func.coalesce(func.max(decisions.c.sequence), 0)
    query = (
        select(incidents.c.opened_sequence, incidents.c.changed_sequence, incidents.c.state, decided)
        .outerjoin(decisions, decisions.c.incident == incidents.c.id)
        .where(incidents.c.run == run)
        .group_by(incidents.c.id)
        .order_by(incidents.c.opened_sequence)
    )
    return [
        (max(0, opened - EVIDENCE_BEFORE), max(changed, last) if state == "resolved" else MAX_INTEGER)
        for opened, changed, state, last in connection.execute(query)
    ]


def _pinned(known: Sequence[int], evidence: Sequence[tuple[int, int]]) -> set[int]:
    pinned: set[int] = set()
    for first, last in evidence:
        pinned.update([each for each in known if each <= first][-1:])
        pinned.update(each for each in known if first < each <= last)  # it may have been settled and come again
    return pinned


def _sequences(connection: Connection, run: RunId, version: str | None = None) -> list[int]:
    query = select(snapshots.c.sequence).where(snapshots.c.run == run).order_by(snapshots.c.sequence)
    if version is not None:
        query = query.where(snapshots.c.version == version)
    return list(connection.execute(query).scalars())


def _read(connection: Connection, run: RunId, sequence: int) -> dict[str, Any]:
    query = select(snapshots.c.document).where(snapshots.c.run == run, snapshots.c.sequence == sequence)
    document: dict[str, Any] = parse(connection.execute(query).scalar_one())
    return document
