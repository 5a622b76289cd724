"""Runs and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from sentinel.api import documents
from sentinel.api.services import Json, Provided, RunName
from sentinel.domain.errors import InvalidInput, NotFound
from sentinel.pipeline.rollups import SERIES
from sentinel.protocol.codec import parse, to_tree
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import RunId
from sentinel.store import decision_log, observation_log
from sentinel.store.series import EXTRA, Wanted, read_series
from sentinel.store.session import Connection

router = APIRouter(prefix="/v1/runs", tags=["runs"])

MOST_SERIES: Final = 32
MOST_POINTS: Final = 5000
After = Annotated[int, Query(ge=0, le=MAX_INTEGER, description="Only what came after this entry of the run's log.")]


class SeriesQuery(BaseModel):
    """Which part of which series."""

    names: Annotated[str, Field(description="With commas between: loss, grad_norm, ... or extra.NAME.")] = "loss"
    first_step: Annotated[int, Field(ge=0, le=MAX_INTEGER)] = 0
    last_step: Annotated[int, Field(ge=0, le=MAX_INTEGER)] = MAX_INTEGER
    points: Annotated[int, Field(ge=1, le=MOST_POINTS, description="So many buckets at most.")] = 500


@router.get("", response_model=documents.Runs)
def list_runs(services: Provided) -> Response:
    """Every run, the one heard of last first."""
    with services.database.reading() as connection:
        unresolved = decision_log.open_incidents(connection)
        return Json({"runs": [_standing(each, unresolved) for each in decision_log.run_documents(connection)]})


@router.get("/{run}", response_model=documents.RunStanding)
def show_run(run: RunName, services: Provided) -> Response:
    """One run."""
    with services.database.reading() as connection:
        return Json(_standing(known_run(connection, run), decision_log.open_incidents(connection)))


@router.get("/{run}/attempts", response_model=documents.Attempts)
def list_attempts(run: RunName, services: Provided) -> Response:
    """The attempts of a run, oldest first."""
    attempts: dict[str, dict[str, Any]] = {}
    with services.database.reading() as connection:
        known_run(connection, run)
        for stored in observation_log.of_kinds(connection, run, ["attempt_started", "attempt_ended"]):
            entry = stored.entry
            part = entry.observation.kind.removeprefix("attempt_")
            attempt = attempts.setdefault(entry.attempt, {"attempt": entry.attempt})
            attempt |= {f"{part}_at": entry.received_at, part: parse(stored.payload)}
    return Json({"attempts": list(attempts.values())})


@router.get("/{run}/decisions", response_model=documents.Decisions)
def list_decisions(run: RunName, services: Provided, after: After = 0) -> Response:
    """The decisions about a run in the order in which they were taken."""
    with services.database.reading() as connection:
        known_run(connection, run)
        return Json({"decisions": decision_log.decision_documents(connection, run=run, after=after)})


@router.get("/{run}/findings", response_model=documents.Findings)
def list_findings(run: RunName, services: Provided, after: After = 0) -> Response:
    """What was found about a run, in order."""
    with services.database.reading() as connection:
        known_run(connection, run)
        return Json({"findings": decision_log.finding_documents(connection, run, after=after)})


@router.get("/{run}/checkpoints", response_model=documents.Checkpoints)
def list_checkpoints(run: RunName, services: Provided) -> Response:
    """The checkpoints of a run, newest step first, each with its state and why it is in it."""
    with services.database.reading() as connection:
        known_run(connection, run)
        return Json({"checkpoints": decision_log.checkpoint_documents(connection, run)})


@router.get("/{run}/series", response_model=documents.Series)
def read_numbers(run: RunName, services: Provided, query: Annotated[SeriesQuery, Query()]) -> Response:
    """Series of a run over its steps, few enough to draw; the minimum and maximum of each bucket keep the spikes."""
    names = _series_names(query.names)
    with services.database.reading() as connection:
        known_run(connection, run)
        series = {
            name: read_series(
                connection,
                Wanted(run=run, name=name, first_step=query.first_step, last_step=query.last_step, points=query.points),
            )
            for name in names
        }
    return Json({"run": run, "series": {name: [to_tree(each) for each in buckets] for name, buckets in series.items()}})


def known_run(connection: Connection, run: RunId) -> dict[str, Any]:
    """The run's document.

    Raises:
        NotFound: there is no such run.
    """
    found = decision_log.run_document(connection, run)
    if found is None:
        raise NotFound("run", run)
    return found


def _standing(run: dict[str, Any], unresolved: Mapping[RunId, Sequence[object]]) -> dict[str, Any]:
    return run | {"open_incidents": len(unresolved.get(run["run"], ()))}


def _series_names(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    if len(names) > MOST_SERIES:
        raise InvalidInput("names", f"at most {MOST_SERIES} series at once")
    for name in names:
        if name not in SERIES and not name.startswith(EXTRA):
            nearest = get_close_matches(name, SERIES, n=1, cutoff=0)[0]
            raise InvalidInput(
                "names", f"there is no series {name!r}: did you mean {nearest!r}? The user's own are extra.NAME"
            )
    return names
