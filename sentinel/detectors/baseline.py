"""What the next value of a noisy, mostly falling series should be, and how far the one that came is from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sentinel.detectors.rolling import RollingWindow, median

SHORT: Final = 9
LONG: Final = 32
RESIDUALS: Final = 128
WARM_UP: Final = 8
SMALLEST_SPREAD_RATIO: Final = 0.002
BLIP_Z: Final = 5.0
BLIP_MEMORY: Final = 1024
TAIL: Final = 0.95
TAIL_SIGMAS: Final = 1.645


@dataclass(slots=True)
class Baseline:
    """The last values, and how far each was from the level before it."""

    short: list[float] = field(default_factory=list)
    long: RollingWindow = field(default_factory=lambda: RollingWindow(LONG))
    near: RollingWindow = field(default_factory=lambda: RollingWindow(LONG))
    residuals: RollingWindow = field(default_factory=lambda: RollingWindow(RESIDUALS))
    blip_ratio: float = 0.0
    """Share of values that stood out alone lately: how heavy the noise's upper tail is."""

    @property
    def level(self) -> float:
        """The value to expect."""
        return min(median(sorted(self.short)), self.long.median)

    @property
    def spread(self) -> float:
        """Robust standard deviation of a value around ``level``."""
        ordered = self.residuals.ordered
        tail = ordered[int(TAIL * len(ordered))] / TAIL_SIGMAS
        return max(min(self.near.spread, self.residuals.spread), tail, SMALLEST_SPREAD_RATIO * abs(self.short[-1]), 1e-12)

    @property
    def is_ready(self) -> bool:
        """Whether enough is known to judge."""
        return len(self.residuals) >= WARM_UP

    def push(self, value: float) -> None:
        """Takes a value that belongs to the noise."""
        if len(self.short) >= 3:
            residual = value - median(sorted(self.short))
            self.residuals.push(residual)
            self.near.push(residual)
        self.short.append(value)
        del self.short[:-SHORT]
        self.long.push(value)
        self.blip_ratio *= 1 - 1 / BLIP_MEMORY

    def blip(self, residual: float) -> None:
        """Counts a value that stood out alone."""
        self.blip_ratio += 1 / BLIP_MEMORY
        self.residuals.push(residual)

    def restart(self, values: list[float]) -> None:
        """A new level: predicts from ``values``; the spread stays."""
        self.short = values[-SHORT:]
        self.long = RollingWindow(LONG)
        for value in self.short:
            self.long.push(value)
