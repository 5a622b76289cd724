"""A loss that is above its level: how high, for how long, and whether it is coming back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sentinel.detectors.rolling import median
from sentinel.domain.findings import Verdict

CALM_Z: Final = 3.0
CALM_ROWS: Final = 3
RETURNED_RATIO: Final = 0.25
"""Of the peak's height. The tail of a large spike is long and harmless: what is left of it is the level from then on."""
PATIENCE_ROWS: Final = 36
LONG_PATIENCE_ROWS: Final = 192
HIGHEST_RATIO: Final = 0.75
GROWING_ROWS: Final = 56
GROWING_RATIO: Final = 1.2
STAYING_RATIO: Final = 0.85
LONGEST_ROWS: Final = 256
"""Twice the baseline's window: a level kept that long is the run's new normal, and blindness to what follows would be
worse."""


@dataclass(slots=True)
class Episode:
    """Values since the loss left its level. Memory: at most 256 heights."""

    onset_step: int
    level: float
    spread: float
    heights: list[float] = field(default_factory=list)
    peak: float = 0.0
    calm_rows: int = 0
    blip: float | None = None
    """The last height, if it stood out alone between calm ones."""
    verdict: Verdict = "undecided"

    def take(self, value: float) -> None:
        """Adds the next value."""
        height = value - self.level
        self.heights.append(height)
        self.peak = max(self.peak, height)
        noise = CALM_Z * self.spread
        newest = self.heights[-3:]
        self.blip = newest[1] if len(newest) == 3 and newest[1] > noise >= max(newest[0], height) else None
        self.calm_rows = self.calm_rows + 1 if height <= self.calm_height else 0

    @property
    def calm_height(self) -> float:
        """Below this it is back."""
        return max(CALM_Z * self.spread, RETURNED_RATIO * self.peak)

    @property
    def is_over(self) -> bool:
        """Whether it has come back."""
        return self.calm_rows >= CALM_ROWS

    @property
    def is_longest(self) -> bool:
        """Whether the level it has now must be taken for the new one."""
        return len(self.heights) >= LONGEST_ROWS

    def staying(self) -> tuple[float, float] | None:
        """Medians of the last and the last but one quarter, if they say that it is not coming back.

        Quarters of its own length, so that an exponential and a power-law return both count as returning at any age.
        """
        count = len(self.heights)
        if count < PATIENCE_ROWS:
            return None
        quarter = count // 4
        now = median(sorted(self.heights[-quarter:]))
        before = median(sorted(self.heights[-2 * quarter : -quarter]))
        if now <= CALM_Z * self.spread:
            return None
        if now <= self.calm_height:
            stays = count >= LONG_PATIENCE_ROWS and now >= before
        else:
            highest = max(median(sorted(self.heights[at : at + quarter])) for at in range(0, count - quarter, quarter // 2))
            stays = now >= STAYING_RATIO * before and now >= HIGHEST_RATIO * highest
            stays = stays or (count >= GROWING_ROWS and now >= GROWING_RATIO * before)
        if not stays:
            return None
        return before, now

    def values(self, count: int) -> list[float]:
        """The newest values."""
        return [self.level + height for height in self.heights[-count:]]
