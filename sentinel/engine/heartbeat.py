"""A dead-man's switch: somebody outside is told each minute that the daemon works, and calls people when that stops."""

from __future__ import annotations

from typing import Final

import httpx

from sentinel import clock
from sentinel.domain.errors import SentinelError, StoreUnavailable
from sentinel.engine.dispatcher import Dispatcher
from sentinel.engine.writer import Writer
from sentinel.store import heartbeats

EVERY_S: Final = 60.0
TIMEOUT_S: Final = 10.0
COMMIT_WITHIN_S: Final = 10.0
DISPATCHED_WITHIN_S: Final = 300.0
"""Longer than a look at the outbox takes where every one of a dozen channels hangs."""


class Heartbeat:
    """Asks for an address, such as one of healthchecks.io, Dead Man's Snitch or Uptime Kuma, while the daemon works.

    Args:
        url: where to knock; its path is a secret.
        writer: must commit.
        dispatcher: must have looked for alerts lately.
    """

    def __init__(self, url: str, writer: Writer, dispatcher: Dispatcher) -> None:
        self._url = url
        self._writer = writer
        self._dispatcher = dispatcher
        self._client = httpx.Client(timeout=TIMEOUT_S)

    def beat(self) -> None:
        """Knocks once.

        Raises:
            StoreUnavailable: nothing can be committed; nobody was told that the daemon works.
            SentinelError: alerts are not sent, and nobody was told; or whoever is told does not answer.
        """
        try:
            written = self._writer.write(lambda connection: heartbeats.write(connection, at=clock.now()))
            written.result(COMMIT_WITHIN_S)
        except TimeoutError:
            raise StoreUnavailable(f"no heartbeat: nothing was committed within {COMMIT_WITHIN_S:.0f} s") from None
        idle_s = clock.monotonic() - self._dispatcher.looked_at
        if idle_s > DISPATCHED_WITHIN_S:
            raise SentinelError(f"no heartbeat: no alert was looked for since {idle_s:.0f} s")
        try:
            answer = self._client.get(self._url)
        except httpx.HTTPError as error:
            raise SentinelError(f"nobody hears the heartbeat: {type(error).__name__}") from None
        if not answer.is_success:
            raise SentinelError(f"nobody hears the heartbeat: HTTP {answer.status_code}")

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()
