from __future__ import annotations

from typing import Any

import pytest

from sentinel.checkpoints.selection import Selection
from sentinel.policy.decide import Choice, decide
from sentinel.policy.limits import FAILED_ORDERS
from sentinel.policy.rules import parse_policy
from tests.policy.incident import incident, situation

NO_TARGET = Selection(target=None, passed_over=(), reason="no verified checkpoint from before step 95")


def _told(choice: Choice) -> tuple[str, str, str]:
    return choice.decided_by, choice.rung, choice.outcome


def test_a_rollback_is_ordered_with_its_reason() -> None:
    """Where nothing stands in the way the rule's rollback is ordered, and the reason names rule and target."""
    choice = decide(incident(), situation())
    assert _told(choice) == ("a loss that stays high is set back", "rollback", "ordered")
    assert choice.reason == "a loss that stays high is set back; to the newest known-good checkpoint: step 50"


@pytest.mark.parametrize("rung", ["none", "watch"])
def test_doing_nothing_is_a_decision_with_a_reason(rung: str) -> None:
    """A rule that only watches gives the incident's own reason, and asks no limit."""
    policy = parse_policy(f'mode = "act"\n[[rules]]\nname = "quiet"\nrung = "{rung}"')
    choice = decide(incident(), situation(policy=policy, run={"held_by": "ada"}))
    assert (*_told(choice), choice.reason) == ("quiet", rung, "nothing", "quiet: the loss is not returning")


def test_a_rule_may_ask_a_person_at_once() -> None:
    """Escalating needs no limit's leave."""
    policy = parse_policy('[[rules]]\nname = "call"\nrung = "escalate"')
    assert _told(decide(incident(), situation(policy=policy))) == ("call", "escalate", "ordered")


def test_nothing_is_ordered_twice() -> None:
    """While a rollback is under way more bad news order no second one."""
    choice = decide(incident(state="mitigating"), situation())
    assert (choice.rung, choice.outcome) == ("watch", "nothing")


def test_observe_says_what_would_have_been_done() -> None:
    """In observe mode the choice is made in full, with its target, and not carried out."""
    choice = decide(incident(), situation(run={"mode": "observe"}))
    assert _told(choice) == ("limit: observe", "rollback", "would_have")
    assert choice.reason == ("the agent only observes; it would have gone to the newest known-good checkpoint: step 50")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"run": {"held_by": "ada"}}, "hold"),
        ({"backlog": True}, "backlog"),
        ({"run": {"phase": "failed"}}, "attempt_over"),
        ({"rollback_steps": (4995,)}, "cooldown"),
        ({"selection": NO_TARGET}, "no_checkpoint"),
    ],
)
def test_a_limit_withholds(given: dict[str, Any], kind: str) -> None:
    """What a limit refuses for now is withheld with the limit's name and reason."""
    choice = decide(incident(), situation(**given))
    assert _told(choice) == (f"limit: {kind}", "rollback", "withheld")
    assert choice.refused
    assert choice.reason == choice.refused.reason


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"run": {"rollback": "none"}}, "no_rollback"),
        ({"failed_orders": FAILED_ORDERS}, "failures"),
        ({"rollback_steps": (4200, 4500, 4900)}, "budget"),
    ],
)
def test_what_no_later_step_can_lift_is_a_persons(given: dict[str, Any], kind: str) -> None:
    """Where the ladder has no rung left a person is asked, and told why."""
    choice = decide(incident(), situation(**given))
    assert _told(choice) == (f"limit: {kind}", "escalate", "ordered")
    assert choice.reason.endswith("; a person is needed")
