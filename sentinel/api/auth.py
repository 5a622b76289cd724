"""Who may ask: where a token is set, everyone must show it, but for /health and /ready.

Prometheus must show it too: what /metrics tells of runs is not for everyone who reaches the port.
"""

from __future__ import annotations

from hmac import compare_digest

from fastapi import Request

from sentinel.api.services import Provided, Services
from sentinel.domain.errors import NotAuthorized


async def authorize(request: Request, services: Provided) -> None:
    """Lets a request pass that shows the token.

    Raises:
        NotAuthorized: it shows none, or another one.
    """
    check(services, request.headers.get("authorization", ""))


def check(services: Services, authorization: str) -> None:
    """Lets pass who shows the token in this header.

    Raises:
        NotAuthorized: it shows none, or another one.
    """
    if services.token is None:
        return
    scheme, _, shown = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise NotAuthorized("this daemon wants a token, and the request carries none")
    if not compare_digest(shown.strip().encode(), services.token.encode()):
        raise NotAuthorized("the request carries another token than this daemon's")
