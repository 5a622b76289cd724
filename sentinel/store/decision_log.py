"""What the pipeline concluded: runs, findings, incidents, decisions, checkpoints, rollups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, insert, select, tuple_

from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.rollups import Rollup
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.ids import DecisionId, IncidentId, RunId
from sentinel.store.tables import checkpoints, decisions, findings, incidents, rollups, runs
from sentinel.store.writing import add, upsert

_OF_ROLLUPS: Final = tuple(field.name for field in fields(Rollup))
Document = dict[str, Any]
"""A stored JSON text, parsed; floats that are not finite are spelled as text."""
NODE_SHOWN: Final = 128
"""Characters of a node's name that incidents are found by: what a sender calls itself must not overflow an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFilter:
    """Which incidents are wanted beside a run's or a state's: those that fit everything that is given."""

    severity: str | None = None
    symptom: str | None = None
    """Any of an incident's."""
    node: str | None = None
    first_at: float | None = None
    """Detected then or later, Unix seconds."""
    until_at: float | None = None
    """Detected before then."""


def put_outcome(connection: Connection, entry: LogEntry, outcome: Outcome) -> None:
    """Writes what an entry led to, but for actions, which go to the outbox, and rollups, which go together."""
    _put_findings(connection, entry, outcome)
    _put_incidents(connection, entry, outcome)
    _put_decisions(connection, entry, outcome)
    _put_checkpoints(connection, entry, outcome)


def put_rollups(connection: Connection, closed: Iterable[tuple[LogEntry, Rollup]]) -> None:
    """Writes buckets, each with the entry that closed it."""
    rows = [
        {"run": entry.run, "last_sequence": entry.sequence} | {name: getattr(rollup, name) for name in _OF_ROLLUPS}
        for entry, rollup in closed
    ]
    add(connection, rollups, rows)


def put_run(connection: Connection, run: RunId, summary: Run, *, sequence: int, at: float) -> None:
    """Writes where the run stands."""
    row = {
        "run": run,
        "created_at": at,
        "last_at": summary.last_at or at,
        "sequence": sequence,
        "phase": summary.phase,
        "document": dumps(summary),
    }
    upsert(connection, runs, [row], keep=("created_at",))


def run_documents(connection: Connection) -> list[Document]:
    """Every run, the one heard of last first."""
    query = select(runs).order_by(runs.c.last_at.desc(), runs.c.run)
    return [_run(row) for row in connection.execute(query).mappings()]


def run_document(connection: Connection, run: RunId) -> Document | None:
    """One run."""
    row = connection.execute(select(runs).where(runs.c.run == run)).mappings().first()
    return None if row is None else _run(row)


def open_incidents(connection: Connection) -> dict[RunId, list[Document]]:
    """The incidents of each run that are not resolved, oldest first."""
    unresolved = incidents.c.state != "resolved"
    query = select(incidents).where(unresolved).order_by(incidents.c.run, incidents.c.detected_at, incidents.c.id)
    rows = connection.execute(query).mappings()
    return {RunId(run): [_incident(row) for row in group] for run, group in groupby(rows, key=itemgetter("run"))}


def incident_documents(
    connection: Connection,
    *,
    run: RunId | None = None,
    state: str | None = None,
    wanted: IncidentFilter | None = None,
    before: tuple[float, str] | None = None,
    limit: int = 100,
) -> list[Document]:
    """Incidents, newest first; ``before`` is (detected_at, id) of the last one of the page before."""
    query: Select[Any] = select(incidents).order_by(incidents.c.detected_at.desc(), incidents.c.id.desc()).limit(limit)
    conditions = _conditions(wanted or IncidentFilter())
    if run is not None:
        conditions.append(incidents.c.run == run)
    if state is not None:
        conditions.append(incidents.c.state == state)
    if before is not None:
        conditions.append(tuple_(incidents.c.detected_at, incidents.c.id) < tuple_(*before))
    return [_incident(row) for row in connection.execute(query.where(*conditions)).mappings()]


def incident_document(connection: Connection, incident: IncidentId) -> Document | None:
    """One incident."""
    row = connection.execute(select(incidents).where(incidents.c.id == incident)).mappings().first()
    return None if row is None else _incident(row)


def decision_documents(
    connection: Connection, *, run: RunId | None = None, incident: IncidentId | None = None, after: int = 0
) -> list[Document]:
    """Decisions of a run or an incident in the order in which they were taken."""
    query = select(decisions.c.run, decisions.c.document).order_by(decisions.c.sequence, decisions.c.ordinal)
    if run is not None:
        query = query.where(decisions.c.run == run)
    if incident is not None:
        query = query.where(decisions.c.incident == incident)
    rows = connection.execute(query.where(decisions.c.sequence > after)).mappings()
    return [{"run": row["run"], **parse(row["document"])} for row in rows]


