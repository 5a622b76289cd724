"""What launchers tell of the training's processes, and time that passes without a step."""

from __future__ import annotations

from dataclasses import replace

from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline import attempts
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.seeing import see
from sentinel.protocol.ids import CommandId, leads
from sentinel.protocol.observations import CommandResult, Heartbeat, StepReport, Tick
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange


def launcher_started(parts: Parts, entry: LogEntry, word: LauncherStarted, outcome: Outcome) -> None:
    """A launcher stands by; one of an attempt that is over does not, nor takes one that has none left an order."""
    if entry.attempt != parts.run.attempt and entry.attempt in parts.state.attempts:
        return
    parts.launchers.stand_by(entry.attempt, word, has_begun=parts.run.attempt in ("", entry.attempt))
    if word.can_restart and not word.restarts_left and entry.attempt == parts.launchers.state.standing.attempt:
        for command in list(parts.launchers.state.restarts):
            not_done(parts, entry, command, outcome, reason="the launcher has no restart left")


def crash(parts: Parts, entry: LogEntry, report: CrashReport, outcome: Outcome) -> None:
    """A process died. After an orderly end that is no fault, nor is it news while a restart is ordered already."""
    run = parts.run
    if run.attempt and entry.attempt != run.attempt:
        return
    if run.phase in ("finished", "interrupted"):
        return
    parts.launchers.saw_crash(entry.attempt, report, outcome, is_history=entry.backlog)
    run.phase = "failed"
    parts.deciding.withdraw("the process is gone", outcome)
    outcome.rollups += parts.rollups.flush()
    if not parts.launchers.state.restarts:
        see(parts, entry, outcome)


def phase(parts: Parts, entry: LogEntry, change: PhaseChange, outcome: Outcome) -> None:
    """The training went over to another kind of work."""
    if entry.attempt == parts.run.attempt and change.rank == 0:
        see(parts, entry, outcome)


def heartbeat(parts: Parts, entry: LogEntry, _beat: Heartbeat, outcome: Outcome) -> None:
    """The training's agent lives."""
    if entry.attempt == parts.run.attempt and leads(entry.sender):  # another rank's clock is another
        see(parts, entry, outcome)
        parts.launchers.sign(outcome, heard=True)


def tick(parts: Parts, entry: LogEntry, silence: Tick, outcome: Outcome) -> None:
    """The daemon listened and heard nothing."""
    attempts.tick(parts, entry, silence, outcome)
    see(parts, entry, outcome)
    parts.launchers.sign(outcome, heard=False)


def answered(parts: Parts, entry: LogEntry, result: CommandResult, outcome: Outcome) -> None:
    """A launcher answered for an order. A restart that was not made leaves its incident open, to be decided anew."""
    if result.outcome != "succeeded":
        not_done(parts, entry, result.command, outcome, reason=result.reason)
    elif result.command in parts.launchers.state.restarts:
        parts.launchers.started_again(parts.deciding.state.worked_steps, outcome)
    else:
        parts.launchers.settle(result.command, "succeed", result.reason, outcome)


def not_done(parts: Parts, entry: LogEntry, command: CommandId, outcome: Outcome, *, reason: str) -> None:
    """An order to a launcher failed or is void."""
    is_restart = command in parts.launchers.state.restarts
    order = parts.launchers.settle(command, "fail", reason, outcome)
    if order is None or not is_restart:
        return
    if not parts.run.hold:
        parts.deciding.count_failure(order.incident)
    incident = parts.incidents.get(order.incident)
    if incident is not None and incident.state == "mitigating":
        failure = parts.incidents.failed(incident, "action failed", reason, entry)
        parts.deciding.decide(failure, parts.run, entry, outcome)


def passed_the_place(parts: Parts, entry: LogEntry, report: StepReport, outcome: Outcome) -> None:
    """A step beyond the one at which the processes failed: they are well."""
    for incident in parts.incidents.of_process:
        if incident.restarts and not incident.open_symptoms and report.step > incident.detected_step:
            lost_s = max(0.0, entry.received_at - incident.detected_at)  # from the sign of it to where the run was
            incident = replace(incident, lost_s=incident.lost_s + lost_s)  # noqa: PLW2901
            reason = f"step {report.step} has come, beyond the one that it befell"
            change = parts.incidents.resolve(incident, "recovered", reason, step=report.step, entry=entry)
            parts.deciding.decide(change, parts.run, entry, outcome)
