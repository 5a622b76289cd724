"""What one log entry leads to."""

from __future__ import annotations

from dataclasses import dataclass, field

from sentinel.domain.actions import Action, ActionChange
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.decisions import Decision
from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident
from sentinel.pipeline.rollups import Rollup


@dataclass(slots=True)
class Outcome:
    """Rows for the transaction of the entry; of an incident or checkpoint that stands twice the last counts."""

    findings: list[Finding] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    action_changes: list[ActionChange] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    rollups: list[Rollup] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    """Detectors that raised on this entry: a bug of ours, counted, and no reason to stop."""
