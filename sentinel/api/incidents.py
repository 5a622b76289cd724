"""Incidents, each with its whole story, and decisions."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sentinel.api import documents
from sentinel.api.evidence import of_processes
from sentinel.api.services import DecisionName, IncidentName, Json, Provided
from sentinel.domain.errors import InvalidInput, NotFound
from sentinel.domain.findings import Severity
from sentinel.domain.incidents import IncidentState
from sentinel.protocol.codec import parse
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import NAME_PATTERN, IncidentId, RunId
from sentinel.protocol.observations import OperatorRequest
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


class IncidentQuery(BaseModel):
    """Which incidents, and how many at once; what is given must all hold."""

    model_config = ConfigDict(extra="forbid")  # a filter that is misspelled must not find everything

    run: Annotated[RunId | None, Field(pattern=NAME_PATTERN)] = None
    state: IncidentState | None = None
    severity: Severity | None = None
    symptom: Annotated[
        str | None, Field(pattern="^[a-z][a-z0-9_]{0,63}$", description="Any of an incident's symptoms.")
    ] = None
    node: Annotated[str | None, Field(pattern="^[^\\x00]{1,253}$", description="The machine that it points at.")] = None
    first: Annotated[
        AwareDatetime | None,
        Field(alias="from", description="Detected then or later: 2026-11-21T14:00:00Z, or Unix seconds."),
    ] = None
    until: Annotated[AwareDatetime | None, Field(alias="to", description="Detected before then.")] = None
    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = PAGE
    cursor: Annotated[str | None, Field(max_length=500, description="The next_cursor of the page before.")] = None


@router.get("/incidents", response_model=documents.Incidents)
def list_incidents(services: Provided, query: Annotated[IncidentQuery, Query()]) -> Response:
    """Incidents of all runs, newest first, a page at a time; one that begins meanwhile shifts no later page."""
    before = None if query.cursor is None else _position(query.cursor)
    wanted = decision_log.IncidentFilter(
        severity=query.severity,
        symptom=query.symptom,
        node=query.node,
        first_at=None if query.first is None else query.first.timestamp(),
        until_at=None if query.until is None else query.until.timestamp(),
    )
    with services.database.reading() as connection:
        found = decision_log.incident_documents(
            connection, run=query.run, state=query.state, wanted=wanted, before=before, limit=query.limit + 1
        )
    page = found[: query.limit]
    more = {"next_cursor": _cursor(page[-1])} if len(found) > query.limit else {}
    return Json({"incidents": page} | more)


@router.get("/incidents/{incident}", response_model=documents.IncidentStory)
def show_incident(incident: IncidentName, services: Provided) -> Response:
    """One incident with its decisions, findings and actions, and the steps around it."""
    with services.database.reading() as connection:
        found = known_incident(connection, incident)
        story = {
            "decisions": decision_log.decision_documents(connection, incident=incident),
            "findings": _findings(connection, found),
            "actions": action_outbox.of_incident(connection, incident),
            "requests": _requests(connection, found),
            "evidence": _evidence(connection, found),
        } | of_processes(connection, found)
    return Json(found | story)


@router.get("/decisions/{decision}", response_model=documents.RunDecision)
def show_decision(decision: DecisionName, services: Provided) -> Response:
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


def _cursor(incident: dict[str, Any]) -> str:
    return urlsafe_b64encode(f"{incident['detected_at']!r}~{incident['id']}".encode()).decode()


def _position(cursor: str) -> tuple[float, str]:
    try:
        at, _, incident = urlsafe_b64decode(cursor).decode("ascii").partition("~")
        return float(at), incident.replace("\0", "")  # PostgreSQL's text has none
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


def _requests(connection: Connection, incident: dict[str, Any]) -> list[dict[str, Any]]:
    """What people said and asked about it, as it stands in the run's log."""
    told = observation_log.of_kinds(connection, RunId(incident["run"]), [OperatorRequest.kind])
    requests = [(each.entry, each.entry.observation) for each in told]
    return [
        {"sequence": entry.sequence, "at": entry.received_at, "request": wish.request, "by": wish.by}
        | ({"reason": wish.reason} if wish.reason else {})
        for entry, wish in requests
        if isinstance(wish, OperatorRequest) and wish.incident == incident["id"]
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
