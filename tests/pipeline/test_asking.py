from __future__ import annotations

from math import nan

import pytest

from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import AttemptEnded, OperatorRequest
from tests.builders import DEFAULT_POLICY, RUN, Story


def _story(*, mode: str = "act", policy: str = DEFAULT_POLICY, rollback: str = "forward") -> Story:
    """A healthy run at step 120 with known-good checkpoints of steps 30 and 60, and one of step 118 that is new."""
    story = Story(mode=mode, policy=policy, rollback=rollback)  # type: ignore[arg-type]
    for _ in range(2):
        story.steps(30)
        story.checkpoint(f"c{story.step}")
    story.steps(58)
    story.checkpoint("c118")
    story.steps(2)
    return story


def _ask(story: Story, request: str = "roll_back", **given: object) -> Outcome:
    return story.tell(OperatorRequest(at=0.0, request=request, by="ada", **given))  # type: ignore[arg-type]


def test_a_person_asks_and_the_run_goes_back() -> None:
    """The decision says who, why and where to; the rollback and the return to the path are told as of any incident."""
    story = _story()
    outcome = _ask(story, reason="odd samples")
    (decision,) = outcome.decisions
    assert (decision.change, decision.rule, decision.outcome) == (
        "asked for by a person",
        "asked for by ada",
        "ordered",
    )
    assert decision.reason == ("ada asks to go back (odd samples); to the newest known-good checkpoint: step 60")
    assert (story.order.checkpoint, story.incident.state, story.alerts) == ("c60", "mitigating", [])
    story.carry_out()
    story.steps(40)
    assert [each.change for each in story.decisions[1:]] == ["rolled back", "recovered"]
    assert (story.incident.state, story.incident.lost_steps) == ("resolved", 60)


def test_a_checkpoint_that_is_named_is_taken() -> None:
    """Verified is enough where a person says so."""
    story = _story()
    _ask(story, checkpoint=CheckpointId("c118"))
    assert (story.order.checkpoint, story.order.step) == ("c118", 118)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"checkpoint": "absent"}, "no checkpoint 'absent' of this run is known"),
        ({"checkpoint": "late"}, "checkpoint 'late' of step 120 is suspect: taken less than 5 steps before"),
    ],
)
def test_a_checkpoint_that_is_not_good_is_refused(given: dict[str, str], why: str) -> None:
    """What is unknown or in doubt is no place to go back to, whoever asks."""
    story = _story(policy=DEFAULT_POLICY.replace('rung = "rollback"', 'rung = "watch"'))
    story.checkpoint("late")
    story.steps(1, loss=nan, grad_norm=nan)
    outcome = _ask(story, **given)
    assert [(each.outcome, why in each.reason) for each in outcome.decisions] == [("withheld", True)]
    assert outcome.actions == []


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda story: _ask(story, "hold", reason="an experiment"), "held by ada: an experiment"),
        (lambda story: _ask(story, "hold", fleet=True), "all runs are held by ada"),
        (lambda story: setattr(story.pipeline.run, "mode", "observe"), "the agent only observes"),
        (lambda story: setattr(story.pipeline.run, "rollback", "none"), "cannot roll this run back: told so"),
        (lambda story: setattr(story.pipeline.run, "blind", True), "has just begun to listen"),
        (lambda story: story.tell(AttemptEnded(at=0.0, outcome="failed", step=120)), "the run is not training"),
    ],
)
def test_what_no_person_may_override_refuses_it_once(prepare: object, why: str) -> None:
    """The refusal is a decision with who and why, its incident is over at once, and it is never asked again."""
    story = _story()
    prepare(story)  # type: ignore[operator]
    outcome = _ask(story)
    (decision,) = outcome.decisions
    assert (decision.outcome, decision.reason.startswith("ada asks to go back; "), why in decision.reason) == (
        "withheld",
        True,
        True,
    )
    assert story.incident.state == "resolved"
    story.pipeline.run.blind, story.pipeline.run.mode = False, "act"
    _ask(story, "release")
    _ask(story, "release", fleet=True)
    story.steps(20)
    assert len(story.decisions) == 1


def test_a_person_knows_more_than_cooldown_budget_and_policy() -> None:
    """Right after a rollback, with no budget, under a policy that observes, a person's word still counts."""
    policy = DEFAULT_POLICY.replace("rollbacks = 3", "rollbacks = 1").replace('mode = "act"', 'mode = "observe"')
    story = _story(policy=policy)
    for _ in range(2):
        _ask(story)
        story.carry_out()
        story.steps(2)
    assert [each.outcome for each in story.decisions if each.change == "asked for by a person"] == ["ordered"] * 2


def test_one_rollback_at_a_time() -> None:
    """While an order is not answered for a second request is refused, and the first stands."""
    story = _story()
    _ask(story)
    first = story.order
    outcome = _ask(story, checkpoint=CheckpointId("c30"))
    assert outcome.decisions[0].reason == "ada asks to go back; a rollback is under way"
    assert story.order == first


def test_a_request_that_comes_twice_is_one() -> None:
    """Told again under its key it changes nothing, also when the first has long been carried out."""
    story = _story()
    _ask(story, key="k1")
    story.carry_out()
    assert _ask(story, key="k1") == Outcome()
    assert story.pipeline.knows_request("k1")
    _ask(story, key="k2")
    assert story.order


def test_an_order_that_fails_is_over() -> None:
    """Nobody claims a fault: the incident of a request ends with the agent's reason, and nothing is tried again."""
    story = _story()
    _ask(story)
    story.fail("refused", reason="no such file")
    assert (story.incident.state, story.incident.resolution) == ("resolved", "no such file")
    story.steps(60)
    assert [each.change for each in story.decisions] == ["asked for by a person", "action failed"]


def test_a_fault_after_a_refusal_is_its_own() -> None:
    """What a detector finds right after a request that came to nothing is an incident under its own name."""
    story = _story()
    _ask(story, checkpoint=CheckpointId("absent"))
    story.steps(12, loss=9.0)
    assert (story.decisions[1].change, story.incident.symptom) == ("opened", "loss_spike")


def test_the_open_incident_is_the_cause() -> None:
    """Asked during a fault, the request joins its incident, and goes back to before the fault."""
    story = _story(policy=DEFAULT_POLICY.replace('rung = "rollback"', 'rung = "watch"'))
    story.steps(1, loss=nan, grad_norm=nan)
    story.steps(30, loss=nan, grad_norm=nan)
    _ask(story)
    assert (story.order.incident, story.incident.symptom, story.order.step) == (story.incident.id, "nonfinite", 60)


def test_the_hold_of_all_runs_and_the_runs_own_end_apart() -> None:
    """Each keeps the run held until it ends itself."""
    story = _story()
    _ask(story, "hold", fleet=True, reason="maintenance")
    _ask(story, "hold")
    _ask(story, "release", fleet=True)
    assert story.pipeline.run.hold == "held by ada"
    _ask(story, "release")
    assert story.pipeline.run.hold == ""


def test_an_annotation_changes_nothing() -> None:
    """It stands in the log and is judged by nobody."""
    story = _story()
    assert _ask(story, "annotate", reason="seen before") == Outcome()


def test_a_snapshot_keeps_what_was_asked() -> None:
    """A restarted pipeline still knows the keys and the holds."""
    story = _story()
    _ask(story, "hold", fleet=True, key="k1")
    again = Pipeline(RUN)
    again.restore(story.pipeline.snapshot())
    assert (again.knows_request("k1"), again.run.hold) == (True, "all runs are held by ada")
