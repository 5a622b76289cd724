"""Attempts begin, speak, fall silent and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.seeing import see
from sentinel.protocol.ids import AttemptId
from sentinel.protocol.observations import AttemptEnded, AttemptStarted, StepReport, Tick

SILENT_AFTER_S: Final = 60.0
"""Twice the agent's longest back-off: a daemon that was away has been found again by then."""
ATTEMPTS_KEPT: Final = 64


def hear(parts: Parts, entry: LogEntry, outcome: Outcome) -> None:
    """A sender spoke. An attempt whose start was lost begins with its first step, and is only observed.

    Nobody said that it may be touched.
    """
    run = parts.run
    run.last_at = entry.received_at
    if entry.attempt == run.attempt and run.phase == "silent":
        run.phase = "training"
    if entry.attempt not in parts.state.attempts and isinstance(entry.observation, StepReport):
        step = max(0, entry.observation.step - 1)
        start = AttemptStarted(at=0.0, mode="observe", step=step, rollback_reason="its start was never reported")
        started(parts, replace(entry, observation=start), start, outcome)


def started(parts: Parts, entry: LogEntry, attempt: AttemptStarted, outcome: Outcome) -> None:
    """The run is trained anew or on: orders to the attempt before are void, and so is what it was going through."""
    run = parts.run
    if entry.attempt in parts.state.attempts and entry.attempt != run.attempt:
        return  # a straggler: the attempt after it trains already
    parts.deciding.withdraw("a new attempt began", outcome)
    outcome.rollups += parts.rollups.flush()
    _begin(parts, entry.attempt)
    outcome.checkpoints += parts.catalog.started(attempt.step)
    run.last_at, run.step, run.max_steps = entry.received_at, attempt.step, attempt.max_steps
    run.mode, run.rollback, run.rollback_reason = attempt.mode, attempt.rollback, attempt.rollback_reason
    run.behind = entry.backlog
    run.precision, run.accumulate, run.host = attempt.precision, attempt.accumulate, attempt.host
    parts.recovery.start()
    see(parts, entry, outcome)
    for incident in parts.incidents.unsettled:
        reason = f"a new attempt began at step {attempt.step}"
        change = parts.incidents.resolve(incident, "restarted", reason, step=attempt.step, entry=entry)
        parts.deciding.decide(change, run, entry, outcome)


def ended(parts: Parts, entry: LogEntry, end: AttemptEnded, outcome: Outcome) -> None:
    """The attempt is over; its unsettled incidents stay for people, or for the next attempt."""
    if entry.attempt == parts.run.attempt:
        parts.run.phase = end.outcome
        parts.deciding.withdraw("the attempt ended", outcome)
        outcome.rollups += parts.rollups.flush()


def tick(parts: Parts, _entry: LogEntry, silence: Tick, _outcome: Outcome) -> None:
    """The daemon listened and heard nothing."""
    if parts.run.phase == "training" and silence.silent_s >= SILENT_AFTER_S:
        parts.run.phase = "silent"


def _begin(parts: Parts, attempt: AttemptId) -> None:
    run = parts.run
    run.attempt, run.segment, run.phase = attempt, 0, "training"
    if attempt not in parts.state.attempts:
        run.attempts += 1
        parts.state.attempts = [*parts.state.attempts, attempt][-ATTEMPTS_KEPT:]
