"""What the endpoints work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request, Response

from sentinel.api.access import Access
from sentinel.engine.writer import Writer
from sentinel.metrics import Metrics
from sentinel.protocol import codec
from sentinel.protocol.ids import NAME_PATTERN, DecisionId, IncidentId, RunId
from sentinel.store.session import Database

_DERIVED = Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")
RunName = Annotated[RunId, Path(pattern=NAME_PATTERN)]
IncidentName = Annotated[IncidentId, _DERIVED]
DecisionName = Annotated[DecisionId, _DERIVED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of the running daemon that HTTP gives access to."""

    database: Database
    writer: Writer
    metrics: Metrics
    access: Access
    """Who may ask for what."""
    public_url: str


class Json(Response):
    """Written by the codec: NaN and infinities come out as it spells them, where others write null."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """The JSON text of a dataclass or a tree."""
        return codec.dumps(content).encode()


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Provided = Annotated[Services, Depends(_services)]
