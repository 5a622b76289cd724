"""What people ask for: an observation in the run's log like everything else."""

from __future__ import annotations

from typing import Any, Final, Literal

from fastapi import APIRouter, Response

from sentinel import clock
from sentinel.api import documents
from sentinel.api.body import Body, decoded
from sentinel.api.incidents import known_incident
from sentinel.api.runs import known_run, show_run
from sentinel.api.schema import takes
from sentinel.api.services import IncidentName, Json, Provided, RunName, Services
from sentinel.domain.errors import Conflict
from sentinel.protocol.codec import decode_observation
from sentinel.protocol.ids import IncidentId, RunId

router = APIRouter(prefix="/v1", tags=["people"])

ANSWER_WITHIN_S: Final = 30.0


@router.post("/runs/{run}/hold", response_model=documents.RunStanding, openapi_extra=takes(documents.Wish))
def hold(run: RunName, services: Provided, wish: Body) -> Response:
    """Holds a run: whatever happens to it is recorded, and nothing is done."""
    return _ask_of_run(run, "hold", services, wish)


@router.post("/runs/{run}/release", response_model=documents.RunStanding, openapi_extra=takes(documents.Wish))
def release(run: RunName, services: Provided, wish: Body) -> Response:
    """Releases a run that is held; what the hold withheld is decided anew."""
    return _ask_of_run(run, "release", services, wish)


@router.post(
    "/incidents/{incident}/acknowledge", response_model=documents.RunIncident, openapi_extra=takes(documents.Wish)
)
def acknowledge(incident: IncidentName, services: Provided, wish: Body) -> Response:
    """Says that somebody looks after an incident."""
    return _ask_of_incident(incident, "acknowledge", services, wish)


@router.post("/incidents/{incident}/resolve", response_model=documents.RunIncident, openapi_extra=takes(documents.Wish))
def resolve(incident: IncidentName, services: Provided, wish: Body) -> Response:
    """Settles an incident."""
    return _ask_of_incident(incident, "resolve", services, wish)


def _ask_of_run(run: RunId, request: Literal["hold", "release"], services: Services, wish: object) -> Response:
    with services.database.reading() as connection:
        known_run(connection, run)
    _tell(run, {"request": request}, services, wish)
    return show_run(run, services)


def _ask_of_incident(
    incident: IncidentId, request: Literal["acknowledge", "resolve"], services: Services, wish: object
) -> Response:
    with services.database.reading() as connection:
        found = known_incident(connection, incident)
    if found["state"] == "resolved":
        raise Conflict(f"incident {incident} is resolved already: {found['resolution']}")
    _tell(RunId(found["run"]), {"request": request, "incident": incident}, services, wish)
    with services.database.reading() as connection:
        return Json(known_incident(connection, incident))


def _tell(run: RunId, request: dict[str, Any], services: Services, wish: object) -> None:
    """Appends it to the log, checked like what comes from an agent."""
    given = {"kind": "operator_request", "at": clock.now()} | request
    observation = decoded(decode_observation, wish | given if isinstance(wish, dict) else wish)
    services.writer.tell(run, lambda _stream: observation).result(ANSWER_WITHIN_S)
