"""One fault of one run, from its first sign to its end.

open ──mitigate──▶ mitigating ──recover──▶ resolved ──recur──▶ open
 │ ▲                 │   │                    ▲
 │ └──────fail───────┘   └──escalate──▶ escalated
 ├────────────escalate──────────────────▶│ ▲ │
 └────────────recover────────────────────┼─┼─┘ (recover)
escalated ──mitigate──▶ mitigating       │ a person settles any open one: settle ▶ resolved
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sentinel.domain.findings import Severity, Verdict
from sentinel.domain.symptoms import doubts_checkpoints
from sentinel.protocol.ids import CheckpointId, IncidentId

IncidentState = Literal["open", "mitigating", "resolved", "escalated"]
IncidentEvent = Literal["mitigate", "fail", "recover", "recur", "escalate", "settle"]

ASKED: Final = "operator_request"
"""The symptom of an incident that a person saw and no detector."""

TRANSITIONS: Mapping[tuple[IncidentState, IncidentEvent], IncidentState] = {
    ("open", "mitigate"): "mitigating",
    ("open", "recover"): "resolved",
    ("open", "escalate"): "escalated",
    ("open", "settle"): "resolved",
    ("mitigating", "mitigate"): "mitigating",
    ("mitigating", "fail"): "open",
    ("mitigating", "recover"): "resolved",
    ("mitigating", "recur"): "open",
    ("mitigating", "escalate"): "escalated",
    ("mitigating", "settle"): "resolved",
    ("escalated", "mitigate"): "mitigating",
    ("escalated", "recover"): "resolved",
    ("escalated", "escalate"): "escalated",
    ("escalated", "settle"): "resolved",
    ("resolved", "recur"): "open",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A row that is written anew with each change; ``changed_sequence`` names the log entry that caused it."""

    id: IncidentId
    symptom: str
    """The first symptom; what joined it later is in ``symptoms``."""
    symptoms: tuple[str, ...]
    subject: str
    severity: Severity
    verdict: Verdict
    state: IncidentState
    segment: int
    onset_step: int
    """Where the fault began, in the segment in which it was first seen."""
    suspect_from: int
    """Where it began in the live segment: a checkpoint to go back to must be older."""
    detected_step: int
    detected_at: float
    """Unix seconds, received_at of the entry that raised it."""
    opened_sequence: int
    changed_sequence: int
    reason: str
    """Why it is thought to be a fault: the reason of the worst finding."""
    open_symptoms: tuple[str, ...] = ()
    """Those whose end no detector has reported."""
    rollbacks: int = 0
    checkpoint: CheckpointId | None = None
    """The last rolled back to."""
    lost_steps: int = 0
    """Steps given up by rollbacks."""
    lost_s: float = 0.0
    """Seconds from the checkpoint's step to the same step again, over all rollbacks."""
    end_step: int | None = None
    end_at: float | None = None
    resolution: str = ""
    acknowledged_by: str = ""
    node: str = ""
    """The machine it points at; the whole run's incidents point at none."""

    @property
    def is_open(self) -> bool:
        """Whether it is not settled yet."""
        return self.state != "resolved"

    @property
    def doubts_checkpoints(self) -> bool:
        """Whether what was saved since its onset may carry it; all its symptoms are of one concern."""
        return doubts_checkpoints(self.symptom)
