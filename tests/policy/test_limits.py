from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from sentinel.checkpoints.selection import Selection
from sentinel.domain.runs import Run
from sentinel.policy.limits import FAILED_ORDERS, Situation, refusal
from sentinel.policy.rules import Policy
from tests.policy.incident import situation

NO_TARGET = Selection(target=None, passed_over=(), reason="no verified checkpoint from before step 95")
HINDRANCES: dict[str, dict[str, Any]] = {
    "hold": {"run": {"held_by": "ada", "hold_reason": "an experiment"}},
    "backlog": {"backlog": True},
    "attempt_over": {"run": {"phase": "failed"}},
    "no_rollback": {"run": {"rollback": "none", "rollback_reason": "the loader keeps no state"}},
    "failures": {"failed_orders": FAILED_ORDERS},
    "cooldown": {"rollback_steps": (4991,)},
    "budget": {"rollback_steps": (4100, 4500, 4990)},
    "no_checkpoint": {"selection": NO_TARGET},
    "observe": {"run": {"mode": "observe"}},
}
"""What stands in the way, in the order in which it is asked for; the worked steps are 5,000."""
REASONS = {
    "hold": "held by ada: an experiment",
    "backlog": "this report waited for the daemon: the run has gone on since",
    "attempt_over": "the run is not training (it is failed)",
    "no_rollback": "the agent cannot roll this run back: the loader keeps no state",
    "failures": "3 orders for this incident failed",
    "cooldown": "the last rollback was 9 steps ago, the cooldown is 10",
    "budget": "3 rollbacks within 1000 steps: the budget is spent",
    "no_checkpoint": "no verified checkpoint from before step 95",
    "observe": "the agent only observes",
}


def _hindered(*kinds: str) -> Situation:
    given: dict[str, Any] = {"run": {}}
    for kind in kinds:
        given |= {key: value for key, value in HINDRANCES[kind].items() if key != "run"}
        given["run"] |= HINDRANCES[kind].get("run", {})
    return situation(**given)


def test_nothing_in_the_way_is_no_refusal() -> None:
    """A run in act mode with a target may be rolled back."""
    assert refusal(situation()) is None


@pytest.mark.parametrize("kind", HINDRANCES)
def test_each_limit_refuses_with_its_reason(kind: str) -> None:
    """What stands in the way is named, with what a person needs to know of it."""
    refused = refusal(_hindered(kind))
    assert refused
    assert (refused.kind, refused.reason) == (kind, REASONS[kind])


@pytest.mark.parametrize("kinds", [*combinations(HINDRANCES, 2)], ids="-".join)
def test_the_first_in_order_refuses(kinds: tuple[str, str]) -> None:
    """Of two hindrances the one that is asked for first stands in the decision."""
    if set(kinds) != {"cooldown", "budget"}:
        refused = refusal(_hindered(*kinds))
        assert refused
        assert refused.kind == kinds[0]


def test_what_can_change_by_itself_is_asked_again() -> None:
    """A hold, a backlog, a cooldown and a missing checkpoint pass; the rest needs a new finding or a person."""
    passing = {kind for kind in HINDRANCES if (refused := refusal(_hindered(kind))) and refused.passes}
    assert passing == {"hold", "backlog", "cooldown", "no_checkpoint"}


@pytest.mark.parametrize("phase", ["training", "silent"])
def test_a_live_attempt_may_be_rolled_back(phase: str) -> None:
    """A run that is silent for a while gets its order with the next word."""
    assert refusal(situation(run={"phase": phase})) is None


@pytest.mark.parametrize("phase", ["waiting", "finished", "failed", "interrupted"])
def test_an_attempt_that_is_over_may_not(phase: str) -> None:
    """Nobody is there to carry out an order."""
    refused = refusal(situation(run={"phase": phase}))
    assert refused
    assert refused.kind == "attempt_over"


def test_the_cooldown_ends_after_its_steps() -> None:
    """Ten steps after a rollback the next may come."""
    assert refusal(situation(rollback_steps=(4990,))) is None


def test_the_budget_looks_back_a_thousand_steps() -> None:
    """Rollbacks longer ago than that cost nothing any more."""
    refused = refusal(situation(rollback_steps=(4000, 4500, 4600)))
    assert refused
    assert refused.kind == "budget"
    assert refusal(situation(rollback_steps=(3999, 4500, 4600))) is None


@pytest.mark.parametrize(
    ("agent", "policy", "reason"),
    [
        ("observe", "act", "the agent only observes"),
        ("act", "observe", "the policy only observes"),
        ("off", "act", "the agent only observes"),
        ("observe", "observe", "the agent only observes"),
    ],
)
def test_policy_may_lower_the_agents_mode_and_never_raise_it(agent: str, policy: str, reason: str) -> None:
    """Only where both say act is anything done."""
    chosen = Policy(mode="act" if policy == "act" else "observe")
    refused = refusal(situation(run={"mode": agent}, policy=chosen))
    assert refused
    assert (refused.kind, refused.reason) == ("observe", reason)


def test_a_hold_without_a_reason_names_the_person() -> None:
    """A person need not explain a hold."""
    refused = refusal(replace(situation(), run=Run(held_by="ada")))
    assert refused
    assert refused.reason == "held by ada"
