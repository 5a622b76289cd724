"""Which decisions people are told of, and why: one alert when it begins, one when it escalates, one when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sentinel.domain.decisions import Decision
from sentinel.domain.findings import SEVERITIES
from sentinel.domain.incidents import Incident
from sentinel.domain.symptoms import concern
from sentinel.policy.rules import Alerts

AlertStatus = Literal["firing", "escalated", "resolved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An alert to be sent. Receivers that know the pair (incident, status) already may drop it."""

    status: AlertStatus
    why: str


def shared_cause(incident: Incident, status: AlertStatus) -> str:
    """Under which word alerts of several runs may be one message; empty if this one goes alone.

    A switch, a file system or a rack that fails is seen by every run on it, on nodes of its own, as a hang here and a
    lost node there. So what may come from outside a run waits some seconds for company of its status and severity.
    """
    is_own = any(concern(symptom) == "optimization" for symptom in incident.symptoms)
    return "" if is_own else f"{status} {incident.severity}"


def announcement(
    incident: Incident, decision: Decision, told: AlertStatus | None, alerts: Alerts
) -> Announcement | None:
    """What people must be told after a decision.

    Args:
        incident: after the change.
        decision: taken about it.
        told: what they were last told of this incident.
        alerts: the policy's choice of whom to tell.
    """
    if incident.state == "resolved":
        return None if told in (None, "resolved") else Announcement(status="resolved", why=incident.resolution)
    if SEVERITIES.index(incident.severity) < SEVERITIES.index(alerts.severity):
        return None
    if decision.rung == "escalate" and told != "escalated":
        return Announcement(status="escalated", why=decision.reason)
    if told in (None, "resolved"):
        return Announcement(status="firing", why=decision.reason)
    return None
