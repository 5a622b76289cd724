"""What the daemon does again and again, by a clock that nobody can set: an hour back on the wall is no hour of rest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sentinel import clock
from sentinel.domain.errors import SentinelError

log = logging.getLogger(__name__)


class Scheduler:
    """Repeats jobs, each on a thread of its own and never beside itself; one that fails is run again when it is due.

    Args:
        failed: told the name of a job that raised, such as a metric.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._jobs: dict[str, _Job] = {}
        self._is_running = False

    def every(self, interval_s: float, name: str, work: Callable[[], object]) -> None:
        """Repeats ``work`` from now on; the first time when the interval has passed."""
        job = self._jobs[name] = _Job(interval_s, name, lambda: self._run(name, work))
        if self._is_running:
            job.start()

    def soon(self, name: str) -> None:
        """Runs a job now instead of when it is due. Does not wait for it."""
        if self._is_running:
            self._jobs[name].wanted.set()

    def start(self) -> None:
        """Begins."""
        self._is_running = True
        for job in self._jobs.values():
            job.start()

    def stop(self) -> None:
        """Ends, when the jobs that run now are done."""
        self._is_running = False
        for job in self._jobs.values():
            job.is_over = True
            job.wanted.set()
        for job in self._jobs.values():
            job.join()

    def _run(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except SentinelError as error:
            self._failed(name)
            log.warning("%s failed: %s", name, error)
        except Exception:  # a job must not take the others along
            self._failed(name)
            log.exception("%s failed", name)


class _Job(threading.Thread):
    def __init__(self, interval_s: float, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=f"sentinel-{name}", daemon=True)
        self.wanted = threading.Event()
        self.is_over = False
        self._interval_s = interval_s
        self._work = work

    def run(self) -> None:
        due = clock.monotonic() + self._interval_s
        while True:
            self.wanted.wait(max(0.0, due - clock.monotonic()))
            self.wanted.clear()
            if self.is_over:
                return
            due = clock.monotonic() + self._interval_s
            self._work()
