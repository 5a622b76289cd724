"""From a change of an incident to a decision with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sentinel.domain.decisions import Outcome, Rung
from sentinel.domain.incidents import Incident
from sentinel.policy.limits import Refusal, Situation, refusal
from sentinel.policy.rules import Rule

_TO: Final[Mapping[Rung, str]] = {"rollback": "to", "restart": "from"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be done, before it has an id and a place in the log."""

    rule: Rule
    rung: Rung
    outcome: Outcome
    reason: str
    refused: Refusal | None = None

    @property
    def decided_by(self) -> str:
        """The limit that refused, else the rule that matched."""
        return f"limit: {self.refused.kind}" if self.refused else self.rule.name


def decide(incident: Incident, situation: Situation) -> Choice:
    """Chooses for an unsettled incident.

    What a limit refuses is withheld with the limit's reason, and ends with a person where no later step can
    lift the refusal. In observe mode the choice is made in full and marked as what would have been done.
    """
    rule = situation.policy.rule_for(incident)
    if rule.rung in ("none", "watch"):
        return Choice(rule=rule, rung=rule.rung, outcome="nothing", reason=f"{rule.name}: {incident.reason}")
    if rule.rung == "escalate":
        return Choice(rule=rule, rung="escalate", outcome="ordered", reason=f"{rule.name}: {incident.reason}")
    wanted = rule.rung
    if incident.state == "mitigating":
        return Choice(rule=rule, rung="watch", outcome="nothing", reason=f"a {wanted} for it is under way")
    refused = refusal(situation, wanted)
    target = situation.selection.reason
    if refused is None:
        return Choice(rule=rule, rung=wanted, outcome="ordered", reason=f"{rule.name}; {_TO[wanted]} {target}")
    if refused.kind == "observe":
        reason = f"{refused.reason}; it would have gone {_TO[wanted]} {target}"
        return Choice(rule=rule, rung=wanted, outcome="would_have", reason=reason, refused=refused)
    if refused.kind in ("no_rollback", "no_launcher", "failures", "only_suspects", "budget"):
        reason = f"{refused.reason}; a person is needed"
        return Choice(rule=rule, rung="escalate", outcome="ordered", reason=reason, refused=refused)
    return Choice(rule=rule, rung=wanted, outcome="withheld", reason=refused.reason, refused=refused)
