"""What the pipeline does with the past: after a blind stretch, and of attempts that are over."""

from __future__ import annotations

from math import nan

import pytest

from sentinel.pipeline.attempts import BLIND_AT_MOST_S, SILENT_AFTER_S
from sentinel.pipeline.pipeline import VERSION
from sentinel.protocol.observations import (
    AttemptStarted,
    Heartbeat,
    Observation,
    OperatorRequest,
    PipelineStarted,
    StepReport,
    Tick,
)
from tests.builders import Story

LISTENING = PipelineStarted(at=0.0, version=VERSION)
RELEASE = OperatorRequest(at=0.0, request="release", by="ada")


def _held_with_a_fault() -> Story:
    """A run that is held, with a fault for which nothing was done."""
    story = Story()
    story.steps(30)
    story.checkpoint("c30")
    story.steps(80)
    story.tell(OperatorRequest(at=0.0, request="hold", by="ada"))
    story.steps(3, loss=nan, grad_norm=nan)
    assert story.told == [("opened", "rollback", "withheld")]
    return story


def test_a_blind_daemon_gives_no_order() -> None:
    """A release just after a start orders nothing, for the run may be elsewhere; a live word brings the order."""
    story = _held_with_a_fault()
    story.tell(LISTENING)
    assert story.pipeline.run.blind
    story.tell(RELEASE)
    assert story.told[1:] == [("reconsidered", "rollback", "withheld")]
    assert "just begun to listen" in story.decisions[-1].reason
    story.tell(Heartbeat(at=0.0, step=113))
    assert story.told[2:] == [("reconsidered", "rollback", "ordered")]


def test_history_does_not_end_blindness() -> None:
    """A backlog after a start is judged and leaves the daemon blind until the live edge speaks."""
    story = _held_with_a_fault()
    story.tell(LISTENING)
    story.tell(RELEASE)
    story.backlog = True
    story.steps(5, loss=nan, grad_norm=nan)
    story.backlog = False
    assert story.pipeline.run.blind
    assert story.pipeline.orders_for(story.pipeline.run.attempt) == ()
    story.steps(1, loss=nan, grad_norm=nan)
    assert story.told[-1] == ("reconsidered", "rollback", "ordered")


def test_a_live_nan_is_answered_at_once_after_a_start() -> None:
    """Blindness ends with the very report that shows the fault: its answer carries the order."""
    story = Story()
    story.steps(30)
    story.checkpoint("c30")
    story.steps(80)
    story.tell(LISTENING)
    story.steps(1, loss=nan, grad_norm=nan)
    assert story.told == [("opened", "rollback", "ordered")]


@pytest.mark.parametrize(("silent_s", "blind"), [(BLIND_AT_MOST_S - 1, True), (BLIND_AT_MOST_S, False)])
def test_blindness_ends_with_the_longest_back_off(silent_s: float, *, blind: bool) -> None:
    """Who has not spoken after the longest back-off will not: the run is as it was known."""
    story = _held_with_a_fault()
    story.tell(LISTENING)
    story.tell(Tick(at=0.0, silent_s=silent_s))
    assert story.pipeline.run.blind is blind
    assert story.pipeline.run.phase == "training"
    story.tell(Tick(at=0.0, silent_s=SILENT_AFTER_S))
    assert story.pipeline.run.phase == "silent"


def test_nobody_is_blind_to_a_run_that_is_over() -> None:
    """Only runs that train or fell silent can have gone on unseen."""
    story = Story()
    story.pipeline.run.phase = "finished"
    story.tell(LISTENING)
    assert not story.pipeline.run.blind


@pytest.mark.parametrize(
    "first", [AttemptStarted(at=50.0, mode="act", rollback="forward"), StepReport(at=50.0, step=7, loss=nan)]
)
def test_history_of_an_older_attempt_does_not_take_the_run_over(first: Observation) -> None:
    """What an attempt that is over had left on disk is kept and changes nothing, however late it is delivered."""
    story = Story()
    story.tell(AttemptStarted(at=100.0, mode="act", rollback="forward", step=0), attempt="live")
    story.backlog = True
    story.tell(first, attempt="dead")
    outcome = story.tell(StepReport(at=51.0, step=8, loss=nan), attempt="dead")
    assert (story.pipeline.run.attempt, story.pipeline.run.step, story.pipeline.run.mode) == ("live", 0, "act")
    assert outcome.findings == []


def test_an_attempt_whose_start_comes_late_is_the_runs() -> None:
    """A training that began while the daemon was away is taken up from its backlog."""
    story = Story()
    story.tell(AttemptStarted(at=100.0, mode="act", rollback="forward"), attempt="before")
    story.backlog = True
    story.tell(AttemptStarted(at=200.0, mode="act", rollback="forward", step=10), attempt="after")
    assert (story.pipeline.run.attempt, story.pipeline.run.step, story.pipeline.run.behind) == ("after", 10, True)
