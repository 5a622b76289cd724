"""The contract of what carries out an action."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from sentinel.domain.actions import Action
from sentinel.domain.findings import SEVERITIES, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of one try."""

    done: bool
    reason: str = ""
    retryable: bool = True
    """Whether another try may succeed."""


class Executor(Protocol):
    """Idempotent by the action's id, with a timeout of its own; never raises for what the world does."""

    name: str

    def execute(self, action: Action) -> Execution:
        """Does it once."""


@dataclass(frozen=True, slots=True)
class Route:
    """A channel, and the alerts that it is for."""

    channel: Executor
    severity: Severity = "info"
    """At least."""
    runs: str = "*"
    """Pattern of run names, such as ``llm-*``."""

    def takes(self, action: Action) -> bool:
        """Whether this alert is for the channel. The end of what was told there is: so the worst severity counts."""
        told = (action.payload["severity"], action.payload.get("told_severity", "info"))
        is_severe = max(map(SEVERITIES.index, told)) >= SEVERITIES.index(self.severity)
        return is_severe and fnmatchcase(action.payload["run"], self.runs)
