from __future__ import annotations

from math import nan

import pytest

from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.codec import to_tree
from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import AttemptStarted, CheckpointReport, CommandResult
from tests.builders import DEFAULT_POLICY, DIGEST, Story, around

IMPATIENT = DEFAULT_POLICY.replace("cooldown_steps = 10", "cooldown_steps = 0")
CALL = ("opened", "rollback", "ordered")
BACK = ("rolled back", "watch", "nothing")
WELL = ("recovered", "none", "nothing")


def _nan(story: Story) -> Outcome:
    return story.steps(1, loss=nan, grad_norm=nan)


def _story(*, policy: str = DEFAULT_POLICY) -> Story:
    """A run at step 120 with known-good checkpoints of steps 30 and 60 and a verified one of step 110."""
    story = Story(policy=policy)
    for count in (30, 30, 50):
        story.steps(count)
        story.checkpoint(f"c{story.step}")
    story.steps(10)
    return story


@pytest.fixture
def story() -> Story:
    """A healthy run at step 120 that can be rolled back."""
    return _story()


def test_nan_is_rolled_back_recovers_and_is_resolved(story: Story) -> None:
    """The report with the NaN orders the rollback; back on its path, the incident is over and its costs are counted."""
    outcome = _nan(story)
    (action,) = [each for each in outcome.actions if each.executor == "trainer_command"]
    assert (story.order.checkpoint, story.order.step, story.order.digest) == ("c60", 60, DIGEST)
    assert (story.order.segment, story.order.expires_step) == (0, 121 + 200)
    assert action.payload == to_tree(story.order)
    assert outcome.decisions[0].action == action.id == story.order.id
    story.carry_out()
    assert (story.incident.state, story.pipeline.run.segment, story.pipeline.run.step) == ("mitigating", 1, 60)
    story.steps(10)
    assert story.told == [CALL, BACK, WELL]
    incident = story.incident
    assert (incident.state, incident.end_step, incident.rollbacks, incident.checkpoint) == ("resolved", 70, 1, "c60")
    assert (incident.lost_steps, incident.lost_s) == (61, 64.0)
    assert story.alerts == ["firing", "resolved"]


def test_the_decision_says_why_not_a_newer_checkpoint(story: Story) -> None:
    """Every checkpoint newer than the target has its reason in the decision."""
    (decision,) = _nan(story).decisions
    assert (decision.checkpoint, decision.target_step, decision.step, decision.sequence) == ("c60", 60, 121, 126)
    assert [(each.checkpoint, each.why) for each in decision.passed_over] == [
        ("c110", "verified, but not confirmed by enough clean steps")
    ]


def test_a_spike_that_stays_is_rolled_back(story: Story) -> None:
    """A spike is watched first and rolled back once it is malignant; what was saved in it is suspect."""
    story.steps(1, loss=4.0)
    assert story.told == [("opened", "watch", "nothing")]
    story.checkpoint("in the spike")
    story.steps(35, loss=4.0)
    assert story.told[1:] == [("revised", "watch", "nothing"), ("worsened", "rollback", "ordered")]
    assert story.order.checkpoint == "c60"
    story.carry_out()
    story.steps(10)
    assert story.incident.state == "resolved"
    assert story.incident.symptoms == ("loss_spike", "divergence")


def test_a_spike_that_returns_is_only_watched(story: Story) -> None:
    """Nothing is ordered for a spike that passes; checkpoints it threw doubt on are verified again."""
    story.steps(1, loss=4.0)
    story.checkpoint("in the spike")
    story.steps(1, loss=3.0)
    outcome = story.steps(3, loss=2.0)
    assert story.told == [("opened", "watch", "nothing"), ("passed", "none", "nothing")]
    assert (story.incident.state, story.incident.verdict) == ("resolved", "benign")
    assert {each.id: each.state for each in outcome.checkpoints} == {"in the spike": "verified"}
    assert story.alerts == []


def test_a_spike_then_nan_is_one_incident_and_one_order(story: Story) -> None:
    """The NaN after the spike makes the incident worse; the target is older than the spike's onset."""
    story.steps(3, loss=4.0)
    _nan(story)
    assert story.told == [("opened", "watch", "nothing"), ("worsened", "rollback", "ordered")]
    assert story.incident.symptoms == ("loss_spike", "nonfinite")
    story.steps(5, loss=nan, grad_norm=nan)
    assert len(story.decisions) == 2


