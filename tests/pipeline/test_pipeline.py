from __future__ import annotations

from collections.abc import Sequence
from math import nan

import pytest

from sentinel.detectors.base import Detector
from sentinel.detectors.nonfinite import NonfiniteState
from sentinel.detectors.roster import ROSTER
from sentinel.domain.findings import Finding
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import STAGES, VERSION, Pipeline
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.observations import DAEMON_KINDS, Observation, PolicyChanged, StepReport
from tests.builders import DEFAULT_POLICY, ONE_OF_EACH, RUN, Story


class Clumsy(Detector[NonfiniteState]):
    """Raises on every step."""

    name = "clumsy"

    def __init__(self) -> None:
        self.state = NonfiniteState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Divides by zero."""
        raise ZeroDivisionError(entry.sequence)


@pytest.fixture
def story() -> Story:
    """A healthy run at step 120 with a known-good checkpoint of step 60."""
    story = Story()
    story.steps(60)
    story.checkpoint("c60")
    story.steps(60)
    return story


def test_a_raising_detector_is_counted_and_harms_nothing(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other detectors see the entry, the order is given, and the outcome names who raised."""
    monkeypatch.setattr("sentinel.pipeline.parts.ROSTER", (Clumsy, *ROSTER))
    clumsy = Pipeline(RUN)
    outcomes = [clumsy.advance(entry) for entry in story.entries]
    story.steps(1, loss=nan, grad_norm=nan)
    last = clumsy.advance(story.entries[-1])
    assert {name for outcome in outcomes for name in outcome.raised} == {"clumsy"}
    assert last.decisions == story.outcomes[-1].decisions
    assert last.actions == story.outcomes[-1].actions


@pytest.mark.parametrize("observation", ONE_OF_EACH, ids=lambda each: each.kind)
def test_every_kind_is_taken_by_a_fresh_pipeline_and_by_an_old_one(story: Story, observation: Observation) -> None:
    """No kind makes the pipeline raise, whatever went before; one that no stage takes leads to nothing."""
    for told in (Story(), story):
        outcome = told.tell(observation)
        assert outcome.raised == []
        if type(observation) not in STAGES:
            assert outcome == Outcome()


def test_without_a_policy_nothing_is_done() -> None:
    """Before the first policy everything is watched."""
    story = Story(policy="")
    story.steps(60)
    story.checkpoint()
    story.steps(60)
    story.steps(1, loss=nan)
    assert story.told == [("opened", "watch", "nothing")]


def test_the_policy_in_force_decides(story: Story) -> None:
    """A policy that only observes holds from the entry on that brings it."""
    story.tell(PolicyChanged(at=0.0, policy=DEFAULT_POLICY.replace('mode = "act"', 'mode = "observe"')))
    story.steps(1, loss=nan, grad_norm=nan)
    assert story.told == [("opened", "rollback", "would_have")]


def test_notices_tell_each_decision_once(story: Story) -> None:
    """Each decision is a line for the terminal, numbered so that a reader asks only for newer ones."""
    story.steps(1, loss=nan, grad_norm=nan)
    story.carry_out()
    first, second = story.pipeline.notices_after(0)
    assert first.text == (
        "nonfinite (critical), opened: rollback at step 121: "
        "poisoned weights cannot recover; to the newest known-good checkpoint: step 60"
    )
    assert second.text.startswith("nonfinite (critical), rolled back: back at checkpoint c60, 61 steps given up")
    assert story.pipeline.notices_after(first.sequence) == (second,)


def test_pins_are_released_as_checkpoints_become_good() -> None:
    """With a third known-good checkpoint the oldest needs no pin any more."""
    story = Story()
    for _ in range(3):
        assert story.pipeline.releasable() == ()
        story.checkpoint(f"c{story.step}")
        story.steps(60)
    assert story.pipeline.releasable() == ("c0",)


def test_a_snapshot_of_another_version_is_refused(story: Story) -> None:
    """A snapshot says which version wrote it; only that one reads it."""
    tree = story.pipeline.snapshot()
    with pytest.raises(ValueError, match=f"version '0', this is '{VERSION}'"):
        Pipeline(RUN).restore(tree | {"version": "0"})


def test_a_restored_pipeline_knows_its_order(story: Story) -> None:
    """After a restart the order is still open, and its answer still counts."""
    story.steps(1, loss=nan, grad_norm=nan)
    order = story.order
    restored = Pipeline(RUN)
    restored.restore(parse(dumps(story.pipeline.snapshot())))
    story.pipeline = restored
    assert story.order == order
    story.carry_out()
    story.steps(10)
    assert story.told[-1] == ("recovered", "none", "nothing")


def test_memory_is_bounded() -> None:
    """Thousands of incidents, decisions and checkpoints leave a state as large as hundreds do."""
    story = Story()
    sizes = []
    for _ in range(2):
        for _ in range(120):
            story.steps(2, loss=nan, grad_norm=1.0)
            story.steps(130)
            story.checkpoint(state="bad")
        sizes.append(len(dumps(story.pipeline.snapshot())))
    assert len(story.decisions) > 400
    assert sizes[1] < 1.05 * sizes[0]


def test_what_senders_may_not_say_is_the_daemons(story: Story) -> None:
    """The daemon's own entries are nobody's attempt: they never count as a word of the trainer."""
    heard_at = story.pipeline.run.last_at
    for observation in ONE_OF_EACH:
        if isinstance(observation, DAEMON_KINDS):
            story.tell(observation)
    assert story.pipeline.run.last_at == heard_at
    story.tell(StepReport(at=0.0, step=121, loss=2.0))
    assert story.pipeline.run.last_at > heard_at
