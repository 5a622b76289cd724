from __future__ import annotations

import pytest

from sentinel.alerts.message import message
from sentinel.domain.actions import Action
from tests.builders import Story


def alerts() -> list[Action]:
    """What the pipeline plans for people when a NaN comes and a rollback cures it."""
    story = Story()
    story.steps(20)
    story.checkpoint("good")
    story.steps(60)
    (order,) = (
        each for each in story.steps(1, loss=float("nan"), grad_norm=float("nan")).actions if each.executor != "alert"
    )
    story.roll_back(order.id, 20)
    story.steps(60)
    return [action for outcome in story.outcomes for action in outcome.actions if action.executor == "alert"]


def test_the_beginning_and_the_end_are_told_in_words() -> None:
    """The title has the status, the symptom and the run; the text what was seen and what is done; the link the page."""
    firing, resolved = (message(action, "https://sentinel.example") for action in alerts())
    assert firing.title == "[firing] nonfinite in run run-1"
    assert firing.text.startswith("loss is nan and gradient norm is nan at step 81")
    assert "step 20" in firing.text
    assert firing.link == f"https://sentinel.example/incidents/{firing.fields['incident']}"
    assert resolved.title == "[resolved] nonfinite in run run-1 is over"
    assert "back on its path" in resolved.text


def test_a_receiver_can_tell_the_same_from_the_next() -> None:
    """One incident's statuses have different keys, and so have all actions; a second rendering has the same."""
    first, second = alerts()
    told = [message(action, "http://daemon") for action in (first, second)]
    assert len({each.id for each in told}) == len({each.dedup_key for each in told}) == 2
    assert [each.dedup_key for each in told] == [f"{first.incident}/firing", f"{first.incident}/resolved"]
    assert message(first, "http://daemon") == told[0]


@pytest.mark.parametrize("name", ["run", "incident", "symptom", "severity", "onset_step", "step", "at"])
def test_fields_are_there_for_machines(name: str) -> None:
    """What a receiver may route by stands in a field of its own, as in the planned action."""
    action = alerts()[0]
    assert message(action, "http://daemon").fields[name] == action.payload[name]
