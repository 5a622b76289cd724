"""Who may look: where the daemon wants a token, the page asks for it once and keeps it in a cookie.

The cookie opens these pages alone, and they change nothing: no other site can make a browser do anything with it.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import HTTPException, Request, Response

from sentinel.web.site import Site

COOKIE: Final = "sentinel_token"
FORM_LIMIT_BYTES: Final = 8192


def check(request: Request, site: Site) -> None:
    """Lets a request pass whose cookie holds a token that may read, and everyone where none is wanted.

    Raises:
        NotAuthorized: one is wanted, and it holds none or another one.
    """
    try:
        token = urlsafe_b64decode(request.cookies.get(COOKIE, "")).decode("ascii")
    except ValueError:
        token = ""
    site.admit(_header(token))


async def read_form(request: Request) -> dict[str, str]:
    """The fields of the form of this site.

    Raises:
        HTTPException: 403, another site sent it; 413, it is no such form.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "another site sent this form")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_LIMIT_BYTES:
            raise HTTPException(413, "the form is too large")
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def sign_in(response: Response, token: str, site: Site) -> None:
    """Leaves the cookie with the browser until it is closed.

    Raises:
        NotAuthorized: the token may not read here.
    """
    site.admit(_header(token))
    secure = site.public_url.startswith("https:")
    value = urlsafe_b64encode(token.encode()).decode()
    response.set_cookie(COOKIE, value, httponly=True, samesite="strict", secure=secure)


def is_signed_in(request: Request) -> bool:
    """Whether there is a cookie to take away."""
    return COOKIE in request.cookies


def sign_out(response: Response) -> None:
    """Takes the cookie away."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def local_path(wanted: str) -> str:
    r"""Where to go after signing in: a page of this site, whatever the address asked for.

    >>> local_path("/runs/r?last=9"), local_path("//evil.example/"), local_path("/\\evil.example")
    ('/runs/r?last=9', '/', '/')
    """
    parts = urlsplit(wanted)
    ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return wanted if ours and wanted.isprintable() else "/"


def _header(token: str) -> str:
    return f"Bearer {token}" if token else ""
