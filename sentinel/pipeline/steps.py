"""A step of the live branch: judged, confirming checkpoints, and returning to the path after a rollback."""

from __future__ import annotations

from sentinel.domain.actions import ActionChange
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.answers import order_failed, unheard_rollback
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.seeing import see
from sentinel.protocol.ids import ActionId
from sentinel.protocol.observations import StepReport


def step(parts: Parts, entry: LogEntry, report: StepReport, outcome: Outcome) -> None:
    """Judges a report of the live segment. One of an abandoned branch stays in the log and is never judged."""
    run = parts.run
    if entry.attempt == run.attempt:
        run.behind = entry.backlog
    if entry.attempt != run.attempt or (report.segment, report.step) <= (run.segment, run.step):
        return
    if report.segment > run.segment:
        unheard_rollback(parts, entry, report, outcome)
    parts.deciding.state.worked_steps += report.step - run.step
    run.segment, run.step, run.loss = report.segment, report.step, report.loss
    outcome.rollups += parts.rollups.take(report, entry.sequence)
    see(parts, entry, outcome)
    outcome.checkpoints += parts.catalog.step(report.step, faults_open=bool(parts.incidents.of_model))
    _follow_recovery(parts, entry, report, outcome)
    for command in parts.deciding.overdue(report.step):
        late = ActionChange(ActionId(command), "expire", "the trainer did not carry it out in time")
        order_failed(parts, entry, late, outcome)


def _follow_recovery(parts: Parts, entry: LogEntry, report: StepReport, outcome: Outcome) -> None:
    result = parts.recovery.step(report.step, report.at, report.loss)
    if result is None:
        return
    for incident in [each for each in parts.incidents.unsettled if each.rollbacks and not each.open_symptoms]:
        if result.recovered:
            change = parts.incidents.resolve(incident, "recovered", result.reason, step=report.step, entry=entry)
        elif incident.state != "mitigating":
            continue
        elif result.is_below:
            change = parts.incidents.failed(incident, "below its path", result.reason, entry)
        else:
            if incident.checkpoint is not None:
                outcome.checkpoints += parts.catalog.distrust(incident.checkpoint, "the run did not recover from it")
            change = parts.incidents.failed(incident, "not recovered", result.reason, entry)
        parts.deciding.decide(change, parts.run, entry, outcome)
