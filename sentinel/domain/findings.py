"""What a detector claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "critical"]
Verdict = Literal["undecided", "benign", "malignant"]
Phase = Literal["began", "changed", "ended"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


def worse(one: Severity, other: Severity) -> Severity:
    """The more severe of two."""
    return max(one, other, key=SEVERITIES.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim about a run: something began, changed or ended.

    A detector says *began* once per episode, *changed* when severity or verdict change, *ended* when it is over.
    """

    detector: str
    symptom: str
    """What is seen, such as ``loss_spike``; the cause may be another."""
    subject: str = "run"
    """What it is about: the run, a rank, a node, a device."""
    phase: Phase
    severity: Severity
    verdict: Verdict
    """benign: it passes by itself; malignant: it will not; undecided: too early to say."""
    onset_step: int
    """Where it began, as far as can be told at ``step``; not where it was seen."""
    step: int
    reason: str
    node: str = ""
    """The machine it points at, where it points at one."""
    evidence: Mapping[str, float] = field(default_factory=dict)
