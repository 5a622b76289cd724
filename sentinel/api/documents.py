"""What the answers look like, for the schema in /openapi.json: the domain's own nouns, and what HTTP adds to them.

Answers are not made from these classes: stored documents are returned as they are. A float that is not finite stands
there as the text "NaN", "Infinity" or "-Infinity", and a field without a value is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sentinel.domain.actions import ActionState, Executor
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.decisions import Decision
from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident
from sentinel.domain.runs import Run
from sentinel.protocol.ids import ActionId, AttemptId, CheckpointId, IncidentId, RunId
from sentinel.protocol.observations import AttemptEnded, AttemptStarted
from sentinel.protocol.processes import CrashReport, StackReport
from sentinel.store.series import Bucket


@dataclass(kw_only=True)
class RunStanding(Run):
    """A run and where it stands."""

    run: RunId
    created_at: float
    sequence: int
    """The newest entry of its log."""
    open_incidents: int


@dataclass(kw_only=True)
class Runs:
    """Every run, the one heard of last first."""

    runs: list[RunStanding]


@dataclass(kw_only=True)
class Attempt:
    """An attempt's beginning and end, as far as they were told."""

    attempt: AttemptId
    started_at: float | None = None
    """Unix seconds, by the daemon's clock."""
    ended_at: float | None = None
    started: AttemptStarted | None = None
    ended: AttemptEnded | None = None


@dataclass(kw_only=True)
class Attempts:
    """The attempts of a run, oldest first."""

    attempts: list[Attempt]


@dataclass(frozen=True, kw_only=True)
class RunDecision(Decision):
    """A decision."""

    run: RunId


@dataclass(kw_only=True)
class Decisions:
    """Decisions in the order in which they were taken; the last one's ``sequence`` asks for what comes after it."""

    decisions: list[RunDecision]


@dataclass(frozen=True, kw_only=True)
class RunFinding(Finding):
    """A finding."""

    sequence: int
    """The log entry that caused it."""


@dataclass(kw_only=True)
class Findings:
    """Findings in order; the last one's ``sequence`` asks for what comes after it."""

    findings: list[RunFinding]


@dataclass(kw_only=True)
class Checkpoints:
    """Checkpoints of a run, newest step first."""

    checkpoints: list[Checkpoint]


@dataclass(kw_only=True)
class Series:
    """Each series in buckets of consecutive reports; a run that was set back has a branch for each segment."""

    run: RunId
    series: Mapping[str, list[Bucket]]


@dataclass(frozen=True, kw_only=True)
class RunIncident(Incident):
    """An incident."""

    run: RunId


@dataclass(kw_only=True)
class Incidents:
    """A page of incidents, newest first."""

    incidents: list[RunIncident]
    next_cursor: str | None = None
    """Asks for the next page; absent on the last one."""


@dataclass(kw_only=True)
class TakenAction:
    """What was to be done for an incident, and what became of it."""

    id: ActionId
    executor: Executor
    state: ActionState
    reason: str
    tries: int
    planned_at: float
    changed_at: float
    payload: Mapping[str, Any]


@dataclass(kw_only=True)
class Point:
    """One step near an incident."""

    sequence: int
    attempt: AttemptId
    step: int
    segment: int = 0
    loss: float | None = None
    grad_norm: float | None = None


@dataclass(kw_only=True)
class Request:
    """What a person said or asked."""

    sequence: int
    at: float
    """Unix seconds, by the daemon's clock."""
    request: str
    by: str
    reason: str = ""


@dataclass(kw_only=True)
class FleetHold:
    """What was last asked of all runs."""

    is_held: bool
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ToldCrash(CrashReport):
    """A process that died, as it was told."""

    sequence: int
    attempt: AttemptId


@dataclass(frozen=True, kw_only=True)
class ToldStacks(StackReport):
    """Where a process stood, as it was told."""

    sequence: int
    attempt: AttemptId


@dataclass(frozen=True, kw_only=True)
class IncidentStory(RunIncident):
    """An incident with all that belongs to it."""

    decisions: list[RunDecision]
    findings: list[RunFinding]
    actions: list[TakenAction]
    requests: list[Request]
    """What people said and asked about it, in order."""
    evidence: list[Point]
    crashes: list[ToldCrash]
    """What launchers told of processes that died, with the last lines of their standard error."""
    stacks: list[ToldStacks]
    """Where the threads of each rank stood."""


@dataclass(kw_only=True)
class Wish:
    """Who asks, and why."""

    by: str = ""
    """The token's name where it does not say."""
    reason: str = ""
    """At most 2,000 characters."""


@dataclass(kw_only=True)
class RollbackWish(Wish):
    """Who asks to go back, why, and where to."""

    checkpoint: CheckpointId | None = None
    """A verified or known-good one of the run; else the newest good one from before every open fault."""
    incident: IncidentId | None = None
    """The open incident because of which; else the newest open one, or one of its own."""
