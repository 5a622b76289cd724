"""A loss that is above its level: how high, for how long, and whether it is coming back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sentinel.detectors.rolling import median
from sentinel.domain.findings import Verdict

CALM_Z: Final = 3.0
CALM_ROWS: Final = 3
RETURNED_RATIO: Final = 0.25
"""Of the peak's height: what has come down so far is no spike any more; whether the rest stays is asked separately."""
PATIENCE_ROWS: Final = 36
"""The longest plateau that still fell by itself lasted 27 rows in 107 labelled spikes of recorded runs."""
STAYING_RATIO: Final = 0.85
HIGHEST_RATIO: Final = 0.75
GROWING_ROWS: Final = 56
GROWING_RATIO: Final = 1.2
LONG_PATIENCE_ROWS: Final = 192
"""The tails of large spikes were gone after 170 rows."""
LONGEST_ROWS: Final = 256
"""A level kept that long is the run's new normal, and blindness to what follows would be worse."""


@dataclass(slots=True)
class Episode:
    """Values since the loss left its level, in the scale of their detector. Memory: at most 256 heights."""

    onset_step: int
    level: float
    spread: float
    heights: list[float] = field(default_factory=list)
    peak: float = 0.0
    calm_rows: int = 0
    verdict: Verdict = "undecided"

    def take(self, value: float) -> None:
        """Adds the next value."""
        height = value - self.level
        self.heights.append(height)
        self.peak = max(self.peak, height)
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

    @property
    def blip(self) -> float | None:
        """The last height but one, if it stood out alone between two of the noise."""
        noise = CALM_Z * self.spread
        newest = self.heights[-3:]
        return newest[1] if len(newest) == 3 and newest[1] > noise >= max(newest[0], newest[2]) else None

    def staying_height(self) -> float | None:
        """The median height of the last quarter, if the loss stays there; None while it may be coming back.

        It stays when the last quarter is as high as the one before it and near the highest there was; or when, after
        some time, it grows again; or when what a large spike left behind does not shrink for long. Quarters of its own
        length, so that exponential and power-law returns count as returning at any age and logging interval.
        """
        count = len(self.heights)
        if count < PATIENCE_ROWS:
            return None
        quarter = count // 4
        now, before = self._median(count - quarter, quarter), self._median(count - 2 * quarter, quarter)
        if now <= CALM_Z * self.spread:
            return None
        if now <= self.calm_height:
            return now if count >= LONG_PATIENCE_ROWS and now >= before else None
        if count >= GROWING_ROWS and now >= GROWING_RATIO * before:
            return now
        if now < STAYING_RATIO * before:
            return None
        highest = max(self._median(at, quarter) for at in range(0, count - quarter, quarter // 2))
        return now if now >= HIGHEST_RATIO * highest else None

    def values(self, count: int) -> list[float]:
        """The newest values."""
        return [self.level + height for height in self.heights[-count:]]

    def _median(self, at: int, count: int) -> float:
        return median(sorted(self.heights[at : at + count]))
