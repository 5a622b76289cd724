"""What the daemon keeps of what it was told."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.protocol.ids import AttemptId, RunId, SenderId
from sentinel.protocol.observations import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """An observation with its place in the run's log: the pipeline is a function of these in their order."""

    run: RunId
    sequence: int
    """From 1, without gaps."""
    received_at: float
    """Unix seconds by the daemon's clock; never goes back within a run."""
    attempt: AttemptId
    """The attempt spoken of; empty for the daemon's own observations."""
    sender: SenderId
    observation: Observation
    backlog: bool = False
