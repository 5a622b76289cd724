"""Incidents, each with its whole story, and decisions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from sentinel.api import documents
from sentinel.api.evidence import of_processes
from sentinel.api.services import Json, Provided
from sentinel.domain.errors import InvalidInput, NotFound
from sentinel.domain.incidents import IncidentState
from sentinel.protocol.codec import parse
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import DecisionId, IncidentId, RunId
from sentinel.store import action_outbox, decision_log, observation_log
from sentinel.store.session import Connection

router = APIRouter(prefix="/v1", tags=["incidents"])

PAGE: Final = 100
LARGEST_PAGE: Final = 1000
STEPS_BEFORE: Final = 64
"""Where the loss was before: as many steps as the judgement of a recovery looks back."""
STEPS_AFTER: Final = 32
SHOWN: Final = frozenset({"segment", "step", "loss", "grad_norm"})
MOST_STEPS: Final = 2048
"""Of an incident that nobody settles the beginning is shown; the series endpoint has the rest."""


@router.get("/incidents", response_model=documents.Incidents)
def list_incidents(
    services: Provided,
    run: RunId | None = None,
    state: IncidentState | None = None,
    *,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = PAGE,
    cursor: str | None = None,
) -> Response:
    """Incidents, newest first, a page at a time."""
    before = None if cursor is None else _position(cursor)
    with services.database.reading() as connection:
        found = decision_log.incident_documents(connection, run=run, state=state, before=before, limit=limit + 1)
    page = found[:limit]
    more = {"next_cursor": f"{page[-1]['detected_at']!r}~{page[-1]['id']}"} if len(found) > limit else {}
    return Json({"incidents": page} | more)


@router.get("/incidents/{incident}", response_model=documents.IncidentStory)
def show_incident(incident: IncidentId, services: Provided) -> Response:
    """One incident with its decisions, findings and actions, and the steps around it."""
    with services.database.reading() as connection:
        found = known_incident(connection, incident)
        story = {
            "decisions": decision_log.decision_documents(connection, incident=incident),
            "findings": _findings(connection, found),
            "actions": action_outbox.of_incident(connection, incident),
            "evidence": _evidence(connection, found),
        } | of_processes(connection, found)
    return Json(found | story)


@router.get("/decisions/{decision}", response_model=documents.RunDecision)
def show_decision(decision: DecisionId, services: Provided) -> Response:
    """One decision."""
    with services.database.reading() as connection:
        found = decision_log.decision_document(connection, decision)
    if found is None:
        raise NotFound("decision", decision)
    return Json(found)


def known_incident(connection: Connection, incident: IncidentId) -> dict[str, Any]:
    """The incident's document.

    Raises:
        NotFound: there is no such incident.
    """
    found = decision_log.incident_document(connection, incident)
    if found is None:
        raise NotFound("incident", incident)
    return found


def _position(cursor: str) -> tuple[float, str]:
    at, _, incident = cursor.partition("~")
    try:
        return float(at), incident
    except ValueError:
        raise InvalidInput("cursor", "is not one that a page gave: leave it out to begin with the newest") from None


def _findings(connection: Connection, incident: dict[str, Any]) -> list[dict[str, Any]]:
    """What was claimed of its symptoms from its beginning to its end."""
    end = None if incident["state"] != "resolved" else incident["changed_sequence"]
    return [
        finding
        for finding in decision_log.finding_documents(
            connection, RunId(incident["run"]), after=incident["opened_sequence"] - 1, until=end
        )
        if finding["symptom"] in incident["symptoms"]
    ]


def _evidence(connection: Connection, incident: dict[str, Any]) -> list[dict[str, Any]]:
    """Loss and gradient norm of the steps around it, those given up by a rollback too."""
    onset, end = incident["onset_step"], incident.get("end_step", MAX_INTEGER)
    reports = observation_log.of_kinds(
        connection,
        RunId(incident["run"]),
        ["step"],
        first_step=min(onset, end) - STEPS_BEFORE,
        last_step=min(max(onset, incident["detected_step"], end) + STEPS_AFTER, onset + MOST_STEPS),
    )
    return [
        {"sequence": each.entry.sequence, "attempt": each.entry.attempt}
        | {name: value for name, value in parse(each.payload).items() if name in SHOWN and value is not None}
        for each in reports
    ]
