"""Errors as ``application/problem+json`` (RFC 9457), each with the field that it is about and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from sentinel.api.services import Json
from sentinel.domain.errors import Conflict, Forbidden, InvalidInput, NotAuthorized, NotFound, StoreUnavailable

RETRY_AFTER_S: Final = 5
PROBLEM_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The body of an answer that is an error; a field that says nothing is left out."""

    status: int
    title: str
    detail: str
    type: str = "about:blank"
    field: str | None = None
    """Where the request is wrong, such as ``observations[3].loss``."""
    remedy: str | None = None


class ProblemResponse(Json):
    """A problem as an answer."""

    media_type = PROBLEM_TYPE


REMEDIES: Final[Mapping[type[Exception], tuple[int, str]]] = {
    InvalidInput: (422, "Correct the field, /openapi.json describes it; nothing of this request was kept."),
    NotAuthorized: (401, "Send the header Authorization: Bearer TOKEN with a token of this daemon."),
    Forbidden: (403, "Use a token of the role that the detail names: `sentinel tokens create NAME --role ROLE`."),
    NotFound: (404, "GET /v1/runs and GET /v1/incidents list what there is."),
    Conflict: (409, "The detail says what stands in the way."),
    StoreUnavailable: (503, "Send it again later: nothing of it was kept. The daemon's log has the cause."),
}
"""Status and remedy of each error that may leave the daemon."""
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    422: {"model": Problem, "description": "A field is missing or wrong."},
    "default": {"model": Problem, "description": "What else went wrong, as application/problem+json."},
}
"""For the schema of every endpoint."""
HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": str(RETRY_AFTER_S)},
}


def install(app: FastAPI) -> None:
    """Makes every error of ``app`` a problem."""
    for kind in REMEDIES:
        app.add_exception_handler(kind, _ours)
    app.add_exception_handler(RequestValidationError, _of_fastapi)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def _answer(status: int, detail: str, *, field: str | None = None, remedy: str | None = None) -> Response:
    title = HTTPStatus(status).phrase
    problem = Problem(status=status, title=title, detail=detail, field=field, remedy=remedy)
    return ProblemResponse(problem, status, headers=HEADERS.get(status))


def _ours(_request: Request, error: Exception) -> Response:
    status, remedy = next(REMEDIES[kind] for kind in type(error).__mro__ if kind in REMEDIES)
    return _answer(status, str(error), field=getattr(error, "field", None), remedy=remedy)


def _of_fastapi(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return _answer(422, f"{field}: {first['msg']}", field=field, remedy=REMEDIES[InvalidInput][1])


def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"
    answer = _answer(error.status_code, f"{asked}: {error.detail}", remedy="/openapi.json describes every request.")
    answer.headers.update(error.headers or {})
    return answer


def _gone(_request: Request, _error: Exception) -> Response:
    return _answer(
        408, "the body ended before its time"
    )  # read, if at all, by whoever cut it off: another try may pass


def _unexpected(_request: Request, _error: Exception) -> Response:
    return _answer(500, "the daemon failed on this request", remedy="The daemon's log has the cause: report it.")
