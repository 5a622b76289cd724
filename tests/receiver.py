"""Whoever gets alerts: a real HTTP server on a loopback port that answers as a test has chosen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    """One POST; of a GET the body is empty."""

    key: str
    """Its header Idempotency-Key."""
    body: dict[str, Any]


class Receiver:
    """Takes webhooks; a context manager.

    Args:
        statuses: of the answers, one after the other; 204 when they are used up.
    """

    def __init__(self, statuses: Iterable[int] = ()) -> None:
        self.received: list[Received] = []
        self._statuses = iter(statuses)
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with receiver._changed:
                    receiver.received.append(Received(self.headers["Idempotency-Key"], body))
                    receiver._changed.notify_all()
                self.send_response(next(receiver._statuses, 204))
                self.end_headers()

            def do_GET(self) -> None:
                with receiver._changed:
                    receiver.received.append(Received("", {}))
                    receiver._changed.notify_all()
                self.send_response(next(receiver._statuses, 204))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_for(self, count: int) -> list[Received]:
        """What was received, once it is at least so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, timeout=30), self.received
            return list(self.received)