def test_a_fault_that_returns_after_the_rollback_has_recurred(story: Story) -> None:
    """Within the cooldown the second rollback waits; after it the incident goes back further than the margin asks."""
    _nan(story)
    story.carry_out()
    story.steps(3)
    _nan(story)
    assert story.told[2:] == [("recurred", "rollback", "withheld")]
    story.steps(6, loss=nan, grad_norm=nan)
    assert story.told[3:] == [("reconsidered", "rollback", "ordered")]
    assert story.order.checkpoint == "c30"
    story.carry_out()
    story.steps(10)
    assert (story.incident.state, story.incident.rollbacks) == ("resolved", 2)
    assert story.incident.lost_steps == (121 - 60) + (70 - 30)
    assert len({decision.incident for decision in story.decisions}) == 1


def test_a_fault_that_returns_soon_after_recovery_reopens(story: Story) -> None:
    """The same symptom within 100 steps of the end belongs to the same incident and fires again."""
    _nan(story)
    story.carry_out()
    story.steps(40)
    _nan(story)
    assert [change for change, _, _ in story.told] == ["opened", "rolled back", "recovered", "reopened"]
    assert story.alerts == ["firing", "resolved", "firing"]


def test_a_run_that_does_not_recover_goes_further_back() -> None:
    """A loss that stays off its path, below every alarm, throws doubt on the checkpoint: an older one is taken."""
    story = _story()
    _nan(story)
    story.carry_out()
    for loss in around(2.1, 100, noise=0.02, seed=3):
        story.steps(1, loss=loss)
    changes = [change for change, _, _ in story.told]
    assert changes[:3] == ["opened", "rolled back", "not recovered"]
    assert story.told[2] == ("not recovered", "rollback", "ordered")
    assert story.order.checkpoint == "c30"
    assert [each.why for each in story.decisions[2].passed_over if each.checkpoint == "c60"] == [
        "suspect: the run did not recover from it"
    ]


def test_a_run_that_comes_back_too_low_is_for_a_person(story: Story) -> None:
    """A loss far below its path means data that is seen again: no other checkpoint helps, so a person is asked."""
    _nan(story)
    story.carry_out()
    for loss in around(1.5, 20, noise=0.02, seed=3):
        story.steps(1, loss=loss)
    assert story.told[2:] == [("below its path", "escalate", "ordered")]
    assert story.incident.state == "escalated"
    assert "is the run seeing data again?" in story.decisions[-1].reason


def test_a_broken_checkpoint_gives_way_to_the_next_older(story: Story) -> None:
    """The agent finds the file broken, says so, and is sent to the next older checkpoint at once."""
    _nan(story)
    story.tell(CheckpointReport(at=0.0, checkpoint=CheckpointId("c60"), step=60, state="bad", reason="digest differs"))
    outcome = story.fail(reason="its digest differs")
    assert [(each.event, each.reason) for each in outcome.action_changes] == [("fail", "its digest differs")]
    assert story.told[1:] == [("action failed", "rollback", "ordered")]
    assert story.order.checkpoint == "c30"
    assert "c60" in {each.checkpoint for each in story.decisions[-1].passed_over}


def test_the_second_telling_of_a_rollback_changes_nothing(story: Story) -> None:
    """A result that is told again finds nothing to do."""
    _nan(story)
    story.carry_out()
    again = story.tell(story.entries[-1].observation)
    assert again == Outcome()
    assert story.incident.rollbacks == 1


def test_a_rollback_nobody_ordered_is_noted(story: Story) -> None:
    """A run that went back by itself is followed there: its new segment is judged, what lies beyond is abandoned."""
    outcome = story.roll_back("by hand", 60)
    assert {each.id: each.state for each in outcome.checkpoints} == {"c110": "suspect"}
    assert (outcome.decisions, outcome.action_changes) == ([], [])
    _nan(story)
    assert story.told == [("opened", "rollback", "withheld")]
    assert story.decisions[0].rule == "limit: cooldown"


