"""A run and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sentinel.protocol.ids import AttemptId
from sentinel.protocol.observations import Mode

RunPhase = Literal["waiting", "training", "silent", "finished", "failed", "interrupted"]


@dataclass(slots=True, kw_only=True)
class Run:
    """Summary of a run; the pipeline keeps it up to date in place."""

    attempt: AttemptId = AttemptId("")
    attempts: int = 0
    segment: int = 0
    step: int = 0
    """The newest optimizer step of the live segment."""
    phase: RunPhase = "waiting"
    mode: Mode = "observe"
    """The agent's ceiling."""
    precision: str = ""
    rollback: str = "none"
    """The kind of rollback that the agent can do."""
    rollback_reason: str = ""
    max_steps: int | None = None
    held_by: str = ""
    """Who holds the run; empty when nobody does."""
    hold_reason: str = ""
    all_held_by: str = ""
    """Who holds all runs, this one with them; that hold and the run's own end apart."""
    all_hold_reason: str = ""
    loss: float | None = None
    accumulate: int = 1
    host: str = ""
    behind: bool = False
    """Whether its newest step was told late: the run has gone on since, and is not to be ordered about."""
    blind: bool = False
    """Whether the daemon has just begun to listen, again or at all: where the run is now nobody has said yet."""
    began_at: float = 0.0
    """When the attempt began, by its own clock."""
    last_at: float = 0.0
    """received_at of the newest word from a sender."""

    @property
    def hold(self) -> str:
        """Who holds it and why, in words; empty when nothing does."""
        own = _said("held by", self.held_by, self.hold_reason)
        return own or _said("all runs are held by", self.all_held_by, self.all_hold_reason)


def _said(words: str, by: str, reason: str) -> str:
    return f"{words} {by}" + (f": {reason}" if reason else "") if by else ""
