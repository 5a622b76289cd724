"""kill -9 of the daemon at every point between hearing and answering, deciding, claiming, sending and settling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sentinel import clock
from tests.faults.mortal import POINTS_OF_A_BATCH, POINTS_OF_AN_ALERT, Fate, Point
from tests.faults.stage import Stage

pytestmark = pytest.mark.usefixtures("every_store")
ON_SQLITE = pytest.mark.parametrize("every_store", ["sqlite"], indirect=True)
HOUR_S = 3600.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Everything ends with the test."""
    with ExitStack() as ends:
        yield Stage(tmp_path, ends)


@pytest.mark.parametrize("point", POINTS_OF_A_BATCH)
@pytest.mark.parametrize("batch", ["fault", "answer"])
def test_death_around_a_batch(stage: Stage, point: Point, batch: str) -> None:
    """Wherever it dies with the batch that shows the fault, or that tells of the rollback, the story ends the same."""
    fate = Fate(point)
    stage.begin(fate, Fate(clock_shift_s=10.0))  # so that nobody waits for an alert's next try
    if batch == "answer":
        stage.break_down()
    else:
        stage.trainee.train(1, loss=math.nan)
    fate.armed.set()
    stage.trainee.exchange()
    stage.succeed(fate)
    stage.break_down()
    stage.recover()
    stage.check()


@pytest.mark.parametrize("point", POINTS_OF_AN_ALERT)
@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S])
def test_death_around_an_alert_and_a_clock_that_jumps(stage: Stage, point: Point, shift_s: float) -> None:
    """An alert that was claimed is sent again under its key, also by a daemon whose clock went an hour on or back."""
    fate = Fate(point)
    fate.armed.set()
    stage.begin(fate, Fate(clock_shift_s=shift_s))
    stage.trainee.train(1, loss=math.nan)
    stage.trainee.exchange()
    stage.succeed(fate)
    stage.break_down()
    stage.recover()
    stage.check()


@pytest.mark.parametrize("point", ["committed", "answering"])
def test_an_order_that_the_trainer_never_heard_of_expires_with_its_reason(stage: Stage, point: Point) -> None:
    """The daemon dies with the reply that was to carry the order, the run goes on past its last step: it expires."""
    fate = Fate(point)
    stage.begin(fate)
    stage.trainee.train(1, loss=math.nan)
    fate.armed.set()
    stage.trainee.exchange()
    stage.trainee.train(250)
    stage.succeed(fate)
    stage.trainee.deliver()
    stage.trainee.train(20)
    stage.trainee.end()
    (first, *_) = stage.orders()
    assert (first["state"], first["reason"]) == ("expired", "the trainer did not carry it out in time")
    assert first["id"] not in stage.trainee.rolled_back
    stage.inspection.check_log(stage.trainee)
    stage.inspection.check_decisions(stage.trainee)


def test_a_daemon_away_for_long_loses_nothing_and_a_past_fault_is_no_order(stage: Stage) -> None:
    """A fault that came and went while the daemon was away is recorded and judged; the healthy run is left alone."""
    fate = Fate()
    stage.begin(fate)
    stage.daemon.kill()
    stage.trainee.train(3, loss=math.nan)
    for _ in range(30):
        stage.trainee.train(40)
        stage.trainee.exchange()
    assert stage.trainee.sender.kept > 1200
    clock.sleep(0.6)  # of the sender's seconds twelve: everything is history now
    stage.succeed(fate)
    stage.trainee.deliver()
    stage.trainee.train(20)
    stage.trainee.end()
    stage.inspection.check_log(stage.trainee)
    stage.inspection.check_decisions(stage.trainee)
    assert stage.inspection.decisions() >= 1
    assert stage.orders() == []
    assert stage.trainee.rolled_back == []


@ON_SQLITE
def test_a_full_disk_under_a_daemon(stage: Stage) -> None:
    """While the disk is full nothing is accepted and nobody is harmed; with room again all is there, once."""
    fate = Fate()
    stage.begin(fate)
    fate.disk_full.set()
    stage.trainee.train(400)
    for _ in range(20):
        stage.trainee.exchange()
    assert stage.trainee.sender.kept > 0
    assert "HTTP 503" in (stage.trainee.sender.problem or "")
    fate.disk_full.clear()
    stage.trainee.end()
    stage.inspection.check_log(stage.trainee)
    assert stage.inspection.actions() == []
