"""Something to be done in the world, from plan to result.

planned ──claim──▶ claimed ──succeed──▶ succeeded
   │                  ├──fail──▶ failed
   └──expire──▶ expired ◀──expire──┘        an agent's answer may come before our own note that it was sent:
                                            planned takes succeed and fail too
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sentinel.protocol.ids import ActionId, IncidentId

ActionState = Literal["planned", "claimed", "succeeded", "failed", "expired"]
ActionEvent = Literal["claim", "succeed", "fail", "expire"]
Executor = Literal["trainer_command", "launcher_command", "alert"]

TRANSITIONS: Mapping[tuple[ActionState, ActionEvent], ActionState] = {
    ("planned", "claim"): "claimed",
    ("planned", "succeed"): "succeeded",
    ("planned", "fail"): "failed",
    ("planned", "expire"): "expired",
    ("claimed", "claim"): "claimed",
    ("claimed", "succeed"): "succeeded",
    ("claimed", "fail"): "failed",
    ("claimed", "expire"): "expired",
}
SETTLED: frozenset[ActionState] = frozenset({"succeeded", "failed", "expired"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Planned in the same transaction as the decision that wants it; executors are idempotent by ``id``."""

    id: ActionId
    incident: IncidentId
    executor: Executor
    payload: Mapping[str, Any]
    """trainer_command, launcher_command: the command's JSON tree. alert: the message's fields."""


@dataclass(frozen=True, slots=True)
class ActionChange:
    """What the pipeline learned of an action."""

    action: ActionId
    event: ActionEvent
    reason: str = ""
