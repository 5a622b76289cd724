"""What the next value of a noisy, mostly falling series should be, and how far the one that came is from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sentinel.detectors.rolling import RollingWindow, median

SHORT: Final = 9
"""Values whose median follows the steep descent of a young run, where a longer window lies far above the curve; odd,
so that four outliers cannot move it."""
LONG: Final = 32
"""Values whose median does not follow a ramp of ten rows, which is how the spikes of a 20B model begin."""
RESIDUALS: Final = 128
"""OLMo-core's SkipStepOptimizer and StabilityMonitorCallback look back as far for the spread."""
FEWEST: Final = 3
"""Values that make a median robust."""
WARM_UP: Final = 8
SMALLEST_SPREAD_RATIO: Final = 0.002
"""Of the newest value: one that barely moves would otherwise alarm at the first flutter."""
TAIL: Final = 0.95
TAIL_SIGMAS: Final = 1.645
"""Where a Gaussian's 95 % quantile lies: equal to the MAD's verdict for Gaussian noise, larger for a heavy tail."""
BLIP_MEMORY: Final = 1024
"""Values over which the share of blips is counted, with exponential forgetting."""


@dataclass(slots=True)
class Baseline:
    """The newest values that belong to the noise, and how far each was from the median of those before it.

    Memory: 9 values, two lists of 32 twice, two lists of 128.
    """

    short: list[float] = field(default_factory=list)
    short_median: float = 0.0
    long: RollingWindow = field(default_factory=lambda: RollingWindow(LONG))
    near_residuals: RollingWindow = field(default_factory=lambda: RollingWindow(LONG))
    residuals: RollingWindow = field(default_factory=lambda: RollingWindow(RESIDUALS))
    blip_ratio: float = 0.0
    """Share of values that stood out alone lately: how heavy the noise's upper tail is."""

    @property
    def is_ready(self) -> bool:
        """Whether enough is known to judge."""
        return len(self.residuals) >= WARM_UP and len(self.short) >= FEWEST

    @property
    def level(self) -> float:
        """The value to expect: the lower of two medians, so neither a descent nor a ramp hides a rise."""
        return min(self.short_median, self.long.median)

    @property
    def spread(self) -> float:
        """Robust standard deviation of a value around ``level``.

        MAD over 128 residuals or over 32, whichever is smaller: a descent that has ended lingers in the longer one. Not
        less than the upper tail says: where every twentieth batch is an outlier, outliers are the noise.
        """
        upper = self.residuals.ordered
        tail = upper[int(TAIL * len(upper))] / TAIL_SIGMAS
        smallest = SMALLEST_SPREAD_RATIO * abs(self.short[-1])
        return max(min(self.near_residuals.spread, self.residuals.spread), tail, smallest, 1e-12)

    def push(self, value: float) -> None:
        """Takes a value that belongs to the noise."""
        if len(self.short) >= FEWEST:
            residual = value - self.short_median
            self.residuals.push(residual)
            self.near_residuals.push(residual)
        self.short.append(value)
        del self.short[:-SHORT]
        self.short_median = median(sorted(self.short))
        self.long.push(value)
        self.blip_ratio *= 1 - 1 / BLIP_MEMORY

    def blip(self, residual: float) -> None:
        """Takes a value that stood out alone: of the noise's tail, not of its level."""
        self.blip_ratio += 1 / BLIP_MEMORY
        self.residuals.push(residual)

    def restart(self, values: list[float]) -> None:
        """Forgets the level for that of ``values``; the spread stays."""
        self.short = values[-SHORT:]
        self.short_median = median(sorted(self.short))
        self.long = RollingWindow(LONG)
        for value in self.short:
            self.long.push(value)
