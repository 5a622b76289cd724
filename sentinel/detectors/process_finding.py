"""What is claimed of the training's processes: that they died or stand still, and that they do no more."""

from __future__ import annotations

from sentinel.domain.findings import Finding, Phase
from sentinel.domain.incidents import PROCESS


def process_finding(symptom: str, phase: Phase, *, step: int, reason: str) -> Finding:
    """A finding of the detector that is named after its symptom; it will not pass by itself until it has ended."""
    step = max(1, step)
    return Finding(
        detector=symptom,
        symptom=symptom,
        subject=PROCESS,
        phase=phase,
        severity="info" if phase == "ended" else "critical",
        verdict="benign" if phase == "ended" else "malignant",
        onset_step=step,
        step=step,
        reason=reason,
    )
