"""A bounded window of values with its median and spread, cheap to keep up."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MAD_TO_SIGMA: Final = 1.4826
"""Makes the median absolute deviation estimate a Gaussian's standard deviation (1 / Phi^-1(3/4))."""
SPREAD_EVERY: Final = 8
"""The spread is worked out anew after so many values: it costs a sort, and it moves slowly."""


@dataclass(slots=True)
class RollingWindow:
    """The newest ``size`` values, with a robust centre and spread.

    Memory: two lists of ``size`` floats.
    """

    size: int
    values: list[float] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)
    spread: float = 0.0
    """Robust standard deviation (MAD * 1.4826), at most ``SPREAD_EVERY`` values old."""
    since_spread: int = 0

    def push(self, value: float) -> None:
        """Takes a finite value and lets the oldest go."""
        if len(self.values) == self.size:
            oldest = self.values.pop(0)
            del self.ordered[bisect_left(self.ordered, oldest)]
        self.values.append(value)
        insort(self.ordered, value)
        self.since_spread += 1
        if self.since_spread >= SPREAD_EVERY or len(self.values) < 2 * SPREAD_EVERY:
            self.spread = MAD_TO_SIGMA * self._deviation()
            self.since_spread = 0

    @property
    def median(self) -> float:
        """Middle of the window; 0.0 while it is empty."""
        return median(self.ordered)

    def _deviation(self) -> float:
        """The median absolute deviation: two runs that rise from the centre, which a sort merges in one go."""
        center = self.median
        half = bisect_left(self.ordered, center)
        below = [center - item for item in self.ordered[:half]]
        below.reverse()
        return median(sorted(below + [item - center for item in self.ordered[half:]]))

    def __len__(self) -> int:
        return len(self.values)


def median(ordered: Sequence[float]) -> float:
    """Middle of sorted values; 0.0 if there are none."""
    if not ordered:
        return 0.0
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * ordered[half - 1] + 0.5 * ordered[half]
