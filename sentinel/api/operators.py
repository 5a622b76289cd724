"""What people ask for: an observation in the run's log like everything else; the pipeline decides what comes of it."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from secrets import token_hex
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Response

from sentinel import clock
from sentinel.api import documents
from sentinel.api.auth import Commanding
from sentinel.api.body import Body, decoded
from sentinel.api.incidents import known_incident, show_incident
from sentinel.api.runs import known_run, show_run
from sentinel.api.schema import takes
from sentinel.api.services import IncidentName, Json, Provided, RunName, Services
from sentinel.domain.errors import Conflict, InvalidInput
from sentinel.engine.streams import Stream
from sentinel.protocol.codec import decode_observation
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.protocol.observations import Observation, OperatorRequest
from sentinel.store import decision_log, fleet_hold, observation_log
from sentinel.store.fleet_hold import FleetHold

router = APIRouter(prefix="/v1", tags=["people"])
reading = APIRouter(prefix="/v1", tags=["people"])

ANSWER_WITHIN_S: Final = 30.0
LONGEST_REASON: Final = 2000
SOMEBODY: Final = "a person"
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,128}$",
        description="Names the request: sent again under the same name it is not done again.",
    ),
]


class Asking:
    """One request: who sends it, and under which name."""

    def __init__(self, services: Provided, caller: Commanding, key: Key = None) -> None:
        self.services: Services = services
        self.key = key or token_hex(16)
        self._caller = caller

    def wish(self, body: object, kind: type[documents.Wish] = documents.Wish) -> dict[str, Any]:
        """The body's fields, with whoever asks where it does not say.

        Raises:
            InvalidInput: a field is unknown or a reason is too long.
        """
        if not isinstance(body, dict):
            raise InvalidInput("body", "expected an object")
        known = [each.name for each in fields(kind)]
        for name in body:
            if name not in known:
                nearest = get_close_matches(str(name), known, n=1, cutoff=0)[0]
                raise InvalidInput(str(name)[:100], f"there is no such field: did you mean {nearest!r}?")
        if isinstance(body.get("reason"), str) and len(body["reason"]) > LONGEST_REASON:
            raise InvalidInput("reason", f"expected at most {LONGEST_REASON} characters")
        somebody = self._caller.name or SOMEBODY
        return body | {"by": somebody if body.get("by", "") == "" else body["by"]}

    def tell(self, run: RunId, request: dict[str, Any]) -> str:
        """Appends it to the run's log, once, checked like what comes from an agent; returns its key there."""
        key = f"{request['request']} {request.get('incident', '')} {self.key}"  # another request is not this one
        given = {"kind": "operator_request", "at": clock.now(), "key": key} | request
        observation = decoded(decode_observation, given)

        def once(stream: Stream) -> object | None:
            return None if stream.pipeline.knows_request(key) else observation

        self.services.writer.tell(run, once).result(ANSWER_WITHIN_S)
        return key


Asked = Annotated[Asking, Depends()]


@reading.get("/hold", response_model=documents.FleetHold)
def show_hold(services: Provided) -> Response:
    """Whether all runs are held."""
    with services.database.reading() as connection:
        return Json(fleet_hold.read(connection))


@router.post("/hold", response_model=documents.FleetHold, openapi_extra=takes(documents.Wish))
def hold_all(asked: Asked, body: Body) -> Response:
    """Holds all runs, and with them each one that begins later; a run's own hold stays its own."""
    return _ask_of_all(asked, body, is_held=True)


@router.post("/release", response_model=documents.FleetHold, openapi_extra=takes(documents.Wish))
def release_all(asked: Asked, body: Body) -> Response:
    """Ends the hold of all runs; a run that is held by itself stays held."""
    return _ask_of_all(asked, body, is_held=False)


@router.post("/runs/{run}/hold", response_model=documents.RunStanding, openapi_extra=takes(documents.Wish))
def hold(run: RunName, asked: Asked, body: Body) -> Response:
    """Holds a run: whatever happens to it is recorded, and nothing is done."""
    return _ask_of_run(run, "hold", asked, body)


