"""To which incident a finding belongs: one fault is one incident, whatever its symptoms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident

REOPEN_STEPS: Final = 100
"""The same symptom this soon after an end is the same fault coming back. PaLM's operators restarted about 100 steps
before a spike: within that distance its cause is taken to be still there."""


def incident_of(finding: Finding, incidents: Iterable[Incident]) -> Incident | None:
    """The incident that the finding is part of, or None if it is a fault of its own.

    An unsettled incident of the same subject takes every symptom: after a spike, NaN is its consequence. A resolved one
    takes back only its own symptoms, and only for ``REOPEN_STEPS``.
    """
    of_subject = [each for each in incidents if each.subject == finding.subject]
    for incident in reversed(of_subject):
        if incident.is_open and (finding.phase == "began" or finding.symptom in incident.symptoms):
            return incident
    if finding.phase != "began":
        return None
    for incident in reversed(of_subject):
        ended = incident.end_step
        if finding.symptom in incident.symptoms and ended is not None and 0 <= finding.step - ended <= REOPEN_STEPS:
            return incident
    return None
