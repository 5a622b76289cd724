"""What a training loop tells of the attempt that begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What the loop knows when its training starts."""

    step: int
    is_resumed: bool
    max_steps: int | None
    world_size: int
    precision: str
    accumulate: int
    rollback_impossible: str
    """Why this loop cannot be rolled back; empty if it can."""
    exact_impossible: str = "the loop does not set its data back"
    """Why its data cannot go back with it; empty if it can."""
    versions: Mapping[str, str]
