"""Whether the daemon lives, whether it works, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from sentinel.api.services import Json, Provided
from sentinel.domain.errors import StoreUnavailable
from sentinel.protocol.version import PROTOCOL_VERSION
from sentinel.store.session import check_current

router = APIRouter(tags=["daemon"])
guarded = APIRouter(tags=["daemon"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The process lives."""

    status: Literal["ok"] = "ok"
    protocol: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether observations can be taken, and why not."""

    ready: bool
    reasons: tuple[str, ...]


@router.get("/health", response_model=Health)
def health() -> Response:
    """Answers as long as the process lives."""
    return Json(Health())


@router.get("/ready", response_model=Readiness, responses={503: {"model": Readiness}})
def ready(services: Provided) -> Response:
    """Whether this daemon writes and the database answers at this release's schema; one that stands by is not ready."""
    reasons = [services.writer.refusal] if services.writer.refusal else []
    try:
        check_current(services.database)
    except StoreUnavailable as error:
        reasons.append(str(error))
    return Json(Readiness(ready=not reasons, reasons=tuple(reasons)), 503 if reasons else 200)


@guarded.get("/metrics", response_class=Response)
def metrics(request: Request, services: Provided) -> Response:
    """The daemon's metrics, in the text format that the scraper prefers."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(services.metrics.registry), media_type=content_type)
