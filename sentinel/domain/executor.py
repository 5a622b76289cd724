"""The contract of what carries out an action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sentinel.domain.actions import Action


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
