from __future__ import annotations

from math import nan

import pytest

from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import CheckpointId, CommandId
from sentinel.protocol.observations import (
    AttemptEnded,
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    Heartbeat,
    Observation,
    StepReport,
    Tick,
)
from tests.builders import ATTEMPT, DIGEST, STARTED, Story, steps_of

NEXT = "attempt-2"


@pytest.fixture
def story() -> Story:
    """A healthy run at step 120 with a known-good checkpoint of step 60."""
    story = Story()
    story.steps(60)
    story.checkpoint("c60")
    story.steps(60)
    return story


def _nan(story: Story) -> Outcome:
    return story.steps(1, loss=nan, grad_norm=nan)


def _begin(story: Story, *, step: int) -> Outcome:
    return story.tell(AttemptStarted(at=0.0, mode="act", step=step, rollback="forward"), attempt=NEXT)


def test_a_new_attempt_settles_and_withdraws_what_was_open(story: Story) -> None:
    """The restart resolves the incident, makes the order void, and the new attempt's own fault is its own."""
    _nan(story)
    order = story.order
    outcome = _begin(story, step=60)
    assert story.told[1:] == [("restarted", "none", "nothing")]
    assert (story.incident.state, story.incident.end_step) == ("resolved", 60)
    assert [(each.action, each.event) for each in outcome.action_changes] == [(order.id, "expire")]
    assert story.alerts == ["firing", "resolved"]
    assert (story.pipeline.run.attempt, story.pipeline.run.attempts, story.pipeline.run.step) == (NEXT, 2, 60)


def test_a_fault_that_survives_the_restart_reopens(story: Story) -> None:
    """The same symptom soon after the restart is the same fault."""
    _nan(story)
    _begin(story, step=60)
    story.tell(StepReport(at=0.0, step=61, loss=nan, grad_norm=nan), attempt=NEXT)
    assert story.told[-1][0] == "reopened"


def test_what_lies_beyond_the_resumed_step_is_abandoned(story: Story) -> None:
    """Checkpoints after the step that a new attempt resumes from are no target any more."""
    story.checkpoint("c120")
    outcome = _begin(story, step=60)
    assert {each.id: each.state for each in outcome.checkpoints} == {"c60": "known_good", "c120": "suspect"}


@pytest.mark.parametrize(
    "late",
    [
        StepReport(at=0.0, step=121, loss=nan, grad_norm=nan),
        CheckpointReport(at=0.0, checkpoint=CheckpointId("c119"), step=119, state="verified", digest=DIGEST),
        CommandResult(at=0.0, command=CommandId("run-1.a124.0"), outcome="succeeded", step=60, segment=1),
        CommandResult(at=0.0, command=CommandId("run-1.a124.0"), outcome="failed", step=121),
        AttemptEnded(at=0.0, outcome="failed", step=121),
    ],
    ids=lambda each: f"{each.kind} {getattr(each, 'outcome', '')}",
)
def test_a_word_of_the_attempt_before_changes_nothing(story: Story, late: Observation) -> None:
    """A straggler of an attempt that was followed by another is kept in the log and judged by nobody."""
    _begin(story, step=120)
    assert story.tell(late, attempt=ATTEMPT) == Outcome()
    run = story.pipeline.run
    assert (run.attempt, run.step, run.segment, run.phase) == (NEXT, 120, 0, "training")


def test_a_step_of_an_abandoned_segment_changes_nothing(story: Story) -> None:
    """A report of the branch that was given up is judged by nobody, nor is one that is told again."""
    _nan(story)
    story.carry_out()
    story.steps(5)
    for report in (StepReport(at=0.0, step=122, loss=nan), StepReport(at=0.0, step=63, segment=1, loss=nan)):
        assert story.tell(report) == Outcome()


def test_an_attempt_whose_start_was_lost_is_only_observed(story: Story) -> None:
    """Nobody said that it may be touched: its fault is found, and no order is given."""
    for report in steps_of([2.0] * 50 + [nan], first_step=121, grad_norm=nan)[:50]:
        story.tell(StepReport(at=0.0, step=report.step, loss=2.0, grad_norm=1.0), attempt=NEXT)
    story.tell(StepReport(at=0.0, step=171, loss=nan, grad_norm=nan), attempt=NEXT)
    assert story.told == [("opened", "escalate", "ordered")]
    assert "its start was never reported" in story.decisions[0].reason
    assert story.pipeline.orders_for(story.pipeline.run.attempt) == ()


def test_silence_and_its_end(story: Story) -> None:
    """A minute without a word is silence, the next word ends it; a finished attempt is not silent."""
    story.tell(Tick(at=0.0, silent_s=59.0))
    assert story.pipeline.run.phase == "training"
    story.tell(Tick(at=0.0, silent_s=60.0))
    assert story.pipeline.run.phase == "silent"
    story.tell(Heartbeat(at=0.0, step=120))
    assert story.pipeline.run.phase == "training"
    story.tell(AttemptEnded(at=0.0, outcome="finished", step=120))
    story.tell(Tick(at=0.0, silent_s=600.0))
    assert story.pipeline.run.phase == "finished"


def test_a_silent_run_gets_its_order_with_the_next_word(story: Story) -> None:
    """Silence is no end: the step that breaks it is decided as any other."""
    story.tell(Tick(at=0.0, silent_s=600.0))
    _nan(story)
    assert story.told == [("opened", "rollback", "ordered")]


def test_a_run_begun_afresh_is_not_compared_with_its_past() -> None:
    """A second attempt from step 0 starts high, and that is no spike."""
    story = Story()
    curve = [3.0 + 7.0 * 0.995**step for step in range(1000)]
    for loss in curve:
        story.steps(1, loss=loss)
    _begin(story, step=0)
    for report in steps_of(curve[:400]):
        story.tell(report, attempt=NEXT)
    assert story.decisions == []


def test_an_attempt_whose_start_was_lost_is_judged_from_its_first_report(story: Story) -> None:
    """It resumed further back: its reports count from there, and the orders and checkpoints beyond are of the past."""
    story.checkpoint("c120")
    _nan(story)
    for report in steps_of([2.0] * 5 + [nan], first_step=61, grad_norm=1.0):
        story.tell(report, attempt=NEXT)
    assert story.told[1:] == [("restarted", "none", "nothing"), ("reopened", "watch", "nothing")]
    assert (story.pipeline.run.step, story.pipeline.run.mode) == (66, "observe")
    assert story.pipeline.orders_for(story.pipeline.run.attempt) == ()


def test_a_start_told_late_does_not_take_over_the_attempt_after_it(story: Story) -> None:
    """The older process's word arrives after the newer one's: the newer one stays the run's attempt."""
    story.tell(STARTED, attempt=NEXT)
    story.tell(STARTED)
    assert story.pipeline.run.attempt == NEXT
