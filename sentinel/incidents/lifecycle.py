"""How an incident changes: by findings, by what became of actions, by people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sentinel.domain.findings import Finding, worse
from sentinel.domain.incidents import ASKED, TRANSITIONS, Incident, IncidentEvent
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.transitions import next_state
from sentinel.incidents.correlate import incident_of
from sentinel.protocol.ids import CheckpointId, IncidentId, RunId

KEPT: Final = 64
"""Incidents remembered to take findings back; the database has them all."""

Change = Literal[
    "opened",
    "worsened",
    "revised",
    "reopened",
    "recurred",
    "rolled back",
    "action failed",
    "not recovered",
    "below its path",
    "recovered",
    "passed",
    "restarted",
    "settled by a person",
    "reconsidered",
    "asked for by a person",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentChange:
    """An incident after a change, and which change it was: each gets a decision."""

    incident: Incident
    change: Change
    reason: str


@dataclass(slots=True)
class IncidentsState:
    """The newest incidents of the run, oldest first."""

    incidents: dict[IncidentId, Incident] = field(default_factory=dict)


class Incidents:
    """A fold of findings and results into incidents."""

    def __init__(self, run: RunId) -> None:
        self.state = IncidentsState()
        self._run = run

    @property
    def unsettled(self) -> list[Incident]:
        """Those that are not resolved, oldest first."""
        return [each for each in self.state.incidents.values() if each.is_open]

    @property
    def of_model(self) -> list[Incident]:
        """Those of ``unsettled`` that make checkpoints suspect, and that a rollback may cure."""
        return [each for each in self.unsettled if each.doubts_checkpoints]

    def get(self, incident: IncidentId) -> Incident | None:
        """One incident, if it is remembered."""
        return self.state.incidents.get(incident)

    def find(self, finding: Finding, entry: LogEntry, *, segment: int) -> IncidentChange | None:
        """Takes a finding; returns the incident that it opens or changes, None when it changes nothing."""
        known = incident_of(finding, self.state.incidents.values())
        if known is None:
            opens = finding.phase == "began" and finding.severity != "info"  # a note is kept, and is no fault
            return self._open(finding, entry, segment=segment) if opens else None
        if finding.phase == "ended":
            return self._end(known, finding, entry)
        event: IncidentEvent | None = None
        change: Change = "revised"
        if known.state == "resolved":
            event, change = "recur", "reopened"
        elif known.state == "mitigating" and finding.phase == "began" and segment > known.segment:
            event, change = "recur", "recurred"
        severity = worse(known.severity, finding.severity)
        malignant = finding.verdict == "malignant"
        if event is None and (severity != known.severity or (malignant and known.verdict != "malignant")):
            change = "worsened"
        incident = replace(
            known,
            symptoms=_with(known.symptoms, finding.symptom),
            open_symptoms=_with(known.open_symptoms, finding.symptom),
            severity=severity,
            verdict="malignant" if malignant else known.verdict if event is None else finding.verdict,
            segment=segment,
            suspect_from=finding.onset_step if event is not None else min(known.suspect_from, finding.onset_step),
            reason=finding.reason,
            end_step=known.end_step if event is None else None,
            end_at=known.end_at if event is None else None,
            resolution=known.resolution if event is None else "",
        )
        return self._change(incident, change, finding.reason, entry, event=event)

    def mitigate(self, incident: Incident, entry: LogEntry) -> Incident:
        """A rollback was ordered for it."""
        return self._moved(incident, entry, "mitigate")

    def escalate(self, incident: Incident, entry: LogEntry) -> Incident:
        """The ladder has no rung left that it may use: a person is asked."""
        return self._moved(incident, entry, "escalate")

    def rolled_back(
        self, incident: Incident, checkpoint: CheckpointId | None, entry: LogEntry, *, lost_steps: int, lost_s: float
    ) -> IncidentChange:
        """The run stands at a checkpoint again; whether that cured it, the coming steps will show."""
        incident = replace(
            incident,
            rollbacks=incident.rollbacks + 1,
            checkpoint=checkpoint,
            lost_steps=incident.lost_steps + lost_steps,
            lost_s=incident.lost_s + lost_s,
            open_symptoms=(),
        )
        reason = (
            f"back at checkpoint {checkpoint or 'unknown'}, {lost_steps} steps given up; watching for the loss's return"
        )
        return self._change(incident, "rolled back", reason, entry, event="mitigate")

    def failed(self, incident: Incident, change: Change, reason: str, entry: LogEntry) -> IncidentChange:
        """What was ordered was not done, or did not help."""
        return self._change(incident, change, reason, entry, event="fail")

    def reconsider(self, incident: Incident) -> IncidentChange:
        """What stood in the way of a decision is gone."""
        return IncidentChange(incident=incident, change="reconsidered", reason=incident.reason)

    def resolve(self, incident: Incident, change: Change, reason: str, *, step: int, entry: LogEntry) -> IncidentChange:
        """It is over: recovered, passed by itself, restarted, or settled by a person."""
        benign = change == "passed" and incident.verdict == "undecided"
        incident = replace(
            incident,
            open_symptoms=(),
            end_step=step,
            end_at=entry.received_at,
            resolution=reason,
            verdict="benign" if benign else incident.verdict,
        )
        event: IncidentEvent = "settle" if change == "settled by a person" else "recover"
        return self._change(incident, change, reason, entry, event=event)

    def asked(self, reason: str, entry: LogEntry, *, segment: int, step: int) -> IncidentChange:
        """A person asks for something, and no open incident is the cause: the request is one of its own."""
        finding = Finding(
            detector="person",
            symptom=ASKED,
            phase="began",
            severity="info",
            verdict="undecided",
            onset_step=step,
            step=step,
            reason=reason,
        )
        return self.speak_of(self._open(finding, entry, segment=segment).incident, reason)

    def speak_of(self, incident: Incident, reason: str) -> IncidentChange:
        """A person asks for something because of an open incident."""
        return IncidentChange(incident=incident, change="asked for by a person", reason=reason)

    def acknowledge(self, incident: Incident, by: str) -> Incident:
        """Somebody looks after it."""
        incident = replace(incident, acknowledged_by=by)
        self.state.incidents[incident.id] = incident
        return incident

    def _open(self, finding: Finding, entry: LogEntry, *, segment: int) -> IncidentChange:
        incident = Incident(
            id=IncidentId(f"{self._run}.i{entry.sequence}"),
            symptom=finding.symptom,
            symptoms=(finding.symptom,),
            open_symptoms=(finding.symptom,),
            subject=finding.subject,
            node=finding.node,
            severity=finding.severity,
            verdict=finding.verdict,
            state="open",
            segment=segment,
            onset_step=finding.onset_step,
            suspect_from=finding.onset_step,
            detected_step=finding.step,
            detected_at=entry.received_at,
            opened_sequence=entry.sequence,
            changed_sequence=entry.sequence,
            reason=finding.reason,
        )
        return self._change(incident, "opened", finding.reason, entry, event=None)

    def _end(self, known: Incident, finding: Finding, entry: LogEntry) -> IncidentChange | None:
        if not known.is_open:
            return None
        still = tuple(symptom for symptom in known.open_symptoms if symptom != finding.symptom)
        incident = replace(known, open_symptoms=still)
        if still or known.state == "mitigating":  # after a rollback the loss's return to its path is the end
            self.state.incidents[incident.id] = incident
            return None
        return self.resolve(incident, "passed", finding.reason, step=finding.step, entry=entry)

    def _change(
        self, incident: Incident, change: Change, reason: str, entry: LogEntry, *, event: IncidentEvent | None
    ) -> IncidentChange:
        return IncidentChange(incident=self._moved(incident, entry, event), change=change, reason=reason)

    def _moved(self, incident: Incident, entry: LogEntry, event: IncidentEvent | None) -> Incident:
        state = incident.state
        if event is not None:
            state = next_state(TRANSITIONS, state, event, f"incident {incident.id}")
        incident = replace(incident, state=state, changed_sequence=entry.sequence)
        incidents = self.state.incidents
        incidents[incident.id] = incident
        for spent in _surplus(incidents.values()):
            del incidents[spent]
        return incident


def _surplus(incidents: Iterable[Incident]) -> list[IncidentId]:
    settled = [each.id for each in incidents if not each.is_open]
    return settled[: max(0, len(settled) - KEPT)]


def _with(symptoms: tuple[str, ...], symptom: str) -> tuple[str, ...]:
    return symptoms if symptom in symptoms else (*symptoms, symptom)
