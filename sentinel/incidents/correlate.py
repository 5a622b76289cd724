"""To which incident a finding belongs: one fault is one incident, whatever its symptoms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident

REOPEN_STEPS: Final = 16
"""The same symptom this soon after an end is the same fault flickering. Further apart they are two: in recorded runs of
a 20B model one spike followed another, with a cause of its own, after 38 steps."""

JOIN_STEPS: Final = 16


def incident_of(finding: Finding, incidents: Iterable[Incident]) -> Incident | None:
    """The incident that the finding is part of, or None if it is a fault of its own.

    An unsettled incident of the same subject takes every symptom: after a spike, NaN is its consequence. A resolved one
    takes back only its own symptoms, and only for ``REOPEN_STEPS``.
    """
    of_subject = [each for each in incidents if each.subject == finding.subject]
    for incident in reversed(of_subject):
        if incident.is_open and _joins(finding, incident):
            return incident
    if finding.phase != "began" or finding.severity == "info":
        return None
    for incident in reversed(of_subject):
        ended = incident.end_step
        if ended is None or finding.step < ended:
            continue
        flickers = finding.symptom in incident.symptoms and finding.step - ended <= REOPEN_STEPS
        if flickers or incident.onset_step <= finding.onset_step <= ended:
            return incident
    return None


def _joins(finding: Finding, incident: Incident) -> bool:
    """Whether an open incident takes a finding.

    What began after the incident was seen is a fault of its own, unless a rollback is under way that will tell.
    """
    if incident.state == "mitigating":
        return True
    if finding.phase != "began":
        return finding.symptom in incident.symptoms
    return finding.onset_step <= incident.detected_step + JOIN_STEPS
