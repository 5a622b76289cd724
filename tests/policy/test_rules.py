from __future__ import annotations

from typing import Any

import pytest

from sentinel.domain.errors import InvalidPolicy
from sentinel.policy.rules import Policy, Rule, parse_policy
from tests.builders import DEFAULT_POLICY
from tests.policy.incident import incident


@pytest.mark.parametrize(
    ("given", "rule", "rung"),
    [
        ({"symptoms": ("nonfinite",), "verdict": "malignant"}, "poisoned weights cannot recover", "rollback"),
        ({"symptoms": ("loss_spike",), "verdict": "malignant"}, "a loss that stays high is set back", "rollback"),
        ({"symptoms": ("loss_spike", "nonfinite")}, "poisoned weights cannot recover", "rollback"),
        ({"symptoms": ("loss_spike",), "verdict": "undecided"}, "a spike may pass by itself", "watch"),
        ({"symptoms": ("nonfinite",), "verdict": "undecided"}, "a spike may pass by itself", "watch"),
        ({"symptoms": ("loss_spike",), "verdict": "benign"}, "a spike may pass by itself", "watch"),
        ({"symptoms": ("comet",), "verdict": "malignant"}, "no rule matches", "watch"),
    ],
)
def test_the_default_policy_does_what_its_names_say(given: dict[str, Any], rule: str, rung: str) -> None:
    """Each kind of incident meets the rule that is written for it."""
    matched = parse_policy(DEFAULT_POLICY).rule_for(incident(**given))
    assert (matched.name, matched.rung) == (rule, rung)


def test_the_default_policy_says_every_default() -> None:
    """What stands in the file is what holds without it, but for the mode and the rules."""
    policy = parse_policy(DEFAULT_POLICY)
    assert (policy.limits, policy.alerts) == (Policy().limits, Policy().alerts)
    assert (policy.mode, Policy().mode) == ("act", "observe")


def test_an_empty_policy_only_watches() -> None:
    """Without a word nothing is done."""
    policy = parse_policy("")
    assert (policy.mode, policy.rule_for(incident()).rung) == ("observe", "watch")


@pytest.mark.parametrize(
    ("lists", "matches"),
    [
        ({}, True),
        ({"symptoms": ["loss_spike"], "verdicts": ["malignant"], "severities": ["critical"]}, True),
        ({"symptoms": ["nonfinite"]}, False),
        ({"verdicts": ["benign", "undecided"]}, False),
        ({"severities": ["info", "warning"]}, False),
        ({"symptoms": []}, False),
    ],
)
def test_a_rule_matches_when_every_list_has_the_value(lists: dict[str, Any], *, matches: bool) -> None:
    """A list that is not given matches everything, an empty one nothing."""
    assert Rule(name="r", rung="watch", **lists).matches(incident()) is matches


def test_the_first_rule_that_matches_decides() -> None:
    """Rules are asked from top to bottom."""
    text = '[[rules]]\nname = "one"\nrung = "none"\n[[rules]]\nname = "two"\nrung = "escalate"\n'
    assert parse_policy(text).rule_for(incident()).name == "one"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[limits", "policy", "not TOML"),
        ("mod = 'act'", "mod", "there is no such key; did you mean 'mode'?"),
        ("[limits]\ncooldown = 3", "limits.cooldown", "did you mean 'cooldown_steps'?"),
        ("[limits]\nrollbacks = -1", "limits.rollbacks", "greater than or equal to 0"),
        ("[limits]\nrollbacks = '3'", "limits.rollbacks", "valid integer"),
        ("[limits]\nrollbacks = true", "limits.rollbacks", "valid integer"),
        ("mode = 'on'", "mode", "'act' or 'observe'"),
        ("[alerts]\nseverity = 'fatal'", "alerts.severity", "'info', 'warning' or 'critical'"),
        ("[[rules]]\nname = 'x'", "rules.0.rung", "required"),
        ("[[rules]]\nname = 'x'\nrung = 'rollback'\nlr_scale = 0.0", "rules.0.lr_scale", "greater than 0"),
        ("[[rules]]\nname = 'x'\nrung = 'reboot'", "rules.0.rung", "'rollback'"),
        (
            "[[rules]]\nname = 'x'\nrung = 'watch'\nsymptom = ['nonfinite']",
            "rules.0.symptom",
            "did you mean 'symptoms'?",
        ),
        ("zebra = 1", "zebra", "there is no such key"),
        (
            "[[rules]]\nname = 'x'\nrung = 'watch'\nsymptoms = ['nonfinite', 'loss_spik']",
            "rules.0.symptoms",
            "there is no symptom 'loss_spik'; did you mean 'loss_spike'?",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_nearest_right_name(text: str, key: str, words: str) -> None:
    """An error of a policy names the key and what would be right."""
    with pytest.raises(InvalidPolicy) as caught:
        parse_policy(text)
    assert caught.value.field == key
    assert words in str(caught.value)
