"""What the daemon does again and again, by a clock that nobody can set: an hour back on the wall is no hour of rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

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
            timezone=_MONOTONIC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def every(self, interval_s: float, name: str, work: Callable[[], object]) -> None:
        """Repeats ``work`` from now on; the first time when the interval has passed."""
        self._scheduler.add_job(self._run, _Interval(interval_s), (name, work), id=name)

    def soon(self, name: str) -> None:
        """Runs a job now instead of when it is due. Does not wait for it."""
        if self._scheduler.running:
            self._scheduler.modify_job(name, next_run_time=_MONOTONIC.now())

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


class _Monotonic(tzinfo):
    """The scheduler asks the time of its zone: in this one it is the monotonic clock's, counted from 1970."""

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _moment: datetime | None) -> str:
        return "monotonic"

    def fromutc(self, _moment: datetime) -> datetime:
        return self.now()

    def now(self) -> datetime:
        return datetime.fromtimestamp(clock.monotonic(), UTC).replace(tzinfo=self)


class _Interval(BaseTrigger):  # type: ignore[misc] # it is not typed
    """So many seconds after now; the library's own would go by the wall clock."""

    def __init__(self, interval_s: float) -> None:
        self._interval = timedelta(seconds=interval_s)

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        return now + self._interval


_MONOTONIC: Final = _Monotonic()
