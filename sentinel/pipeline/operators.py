"""What people ask for, and decisions that waited for something to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sentinel.checkpoints.catalog import MARGIN_STEPS
from sentinel.checkpoints.selection import Selection, named, select
from sentinel.domain.actions import ActionChange
from sentinel.domain.errors import InvalidPolicy
from sentinel.domain.incidents import ASKED, Incident
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.symptoms import doubts_checkpoints
from sentinel.pipeline.answers import order_failed
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.processes import not_done
from sentinel.policy.decide import Choice
from sentinel.policy.limits import Refusal, refusal
from sentinel.policy.rules import Rule, recorded_policy
from sentinel.protocol.ids import ActionId
from sentinel.protocol.observations import OperatorRequest, PolicyChanged

REQUESTS_KEPT: Final = 64
SOMEBODY: Final = "a person"


def policy_changed(parts: Parts, _entry: LogEntry, change: PolicyChanged, outcome: Outcome) -> None:
    """Another policy decides from here on; one that cannot be understood leaves the one before in force."""
    try:
        recorded_policy(change.policy)
    except InvalidPolicy:
        outcome.raised.append("policy")
    else:
        parts.deciding.state.policy = change.policy


def request(parts: Parts, entry: LogEntry, wish: OperatorRequest, outcome: Outcome) -> None:
    """Does what a person asks for. What is only to be kept, an annotation, stands in the log."""
    if wish.key:
        if wish.key in parts.state.asked:
            return
        parts.state.asked = [*parts.state.asked, wish.key][-REQUESTS_KEPT:]
    stage = _STAGES.get(wish.request)
    if stage is not None:
        stage(parts, entry, wish, outcome)


def _hold(parts: Parts, entry: LogEntry, wish: OperatorRequest, outcome: Outcome) -> None:
    run = parts.run
    if wish.fleet:
        run.all_held_by, run.all_hold_reason = wish.by or SOMEBODY, wish.reason
    else:
        run.held_by, run.hold_reason = wish.by or SOMEBODY, wish.reason
    for command in list(parts.deciding.state.orders):
        order_failed(parts, entry, ActionChange(ActionId(command), "expire", run.hold), outcome)
    for restart in list(parts.launchers.state.restarts):
        not_done(parts, entry, restart, outcome, reason=run.hold)


def _release(parts: Parts, _entry: LogEntry, wish: OperatorRequest, _outcome: Outcome) -> None:
    run = parts.run
    if wish.fleet:
        run.all_held_by = run.all_hold_reason = ""
    else:
        run.held_by = run.hold_reason = ""


def _acknowledge(parts: Parts, _entry: LogEntry, wish: OperatorRequest, outcome: Outcome) -> None:
    incident = _open_incident(parts, wish)
    if incident is not None:
        outcome.incidents.append(parts.incidents.acknowledge(incident, wish.by or SOMEBODY))


def _resolve(parts: Parts, entry: LogEntry, wish: OperatorRequest, outcome: Outcome) -> None:
    incident = _open_incident(parts, wish)
    if incident is None:
        return
    reason = f"settled by {wish.by or SOMEBODY}" + (f": {wish.reason}" if wish.reason else "")
    change = parts.incidents.resolve(incident, "settled by a person", reason, step=parts.run.step, entry=entry)
    parts.deciding.decide(change, parts.run, entry, outcome)


def _roll_back(parts: Parts, entry: LogEntry, wish: OperatorRequest, outcome: Outcome) -> None:
    """Goes back because a person says so, now or not at all: what is refused is not asked again later."""
    run = parts.run
    asks = f"{wish.by or SOMEBODY} asks to go back" + (f" ({wish.reason})" if wish.reason else "")
    rule = Rule(name=f"asked for by {wish.by or SOMEBODY}", rung="rollback")
    selection = _wanted(parts, wish)
    refused = refusal(parts.deciding.situation(run, entry, selection), asked_by_person=True)
    if refused is None and parts.deciding.state.orders:
        refused = Refusal(kind="under_way", reason="a rollback is under way")
    curable = [each for each in parts.incidents.unsettled if doubts_checkpoints(each.symptom)]
    incident = _open_incident(parts, wish) or next(reversed(curable), None)
    if incident is not None:
        change = parts.incidents.speak_of(incident, asks)
    else:
        change = parts.incidents.asked(asks, entry, segment=run.segment, step=run.step)
    if refused is None:
        choice = Choice(rule=rule, rung="rollback", outcome="ordered", reason=f"{asks}; to {selection.reason}")
    else:
        choice = Choice(
            rule=rule, rung="rollback", outcome="withheld", reason=f"{asks}; {refused.reason}", refused=refused
        )
        if incident is None:
            over = parts.incidents.resolve(change.incident, change.change, choice.reason, step=run.step, entry=entry)
            change = replace(over, reason=asks)
    parts.deciding.conclude(change, choice, selection=selection, run=run, entry=entry, outcome=outcome)


def _wanted(parts: Parts, wish: OperatorRequest) -> Selection:
    """The checkpoint that is named, else the newest good one from before every open fault."""
    checkpoints = parts.catalog.checkpoints
    if wish.checkpoint is not None:
        return named(checkpoints, wish.checkpoint)
    faults = [each for each in parts.incidents.unsettled if doubts_checkpoints(each.symptom)]
    onsets = [each.suspect_from for each in faults if ASKED not in each.symptoms]
    return select(checkpoints, min(onsets, default=parts.run.step + MARGIN_STEPS))


def _open_incident(parts: Parts, wish: OperatorRequest) -> Incident | None:
    incident = None if wish.incident is None else parts.incidents.get(wish.incident)
    return incident if incident is not None and incident.is_open else None


_STAGES: Final[Mapping[str, Callable[[Parts, LogEntry, OperatorRequest, Outcome], None]]] = {
    "hold": _hold,
    "release": _release,
    "roll_back": _roll_back,
    "acknowledge": _acknowledge,
    "resolve": _resolve,
}


def reconsider(parts: Parts, entry: LogEntry, outcome: Outcome) -> None:
    """Decides again where a limit that withheld a decision no longer stands in the way."""
    for incident in list(parts.deciding.lifted(parts.run, entry)):
        change = parts.incidents.reconsider(incident)
        parts.deciding.decide(change, parts.run, entry, outcome)
