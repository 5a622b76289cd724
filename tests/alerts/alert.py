"""An alert as the pipeline plans it."""

from __future__ import annotations

from typing import Any

from sentinel.domain.actions import Action
from sentinel.protocol.ids import ActionId, IncidentId

PUBLIC_URL = "https://sentinel.example"


def alert(run: str = "run-1", **payload: Any) -> Action:
    """The alert of a NaN, but for what is given."""
    incident = IncidentId(f"{run}.i81")
    told = {
        "status": "firing",
        "run": run,
        "incident": incident,
        "symptom": "nonfinite",
        "severity": "critical",
        "told_severity": payload.get("severity", "critical"),
        "node": "",
        "detected_at": 1000.0,
        "onset_step": 81,
        "step": 81,
        "what": "loss is nan",
        "why_told": "back to step 20",
        "at": 1000.0,
    }
    return Action(id=ActionId(f"{run}.a81.0"), incident=incident, executor="alert", payload=told | payload)
