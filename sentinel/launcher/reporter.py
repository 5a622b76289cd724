"""The launcher's thread: tells the daemon what befell the processes, and brings its orders."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sentinel import clock
from sentinel.protocol.commands import Command, Reply
from sentinel.protocol.ids import AttemptId, CommandId, RunId
from sentinel.protocol.launching import launcher_sender
from sentinel.protocol.observations import Observation
from sentinel.transport.sender import Sender
from sentinel.transport.spool import Spool

POLL_EVERY_S: Final = 1.0
"""How long an order can lie with the daemon."""


class Reporter:
    """Speaks for one attempt after the other.

    Args:
        url: the daemon's address.
        token: the daemon's bearer token, if it wants one.
        host: this node's name.
        standing_by: what is said when an attempt begins, and again when the daemon was away.
        say: prints a line.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        host: str,
        standing_by: Callable[[], Observation],
        say: Callable[[str], None],
    ) -> None:
        self.orders: deque[Command] = deque()
        self.notices: deque[str] = deque(maxlen=16)
        self._url, self._token, self._host = url, token, host
        self._standing_by, self._say = standing_by, say
        self._sender: Sender | None = None
        self._inbox: deque[Observation | Sender] = deque()
        self._seen: set[CommandId] = set()
        self.hurried = False
        """Whether nobody has time to wait for the daemon any more."""
        self._turned = threading.Condition()
        self._wake = threading.Event()
        self._ending = self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="sentinel-launcher", daemon=True)
        self._thread.start()

    def speak_for(self, run: RunId, attempt: AttemptId, *, spool: Path | None) -> None:
        """From here on it is about this attempt."""
        sender = launcher_sender(self._host)
        kept = None if spool is None else Spool(spool, attempt=attempt, sender=sender, say=self._say)
        self._inbox.append(Sender(self._url, run=run, attempt=attempt, sender=sender, token=self._token, spool=kept))
        self.offer(self._standing_by())

    def offer(self, observation: Observation) -> None:
        """Tells the daemon, when it can."""
        self._inbox.append(observation)
        self._wake.set()

    def delivered(self, within_s: float) -> bool:
        """Waits until the daemon has all; whether it has."""
        deadline = clock.monotonic() + within_s
        with self._turned:
            while (
                self._waits()
                and not self.hurried
                and (left := deadline - clock.monotonic()) > 0
                and self._thread.is_alive()
            ):
                self._turned.wait(min(left, POLL_EVERY_S))
            return not self._waits()

    def close(self, within_s: float) -> None:
        """Tells what it can in time; the rest is kept on disk for the next attempt."""
        self.hurried = False
        self.delivered(within_s)
        self._ending = True
        self._wake.set()
        self._thread.join(within_s)

    def _waits(self) -> bool:
        return bool(self._inbox) or (self._sender is not None and self._sender.pending > 0)

    def _run(self) -> None:
        while not self._ending:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - a bug of ours must not end the thread, nor the training
                if not self._has_failed:
                    self._has_failed = True
                    self._say(f"an error of the launcher's own: {type(error).__name__}: {error}; the training goes on")
            with self._turned:
                self._turned.notify_all()
            self._wake.wait(POLL_EVERY_S)
            self._wake.clear()
        if self._sender is not None:
            self._sender.close()

    def _turn(self) -> None:
        while self._inbox:
            item = self._inbox[0]
            if isinstance(item, Sender):
                if self._sender is not None:
                    self._sender.close()
                self._sender = item
            elif self._sender is not None:
                self._sender.offer(item)
            self._inbox.popleft()
        sender = self._sender
        if sender is None or not sender.due:
            return
        was_away = sender.problem is not None
        reply = sender.exchange() if sender.pending else sender.poll()
        sender.keep()
        if reply is not None:
            if was_away:
                sender.offer(self._standing_by())
            self._take(reply)
        if sender.pending and sender.problem is None:
            self._wake.set()

    def _take(self, reply: Reply) -> None:
        self.notices.extend(notice.text for notice in reply.notices)
        for command in reply.commands:
            if command.id not in self._seen:
                self._seen.add(command.id)
                self.orders.append(command)
