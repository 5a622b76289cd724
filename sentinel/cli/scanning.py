"""The real pipeline, told a log that somebody else recorded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files

from sentinel.checkpoints.catalog import MARGIN_STEPS
from sentinel.domain.decisions import Decision
from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.ids import AttemptId, CheckpointId, IncidentId, RunId, SenderId
from sentinel.protocol.observations import (
    AttemptStarted,
    CheckpointReport,
    Observation,
    PolicyChanged,
    StepReport,
)

RUN = RunId("scan")
SENDER = SenderId("log")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanDecision:
    """What the policy chose. ``target_step`` is a row of the log: what would be there if it had been saved."""

    step: int
    action: str
    target_step: int | None
    reason: str
    incident: IncidentId


@dataclass(slots=True)
class Scan:
    """What Sentinel says about a log; each list only grows as the log does."""

    reports: Sequence[StepReport]
    findings: list[Finding] = field(default_factory=list)
    incidents: dict[IncidentId, Incident] = field(default_factory=dict)
    """As they were when they first reached warning; only ``end_step`` and ``verdict`` are kept up to date."""
    decisions: list[ScanDecision] = field(default_factory=list)


def scan(reports: Sequence[StepReport], policy: str | None = None) -> Scan:
    """Tells a pipeline the log, row by row, and collects what it answers; nothing is looked at ahead of time.

    A log has no checkpoints, and nothing can be done to it. So the run is observed only, and one checkpoint, of the
    first row, lets the policy say when it would go back; to which row it would have gone, had it been saved, is the
    last one from before the onset and the margin. A step that goes back is a resume: a new attempt.

    Args:
        reports: of the log, in its order.
        policy: TOML text; the default policy if None.
    """
    return _Scanner(reports, policy).scan()


class _Scanner:
    def __init__(self, reports: Sequence[StepReport], policy: str | None) -> None:
        text = files("sentinel.policy").joinpath("default.toml").read_text() if policy is None else policy
        self._pipeline = Pipeline(RUN)
        self._scan = Scan(reports)
        self._sequence = 0
        self._attempt = 0
        self._steps: list[int] = []
        self._tell(PolicyChanged(at=0.0, policy=text))

    def scan(self) -> Scan:
        for report in self._scan.reports:
            if not self._steps or report.step <= self._steps[-1]:
                self._start(report)
            self._steps.append(report.step)
            # Foreign durations may be in any unit and over any number of steps: how fast it was is not judged.
            self._take(self._tell(replace(report, step_s=None)))
        return self._scan

    def _start(self, report: StepReport) -> None:
        """A new attempt; the rows that it does again are no rows to go back to."""
        self._attempt += 1
        self._steps = self._steps[: bisect_right(self._steps, report.step - 1)]
        step = max(0, report.step - 1)
        self._take(
            self._tell(
                AttemptStarted(at=report.at, mode="observe", precision="16-mixed", step=step, rollback="forward")
            )
        )
        if self._attempt == 1:
            first = CheckpointReport(
                at=report.at, checkpoint=CheckpointId("first row"), step=report.step, state="verified", digest="none"
            )
            self._take(self._tell(first))

    def _tell(self, observation: Observation) -> Outcome:
        self._sequence += 1
        return self._pipeline.advance(
            LogEntry(
                run=RUN,
                sequence=self._sequence,
                received_at=observation.at,
                attempt=AttemptId(f"attempt-{self._attempt}" if self._attempt else ""),
                sender=SENDER,
                observation=observation,
            )
        )

    def _take(self, outcome: Outcome) -> None:
        if outcome.raised:
            raise RuntimeError(f"a bug: {', '.join(outcome.raised)} raised at entry {self._sequence}")
        self._scan.findings += outcome.findings
        known = self._scan.incidents
        for incident in outcome.incidents:
            if incident.id in known:
                first = known[incident.id]
                first = replace(first, end_step=incident.end_step, verdict=incident.verdict)
                known[incident.id] = first
            elif incident.severity != "info":
                known[incident.id] = replace(incident, detected_step=self._steps[-1])
        latest = {incident.id: incident for incident in outcome.incidents}
        self._scan.decisions += [self._decision(each, latest[each.incident]) for each in outcome.decisions]

    def _decision(self, decision: Decision, incident: Incident) -> ScanDecision:
        """A decision in the words of a log: what observing withheld is what would have been done."""
        action, target, reason = decision.rung, None, decision.reason
        if decision.outcome == "withheld":
            action = "none"
        elif action == "rollback":
            row = bisect_right(self._steps, incident.suspect_from - MARGIN_STEPS) - 1
            target = self._steps[max(row, 0)]
            reason = f"{incident.reason}; to step {target}, if saved there"
        return ScanDecision(
            step=decision.step, action=action, target_step=target, reason=reason, incident=decision.incident
        )
