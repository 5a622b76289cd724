"""An entry goes past the detectors; what they find goes to incidents, and each change of one to a decision."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.domain.findings import Finding
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.symptoms import doubts_checkpoints
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts


def see(parts: Parts, entry: LogEntry, outcome: Outcome) -> None:
    """Shows the entry to every detector and takes what they find."""
    for detector in parts.detectors:
        try:
            findings = detector.observe(entry)
        except Exception:  # noqa: BLE001 - one detector's bug must not silence the others; counted in a metric
            outcome.raised.append(detector.name)
            continue
        if findings:
            _take(parts, findings, entry, outcome)


def _take(parts: Parts, findings: Sequence[Finding], entry: LogEntry, outcome: Outcome) -> None:
    outcome.findings += findings
    for finding in findings:
        if finding.phase == "began" and finding.severity != "info" and doubts_checkpoints(finding.symptom):
            outcome.checkpoints += parts.catalog.doubt(finding.onset_step)
        change = parts.incidents.find(finding, entry, segment=parts.run.segment)
        if change is None:
            continue
        if change.change == "passed" and change.incident.doubts_checkpoints and not parts.incidents.of_model:
            outcome.checkpoints += parts.catalog.clear()
        parts.deciding.decide(change, parts.run, entry, outcome)
