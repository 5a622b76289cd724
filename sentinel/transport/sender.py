"""Delivers observations to the daemon from a thread that is not the training's, and never waits longer than told.

Whatever the daemon does (absent, slow, HTTP 500, garbage), the sender keeps what it has up to a limit, drops the oldest
beyond it and counts them, and tries again with an exponential back-off. What it sends again carries the numbers that it
carried the first time, so the daemon takes it once.
"""

from __future__ import annotations

import http.client
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from sentinel.protocol import codec
from sentinel.protocol.commands import Reply
from sentinel.protocol.ids import AttemptId, RunId, SenderId
from sentinel.protocol.observations import Observation, ObservationBatch
from sentinel.protocol.version import PROTOCOL_VERSION

BATCH_LIMIT: Final = 500
PENDING_LIMIT: Final = 20_000
"""About 20 MB of step reports: half an hour of a fast run, a day of a large one."""
REPLY_LIMIT_BYTES: Final = 1 << 20
BACKLOG_AFTER_S: Final = 10.0
"""Older than this when sent, an observation is history: the daemon judges it and gives no command for it."""
FIRST_BACK_OFF_S: Final = 0.25
LONGEST_BACK_OFF_S: Final = 30.0
REFUSED_FOR_GOOD: Final = frozenset({400, 409, 413, 422})
"""The same batch would be refused again. Everything else may pass: 401 and 403 once the token is mended."""


@dataclass(slots=True)
class _Pending:
    counter: int
    offered_at: float
    observation: Observation


class Sender:
    """One sender's stream of observations to one daemon.

    All calls come from one thread.

    Args:
        url: the daemon's address, ``http://HOST:PORT`` or ``https://HOST:PORT``, with a path prefix if there is one.
        run: the run reported on.
        attempt: the attempt reported on.
        sender: who reports, such as ``rank-0``.
        token: bearer token, where the daemon wants one.
        timeout_s: the longest wait for one step of an exchange (connecting, sending, each read).
        clock: monotonic seconds.

    Raises:
        ValueError: ``url`` is not an address.
    """

    def __init__(
        self,
        url: str,
        *,
        run: RunId,
        attempt: AttemptId,
        sender: SenderId,
        token: str | None = None,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a daemon: expected http://HOST:PORT")
        self.url = url
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = f"{parts.path.rstrip('/')}/v1/observations"
        self._run, self._attempt, self._sender = run, attempt, sender
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._timeout_s = timeout_s
        self._clock = clock
        self._pending: deque[_Pending] = deque()
        self._counter = 0
        self._connection: http.client.HTTPConnection | None = None
        self._failures = 0
        self._random = random.Random()  # our own: the training's global generator must not notice us
        self._retry_at = 0.0
        self._notices_after = 0
        self.dropped_total = 0
        """Observations lost: the buffer was full, or the daemon refused them for good."""
        self.problem: str | None = None
        """Why the last exchange failed; None after one that did not."""
        self.delivered_total = 0

    @property
    def pending(self) -> int:
        """Observations that wait."""
        return len(self._pending)

    @property
    def due(self) -> bool:
        """Whether the back-off is over."""
        return self._clock() >= self._retry_at

    def offer(self, observation: Observation) -> None:
        """Takes an observation for delivery; beyond ``PENDING_LIMIT`` the oldest is dropped and counted."""
        if len(self._pending) >= PENDING_LIMIT:
            self._pending.popleft()
            self.dropped_total += 1
        self._pending.append(_Pending(self._counter, self._clock(), observation))
        self._counter += 1

    def exchange(self) -> Reply | None:
        """Sends the oldest batch and returns the reply; None if nothing waits, it is too early, or it failed."""
        batch = self._next_batch()
        if not batch or not self.due:
            return None
        try:
            status, body = self._post(codec.dumps(self._message(batch)).encode())
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: no such host or token can be
            self._failed(f"{type(error).__name__}: {error}")
            return None
        if status != 200:
            self._refused(batch, status, body)
            return None
        try:
            reply = codec.decode_reply(codec.parse(body))
        except codec.DecodeError as error:
            self._failed(f"the answer is not a daemon's: {error}")
            return None
        self._delivered(batch)
        self._notices_after = max([self._notices_after, *(notice.sequence for notice in reply.notices)])
        return reply

    def close(self) -> None:
        """Closes the connection; what still waits is lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _next_batch(self) -> Sequence[_Pending]:
        """The oldest waiting observations; only the very oldest are ever dropped, so their numbers have no gap."""
        return list(islice(self._pending, BATCH_LIMIT))

    def _message(self, batch: Sequence[_Pending]) -> ObservationBatch:
        return ObservationBatch(
            protocol=PROTOCOL_VERSION,
            run=self._run,
            attempt=self._attempt,
            sender=self._sender,
            first_counter=batch[0].counter,
            observations=tuple(item.observation for item in batch),
            backlog=self._clock() - batch[-1].offered_at > BACKLOG_AFTER_S,
            notices_after=self._notices_after,
        )

    def _post(self, body: bytes) -> tuple[int, bytes]:
        reused = self._connection is not None
        try:
            return self._ask(body)
        except ConnectionError:
            self.close()
            if not reused:
                raise
            return self._ask(body)  # servers close a connection that was idle: that is no failure

    def _ask(self, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout_s)
        self._connection.request("POST", self._path, body, self._headers)
        response = self._connection.getresponse()
        text = response.read(REPLY_LIMIT_BYTES)
        if response.will_close or not response.isclosed():
            self.close()
        return response.status, text

    def _delivered(self, batch: Sequence[_Pending]) -> None:
        self._drop_through(batch[-1].counter)
        self.delivered_total += len(batch)
        self.problem, self._failures, self._retry_at = None, 0, 0.0

    def _refused(self, batch: Sequence[_Pending], status: int, body: bytes) -> None:
        detail = body[:500].decode("utf-8", "replace")
        if status in REFUSED_FOR_GOOD:
            self._drop_through(batch[-1].counter)
            self.dropped_total += len(batch)
        self._failed(f"HTTP {status}: {detail}")

    def _failed(self, problem: str) -> None:
        self.close()
        self.problem = problem
        self._failures += 1
        back_off = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(self._failures, 20))
        self._retry_at = self._clock() + back_off * self._random.uniform(0.5, 1.0)

    def _drop_through(self, counter: int) -> None:
        while self._pending and self._pending[0].counter <= counter:
            self._pending.popleft()
