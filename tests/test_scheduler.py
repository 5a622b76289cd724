from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from sentinel.domain.errors import StoreUnavailable
from sentinel.scheduler import Scheduler


class Job:
    """Work that can be waited for, and that fails as often as it is told."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = iter(failures)
        self._changed = threading.Condition()
        self.runs = 0

    def __call__(self) -> None:
        """Runs once."""
        with self._changed:
            self.runs += 1
            self._changed.notify_all()
        failure = next(self._failures, None)
        if failure is not None:
            raise failure

    def wait_for(self, runs: int) -> None:
        """Until it has run so often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.runs >= runs, timeout=30)


@pytest.fixture
def failed() -> list[str]:
    """Names of the jobs that failed."""
    return []


@pytest.fixture
def scheduler(failed: list[str]) -> Iterator[Scheduler]:
    """A running scheduler."""
    scheduler = Scheduler(failed.append)
    scheduler.start()
    yield scheduler
    scheduler.stop()


def test_a_job_is_repeated_and_can_be_had_soon(scheduler: Scheduler) -> None:
    """A job runs when its time has come, and at once when it is asked for, though its time be far."""
    often, rarely = Job(), Job()
    scheduler.every(0.01, "often", often)
    scheduler.every(3600.0, "rarely", rarely)
    often.wait_for(3)
    assert rarely.runs == 0
    scheduler.soon("rarely")
    rarely.wait_for(1)


def test_a_job_that_fails_is_counted_and_runs_again(
    scheduler: Scheduler, failed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the world is one line, a bug comes with its traceback; neither ends the job."""
    job = Job(StoreUnavailable("the disk is full"), ZeroDivisionError("a bug"))
    with caplog.at_level(logging.WARNING):
        scheduler.every(0.01, "fragile", job)
        job.wait_for(3)
    assert failed == ["fragile", "fragile"]
    world, bug = (record for record in caplog.records if record.name == "sentinel.scheduler")
    assert (world.getMessage(), world.exc_info) == ("fragile failed: the disk is full", None)
    assert bug.exc_info is not None


def test_a_job_never_runs_beside_itself(scheduler: Scheduler) -> None:
    """While a run is under way the next one waits, also when it is asked for."""
    entered, gate, runs = threading.Event(), threading.Event(), []

    def slow() -> None:
        runs.append(1)
        entered.set()
        gate.wait(timeout=30)

    other = Job()
    scheduler.every(0.01, "slow", slow)
    scheduler.every(0.01, "other", other)
    assert entered.wait(timeout=30)
    scheduler.soon("slow")
    other.wait_for(5)
    assert len(runs) == 1
    gate.set()


def test_a_scheduler_that_does_not_run_is_not_asked_in_vain(failed: list[str]) -> None:
    """Asking for a job soon before the start and after the end does nothing and raises nothing."""
    scheduler = Scheduler(failed.append)
    job = Job()
    scheduler.every(3600.0, "job", job)
    scheduler.soon("job")
    scheduler.start()
    scheduler.stop()
    scheduler.soon("job")
    assert job.runs == 0
