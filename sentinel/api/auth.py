"""Who may ask: where there is a token, everyone must show one with the right, but for /health and /ready.

Prometheus must show one too, of a viewer: what /metrics tells of runs is not for everyone who reaches the port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from sentinel.api.services import Provided, Services
from sentinel.domain.access import RIGHTS, Caller, Right
from sentinel.domain.errors import Forbidden


def requires(right: Right) -> Callable[[Request, Provided], Awaitable[Caller]]:
    """A dependency that lets a request pass whose caller holds ``right``, and returns the caller."""

    async def authorize(request: Request, services: Provided) -> Caller:
        authorization = request.headers.get("authorization", "")
        if services.access.is_stale:
            return await run_in_threadpool(check, services, authorization, right)
        return check(services, authorization, right)

    return authorize


def check(services: Services, authorization: str, right: Right = "read") -> Caller:
    """Who shows this header, if the right is theirs; may read the database.

    Raises:
        NotAuthorized: a token is wanted, and this is none or an unknown one.
        Forbidden: the token is of another role.
    """
    if services.access.is_stale:
        services.access.read()
    caller = services.access.caller(authorization)
    if not caller.may(right):
        able = " or ".join(role for role, rights in RIGHTS.items() if right in rights)
        raise Forbidden(f"the token {caller.name!r} is of the role {caller.role}: this takes the role {able}")
    return caller


Reporting = Annotated[Caller, Depends(requires("report"))]
Commanding = Annotated[Caller, Depends(requires("command"))]
