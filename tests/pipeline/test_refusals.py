from __future__ import annotations

from math import nan

import pytest

from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import ActionId, CheckpointId
from sentinel.protocol.observations import (
    ActionResult,
    AttemptEnded,
    CheckpointReport,
    CommandResult,
    Heartbeat,
    OperatorRequest,
    PolicyChanged,
)
from tests.builders import DEFAULT_POLICY, DIGEST, Story


def _nan(story: Story, count: int = 1) -> Outcome:
    return story.steps(count, loss=nan, grad_norm=nan)


def _story(*, mode: str = "act", policy: str = DEFAULT_POLICY, rollback: str = "forward") -> Story:
    """A healthy run at step 120 with known-good checkpoints of steps 30 and 60."""
    story = Story(mode=mode, policy=policy, rollback=rollback)  # type: ignore[arg-type]
    for _ in range(2):
        story.steps(30)
        story.checkpoint(f"c{story.step}")
    story.steps(60)
    return story


def _ask(story: Story, request: str, **given: object) -> Outcome:
    return story.tell(OperatorRequest(at=0.0, request=request, by="ada", **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(("agent", "policy"), [("observe", "act"), ("act", "observe"), ("off", "act")])
def test_observe_says_what_would_have_been_done_and_does_nothing(agent: str, policy: str) -> None:
    """The decision names the target; no order, no state that waits for one, and still an alert."""
    story = _story(mode=agent, policy=DEFAULT_POLICY.replace('mode = "act"', f'mode = "{policy}"'))
    outcome = _nan(story)
    assert story.told == [("opened", "rollback", "would_have")]
    assert (story.decisions[0].checkpoint, story.decisions[0].action) == ("c60", None)
    assert [action.executor for action in outcome.actions] == ["alert"]
    assert (story.incident.state, story.pipeline.orders_for(story.pipeline.run.attempt)) == ("open", ())
    _nan(story, 50)
    assert len(story.decisions) == 1


def test_a_held_run_is_decided_again_when_it_is_released() -> None:
    """A hold withholds the order with the person's name; the release brings it."""
    story = _story()
    _ask(story, "hold", reason="an experiment")
    _nan(story, 5)
    assert story.told == [("opened", "rollback", "withheld")]
    assert story.decisions[0].reason == "held by ada: an experiment"
    _ask(story, "release")
    assert story.told[1:] == [("reconsidered", "rollback", "ordered")]


def test_a_hold_that_outlasts_the_fault_brings_nothing() -> None:
    """What a person settled during the hold is not decided again at the release."""
    story = _story()
    _ask(story, "hold")
    _nan(story)
    _ask(story, "resolve", incident=story.incident.id, reason="known")
    _ask(story, "release")
    assert story.told[1:] == [("settled by a person", "none", "nothing")]
    assert story.incident.resolution == "settled by ada: known"


def test_backlog_is_judged_and_decided_at_the_live_edge() -> None:
    """History is never answered with a command; the first live step is."""
    story = _story()
    story.backlog = True
    _nan(story, 5)
    assert story.told == [("opened", "rollback", "withheld")]
    assert story.decisions[0].rule == "limit: backlog"
    story.backlog = False
    _nan(story)
    assert story.told[1:] == [("reconsidered", "rollback", "ordered")]


@pytest.mark.parametrize(
    "meanwhile",
    [
        ActionResult(at=0.0, action=ActionId("a"), outcome="succeeded"),
        PolicyChanged(at=0.0, policy=DEFAULT_POLICY + "\n"),
        OperatorRequest(at=0.0, request="release"),
        Heartbeat(at=0.0, step=1),
    ],
    ids=lambda each: each.kind,
)
def test_the_daemons_own_word_amid_a_backlog_is_not_the_live_edge(meanwhile: object) -> None:
    """An alert's delivery, a person or another sender between two late batches brings no order."""
    story = _story()
    story.backlog = True
    _nan(story)
    story.backlog = False
    story.tell(meanwhile)  # type: ignore[arg-type]
    story.backlog = True
    _nan(story, 3)
    assert story.told == [("opened", "rollback", "withheld")]


def test_a_fault_that_passed_within_the_backlog_brings_nothing() -> None:
    """A run that has recovered by itself while the daemon was away is left alone."""
    story = _story()
    story.backlog = True
    _nan(story)
    story.steps(20)
    story.backlog = False
    story.steps(20)
    assert story.told == [("opened", "rollback", "withheld"), ("passed", "none", "nothing")]


def test_a_verification_that_comes_late_is_waited_for() -> None:
    """Without a checkpoint to go back to nothing is ordered; when one is verified, the order follows at once."""
    story = Story()
    story.steps(60)
    story.checkpoint("c60", state="reported")
    story.steps(60)
    _nan(story, 3)
    assert story.told == [("opened", "rollback", "withheld")]
    assert story.decisions[0].rule == "limit: no_checkpoint"
    verified = CheckpointReport(at=0.0, checkpoint=CheckpointId("c60"), step=60, state="verified", digest=DIGEST)
    story.tell(verified)
    assert story.told[1:] == [("reconsidered", "rollback", "ordered")]
    assert story.order.checkpoint == "c60"


def test_checkpoints_saved_in_the_fault_are_not_waited_for() -> None:
    """A checkpoint after the onset is suspect though its contents are fine: it brings no order."""
    story = Story()
    story.steps(120)
    _nan(story, 3)
    story.checkpoint()
    assert story.told == [("opened", "rollback", "withheld")]


def test_three_orders_that_fail_are_a_persons() -> None:
    """An order that fails is given again; after the third a person is asked, and nothing more is ordered."""
    story = _story()
    _nan(story)
    for outcome in ("failed", "refused", "failed"):
        story.fail(outcome, reason="no such checkpoint")
    assert story.told[1:] == [
        ("action failed", "rollback", "ordered"),
        ("action failed", "rollback", "ordered"),
        ("action failed", "escalate", "ordered"),
    ]
    assert (story.incident.state, story.alerts) == ("escalated", ["firing", "escalated"])
    _nan(story, 300)
    assert len(story.decisions) == 4


def test_a_spent_budget_is_a_persons() -> None:
    """The third rollback within 1,000 steps was the last."""
    policy = DEFAULT_POLICY.replace("cooldown_steps = 10", "cooldown_steps = 0")
    story = _story(policy=policy)
    for _ in range(3):
        _nan(story)
        story.carry_out()
        story.steps(40)
    _nan(story)
    assert story.told[-1] == ("reopened", "escalate", "ordered")
    assert story.decisions[-1].rule == "limit: budget"
    assert story.alerts[-1] == "escalated"


def test_a_run_that_cannot_be_rolled_back_is_a_persons() -> None:
    """The reason is the agent's own."""
    story = _story(rollback="none")
    _nan(story)
    assert story.told == [("opened", "escalate", "ordered")]
    assert story.decisions[0].reason == "the agent cannot roll this run back: told so; a person is needed"


def test_an_order_that_is_not_carried_out_in_time_is_void() -> None:
    """After 200 steps the order expires and is given anew, with a new id."""
    story = _story()
    _nan(story)
    first = story.order
    _nan(story, 200)
    assert story.order == first
    outcome = _nan(story)
    assert [(each.action, each.event) for each in outcome.action_changes] == [(first.id, "expire")]
    assert story.told[1:] == [("action failed", "rollback", "ordered")]
    assert story.order.id != first.id


def test_an_answer_to_an_order_nobody_remembers_changes_nothing() -> None:
    """A late or foreign answer finds no order."""
    story = _story()
    _nan(story)
    story.tell(CommandResult(at=0.0, command=ActionId("stranger"), outcome="failed", step=1))  # type: ignore[arg-type]
    assert len(story.decisions) == 1
    assert story.order


def test_settling_an_incident_withdraws_its_order() -> None:
    """Nobody carries out a rollback for what a person has settled, and a return is ordered but once."""
    story = _story()
    _nan(story)
    first = story.order
    outcome = _ask(story, "resolve", incident=story.incident.id)
    assert [(each.action, each.event) for each in outcome.action_changes] == [(first.id, "expire")]
    assert story.pipeline.orders_for(story.pipeline.run.attempt) == ()
    story.steps(20)
    _nan(story)
    assert story.told[-1] == ("reopened", "rollback", "ordered")
    assert story.order.id != first.id


def test_the_end_of_the_attempt_withdraws_its_orders() -> None:
    """An attempt that has ended carries out nothing, and nothing is ordered of it."""
    story = _story()
    _nan(story)
    first = story.order
    outcome = story.tell(AttemptEnded(at=0.0, outcome="failed", step=121))
    assert [(each.action, each.event) for each in outcome.action_changes] == [(first.id, "expire")]
    story.steps(1, loss=4.0)
    assert story.pipeline.orders_for(story.pipeline.run.attempt) == ()
    assert story.pipeline.run.phase == "failed"


def test_acknowledging_is_no_decision() -> None:
    """Somebody looks after it: the row says who, nothing is decided."""
    story = _story()
    _nan(story)
    outcome = _ask(story, "acknowledge", incident=story.incident.id)
    assert (story.incident.acknowledged_by, outcome.decisions) == ("ada", [])


@pytest.mark.parametrize("request_", ["acknowledge", "resolve"])
def test_a_request_about_no_incident_changes_nothing(request_: str) -> None:
    """An incident that is unknown or not named is nobody's."""
    story = _story()
    for incident in (None, "run-9.i1"):
        assert _ask(story, request_, incident=incident) == Outcome()


def test_a_hold_takes_back_an_order_that_is_not_carried_out() -> None:
    """A person's hold comes before what was ordered a moment ago; the release orders it anew."""
    story = _story()
    _nan(story)
    _ask(story, "hold")
    assert story.pipeline.orders_for(story.pipeline.run.attempt) == ()
    assert story.told == [("opened", "rollback", "ordered"), ("action failed", "rollback", "withheld")]
    _ask(story, "release")
    assert story.told[2:] == [("reconsidered", "rollback", "ordered")]


def test_a_policy_that_cannot_be_understood_leaves_the_one_before_in_force() -> None:
    """It is counted as an error, and the next fault is decided by the policy that stands."""
    story = _story()
    assert story.tell(PolicyChanged(at=0.0, policy="mode = 7")).raised == ["policy"]
    _nan(story)
    assert story.told == [("opened", "rollback", "ordered")]
