"""The sum of an attempt, for the line that is printed at its end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What was done, and what it holds on disk."""

    steps: int
    incidents: int
    rollbacks: int
    lost: int
    """Reports that no daemon has, and none will get."""
    kept: int
    """Reports on disk, for the next attempt to deliver."""
    pinned: int
    held_bytes: int
    """Disk that only the pins hold."""
