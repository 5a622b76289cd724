"""From facts to HTML: everything told from outside is escaped, and a browser is allowed nothing but this daemon."""

from __future__ import annotations

import gzip
import hashlib
from datetime import UTC, datetime
from typing import Any, Final

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from sentinel import clock
from sentinel.web import words
from sentinel.web.access import is_signed_in
from sentinel.web.assets import Assets

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Encoding, Cookie",
}
UNITS: Final = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


class Renderer:
    """Makes pages from templates.

    Args:
        assets: what the pages refer to.
    """

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._environment = Environment(
            loader=PackageLoader("sentinel.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"moment": moment, "span": span, "number": number, "count": count, "size": size}
        self._environment.globals |= {"words": words, "assets": assets}

    def respond(
        self, request: Request, template: str, story: dict[str, Any], *, state: object, status: int = 200
    ) -> Response:
        """The page; 304 where the browser has what it would show.

        Args:
            request: tells what the browser has and takes.
            template: its name.
            story: what it shows.
            state: changes whenever the page would.
            status: of the answer.
        """
        tag = self.tag(state)
        facts = story | {"now": clock.now(), "tag": tag, "signed_in": is_signed_in(request)}
        text = self._environment.get_template(template).render(facts)
        headers = HEADERS | {"ETag": tag}
        body = text.encode()
        if accepts_gzip(request):
            body = gzip.compress(body, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(body, status, headers, "text/html; charset=utf-8")

    def unchanged(self, request: Request, state: object) -> Response | None:
        """An answer without a body, if the browser has this state already."""
        if request.headers.get("if-none-match") != self.tag(state):
            return None
        return Response(status_code=304, headers=HEADERS | {"ETag": self.tag(state)})

    def tag(self, state: object) -> str:
        """Names a state of a page as made by this release."""
        return f'W/"{self._assets.digest}-{hashlib.sha256(repr(state).encode()).hexdigest()[:16]}"'


def accepts_gzip(request: Request) -> bool:
    """Whether the answer may be compressed."""
    return "gzip" in request.headers.get("accept-encoding", "")


def moment(at: float) -> str:
    """A moment in UTC, to the second; a sender's clock may have told anything.

    >>> moment(0.0), moment(1e300)
    ('1970-01-01 00:00:00', '1e+300')
    """
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def span(seconds: float) -> str:
    """A length of time, as a person says it.

    >>> span(0.0154), span(4.2), span(90), span(7300)
    ('15 ms', '4.2 s', '1 min', '2 h')
    """
    for unit, length in UNITS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def number(value: float | str | None) -> str:
    """A measured value: four digits; NaN and infinity as they are, a dash where it is not known.

    >>> number(2.34567), number("NaN"), number(None), number(0)
    ('2.346', 'NaN', '-', '0')
    """
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def count(value: int) -> str:
    """A counted value, its thousands set apart."""
    return f"{value:,}"


def size(size_bytes: int | None) -> str:
    """Bytes for people.

    >>> size(4_328_112), size(12), size(None)
    ('4.3 MB', '12 B', '-')
    """
    if size_bytes is None:
        return "-"
    value, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if unit != "B" else f"{size_bytes} B"
