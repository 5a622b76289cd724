"""What a benchmark found: rows of one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    part: str
    what: str
    figure: str
    """For people; the numbers behind it are in ``numbers``."""
    numbers: dict[str, float] = field(default_factory=dict)
    target: str = ""


@dataclass(frozen=True, slots=True)
class Middle:
    """A median, and the narrowest pair of the sorted values around it that holds it in 95 of 100 cases.

    By the binomial distribution of how many values lie below a median (W. J. Conover, Practical Nonparametric
    Statistics, section 3.2): nothing is assumed of how the values scatter.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def middle(values: Sequence[float]) -> Middle:
    """The median of some values and its 95 % interval: of fewer than six the interval is their range."""
    ordered = sorted(values)
    count = len(ordered)
    outside, below = 0, 0.0
    while outside < count // 2 and below + math.comb(count, outside) / 2**count <= 0.025:
        below += math.comb(count, outside) / 2**count
        outside += 1
    least = max(0, outside - 1)
    return Middle(median(ordered), ordered[least], ordered[-1 - least])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below a share of all."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
