"""What people ask for, and decisions that waited for something to change."""

from __future__ import annotations

from sentinel.domain.actions import ActionChange
from sentinel.domain.errors import InvalidPolicy
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.answers import order_failed
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.processes import not_done
from sentinel.policy.rules import parse_policy
from sentinel.protocol.ids import ActionId
from sentinel.protocol.observations import OperatorRequest, PolicyChanged


def policy_changed(parts: Parts, _entry: LogEntry, change: PolicyChanged, outcome: Outcome) -> None:
    """Another policy decides from here on; one that cannot be understood leaves the one before in force."""
    try:
        parse_policy(change.policy)
    except InvalidPolicy:
        outcome.raised.append("policy")
    else:
        parts.deciding.state.policy = change.policy


def request(parts: Parts, entry: LogEntry, wish: OperatorRequest, outcome: Outcome) -> None:
    """A person holds or releases the run, takes an incident on, or settles it."""
    run = parts.run
    if wish.request == "hold":
        run.held_by, run.hold_reason = wish.by or "a person", wish.reason
        for command in list(parts.deciding.state.orders):
            order_failed(parts, entry, ActionChange(ActionId(command), "expire", f"held by {run.held_by}"), outcome)
        for command in list(parts.launchers.state.restarts):
            not_done(parts, entry, command, outcome, reason=f"held by {run.held_by}")
        return
    if wish.request == "release":
        run.held_by = run.hold_reason = ""
        return
    incident = None if wish.incident is None else parts.incidents.get(wish.incident)
    if incident is None or not incident.is_open:
        return
    if wish.request == "acknowledge":
        outcome.incidents.append(parts.incidents.acknowledge(incident, wish.by or "a person"))
        return
    reason = f"settled by {wish.by or 'a person'}" + (f": {wish.reason}" if wish.reason else "")
    change = parts.incidents.resolve(incident, "settled by a person", reason, step=run.step, entry=entry)
    parts.deciding.decide(change, run, entry, outcome)


def reconsider(parts: Parts, entry: LogEntry, outcome: Outcome) -> None:
    """Decides again where a limit that withheld a decision no longer stands in the way."""
    for incident in list(parts.deciding.lifted(parts.run, entry)):
        change = parts.incidents.reconsider(incident)
        parts.deciding.decide(change, parts.run, entry, outcome)
