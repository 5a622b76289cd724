"""Attempts begin, speak, fall silent and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.seeing import see
from sentinel.protocol.ids import AttemptId, leads
from sentinel.protocol.observations import AttemptEnded, AttemptStarted, PipelineStarted, StepReport, Tick

SILENT_AFTER_S: Final = 60.0
"""Twice the agent's longest back-off: a daemon that was away has been found again by then."""
BLIND_AT_MOST_S: Final = 30.0
"""The agent's longest back-off: who has not spoken by then is silent."""
ATTEMPTS_KEPT: Final = 64


def listening(parts: Parts, entry: LogEntry, _begun: PipelineStarted, outcome: Outcome) -> None:
    """A daemon begins to listen, after a start, a hand-over or a gap: where the run went meanwhile is not known."""
    see(parts, entry, outcome)
    parts.run.blind = parts.run.phase in ("training", "silent")


def hear(parts: Parts, entry: LogEntry, outcome: Outcome) -> None:
    """A sender spoke. An attempt whose start was lost begins with its first step, and is only observed.

    Nobody said that it may be touched.
    """
    run = parts.run
    run.last_at = entry.received_at
    if not leads(entry.sender):
        return  # who stands by says nothing of the training, and another rank may speak on while the first is gone
    if entry.attempt == run.attempt and run.phase == "silent":
        run.phase = "training"
    if entry.attempt not in parts.state.attempts and isinstance(entry.observation, StepReport):
        step = max(0, entry.observation.step - 1)
        at, reason = entry.observation.at, "its start was never reported"
        start = AttemptStarted(at=at, mode="observe", step=step, rollback_reason=reason)
        started(parts, replace(entry, observation=start), start, outcome)
    if entry.attempt == run.attempt and not entry.backlog:
        run.blind = False


def started(parts: Parts, entry: LogEntry, attempt: AttemptStarted, outcome: Outcome) -> None:
    """The run is trained anew or on: orders to the attempt before are void, and so is what it was going through."""
    run = parts.run
    if entry.attempt in parts.state.attempts and entry.attempt != run.attempt:
        return  # a straggler: the attempt after it trains already
    if _is_past(run, entry, attempt):
        _remember(parts, entry.attempt)
        return
    parts.deciding.withdraw("a new attempt began", outcome)
    outcome.rollups += parts.rollups.flush()
    _begin(parts, entry.attempt, attempt.at)
    parts.launchers.begins(entry.attempt)
    outcome.checkpoints += parts.catalog.started(attempt.step)
    run.last_at, run.step, run.max_steps = entry.received_at, attempt.step, attempt.max_steps
    run.mode, run.rollback, run.rollback_reason = attempt.mode, attempt.rollback, attempt.rollback_reason
    run.behind = entry.backlog
    run.precision, run.accumulate, run.host = attempt.precision, attempt.accumulate, attempt.host
    parts.recovery.start()
    see(parts, entry, outcome)
    for incident in [each for each in parts.incidents.unsettled if not each.is_of_process]:
        reason = f"a new attempt began at step {attempt.step}"
        change = parts.incidents.resolve(incident, "restarted", reason, step=attempt.step, entry=entry)
        parts.deciding.decide(change, run, entry, outcome)
    parts.launchers.started_again(parts.deciding.state.worked_steps, outcome)
    for incident in parts.incidents.of_process:
        lost_steps = max(0, incident.detected_step - attempt.step)
        change = parts.incidents.started_again(incident, entry, lost_steps=lost_steps)
        parts.deciding.decide(change, run, entry, outcome)


def ended(parts: Parts, entry: LogEntry, end: AttemptEnded, outcome: Outcome) -> None:
    """The attempt is over; its unsettled incidents stay for people, or for the next attempt."""
    if entry.attempt == parts.run.attempt:
        parts.run.phase = end.outcome
        see(parts, entry, outcome)
        parts.deciding.withdraw("the attempt ended", outcome)
        outcome.rollups += parts.rollups.flush()


def tick(parts: Parts, _entry: LogEntry, silence: Tick, _outcome: Outcome) -> None:
    """The daemon listened and heard nothing."""
    if silence.silent_s >= BLIND_AT_MOST_S:
        parts.run.blind = False
    if parts.run.phase == "training" and silence.silent_s >= SILENT_AFTER_S:
        parts.run.phase = "silent"


def _is_past(run: Run, entry: LogEntry, attempt: AttemptStarted) -> bool:
    """Whether this is history of an attempt that was over before the one that is known began."""
    return entry.backlog and entry.attempt != run.attempt and attempt.at < run.began_at


def _begin(parts: Parts, attempt: AttemptId, at: float) -> None:
    run = parts.run
    run.attempt, run.segment, run.phase = attempt, 0, "training"
    run.began_at, run.blind = at, False
    if attempt not in parts.state.attempts:
        run.attempts += 1
        _remember(parts, attempt)


def _remember(parts: Parts, attempt: AttemptId) -> None:
    parts.state.attempts = [*parts.state.attempts, attempt][-ATTEMPTS_KEPT:]
