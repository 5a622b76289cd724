"""Faults of the machines beside faults of the optimization: neither hides, delays or settles the other."""

from __future__ import annotations

from math import nan

import pytest

from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.observations import AttemptStarted, PolicyChanged
from sentinel.protocol.processes import RankReport
from tests.builders import RUN, Story

BROKEN = DeviceSample(at=0.0, index=0, uuid="GPU-1", node="n1", xids=(79,))


def _lag(story: Story, *, rounds: int = 5, slow_s: float = 0.4) -> None:
    """Rank 1 of two is slow."""
    for _ in range(rounds):
        for rank, work_s in enumerate((0.2, slow_s)):
            story.tell(
                RankReport(
                    at=0.0, rank=rank, step=story.step, segment=story.segment, steps=1, step_s=0.5, work_s=work_s
                )
            )


def _state(story: Story, name: str) -> str:
    changed = [each for outcome in story.outcomes for each in outcome.checkpoints]
    return [each.state for each in changed if each.id == name][-1]


@pytest.fixture
def story() -> Story:
    """A healthy run at step 120 with a known-good checkpoint of step 60."""
    story = Story()
    story.steps(60)
    story.checkpoint("c60")
    story.steps(60)
    return story


def test_a_broken_device_is_for_a_person(story: Story) -> None:
    """A fatal Xid is an escalated incident with an alert, at the newest step, and no rollback."""
    story.tell(BROKEN)
    assert story.told == [("opened", "escalate", "ordered")]
    assert story.alerts == ["escalated"]
    incident = story.incident
    assert (incident.state, incident.subject, incident.node, incident.onset_step) == ("escalated", "GPU-1", "n1", 120)


def test_a_slow_rank_is_watched(story: Story) -> None:
    """A straggler is a warning that orders nothing and alerts nobody, and passes by itself."""
    _lag(story)
    assert story.told == [("opened", "watch", "nothing")]
    assert (story.incident.symptom, story.incident.subject) == ("straggler", "rank 1")
    _lag(story, slow_s=0.2)
    assert story.told[1:] == [("passed", "none", "nothing")]
    assert story.alerts == []


def test_machines_make_no_checkpoint_suspect(story: Story) -> None:
    """With a straggler and a broken device open, checkpoints before and after are confirmed as ever."""
    _lag(story)
    story.tell(BROKEN)
    assert _state(story, "c60") == "known_good"
    story.steps(10)
    story.checkpoint("c130")
    story.steps(60)
    assert _state(story, "c130") == "known_good"


def test_nan_amid_slow_steps_is_a_fault_of_its_own(story: Story) -> None:
    """A rollback is ordered for the NaN at once, and cures it; the straggler and the device stay as they were."""
    _lag(story)
    story.tell(BROKEN)
    story.steps(1, loss=nan, grad_norm=nan)
    assert story.told[-1] == ("opened", "rollback", "ordered")
    assert story.order.step == 60
    story.carry_out()
    story.steps(40)
    states = {incident.symptom: incident.state for outcome in story.outcomes for incident in outcome.incidents}
    assert states == {"straggler": "open", "device_fault": "escalated", "nonfinite": "resolved"}


def test_the_end_of_slowness_clears_no_suspect(story: Story) -> None:
    """A checkpoint that a NaN made suspect stays so when a straggler catches up."""
    story.steps(1, loss=nan, grad_norm=nan)
    story.checkpoint("poisoned")
    story.carry_out()
    story.steps(40)
    _lag(story)
    _lag(story, slow_s=0.2)
    assert story.told[-1] == ("passed", "none", "nothing")
    assert _state(story, "poisoned") == "suspect"


def test_a_slow_rank_may_be_rolled_back_for_by_a_policy_that_says_so(story: Story) -> None:
    """An incident that a rollback was ordered for hears of it, whatever it is about."""
    policy = '[[rules]]\nname = "r"\nrung = "rollback"\nsymptoms = ["straggler"]\n'
    story.tell(PolicyChanged(at=0.0, policy=f'mode = "act"\n{policy}'))
    _lag(story)
    assert story.told == [("opened", "rollback", "ordered")]
    story.carry_out()
    story.steps(40)
    assert story.incident.state == "resolved"


def test_words_of_another_attempt_or_branch_are_not_judged(story: Story) -> None:
    """Ranks of an abandoned branch and devices of an attempt that is over raise nothing."""
    story.tell(BROKEN, attempt="attempt-0")
    story.roll_back("k", 60)
    story.segment = 0
    _lag(story)
    assert story.told == []


def test_a_log_goes_on_under_a_policy_with_a_forgotten_symptom(story: Story) -> None:
    """A policy of another version is in force as it was when it was written, and so is a snapshot under it."""
    policy = story.policy + '[[rules]]\nname = "old"\nrung = "watch"\nsymptoms = ["of_old"]\n'
    assert not story.tell(PolicyChanged(at=0.0, policy=policy)).raised
    assert story.pipeline.policy_text == policy
    again = Pipeline(RUN)
    again.restore(parse(dumps(story.pipeline.snapshot())))
    assert again.snapshot() == story.pipeline.snapshot()


def test_a_new_attempt_settles_what_it_leaves_behind(story: Story) -> None:
    """A restart ends incidents of machines as it does all others; what lasts is told anew."""
    story.tell(BROKEN)
    story.tell(AttemptStarted(at=1.0, mode="act", step=60), attempt="attempt-2")
    assert story.told[-1] == ("restarted", "none", "nothing")
