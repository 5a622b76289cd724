"""Told as metrics: where a run stands and what it has cost."""

from __future__ import annotations

import pytest

from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.ids import AttemptId
from sentinel.protocol.launching import launcher_sender
from sentinel.protocol.observations import (
    AttemptStarted,
    CommandResult,
    Heartbeat,
    Observation,
    OperatorRequest,
    StepReport,
)
from sentinel.protocol.processes import CrashReport, LauncherStarted, RankReport
from sentinel.shown_run import ShownRun
from tests.builders import ATTEMPT, RUN, Story


@pytest.fixture
def story() -> Story:
    """A run that trains."""
    return Story()


def _shown(story: Story) -> dict[tuple[str, ...], float]:
    """The samples after the whole story; where the run stood is known after each entry."""
    pipeline, shown = Pipeline(RUN), ShownRun(0.0)
    for entry in story.entries:
        outcome = pipeline.advance(entry)
        shown.standing, shown.checkpoints = pipeline.run, pipeline.checkpoints
        shown.take(entry, outcome)
    return {(name, *labels): value for name, labels, value in shown.samples()}


def test_steps_given_up_by_rollbacks_and_restarts_are_counted(story: Story) -> None:
    """A rollback gives up what lies between, and so does a new attempt that begins below the newest step."""
    story.steps(20)
    story.checkpoint()
    story.steps(10)
    story.roll_back("asked-for", 20)
    story.steps(5)
    assert _shown(story)["sentinel_run_lost_steps_total",] == 10
    story.tell(AttemptStarted(at=1.0, mode="act", step=20), attempt=AttemptId("second"))
    story.tell(StepReport(at=2.0, step=21), attempt=AttemptId("second"))
    assert _shown(story)["sentinel_run_lost_steps_total",] == 15


def test_only_what_the_trainer_carried_out_is_a_rollback(story: Story) -> None:
    """An order that it carries out counts; that the launcher started the training again does not."""
    story.steps(10)
    story.checkpoint()
    story.steps(60)
    story.steps(1, loss=float("nan"), grad_norm=float("nan"))
    story.carry_out()
    assert _shown(story)["sentinel_rollbacks_total",] == 1
    story.steps(60)
    launcher = launcher_sender("node")
    story.tell(LauncherStarted(at=0.0, can_restart=True, restarts_left=3), sender=launcher)
    story.tell(CrashReport(at=0.0, signal="SIGKILL", restarts_left=3), sender=launcher)
    (order,) = story.pipeline.commands_for(AttemptId(ATTEMPT), launcher)
    done = story.tell(CommandResult(at=0.0, command=order.id, outcome="succeeded", step=70), sender=launcher)
    assert [change.event for change in done.action_changes] == ["succeed"]
    assert _shown(story)["sentinel_rollbacks_total",] == 1


def test_the_checkpoints_to_go_back_to_are_shown_by_their_steps(story: Story) -> None:
    """The newest saved one and the newest known-good one; a suspect one is none of them."""
    assert ("sentinel_run_checkpoint_step", "saved") not in _shown(story)
    story.steps(10)
    story.checkpoint()
    story.steps(60)
    story.checkpoint()
    samples = _shown(story)
    assert samples["sentinel_run_checkpoint_step", "saved"] == 70
    assert samples["sentinel_run_checkpoint_step", "known_good"] == 10
    story.steps(1, loss=float("nan"), grad_norm=float("nan"))
    assert _shown(story)["sentinel_run_checkpoint_step", "saved"] == 10


def test_what_agents_dropped_never_goes_down(story: Story) -> None:
    """Each sender counts from its own zero, and anew in each attempt; the run's counter only rises."""
    beats: list[Observation] = [
        Heartbeat(at=0.0, step=1, dropped_total=3, guarded_errors_total=1),
        Heartbeat(at=1.0, step=2, dropped_total=5, guarded_errors_total=1),
    ]
    for beat in beats:
        story.tell(beat)
    samples = _shown(story)
    assert samples["sentinel_run_dropped_observations_total",] == 5
    assert samples["sentinel_run_agent_errors_total",] == 1
    second = AttemptId("second")
    story.tell(AttemptStarted(at=2.0, mode="act"), attempt=second)
    story.tell(Heartbeat(at=3.0, step=1, dropped_total=2), attempt=second)
    assert _shown(story)["sentinel_run_dropped_observations_total",] == 7


def test_the_nodes_of_the_attempt_are_shown(story: Story) -> None:
    """Where rank 0 began, and where ranks report from; a new attempt begins elsewhere."""
    story.tell(AttemptStarted(at=1.0, mode="act", host="node-1"))
    for rank, host in enumerate(("node-1", "node-1", "node-2", "")):
        story.tell(RankReport(at=2.0, rank=rank, step=1, host=host))
    assert {key[1] for key in _shown(story) if key[0] == "sentinel_run_node"} == {"node-1", "node-2"}
    story.tell(AttemptStarted(at=3.0, mode="act", host="node-3"), attempt=AttemptId("second"))
    assert {key[1] for key in _shown(story) if key[0] == "sentinel_run_node"} == {"node-3"}


def test_findings_are_counted_from_zero(story: Story) -> None:
    """Every severity is there before anything happened."""
    story.steps(80)
    before = _shown(story)
    assert [before["sentinel_run_findings_total", each] for each in ("info", "warning", "critical")] == [0, 0, 0]
    story.steps(1, loss=float("nan"), grad_norm=float("nan"))
    assert _shown(story)["sentinel_run_findings_total", "critical"] == 1


def test_what_a_person_and_the_agent_allow_is_shown(story: Story) -> None:
    """The mode of the agent, a hold, and how far the training is to go."""
    story.tell(AttemptStarted(at=1.0, mode="act", max_steps=500))
    story.tell(StepReport(at=2.0, step=1, step_s=0.5, data_wait_s=0.125))
    samples = _shown(story)
    assert samples["sentinel_run_mode", "act"] == 1
    assert samples["sentinel_run_held",] == 0
    assert samples["sentinel_run_max_steps",] == 500
    assert samples["sentinel_run_data_wait_seconds",] == 0.125
    story.tell(OperatorRequest(at=3.0, request="hold", by="ada"))
    assert _shown(story)["sentinel_run_held",] == 1
