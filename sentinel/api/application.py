"""The daemon's HTTP interface, put together."""

from __future__ import annotations

from fastapi import Depends, FastAPI, Response

from sentinel.api import health, incidents, observations, operators, problems, runs
from sentinel.api.auth import authorize
from sentinel.api.schema import describe
from sentinel.api.services import Json, Services


def create_app(services: Services) -> FastAPI:
    """An ASGI application over a running daemon's parts."""
    # The documentation pages of FastAPI load their scripts from the Internet, which a cluster often does not reach.
    app = FastAPI(title="Sentinel", version="1", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = services
    problems.install(app)
    guarded = [Depends(authorize)]
    app.include_router(health.router)
    for router in (observations.router, runs.router, incidents.router, operators.router, health.guarded):
        app.include_router(router, dependencies=guarded, responses=problems.RESPONSES)

    @app.get("/openapi.json", dependencies=guarded, include_in_schema=False)
    def schema() -> Response:
        """What this interface takes and answers."""
        return Json(describe(app))

    return app
