"""A policy: ordered rules, limits, and whom to tell; read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sentinel.domain.errors import InvalidPolicy
from sentinel.domain.findings import Severity, Verdict
from sentinel.domain.incidents import Incident
from sentinel.domain.symptoms import CONCERNS
from sentinel.protocol.observations import DataMode


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Rule(_Table):
    """Matches an incident when each list that is given holds the incident's value; an absent list matches all."""

    name: str
    rung: Literal["none", "watch", "rollback", "restart", "escalate"]
    symptoms: list[str] | None = None
    verdicts: list[Verdict] | None = None
    severities: list[Severity] | None = None
    data: DataMode = "forward"
    lr_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The learning rate after the rollback, times what the checkpoint says."""

    def matches(self, incident: Incident) -> bool:
        """Whether this rule decides about the incident."""
        return (
            (self.symptoms is None or any(symptom in self.symptoms for symptom in incident.symptoms))
            and (self.verdicts is None or incident.verdict in self.verdicts)
            and (self.severities is None or incident.severity in self.severities)
        )


class Limits(_Table):
    """What no rule may exceed. Counts of steps are optimizer steps."""

    rollbacks: Annotated[int, Field(ge=0)] = 3
    restarts: Annotated[int, Field(ge=0)] = 3
    within_steps: Annotated[int, Field(ge=1)] = 1000
    cooldown_steps: Annotated[int, Field(ge=0)] = 10
    expires_after_steps: Annotated[int, Field(ge=1)] = 200


class Alerts(_Table):
    """Which incidents are told to people."""

    severity: Severity = "critical"


class Policy(_Table):
    """What is done about which incident."""

    mode: Literal["act", "observe"] = "observe"
    limits: Limits = Limits()
    alerts: Alerts = Alerts()
    rules: list[Rule] = []

    def rule_for(self, incident: Incident) -> Rule:
        """The first rule that matches; without one the incident is watched."""
        return next((rule for rule in self.rules if rule.matches(incident)), _UNMATCHED)


_UNMATCHED = Rule(name="no rule matches", rung="watch")


def parse_policy(text: str) -> Policy:
    """A policy that somebody has written, from TOML text.

    Raises:
        InvalidPolicy: it is not TOML, or a key, value or symptom is wrong; names the key and the nearest right one.
    """
    policy = recorded_policy(text)
    for number, rule in enumerate(policy.rules):
        for symptom in rule.symptoms or ():
            if symptom not in CONCERNS:
                problem = f"there is no symptom {symptom!r}{_nearest(symptom, CONCERNS)}"
                raise InvalidPolicy(f"rules.{number}.symptoms", problem)
    return policy


def recorded_policy(text: str) -> Policy:
    """A policy that a log holds: once in force, with symptoms that its version knew and this one need not.

    Raises:
        InvalidPolicy: as ``parse_policy``, but for symptoms.
    """
    try:
        return Policy.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidPolicy("policy", f"not TOML: {error}") from None
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        path = ".".join(str(part) for part in first["loc"])
        problem = first["msg"]
        if first["type"] == "extra_forbidden":
            keys = {name for model in (Policy, Limits, Alerts, Rule) for name in model.model_fields}
            problem = f"there is no such key{_nearest(str(first['loc'][-1]), keys)}"
        raise InvalidPolicy(path, problem) from None


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""
