"""What people are told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from sentinel.domain.actions import Action

_TITLES: Final = {
    "firing": "{symptom} in run {run}",
    "escalated": "{symptom} in run {run} needs a person",
    "resolved": "{symptom} in run {run} is over",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One alert, in words and in fields."""

    id: str
    """The same in every try."""
    dedup_key: str
    """The same for everything that says this much of this incident."""
    status: str
    """firing, escalated or resolved."""
    title: str
    text: str
    link: str
    fields: dict[str, Any]


def members(action: Action) -> list[Action]:
    """The alerts that an action stands for: itself, or those that were put together."""
    return [replace(action, incident=each["incident"], payload=each) for each in action.payload.get("group", ())] or [
        action
    ]


def message(action: Action, public_url: str) -> Message:
    """The message of an alert.

    Args:
        action: an alert that the pipeline planned.
        public_url: where people reach the daemon.
    """
    payload = action.payload
    status = payload["status"]
    told = payload["why_told"]
    return Message(
        id=action.id,
        dedup_key=f"{action.incident}/{status}",
        status=status,
        title=f"[{status}] " + _TITLES[status].format_map(payload),
        text=f"{payload['what']}\n{told}" if told else payload["what"],
        link=f"{public_url}/v1/incidents/{action.incident}",
        fields={name: value for name, value in payload.items() if name not in ("status", "what", "why_told")},
    )
