"""What was chosen at one change of an incident, and why; doing nothing is a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sentinel.protocol.ids import ActionId, CheckpointId, DecisionId, IncidentId

Rung = Literal["none", "watch", "rollback", "restart", "escalate"]
"""Of the recovery ladder: nothing to do; wait and see; back to a checkpoint; the processes anew; ask a person."""
Outcome = Literal["ordered", "withheld", "would_have", "nothing"]
"""ordered: an action was planned; withheld: a limit refused; would_have: observe mode; nothing: none was called for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A newer checkpoint that was not chosen."""

    checkpoint: CheckpointId
    step: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One for each change of an incident."""

    id: DecisionId
    incident: IncidentId
    sequence: int
    """The log entry that caused it."""
    at: float
    step: int
    change: str
    """What happened to the incident: opened, worsened, rolled back, ..."""
    rule: str
    """Name of the policy's rule or limit that decided."""
    rung: Rung
    outcome: Outcome
    reason: str
    checkpoint: CheckpointId | None = None
    target_step: int | None = None
    passed_over: tuple[PassedOver, ...] = ()
    action: ActionId | None = None
