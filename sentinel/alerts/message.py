"""What people are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sentinel.domain.actions import Action

_TITLES: Final = {
    "firing": "{symptom} in run {run}",
    "escalated": "{symptom} in run {run} needs a person",
    "resolved": "{symptom} in run {run} is over",
}

MOST_LINES: Final = 20
"""Of a message about many incidents; the API has the rest."""


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
    group = members(action)
    return Message(
        id=action.id,
        dedup_key=f"{action.incident}/{status}",
        status=status,
        title=f"[{status}] " + (_TITLES[status].format_map(payload) if len(group) == 1 else _title(group)),
        text=_text(payload) if len(group) == 1 else _list(group),
        link=f"{public_url}/incidents/{action.incident}",
        fields={name: value for name, value in payload.items() if name not in ("status", "what", "why_told")},
    )


def _text(payload: Mapping[str, Any]) -> str:
    return f"{payload['what']}\n{payload['why_told']}" if payload["why_told"] else str(payload["what"])


def _title(group: Sequence[Action]) -> str:
    """Such as ``hang, node_loss in 12 runs on 5 nodes``."""
    symptoms = sorted({each.payload["symptom"] for each in group})
    runs = {each.payload["run"] for each in group}
    nodes = {each.payload["node"] for each in group} - {""}
    place = f" on {len(nodes)} nodes" if len(nodes) > 1 else "".join(f" on {node}" for node in nodes)
    return f"{', '.join(symptoms)} in {len(runs)} run{'s' if len(runs) > 1 else ''}{place}"


def _list(group: Sequence[Action]) -> str:
    lines = [_line(each.payload) for each in group[:MOST_LINES]]
    return "\n".join(lines + ([f"and {len(group) - MOST_LINES} more"] if len(group) > MOST_LINES else []))


def _line(payload: Mapping[str, Any]) -> str:
    node = f", {payload['node']}" if payload["node"] else ""
    return f"{payload['run']}{node}: {payload['symptom']}: {payload['what']}"
