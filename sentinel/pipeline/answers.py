"""What became of orders and alerts, and what agents say of checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sentinel.domain.actions import ActionChange, ActionEvent
from sentinel.domain.incidents import ASKED
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline import processes
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.seeing import see
from sentinel.protocol.ids import ActionId, CommandId
from sentinel.protocol.launching import is_launcher
from sentinel.protocol.observations import ActionResult, CheckpointReport, CommandResult, StepReport

_EVENTS: Final[dict[str, ActionEvent]] = {
    "succeeded": "succeed",
    "failed": "fail",
    "refused": "fail",
    "expired": "expire",
}


def checkpoint_report(parts: Parts, entry: LogEntry, report: CheckpointReport, outcome: Outcome) -> None:
    """A checkpoint was saved, verified, found broken or deleted; one saved during a fault is suspect."""
    if entry.attempt != parts.run.attempt:
        return
    onsets = [each.suspect_from for each in parts.incidents.of_model if each.segment == parts.run.segment]
    outcome.checkpoints += parts.catalog.report(report, entry.attempt, doubt_from=min(onsets, default=None))


def command_result(parts: Parts, entry: LogEntry, result: CommandResult, outcome: Outcome) -> None:
    """The agent answered for a command."""
    if is_launcher(entry.sender):
        processes.answered(parts, entry, result, outcome)
        return
    if entry.attempt != parts.run.attempt:
        return
    if result.outcome == "succeeded" or result.segment > parts.run.segment:
        _rolled_back(parts, entry, result, outcome)
    else:
        action = ActionId(result.command)
        order_failed(parts, entry, ActionChange(action, _EVENTS[result.outcome], result.reason), outcome)


def action_result(_parts: Parts, _entry: LogEntry, result: ActionResult, outcome: Outcome) -> None:
    """An executor answered for an action that no agent reports on."""
    outcome.action_changes.append(ActionChange(result.action, _EVENTS[result.outcome], result.reason))


def order_failed(parts: Parts, entry: LogEntry, change: ActionChange, outcome: Outcome) -> None:
    """What was ordered was not done: its incident is open again and decided anew. A hold is no failure."""
    order = parts.deciding.settle(CommandId(change.action), failed=not parts.run.hold)
    if order is None:
        return
    outcome.action_changes.append(change)
    incident = parts.incidents.get(order.incident)
    if incident is None or incident.state != "mitigating":
        return
    if incident.symptoms == (ASKED,):  # nobody claims a fault: whoever asked may ask again
        over = parts.incidents.resolve(incident, "action failed", change.reason, step=parts.run.step, entry=entry)
        parts.deciding.decide(over, parts.run, entry, outcome)
    else:
        failure = parts.incidents.failed(incident, "action failed", change.reason, entry)
        parts.deciding.decide(failure, parts.run, entry, outcome)


def unheard_rollback(parts: Parts, entry: LogEntry, report: StepReport, outcome: Outcome) -> None:
    """A segment began of which no result told: the agent goes back only when asked, so it did as ordered."""
    orders = parts.deciding.state.orders
    command, order = next(iter(orders.items()), (CommandId(""), None))
    step = max(0, report.step - 1) if order is None else min(order.command.step, max(0, report.step - 1))
    result = CommandResult(at=report.at, command=command, outcome="succeeded", step=step, segment=report.segment)
    _rolled_back(parts, replace(entry, observation=result), result, outcome)


def _rolled_back(parts: Parts, entry: LogEntry, result: CommandResult, outcome: Outcome) -> None:
    run = parts.run
    if result.segment <= run.segment:
        return  # told again
    lost_steps = max(0, (run.step if result.from_step is None else result.from_step) - result.step)
    order = parts.deciding.settle(result.command, failed=result.outcome != "succeeded")
    if order is not None:
        outcome.action_changes.append(ActionChange(ActionId(result.command), _EVENTS[result.outcome], result.reason))
    if result.outcome != "succeeded" and result.checkpoint is not None:  # it went back and is not what was saved
        outcome.checkpoints += parts.catalog.distrust(result.checkpoint, result.reason)
    parts.deciding.withdraw("the run went back without it", outcome)
    parts.deciding.remember_rollback()
    outcome.rollups += parts.rollups.flush()
    outcome.checkpoints += parts.catalog.rolled_back(result.step, result.segment)
    lr_scale = 1.0 if order is None else order.command.lr_scale
    lost_s = parts.recovery.rolled_back(result.step, result.at, lr_scale=lr_scale)
    run.segment, run.step = result.segment, result.step
    see(parts, entry, outcome)
    checkpoint = result.checkpoint if order is None else order.command.checkpoint
    own = None if order is None else order.incident
    back = [each for each in parts.incidents.unsettled if each.doubts_checkpoints or each.id == own]
    for incident in back:  # whoever ordered it: the detectors begin anew for all that it may cure
        change = parts.incidents.rolled_back(incident, checkpoint, entry, lost_steps=lost_steps, lost_s=lost_s)
        parts.deciding.decide(change, run, entry, outcome)
