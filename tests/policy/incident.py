"""The incident and the situation that the policy's tests start from."""

from __future__ import annotations

from typing import Any

from sentinel.checkpoints.selection import Selection
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.incidents import Incident
from sentinel.domain.runs import Run
from sentinel.policy.limits import Situation
from sentinel.policy.rules import parse_policy
from sentinel.protocol.ids import CheckpointId, IncidentId
from tests.builders import ATTEMPT, DEFAULT_POLICY, DIGEST

CHECKPOINT = Checkpoint(id=CheckpointId("c50"), attempt=ATTEMPT, step=50, segment=0, state="known_good", digest=DIGEST)


def incident(**given: Any) -> Incident:
    """A malignant, critical loss spike that has just been opened, but for what is given."""
    base: dict[str, Any] = {
        "id": IncidentId("i"),
        "symptom": "loss_spike",
        "symptoms": ("loss_spike",),
        "subject": "run",
        "severity": "critical",
        "verdict": "malignant",
        "state": "open",
        "segment": 0,
        "onset_step": 100,
        "suspect_from": 100,
        "detected_step": 108,
        "detected_at": 0.0,
        "opened_sequence": 1,
        "changed_sequence": 1,
        "reason": "the loss is not returning",
    }
    return Incident(**base | given)


def situation(*, run: dict[str, Any] | None = None, **given: Any) -> Situation:
    """A run in act mode that nothing stands in the way of, but for what is given."""
    base: dict[str, Any] = {
        "run": Run(**{"phase": "training", "mode": "act", "rollback": "forward"} | (run or {})),
        "policy": parse_policy(DEFAULT_POLICY),
        "selection": Selection(target=CHECKPOINT, passed_over=(), reason="the newest known-good checkpoint: step 50"),
        "backlog": False,
        "rollback_steps": (),
        "failed_orders": 0,
        "worked_steps": 5000,
    }
    return Situation(**base | given)