@router.post("/runs/{run}/release", response_model=documents.RunStanding, openapi_extra=takes(documents.Wish))
def release(run: RunName, asked: Asked, body: Body) -> Response:
    """Releases a run that is held; what the hold withheld is decided anew."""
    return _ask_of_run(run, "release", asked, body)


@router.post("/runs/{run}/rollback", response_model=documents.RunDecision, openapi_extra=takes(documents.RollbackWish))
def roll_back(run: RunName, asked: Asked, body: Body) -> Response:
    """Asks for a rollback, now or not at all: to the checkpoint that is named, else to the newest good one.

    The decision is recorded either way. 409 tells why it was refused: a hold, an agent that only observes, a checkpoint
    that is not verified, ...
    """
    with asked.services.database.reading() as connection:
        known_run(connection, run)
    key = asked.tell(run, asked.wish(body, documents.RollbackWish) | {"request": "roll_back"})
    with asked.services.database.reading() as connection:
        told = observation_log.of_kinds(connection, run, [OperatorRequest.kind])
        sequence = next(each.entry.sequence for each in reversed(told) if _key(each.entry.observation) == key)
        taken = decision_log.decision_documents(connection, run=run, after=sequence - 1)
    decision = taken[0]
    if decision["outcome"] != "ordered":
        raise Conflict(f"{decision['reason']} (decision {decision['id']})")
    return Json(decision)


@router.post(
    "/incidents/{incident}/acknowledge", response_model=documents.IncidentStory, openapi_extra=takes(documents.Wish)
)
def acknowledge(incident: IncidentName, asked: Asked, body: Body) -> Response:
    """Says that somebody looks after an incident."""
    return _ask_of_incident(incident, "acknowledge", asked, body)


@router.post(
    "/incidents/{incident}/annotate", response_model=documents.IncidentStory, openapi_extra=takes(documents.Wish)
)
def annotate(incident: IncidentName, asked: Asked, body: Body) -> Response:
    """Adds a note, the ``reason``, to an incident, be it over or not; it stands among the incident's requests."""
    if not (isinstance(body, dict) and body.get("reason")):
        raise InvalidInput("reason", "is missing: it is the note")
    return _ask_of_incident(incident, "annotate", asked, body)


@router.post(
    "/incidents/{incident}/resolve", response_model=documents.IncidentStory, openapi_extra=takes(documents.Wish)
)
def resolve(incident: IncidentName, asked: Asked, body: Body) -> Response:
    """Settles an incident."""
    return _ask_of_incident(incident, "resolve", asked, body)


def _key(observation: Observation) -> str:
    return observation.key if isinstance(observation, OperatorRequest) else ""


def _ask_of_all(asked: Asking, body: object, *, is_held: bool) -> Response:
    request = {"kind": OperatorRequest.kind, "at": clock.now(), "request": "hold"}
    wish = decoded(decode_observation, asked.wish(body) | request)
    assert isinstance(wish, OperatorRequest)
    hold = FleetHold(is_held=is_held, by=wish.by, reason=wish.reason)
    asked.services.writer.hold_all(hold).result(ANSWER_WITHIN_S)
    return Json(hold)


def _ask_of_run(run: RunId, request: Literal["hold", "release"], asked: Asking, body: object) -> Response:
    with asked.services.database.reading() as connection:
        known_run(connection, run)
    asked.tell(run, asked.wish(body) | {"request": request})
    return show_run(run, asked.services)


def _ask_of_incident(
    incident: IncidentId, request: Literal["acknowledge", "annotate", "resolve"], asked: Asking, body: object
) -> Response:
    with asked.services.database.reading() as connection:
        found = known_incident(connection, incident)
    if found["state"] == "resolved" and request != "annotate":
        raise Conflict(f"incident {incident} is resolved already: {found['resolution']}")
    asked.tell(RunId(found["run"]), asked.wish(body) | {"request": request, "incident": incident})
    return show_incident(incident, asked.services)