def test_a_deep_rollback_early_in_a_run_is_no_new_spike() -> None:
    """Back where the loss was far higher, the run is on its path and not in a spike."""
    story = Story()
    curve = [3.0 + 7.0 * 0.995**step for step in range(1001)]
    for loss in curve[1:101]:
        story.steps(1, loss=loss)
    story.checkpoint("early")
    for loss in curve[101:]:
        story.steps(1, loss=loss)
    _nan(story)
    story.carry_out()
    for loss in curve[101:400]:
        story.steps(1, loss=loss)
    assert story.told == [CALL, BACK, WELL]


def test_recovery_does_not_settle_what_has_recurred() -> None:
    """While a symptom of the new segment is open, a loss on its path is no recovery, and its order stands alone."""
    story = _story(policy=IMPATIENT)
    _nan(story)
    story.carry_out()
    story.steps(1)
    story.steps(1, grad_norm=nan)
    story.steps(150, grad_norm=nan)
    assert [change for change, _, _ in story.told] == ["opened", "rolled back", "recurred"]
    assert story.incident.state == "mitigating"
    assert story.order.checkpoint == "c30"


def test_a_result_that_makes_no_sense_costs_nothing(story: Story) -> None:
    """An agent that says it went forward has lost no steps."""
    _nan(story)
    result = CommandResult(at=0.0, command=story.order.id, outcome="succeeded", step=60, segment=1, from_step=3)
    story.tell(result)
    assert story.incident.lost_steps == 0


def test_run_that_went_back_to_something_else_is_where_it_says(story: Story) -> None:
    """A rollback to something else than was saved has failed, its checkpoint is suspect, and the run stands there."""
    _nan(story)
    order = story.order
    result = CommandResult(
        at=0.0,
        command=order.id,
        outcome="failed",
        step=order.step,
        segment=1,
        checkpoint=order.checkpoint,
        reason="it went back, but the data is not as it was",
    )
    outcome = story.tell(result)
    assert [(each.action, each.event) for each in outcome.action_changes] == [(order.id, "fail")]
    assert [(each.id, each.state) for each in outcome.checkpoints if each.id == order.checkpoint] == [
        (order.checkpoint, "suspect")
    ]
    story.step, story.segment = order.step, 1
    story.steps(1)
    assert story.pipeline.run.step == order.step + 1


def test_what_the_rollback_does_stands_in_the_rule() -> None:
    """Data mode, suspect window and learning-rate scale of the rule that matched travel with the order."""
    rung = 'verdicts = ["malignant"]\nrung = "rollback"\n'
    policy = DEFAULT_POLICY.replace(rung, f'{rung}data = "exact"\nlr_scale = 0.5\n')
    story = Story(policy=policy)
    story.tell(AttemptStarted(at=0.0, mode="act", rollback="exact"))
    story.steps(60)
    story.checkpoint("c60")
    story.steps(60)
    _nan(story)
    order = story.order
    assert (order.data, order.lr_scale, order.step) == ("exact", 0.5, 60)
    assert (order.skip_from_step, order.skip_to_step) == (story.step - 5, story.step)


def test_agent_that_cannot_set_data_back_is_ordered_to_go_forward() -> None:
    """A rule's wish for exact data yields to what the agent has said it can do."""
    rung = 'verdicts = ["malignant"]\nrung = "rollback"\n'
    story = _story(policy=DEFAULT_POLICY.replace(rung, f'{rung}data = "exact"\n'))
    _nan(story)
    assert (story.order.data, story.order.skip_to_step) == ("forward", 0)


def test_a_rollback_nobody_ordered_voids_the_order_and_counts_for_the_fault(story: Story) -> None:
    """A run that went elsewhere than ordered has left the order's segment; its fault is watched as any other."""
    _nan(story)
    first = story.order
    outcome = story.roll_back("by hand", 30)
    assert [(each.action, each.event) for each in outcome.action_changes] == [(first.id, "expire")]
    assert story.told == [CALL, BACK]
    story.steps(10)
    assert story.told[2:] == [WELL]


def test_a_rollback_whose_result_was_lost_is_known_by_its_new_segment(story: Story) -> None:
    """The first report of the next segment says that the order was carried out: the run is not set back again."""
    _nan(story)
    story.step, story.segment = story.order.step + 5, 1
    story.steps(10)
    assert story.told == [CALL, BACK, WELL]
    assert (story.pipeline.run.step, story.pipeline.run.segment) == (75, 1)
    story.steps(300)
    assert len(story.decisions) == 3
