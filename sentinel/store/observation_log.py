"""The log of each run, how far each sender was heard, and snapshots of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, delete, func, insert, select

from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.codec import DecodeError, decode_observation, dumps, parse
from sentinel.protocol.ids import AttemptId, RunId, SenderId
from sentinel.protocol.observations import Observation, UnknownObservation
from sentinel.store.tables import observations, senders, snapshots
from sentinel.store.writing import upsert

SNAPSHOTS_KEPT: Final = 2
_PAGE: Final = 2000


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A log entry with the text that it came as."""

    entry: LogEntry
    payload: str


def append(connection: Connection, entries: Sequence[StoredEntry]) -> None:
    """Appends entries, whose sequences the caller has chosen."""
    if entries:
        connection.execute(insert(observations), [_row(each) for each in entries])


def read(connection: Connection, run: RunId, *, after: int = 0) -> Iterator[StoredEntry]:
    """The entries of a run after a sequence, in order, a page at a time."""
    while True:
        query = (
            select(observations)
            .where(observations.c.run == run, observations.c.sequence > after)
            .order_by(observations.c.sequence)
            .limit(_PAGE)
        )
        rows = connection.execute(query).mappings().all()
        for row in rows:
            yield _stored(row)
        if len(rows) < _PAGE:
            return
        after = rows[-1]["sequence"]


def of_kinds(
    connection: Connection,
    run: RunId,
    kinds: Sequence[str],
    *,
    first_step: int | None = None,
    last_step: int | None = None,
) -> list[StoredEntry]:
    """A run's entries of some kinds in order, those of a range of steps where one is given."""
    query = select(observations).where(observations.c.run == run, observations.c.kind.in_(kinds))
    if first_step is not None:
        query = query.where(observations.c.step >= first_step)
    if last_step is not None:
        query = query.where(observations.c.step <= last_step)
    found = [_stored(row) for row in connection.execute(query).mappings()]
    # Asked to sort, SQLite goes through the whole log in its order, and does not use the index on kinds.
    return sorted(found, key=lambda stored: stored.entry.sequence)


def last_sequence(connection: Connection, run: RunId) -> int:
    """The newest sequence of a run; 0 before the first."""
    return connection.execute(select(func.max(observations.c.sequence)).where(observations.c.run == run)).scalar() or 0


def received_at(connection: Connection, run: RunId, sequence: int) -> float:
    """When an entry was received; 0.0 if it is not there."""
    query = select(observations.c.received_at).where(observations.c.run == run, observations.c.sequence == sequence)
    return float(connection.execute(query).scalar() or 0.0)


def next_counters(connection: Connection, run: RunId) -> dict[tuple[AttemptId, SenderId], int]:
    """For each sender of the run, the number of the first observation that was not heard yet."""
    rows = connection.execute(select(senders).where(senders.c.run == run)).mappings()
    return {(AttemptId(row["attempt"]), SenderId(row["sender"])): row["next_counter"] for row in rows}


def put_next_counter(
    connection: Connection, run: RunId, *, attempt: AttemptId, sender: SenderId, next_counter: int
) -> None:
    """Notes how far a sender was heard."""
    upsert(connection, senders, [{"run": run, "attempt": attempt, "sender": sender, "next_counter": next_counter}])


def put_snapshot(connection: Connection, run: RunId, sequence: int, snapshot: Mapping[str, Any]) -> None:
    """Keeps a snapshot, and lets older ones go."""
    row = {"run": run, "sequence": sequence, "version": snapshot["version"], "document": dumps(dict(snapshot))}
    upsert(connection, snapshots, [row])
    older = (
        select(snapshots.c.sequence)
        .where(snapshots.c.run == run)
        .order_by(snapshots.c.sequence.desc())
        .offset(SNAPSHOTS_KEPT)
        .limit(1)
    )
    spent = connection.execute(older).scalar()
    if spent is not None:
        connection.execute(delete(snapshots).where(snapshots.c.run == run, snapshots.c.sequence <= spent))


def newest_snapshot(connection: Connection, run: RunId, version: str) -> tuple[int, dict[str, Any]] | None:
    """The newest snapshot of this pipeline version with its sequence."""
    query = (
        select(snapshots.c.sequence, snapshots.c.document)
        .where(snapshots.c.run == run, snapshots.c.version == version)
        .order_by(snapshots.c.sequence.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else (row.sequence, parse(row.document))


def _observation(row: RowMapping) -> Observation:
    """What was stored; as unknown if a release that knew its kind less well took it and this one cannot read it."""
    try:
        return decode_observation(parse(row["payload"]))
    except DecodeError:
        return UnknownObservation(at=row["received_at"], named=row["kind"])


def _row(stored: StoredEntry) -> dict[str, Any]:
    entry = stored.entry
    return {
        "run": entry.run,
        "sequence": entry.sequence,
        "received_at": entry.received_at,
        "attempt": entry.attempt,
        "sender": entry.sender,
        "backlog": entry.backlog,
        "kind": entry.observation.kind,
        "segment": getattr(entry.observation, "segment", None),
        "step": getattr(entry.observation, "step", None),
        "payload": stored.payload,
    }


def _stored(row: RowMapping) -> StoredEntry:
    entry = LogEntry(
        run=RunId(row["run"]),
        sequence=row["sequence"],
        received_at=row["received_at"],
        attempt=AttemptId(row["attempt"]),
        sender=SenderId(row["sender"]),
        observation=_observation(row),
        backlog=row["backlog"],
    )
    return StoredEntry(entry, row["payload"])
