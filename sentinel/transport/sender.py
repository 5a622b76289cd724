"""Delivers observations to the daemon from a thread that is not the training's, and never waits longer than told.

Whatever the daemon does (absent, slow, HTTP 500, garbage), the sender keeps what it has up to a limit, on disk where it
has a spool and else in memory, drops the oldest beyond it and counts them, and tries again with a growing back-off.
What it sends again carries the numbers that it carried the first time, so the daemon takes it once.
"""

from __future__ import annotations

import http.client
import random
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final
from urllib.parse import urlsplit

from sentinel.protocol import codec
from sentinel.protocol.commands import Reply
from sentinel.protocol.digest import HEADER, digest
from sentinel.protocol.ids import AttemptId, RunId, SenderId
from sentinel.protocol.observations import Observation, ObservationBatch
from sentinel.protocol.version import PROTOCOL_VERSION
from sentinel.transport.spool import Kept, Spool

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
FIELD: Final = re.compile(r"observations\[(\d{1,9})\]")
PROBLEM: Final = "application/problem+json"
"""The type of a refusal in the daemon's own words. Others may refuse what was garbled on its way, except by 413."""


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
        spool: keeps on disk what cannot be delivered.
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
        spool: Spool | None = None,
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
        self._spool = spool
        self._pending: deque[Kept] = deque()
        self._counter = 0
        self._connection: http.client.HTTPConnection | None = None
        self._failures = 0
        self._random = random.Random()  # our own: the training's global generator must not notice us
        self._retry_at = 0.0
        self._notices_after = 0
        self._limit = BATCH_LIMIT
        self._dropped_total = 0
        self.problem: str | None = None
        """Why the last exchange failed; None after one that did not."""
        self.delivered_total = 0

    @property
    def pending(self) -> int:
        """Observations that wait."""
        return len(self._pending) + self.kept

    @property
    def kept(self) -> int:
        """Observations of these that wait on disk: the next attempt delivers what this one does not."""
        return 0 if self._spool is None else self._spool.pending

    @property
    def dropped_total(self) -> int:
        """Observations lost: there was no more room for them, or the daemon refused them for good."""
        return self._dropped_total + (0 if self._spool is None else self._spool.dropped_total)

    @property
    def due(self) -> bool:
        """Whether the back-off is over."""
        return self._clock() >= self._retry_at

    def offer(self, observation: Observation) -> None:
        """Takes an observation for delivery; beyond ``PENDING_LIMIT`` in memory the oldest is dropped and counted."""
        if len(self._pending) >= PENDING_LIMIT and not self._keep():
            self._pending.popleft()
            self._dropped_total += 1
        self._pending.append(
            Kept(
                attempt=self._attempt,
                sender=self._sender,
                counter=self._counter,
                offered_at=self._clock(),
                observation=observation,
            )
        )
        self._counter += 1

    def keep(self) -> None:
        """Puts on disk what waits, if the daemon is away or older things are there: to be called after exchanges."""
        if self.problem is not None or self.kept:
            self._keep()

    def exchange(self) -> Reply | None:
        """Sends the oldest batch and returns the reply; None if nothing waits, it is too early, or it failed."""
        batch = self._next_batch() if self.due else ()
        if not batch:
            return None
        return self._send(self._message(batch), batch)

    def _send(self, message: ObservationBatch, batch: Sequence[Kept]) -> Reply | None:
        try:
            status, body, is_final = self._post(codec.dumps(message).encode())
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: no such host or token can be
            self._failed(f"{type(error).__name__}: {error}")
            return None
        if status != 200:
            said = _problem(body)
            if is_final:
                self._refused(len(batch), _sound(status, said, len(batch)))
            self._failed(f"HTTP {status}: {said.get('detail') or body[:500].decode('utf-8', 'replace')}")
            return None
        try:
            reply = codec.decode_reply(codec.parse(body))
        except codec.DecodeError as error:
            self._failed(f"the answer is not a daemon's: {error}")
            return None
        self._delivered(batch)
        self._notices_after = max([self._notices_after, *(notice.sequence for notice in reply.notices)])
        return reply

    def poll(self) -> Reply | None:
        """Asks for commands with nothing to tell; None if it is too early or failed, and while something waits."""
        if self.pending or not self.due:
            return None
        empty = ObservationBatch(
            protocol=PROTOCOL_VERSION,
            run=self._run,
            attempt=self._attempt,
            sender=self._sender,
            first_counter=self._counter,
            observations=(),
            notices_after=self._notices_after,
        )
        return self._send(empty, ())

    def close(self) -> None:
        """Closes the connection; what still waits is kept for the next attempt, and lost where there is no spool."""
        self._hang_up()
        self._keep()
        if self._spool is not None:
            self._spool.close()

    def _keep(self) -> bool:
        if self._spool is not None and self._pending and self._spool.put(self._pending):
            self._pending.clear()
        return not self._pending

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _next_batch(self) -> Sequence[Kept]:
        """The oldest waiting observations, with numbers that follow each other: history or news, never both."""
        oldest = [] if self._spool is None else self._spool.oldest(self._limit)
        waiting = oldest or list(islice(self._pending, self._limit))
        return list(takewhile(lambda each: self._is_old(each) is self._is_old(waiting[0]), waiting))

    def _is_old(self, kept: Kept) -> bool:
        return kept.attempt != self._attempt or self._clock() - kept.offered_at > BACKLOG_AFTER_S

    def _message(self, batch: Sequence[Kept]) -> ObservationBatch:
        return ObservationBatch(
            protocol=PROTOCOL_VERSION,
            run=self._run,
            attempt=batch[0].attempt,
            sender=batch[0].sender,
            first_counter=batch[0].counter,
            observations=tuple(item.observation for item in batch),
            backlog=self._is_old(batch[0]),
            notices_after=self._notices_after,
        )

    def _post(self, body: bytes) -> tuple[int, bytes, bool]:
        reused = self._connection is not None
        try:
            return self._ask(body)
        except ConnectionError:
            self._hang_up()
            if not reused:
                raise
            return self._ask(body)  # servers close a connection that was idle: that is no failure

    def _ask(self, body: bytes) -> tuple[int, bytes, bool]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout_s)
        self._connection.request("POST", self._path, body, self._headers | {HEADER: digest(body)})
        response = self._connection.getresponse()
        text = response.read(REPLY_LIMIT_BYTES)
        if response.getheader(HEADER) not in (None, digest(text)):
            raise http.client.HTTPException("the answer was changed on its way")
        if response.will_close or not response.isclosed():
            self._hang_up()
        is_daemons = response.getheader("Content-Type") == PROBLEM or response.status == 413
        return response.status, text, is_daemons and response.status in REFUSED_FOR_GOOD

    def _delivered(self, batch: Sequence[Kept]) -> None:
        self._settle(len(batch))
        self.delivered_total += len(batch)
        self.problem, self._failures, self._retry_at = None, 0, 0.0
        self._limit = min(BATCH_LIMIT, 2 * self._limit)

    def _refused(self, count: int, sound: int | None) -> None:
        """Sends fewer at once, or gives up what is at fault: the oldest, or all where nobody knows which."""
        if sound:
            self._limit = sound
        else:
            spent = count if sound is None else 1
            self._settle(spent)
            self._dropped_total += spent
        if sound is not None:
            self._failures = 0  # there is somebody, who takes the others

    def _failed(self, problem: str) -> None:
        self._hang_up()
        self.problem = problem
        self._failures += 1
        back_off = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(self._failures, 20))
        self._retry_at = self._clock() + back_off * self._random.uniform(0.5, 1.0)

    def _settle(self, count: int) -> None:
        """The oldest ``count`` that wait need not be sent again."""
        if self._spool is not None and self._spool.pending:
            self._spool.settled(count)
            return
        for _ in range(count):
            self._pending.popleft()


def _problem(body: bytes) -> Mapping[str, object]:
    """What a daemon says of a request that it refuses; empty where the answer is not a daemon's."""
    try:
        said = codec.parse(body)
    except codec.DecodeError:
        return {}
    return said if isinstance(said, dict) else {}


def _sound(status: int, said: Mapping[str, object], count: int) -> int | None:
    """How many of the oldest observations of a refused batch may be taken if they come alone.

    Args:
        status: 413 refuses what is too large: half of it may not be. 422 names the first field that is wrong.
        said: the answer.
        count: observations in the batch.

    Returns:
        0 where the oldest itself is at fault, None where nobody knows.
    """
    at_fault = FIELD.match(str(said.get("field"))) if status == 422 else None
    first = int(at_fault[1]) if at_fault else count
    return count // 2 if status == 413 else first if first < count else None
