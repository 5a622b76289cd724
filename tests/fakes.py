"""Stand-ins for what tests cannot have for real: a daemon that misbehaves, or answers what a test has chosen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self, TypeVar

from sentinel.protocol.codec import decode_batch, dumps, parse
from sentinel.protocol.commands import Reply
from sentinel.protocol.observations import Observation, ObservationBatch

Behaviour = Literal["answers", "slow", "garbage", "error", "closes"]
Answer = Callable[[ObservationBatch], Reply]
Kind = TypeVar("Kind", bound=Observation)


def accept(batch: ObservationBatch) -> Reply:
    """The reply of a daemon that has nothing to say."""
    return Reply(accepted=len(batch.observations))


class FakeDaemon:
    """A real HTTP server on a loopback port that takes batches as the daemon does.

    A context manager; the port is closed at the end.

    Args:
        answer: chooses the reply to each batch; called by a server thread.
        behaviour: ``answers``; or instead: ``slow`` (after ``delay_s``), ``garbage`` (no JSON), ``error`` (HTTP 500),
            ``closes`` (the connection, without a word). May be changed at any time.
        delay_s: how slow is slow, in seconds.
    """

    def __init__(self, answer: Answer = accept, *, behaviour: Behaviour = "answers", delay_s: float = 0.3) -> None:
        self.behaviour: Behaviour = behaviour
        self.batches: list[ObservationBatch] = []
        """Every batch that was decoded, in the order of arrival, repeated ones too."""
        self.requests_total = 0
        self._answer = answer
        self._delay_s = delay_s
        self._ended = threading.Event()
        self._changed = threading.Condition()
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                daemon._handle(self)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def observations(self) -> list[Observation]:
        """All that was told, in order."""
        return [observation for batch in self.batches for observation in batch.observations]

    def told(self, kind: type[Kind]) -> list[Kind]:
        """What was told of one kind, in order."""
        return [observation for observation in self.observations if isinstance(observation, kind)]

    def wait_for(self, condition: Callable[[Self], bool], *, timeout_s: float = 10.0) -> bool:
        """Waits until ``condition`` holds after a batch; returns whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), timeout_s)

    def close(self) -> None:
        """Dies: the port is closed, and so is every request under way."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    @property
    def is_closed(self) -> bool:
        """Whether it is dead."""
        return self._ended.is_set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_closed:
            self.close()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.requests_total += 1
        if self.behaviour == "slow":
            self._ended.wait(self._delay_s)
        if self.behaviour == "closes" or self._ended.is_set():
            request.close_connection = True
        elif self.behaviour == "garbage":
            self._respond(request, 200, b"<html>not a daemon</html>")
        elif self.behaviour == "error":
            self._respond(request, 500, b'{"title": "out of order"}')
        else:
            batch = decode_batch(parse(body))
            with self._changed:
                self.batches.append(batch)
                reply = self._answer(batch)
                self._changed.notify_all()
            self._respond(request, 200, dumps(reply).encode())

    @staticmethod
    def _respond(request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
