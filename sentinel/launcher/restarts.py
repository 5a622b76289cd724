"""How often a training may be started again: a budget, and an end where it makes no progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FRUITLESS: Final = 2
"""Restarts in a row that did not get beyond the step at which the training had failed: a third would not either."""


@dataclass(slots=True)
class Restarts:
    """What was done so far.

    Args:
        allowed: restarts in all.
    """

    allowed: int
    made: int = 0
    fruitless: int = 0
    failed_at: int = 0
    """The furthest step at which it failed."""

    def failed(self, step: int) -> None:
        """The training failed after ``step``."""
        self.fruitless = self.fruitless + 1 if self.made and step <= self.failed_at else 0
        self.failed_at = max(self.failed_at, step)

    def started_again(self) -> None:
        """One more was made."""
        self.made += 1

    @property
    def left(self) -> int:
        """How many may still be made."""
        return 0 if self.fruitless >= FRUITLESS else max(0, self.allowed - self.made)

    @property
    def why_none(self) -> str:
        """Why no more may be made; empty while one may."""
        if self.fruitless >= FRUITLESS:
            return f"{FRUITLESS} restarts in a row did not get beyond step {self.failed_at}, where it failed"
        return "" if self.left else f"the {self.allowed} restarts that were allowed are spent"
