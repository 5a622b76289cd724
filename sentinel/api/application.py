"""The daemon's HTTP interface, put together."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Depends, FastAPI, Response

from sentinel.api import health, incidents, observations, operators, problems, runs
from sentinel.api.auth import requires
from sentinel.api.schema import describe
from sentinel.api.services import Json, Services
from sentinel.domain.access import Right


def create_app(services: Services) -> FastAPI:
    """An ASGI application over a running daemon's parts."""
    # The documentation pages of FastAPI load their scripts from the Internet, which a cluster often does not reach.
    app = FastAPI(title="Sentinel", version="1", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = services
    problems.install(app)
    app.include_router(health.router, responses={"default": problems.RESPONSES["default"]})
    rights: dict[Right, Sequence[APIRouter]] = {
        "report": (observations.router,),
        "read": (runs.router, incidents.router, operators.reading, health.guarded),
        "command": (operators.router,),
    }
    for right, routers in rights.items():
        for router in routers:
            app.include_router(router, dependencies=[Depends(requires(right))], responses=problems.RESPONSES)

    @app.get("/openapi.json", dependencies=[Depends(requires("read"))], include_in_schema=False)
    def schema() -> Response:
        """What this interface takes and answers."""
        return Json(describe(app))

    return app
