"""Who may ask: where there is a token, everyone must show one with the right, but for /health and /ready.

Prometheus must show one too, of a viewer: what /metrics tells of runs is not for everyone who reaches the port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from sentinel.api.services import Provided
from sentinel.domain.access import RIGHTS, Caller, Right
from sentinel.domain.errors import Forbidden


def requires(right: Right) -> Callable[[Request, Provided], Awaitable[Caller]]:
    """A dependency that lets a request pass whose caller holds ``right``, and returns the caller."""

    async def authorize(request: Request, services: Provided) -> Caller:
        if services.access.is_stale:
            await run_in_threadpool(services.access.read)
        caller = services.access.caller(request.headers.get("authorization", ""))
        if not caller.may(right):
            able = " or ".join(role for role, rights in RIGHTS.items() if right in rights)
            raise Forbidden(f"the token {caller.name!r} is of the role {caller.role}: this takes the role {able}")
        return caller

    return authorize


Reporting = Annotated[Caller, Depends(requires("report"))]
Commanding = Annotated[Caller, Depends(requires("command"))]
