"""Of several daemons over one database one is on duty: the others wait for its lease, and one of them takes over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sentinel.domain.errors import SentinelError, StoreUnavailable
from sentinel.store.lease import LOOK_EVERY_S, Lease
from sentinel.store.session import Database

log = logging.getLogger(__name__)


class Duty:
    """Takes the lease as soon as it is free.

    Args:
        database: shared by the daemons.
        lease: this daemon's claim.
        begin: starts the work; called once, when the lease is held.
        failed: told why the work could not begin, where it does not begin at once.
    """

    def __init__(
        self, database: Database, lease: Lease, begin: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self._database = database
        self._lease = lease
        self._begin = begin
        self._failed = failed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="sentinel-duty", daemon=True)
        self._is_held = False

    def start(self) -> None:
        """Begins the work, or to wait for it.

        Raises:
            SentinelError: the database cannot be used, or the work cannot begin.
        """
        holder = self._lease.acquire(self._database)
        if holder is not None:
            log.info("standing by: %s is on duty", holder)
            self._thread.start()
            return
        self._is_held = True
        self._begin()

    def stop(self) -> None:
        """Waits no more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def release(self) -> None:
        """Lets another daemon take over at once; to be called when the work has ended."""
        if not self._is_held:
            return
        try:
            self._lease.release(self._database)
        except StoreUnavailable as error:
            log.warning("the lease is not given up, it runs out in some seconds: %s", error)

    def _wait(self) -> None:
        while not self._ending.wait(LOOK_EVERY_S):
            try:
                if self._lease.acquire(self._database) is not None:
                    continue
            except StoreUnavailable as error:
                log.warning("standing by: %s", error)
                continue
            self._is_held = True
            log.info("taking over")
            try:
                self._begin()
            except SentinelError as error:
                self._failed(f"cannot take over: {error}")
            return
