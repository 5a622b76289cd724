"""What a user installs: the agent in the training process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentinel_agent.callback import SentinelCallback
    from sentinel_agent.plain_loop import Agent

__all__ = ["Agent", "SentinelCallback"]

_HOMES = {"Agent": "sentinel_agent.plain_loop", "SentinelCallback": "sentinel_agent.callback"}


def __getattr__(name: str) -> Any:
    """Imports on first use: who needs the agent alone need not have Lightning."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
