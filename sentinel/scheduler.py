"""What the daemon does by the clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler

from sentinel import clock
from sentinel.domain.errors import SentinelError

log = logging.getLogger(__name__)


class Scheduler:
    """Repeats jobs on threads of its own; each runs once at a time, and one that fails is run again when it is due.

    Args:
        failed: told the name of a job that raised, such as a metric.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._scheduler = BackgroundScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def every(self, interval_s: float, name: str, work: Callable[[], object]) -> None:
        """Repeats ``work`` from now on."""
        self._scheduler.add_job(self._run, "interval", (name, work), seconds=interval_s, id=name)

    def soon(self, name: str) -> None:
        """Runs a job now instead of when it is due. Does not wait for it."""
        if self._scheduler.running:
            self._scheduler.modify_job(name, next_run_time=datetime.fromtimestamp(clock.now(), UTC))

    def start(self) -> None:
        """Begins."""
        self._scheduler.start()

    def stop(self) -> None:
        """Ends, when the jobs that run now are done."""
        self._scheduler.shutdown()

    def _run(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except SentinelError as error:
            self._failed(name)
            log.warning("%s failed: %s", name, error)
        except Exception:  # a job must not take the others along
            self._failed(name)
            log.exception("%s failed", name)
