"""Asks a daemon over its REST API."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import httpx
import typer

from sentinel.domain.errors import Conflict, Forbidden, InvalidInput, NotAuthorized, NotFound, SentinelError

DEFAULT_URL: Final = "http://127.0.0.1:8321"
TIMEOUT_S: Final = 10.0
PAGE: Final = 1000
"""The most that a daemon gives at once."""

Url = Annotated[str, typer.Option(envvar="SENTINEL_URL", help="The daemon's address.")]


class Client:
    """A connection to one daemon; every answer is checked, every failure says what to do.

    Args:
        url: the daemon's address.

    Raises:
        InvalidInput: it is no address, or the token's file cannot be read.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        if urlsplit(url).scheme not in ("http", "https"):
            raise InvalidInput("--url", f"{url!r} is not an address: expected http://HOST:PORT")
        token = _token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self._url, headers=headers, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at ``path``.

        Raises:
            NotFound: there is no such thing.
            NotAuthorized: the daemon wants a token, or another one.
            SentinelError: no daemon answers, or it could not.
        """
        return self._ask("GET", path, params={name: value for name, value in query.items() if value is not None})

    def post(self, path: str, **wish: Any) -> Any:
        """The JSON that answers a request of a person.

        Raises:
            NotFound: there is no such thing.
            Forbidden: the token's role may not ask for this.
            Conflict: it cannot be done, and why.
            SentinelError: as ``get``.
        """
        return self._ask("POST", path, json={name: value for name, value in wish.items() if value is not None})

    def _ask(self, verb: str, path: str, **given: Any) -> Any:
        try:
            answer = self._http.request(verb, path, **given)
        except httpx.HTTPError as error:
            raise SentinelError(
                f"no daemon answers at {self._url} ({error}): start one with `sentinel serve`, or name it with --url"
            ) from None
        if answer.is_success:
            return answer.json()
        raise _failure(answer)

    def pages(self, path: str, key: str, **query: Any) -> list[Any]:
        """All items of a list that comes in pages."""
        items: list[Any] = []
        cursor: str | None = None
        while True:
            page = self.get(path, **{"limit": PAGE} | query, cursor=cursor)
            items += page[key]
            cursor = page.get("next_cursor")
            if cursor is None:
                return items


def _token() -> str | None:
    name = os.environ.get("SENTINEL_TOKEN_FILE")
    if not name:
        return None
    try:
        return Path(name).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput("SENTINEL_TOKEN_FILE", f"{name} cannot be read: {why}") from None


def _failure(answer: httpx.Response) -> SentinelError:
    try:
        detail = str(answer.json().get("detail"))
    except (ValueError, AttributeError):
        detail = f"HTTP {answer.status_code}"
    if answer.status_code == 404:
        error = NotFound("page", str(answer.url.path))
        error.args = (detail,)
        return error
    kinds: dict[int, type[SentinelError]] = {401: NotAuthorized, 403: Forbidden, 409: Conflict}
    return kinds.get(answer.status_code, SentinelError)(detail)
