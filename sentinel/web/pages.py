"""The addresses of the pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from sentinel.domain.errors import Forbidden, NotAuthorized, NotFound, SentinelError
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.store.session import Connection
from sentinel.web import access, reading
from sentinel.web.assets import Assets
from sentinel.web.rendering import HEADERS, Renderer, accepts_gzip
from sentinel.web.site import Site

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
NewestSteps = Annotated[int | None, Query(alias="last", ge=1, le=MAX_INTEGER)]


def create_router(site: Site) -> APIRouter:
    """All pages over the running daemon's parts; to be included in its application."""
    assets = Assets()
    renderer = Renderer(assets)
    router = APIRouter(include_in_schema=False, route_class=_told_as_pages(renderer))
    _add_pages(router, site, renderer)
    _add_doors(router, site, renderer)

    @router.get("/static/{digest}/{name}")
    def asset(request: Request, digest: str, name: str) -> Response:
        """Style, script or chart library; kept for a year, for another content has another address."""
        found = assets.get(name) if digest == assets.digest else None
        if found is None:
            raise NotFound("file", name)
        lasting = HEADERS | {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if accepts_gzip(request):
            return Response(found.zipped, 200, lasting | {"Content-Encoding": "gzip"}, found.media_type)
        return Response(found.body, 200, lasting, found.media_type)

    return router


def _add_pages(router: APIRouter, site: Site, renderer: Renderer) -> None:
    @router.get("/")
    def show_runs(request: Request) -> Response:
        """All runs."""
        access.check(request, site)
        with site.database.reading() as connection:
            story = reading.overview(connection)
        state = [(run["run"], run["sequence"], len(run["open"])) for run in story["runs"]]
        story |= {"url": site.public_url}
        return renderer.unchanged(request, state) or renderer.respond(request, "runs.html", story, state=state)

    @router.get("/runs/{run}")
    def show_run(request: Request, run: RunId, last: NewestSteps = None) -> Response:
        """One run."""
        access.check(request, site)
        with site.database.reading() as connection:
            found = reading.run_document(connection, run)
            state = found["sequence"]
            known = renderer.unchanged(request, state)
            if known is not None:
                return known
            story = reading.run_story(connection, found, newest_steps=last) | {"last": last}
        return renderer.respond(request, "run.html", story, state=state)

    @router.get("/incidents/{incident}")
    def show_incident(request: Request, incident: IncidentId) -> Response:
        """One incident."""
        access.check(request, site)
        with site.database.reading() as connection:
            found = reading.incident_document(connection, incident)
            state = _state(connection, found)
            known = renderer.unchanged(request, state)
            if known is not None:
                return known
            story = reading.incident_story(connection, found)
        return renderer.respond(request, "incident.html", story, state=state)


def _state(connection: Connection, incident: dict[str, Any]) -> object:
    """What the page of an incident changes with: its run goes on through the evidence."""
    run = reading.run_document(connection, RunId(incident["run"]))
    return incident["changed_sequence"], run["sequence"]


def _add_doors(router: APIRouter, site: Site, renderer: Renderer) -> None:
    @router.get("/login")
    def ask(request: Request, then: str = "/") -> Response:
        """Asks for the token."""
        return renderer.respond(request, "login.html", {"then": access.local_path(then), "problem": ""}, state=then)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        """Takes the token and goes on to the page that was wanted."""
        form = await access.read_form(request)
        then = access.local_path(form.get("then", "/"))
        response = RedirectResponse(then, 303, HEADERS)
        try:
            await run_in_threadpool(access.sign_in, response, form.get("token", "").strip(), site)
        except (NotAuthorized, Forbidden) as error:
            story = {"then": then, "problem": str(error)}
            return renderer.respond(request, "login.html", story, state=story, status=401)
        return response

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        """Takes the cookie away."""
        await access.read_form(request)
        response = RedirectResponse("/login", 303, HEADERS)
        access.sign_out(response)
        return response


def _told_as_pages(renderer: Renderer) -> type[APIRoute]:
    """Routes whose errors people read: as a page, and a missing token as the door to it."""

    class PageRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                try:
                    return await handle(request)
                except NotAuthorized:
                    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                    return RedirectResponse(f"/login?then={quote(wanted)}", 303, HEADERS)
                except (SentinelError, HTTPException, RequestValidationError) as error:
                    status, problem = _problem(error)
                    story = {"title": HTTPStatus(status).phrase, "problem": problem}
                    return renderer.respond(request, "problem.html", story, state=problem, status=status)

            return answer

    return PageRoute


def _problem(error: Exception) -> tuple[int, str]:
    if isinstance(error, NotFound):
        return 404, str(error)
    if isinstance(error, Forbidden):
        return 403, str(error)
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, RequestValidationError):
        return 422, "the address asks for something that is no such page: begin with the runs"
    return 503, str(error)
