"""Daemons in processes of their own: they die by kill -9 at a named point, have a full disk, or live by another clock.

The product knows nothing of it: its functions are wrapped in the process that is to die. Processes are forked from a
server that has everything imported, so that a start takes a tenth of a second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from typing import Any, Final, Literal

from sqlalchemy import Engine, event

from sentinel import app, clock
from sentinel.alerts.webhook import Webhook
from sentinel.api import observations
from sentinel.engine import duty
from sentinel.engine.dispatcher import Dispatcher
from sentinel.engine.writer import Writer
from sentinel.pipeline.pipeline import Pipeline
from sentinel.settings import Settings
from sentinel.store import lease
from sentinel.store.session import Connection

Point = Literal[
    "received", "decided", "written", "committed", "answering", "alert claimed", "alert sent", "alert settled"
]
POINTS_OF_A_BATCH: Final[tuple[Point, ...]] = ("received", "decided", "written", "committed", "answering")
POINTS_OF_AN_ALERT: Final[tuple[Point, ...]] = ("alert claimed", "alert sent", "alert settled")
_PLACES: Final[dict[Point, tuple[type, str, bool]]] = {
    "received": (Writer, "ingest", False),
    "decided": (Pipeline, "advance", True),
    "committed": (Writer, "_show", False),
    "answering": (observations.Json, "render", False),
    "alert claimed": (Webhook, "execute", False),
    "alert sent": (Webhook, "execute", True),
    "alert settled": (Dispatcher, "_settle", True),
}
"""Class, method, and whether death comes after it."""
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])
STARTS_WITHIN_S: Final = 60.0
LEASE_S: Final = 1.5
"""A lease of PostgreSQL's lives so long here, renewed and looked at so much oftener: a test of many deaths must not
wait for each heir as long as an operator does."""


@dataclass(frozen=True)
class Fate:
    """What befalls a process."""

    point: Point | None = None
    armed: Event = field(default_factory=_PROCESSES.Event)
    """While it is set, the next passage of the point is the last."""
    disk_full: Event = field(default_factory=_PROCESSES.Event)
    """While it is set, the database can grow no further."""
    clock_shift_s: float = 0.0


class Mortal:
    """A daemon on a port that stays the same over its lives.

    Args:
        settings: of the daemon; the port is chosen here.
    """

    def __init__(self, **settings: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = {"log_level": "error", "port": self.port} | settings
        self._process: Any = None
        self.lives = 0

    def live(self, fate: Fate | None = None) -> None:
        """Starts it, and returns when it listens."""
        self._fate = fate or Fate()  # its events are gone when nobody here holds them
        self._process = _PROCESSES.Process(target=_live, args=(self._settings, self._fate), daemon=True)
        self._process.start()
        self.lives += 1
        deadline = clock.monotonic() + STARTS_WITHIN_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return
            assert self._process.is_alive()
            assert clock.monotonic() < deadline
            clock.sleep(0.01)

    def wait_for_death(self) -> None:
        """Returns when it is dead, which it must be soon."""
        self._process.join(STARTS_WITHIN_S)
        assert self._process.exitcode == -signal.SIGKILL

    def kill(self) -> None:
        """As kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _live(settings: dict[str, Any], fate: Fate) -> None:
    if fate.point == "written":
        event.listen(Engine, "commit", lambda _connection: _die_if(fate))
    elif fate.point is not None:
        owner, name, is_after = _PLACES[fate.point]
        setattr(owner, name, _deadly(getattr(owner, name), fate, is_after=is_after))
    event.listen(Engine, "begin", lambda connection: _limit_pages(connection, fate))
    now = clock.now
    clock.now = lambda: now() + fate.clock_shift_s  # type: ignore[assignment]
    hurry = LEASE_S / lease.DURATION_S
    app.RENEW_EVERY_S *= hurry  # type: ignore[misc]
    duty.LOOK_EVERY_S *= hurry  # type: ignore[misc]
    lease.DURATION_S = LEASE_S  # type: ignore[misc]
    app.run(Settings(**settings))


def _deadly(work: Callable[..., Any], fate: Fate, *, is_after: bool) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not is_after:
            _die_if(fate)
        result = work(*args, **kwargs)
        if is_after:
            _die_if(fate)
        return result

    return wrapped


def _die_if(fate: Fate) -> None:
    if fate.armed.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


def _limit_pages(connection: Connection, fate: Fate) -> None:
    if connection.dialect.name == "sqlite":
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one() if fate.disk_full.is_set() else 1_000_000
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
