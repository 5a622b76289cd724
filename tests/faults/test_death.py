"""kill -9 of the daemon at every point between hearing and answering, deciding, claiming, sending and settling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sentinel import clock
from tests.daemons import database_url
from tests.faults.inspection import Inspection
from tests.faults.mortal import POINTS_OF_A_BATCH, POINTS_OF_AN_ALERT, Fate, Mortal, Point
from tests.faults.trainee import Trainee
from tests.receiver import Receiver

HOUR_S = 3600.0


class Stage:
    """A daemon, somebody who gets its alerts, and a run with something to go back to."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self.receiver = ends.enter_context(Receiver())
        self.daemon = Mortal(database_url=database_url(folder), webhook_url=self.receiver.url)
        ends.callback(self.daemon.kill)
        self.inspection = Inspection(folder) if (folder / "sentinel.db").exists() else None
        self._folder = folder
        self.trainee: Trainee
        self._ends = ends

    def begin(self, fate: Fate) -> None:
        """Trains until the checkpoint of step 20 is known to be good."""
        self.daemon.live(fate)
        self.trainee = Trainee(self.daemon.url, "run", self._folder)
        self._ends.callback(self.trainee.sender.close)
        self.trainee.train(20)
        self.trainee.save()
        self.trainee.train(60)
        self.trainee.deliver()
        self.inspection = Inspection(self._folder)
        self._ends.callback(self.inspection.close)

    def break_down(self) -> None:
        """Steps that are NaN until the run is set back."""
        self.until(lambda: bool(self.trainee.rolled_back), lambda: self.trainee.train(1, loss=math.nan))

    def until(self, condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
        """Goes on until a condition holds."""
        deadline = clock.monotonic() + 30.0
        while not condition():
            assert clock.monotonic() < deadline
            meanwhile()
            self.trainee.deliver(condition)

    def recover(self) -> None:
        """Trains on until the incident is resolved and everybody was told."""
        told = self.receiver.received
        self.until(
            lambda: {each.body["status"] for each in told} >= {"firing", "resolved"} and self._is_settled(),
            lambda: self.trainee.train(1) if self.trainee.step < 70 else clock.sleep(0.05),
        )

    def _is_settled(self) -> bool:
        assert self.inspection is not None
        return all(each["state"] not in ("planned", "claimed") for each in self.inspection.actions())

    def check(self) -> None:
        """Nothing accepted is missing, one rollback was done once, people heard of everything under one key each."""
        assert self.inspection is not None
        self.trainee.deliver()
        self.inspection.check_log(self.trainee)
        self.inspection.check_decisions(self.trainee)
        orders = [each for each in self.inspection.actions() if each["executor"] == "trainer_command"]
        assert [each["id"] for each in orders if each["state"] == "succeeded"] == self.trainee.rolled_back
        assert len(self.trainee.rolled_back) == 1
        assert all(each["state"] == "succeeded" or each["reason"] for each in orders)
        keys = {each.body["dedup_key"]: each.key for each in self.receiver.received}
        assert len(set(keys.values())) == len(keys) == 2
        assert {each.key for each in self.receiver.received} == set(keys.values())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Everything ends with the test."""
    with ExitStack() as ends:
        yield Stage(tmp_path, ends)


def _live_again_when_dead(stage: Stage, fate: Fate, again: Fate) -> None:
    stage.daemon.wait_for_death()
    fate.armed.clear()
    stage.daemon.live(again)


@pytest.mark.parametrize("point", POINTS_OF_A_BATCH)
@pytest.mark.parametrize("batch", ["fault", "answer"])
def test_death_around_a_batch(stage: Stage, point: Point, batch: str) -> None:
    """Wherever it dies with the batch that shows the fault, or that tells of the rollback, the story ends the same."""
    fate = Fate(point)
    stage.begin(fate)
    if batch == "answer":
        stage.break_down()
    else:
        stage.trainee.train(1, loss=math.nan)
    fate.armed.set()
    stage.trainee.exchange()
    _live_again_when_dead(stage, fate, Fate(clock_shift_s=10.0))  # so that nobody waits for an alert's next try
    stage.break_down()
    stage.recover()
    stage.check()


@pytest.mark.parametrize("point", POINTS_OF_AN_ALERT)
@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S])
def test_death_around_an_alert_and_a_clock_that_jumps(stage: Stage, point: Point, shift_s: float) -> None:
    """An alert that was claimed is sent again under its key, also by a daemon whose clock went an hour on or back."""
    fate = Fate(point)
    fate.armed.set()
    stage.begin(fate)
    stage.trainee.train(1, loss=math.nan)
    stage.trainee.exchange()
    _live_again_when_dead(stage, fate, Fate(clock_shift_s=shift_s))
    stage.break_down()
    stage.recover()
    stage.check()
    assert stage.daemon.lives == 2


def test_a_daemon_away_for_long_loses_nothing_and_a_past_fault_is_no_order(stage: Stage) -> None:
    """A fault that came and went while the daemon was away is recorded and judged; the healthy run is left alone."""
    stage.begin(Fate())
    stage.daemon.kill()
    stage.trainee.train(3, loss=math.nan)
    for _ in range(30):
        stage.trainee.train(40)
        stage.trainee.exchange()
    assert stage.trainee.sender.kept > 1200
    clock.sleep(0.6)  # of the sender's seconds twelve: everything is history now
    stage.daemon.live(Fate())
    stage.trainee.deliver()
    stage.trainee.train(20)
    stage.trainee.end()
    assert stage.inspection is not None
    stage.inspection.check_log(stage.trainee)
    stage.inspection.check_decisions(stage.trainee)
    assert stage.inspection.decisions() >= 1
    assert [each for each in stage.inspection.actions() if each["executor"] == "trainer_command"] == []
    assert stage.trainee.rolled_back == []


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
    assert stage.inspection is not None
    stage.inspection.check_log(stage.trainee)
    assert stage.inspection.actions() == []