def decision_document(connection: Connection, decision: DecisionId) -> Document | None:
    """One decision."""
    row = connection.execute(select(decisions).where(decisions.c.id == decision)).mappings().first()
    return None if row is None else {"run": row["run"], **parse(row["document"])}


def finding_documents(
    connection: Connection, run: RunId, *, after: int = 0, until: int | None = None
) -> list[Document]:
    """Findings of a run in order, each with the sequence of the entry that caused it; ``until`` is the last one."""
    query = (
        select(findings)
        .where(findings.c.run == run, findings.c.sequence > after)
        .order_by(findings.c.sequence, findings.c.ordinal)
    )
    if until is not None:
        query = query.where(findings.c.sequence <= until)
    return [{"sequence": row["sequence"], **parse(row["document"])} for row in connection.execute(query).mappings()]


def checkpoint_documents(connection: Connection, run: RunId) -> list[Document]:
    """Checkpoints of a run, newest step first."""
    query = (
        select(checkpoints.c.document)
        .where(checkpoints.c.run == run)
        .order_by(checkpoints.c.step.desc(), checkpoints.c.segment.desc(), checkpoints.c.id)
    )
    return [parse(text) for text in connection.execute(query).scalars()]


def _run(row: RowMapping) -> Document:
    return {"run": row["run"], "created_at": row["created_at"], "sequence": row["sequence"], **parse(row["document"])}


def _incident(row: RowMapping) -> Document:
    return {"run": row["run"], **parse(row["document"])}


def _conditions(wanted: IncidentFilter) -> list[ColumnElement[bool]]:
    column = incidents.c
    conditions: dict[str, Callable[[Any], ColumnElement[bool]]] = {
        "severity": lambda severity: column.severity == severity,
        "symptom": lambda symptom: column.symptoms.contains(f" {symptom} ", autoescape=True),
        "node": lambda node: column.node == node[:NODE_SHOWN],
        "first_at": lambda at: column.detected_at >= at,
        "until_at": lambda at: column.detected_at < at,
    }
    given = {name: getattr(wanted, name) for name in conditions}
    return [conditions[name](value) for name, value in given.items() if value is not None]


def _put_findings(connection: Connection, entry: LogEntry, outcome: Outcome) -> None:
    rows = [
        {
            "run": entry.run,
            "sequence": entry.sequence,
            "ordinal": ordinal,
            "symptom": finding.symptom,
            "severity": finding.severity,
            "step": finding.step,
            "document": dumps(finding),
        }
        for ordinal, finding in enumerate(outcome.findings)
    ]
    if rows:
        connection.execute(insert(findings), rows)


def _put_incidents(connection: Connection, entry: LogEntry, outcome: Outcome) -> None:
    newest = {incident.id: incident for incident in outcome.incidents}
    rows = [
        {
            "id": incident.id,
            "run": entry.run,
            "opened_sequence": incident.opened_sequence,
            "changed_sequence": incident.changed_sequence,
            "detected_at": incident.detected_at,
            "state": incident.state,
            "severity": incident.severity,
            "symptom": incident.symptom,
            "symptoms": f" {' '.join(incident.symptoms)} ",
            "node": incident.node[:NODE_SHOWN],
            "document": dumps(incident),
        }
        for incident in newest.values()
    ]
    upsert(connection, incidents, rows)


def _put_decisions(connection: Connection, entry: LogEntry, outcome: Outcome) -> None:
    rows = [
        {
            "id": decision.id,
            "run": entry.run,
            "incident": decision.incident,
            "sequence": decision.sequence,
            "ordinal": ordinal,
            "rung": decision.rung,
            "outcome": decision.outcome,
            "document": dumps(decision),
        }
        for ordinal, decision in enumerate(outcome.decisions)
    ]
    if rows:
        connection.execute(insert(decisions), rows)


def _put_checkpoints(connection: Connection, entry: LogEntry, outcome: Outcome) -> None:
    newest = {checkpoint.id: checkpoint for checkpoint in outcome.checkpoints}
    rows = [
        {
            "run": entry.run,
            "id": checkpoint.id,
            "step": checkpoint.step,
            "segment": checkpoint.segment,
            "state": checkpoint.state,
            "changed_sequence": entry.sequence,
            "document": dumps(checkpoint),
        }
        for checkpoint in newest.values()
    ]
    upsert(connection, checkpoints, rows)
