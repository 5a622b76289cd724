"""To which incident a finding belongs: one fault is one incident, whatever its symptoms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sentinel.domain.findings import Finding
from sentinel.domain.incidents import ASKED, Incident
from sentinel.domain.symptoms import concern

FLICKER_STEPS: Final = 16
FLICKER_RATIO: Final = 0.5
"""The same symptom this soon after it passed by itself, or within half the time that it lasted, is the same fault
flickering. Further apart they are two: in recorded runs of a 20B model a spike with a cause of its own followed 38
steps after another."""
REOPEN_STEPS: Final = 100
"""The same symptom this soon after anything worse is the same fault coming back. PaLM's operators restarted about 100
steps before a spike: within that distance its cause is taken to be still there."""
JOIN_STEPS: Final = 16
"""What begins this soon after an incident was seen is taken for its consequence. BLOOM-176B's gradient norm left its
usual range 4 steps before its loss spiked."""


def incident_of(finding: Finding, incidents: Iterable[Incident]) -> Incident | None:
    """The incident that the finding is part of, or None if it is a fault of its own.

    Onsets decide: an open incident takes what began before it was seen or soon after, a resolved one what began before
    it ended. What began later, such as NaN long after a spike, is a fault of its own: what was decided about the one
    does not cover the other. A note reopens nothing, and what a person asked for is over when it is done. Findings of
    another concern are never part of it: NaN in the midst of slow steps has a cause, and a cure, of its own.
    """
    about = concern(finding.symptom)
    of_subject = [each for each in incidents if each.subject == finding.subject and concern(each.symptom) == about]
    for incident in reversed(of_subject):
        if incident.is_open and _joins(finding, incident):
            return incident
    if finding.phase != "began" or finding.severity == "info":
        return None
    for incident in reversed(of_subject):
        ended = incident.end_step
        if ended is None or finding.step < ended or incident.symptoms == (ASKED,):
            continue
        passed = max(FLICKER_STEPS, int(FLICKER_RATIO * (ended - incident.onset_step)))
        within = passed if incident.verdict == "benign" else REOPEN_STEPS
        returns = finding.symptom in incident.symptoms and finding.step - ended <= within
        if returns or finding.onset_step <= ended:
            return incident
    return None


def _joins(finding: Finding, incident: Incident) -> bool:
    """Whether an open incident takes a finding; one whose rollback is under way takes all."""
    if incident.state == "mitigating":
        return finding.phase == "began" or finding.symptom in incident.symptoms
    if finding.phase != "began":
        return finding.symptom in incident.open_symptoms
    return finding.onset_step <= incident.detected_step + JOIN_STEPS
