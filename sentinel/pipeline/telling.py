"""The words for people: an alert for those who are away, a notice for the one at the training's terminal."""

from __future__ import annotations

from typing import Final

from sentinel.domain.actions import Action
from sentinel.domain.decisions import Decision, Outcome
from sentinel.domain.findings import Severity
from sentinel.domain.incidents import Incident
from sentinel.domain.log_entry import LogEntry
from sentinel.policy.announce import Announcement, shared_cause
from sentinel.protocol.commands import Notice
from sentinel.protocol.ids import ActionId

_PREFIX: Final[dict[Outcome, str]] = {
    "ordered": "",
    "withheld": "withheld: ",
    "would_have": "would have: ",
    "nothing": "",
}


def alert_action(
    incident: Incident,
    decision: Decision,
    entry: LogEntry,
    alert: Announcement,
    *,
    number: int,
    told_severity: Severity,
) -> Action:
    """The alert as an action of the outbox; (incident, status) is what a receiver may drop repetitions by.

    Args:
        incident: after the change.
        decision: taken about it.
        entry: caused it.
        alert: what to tell.
        number: of this action among those of the entry.
        told_severity: under which people were told of the incident last, for receivers that know alerts by it.
    """
    payload = {
        "status": alert.status,
        "run": entry.run,
        "incident": incident.id,
        "symptom": incident.symptom,
        "severity": incident.severity,
        "told_severity": told_severity,
        "node": incident.node,
        "shared_cause": shared_cause(incident, alert.status),
        "detected_at": incident.detected_at,
        "onset_step": incident.onset_step,
        "step": decision.step,
        "what": incident.reason,
        "why_told": alert.why,
        "at": entry.received_at,
    }
    action = ActionId(f"{entry.run}.a{entry.sequence}.{number}")
    return Action(id=action, incident=incident.id, executor="alert", payload=payload)


def notice_of(incident: Incident, decision: Decision, *, sequence: int) -> Notice:
    """One line about a decision."""
    said = decision.reason
    if decision.rung != "none" and decision.change != "rolled back":
        said = f"{_PREFIX[decision.outcome]}{decision.rung} at step {decision.step}: {said}"
    text = f"{incident.symptom} ({incident.severity}), {decision.change}: {said}"
    return Notice(sequence=sequence, incident=incident.id, text=text)
