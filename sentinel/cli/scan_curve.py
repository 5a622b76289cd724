"""A loss curve made small, with its spikes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.protocol.observations import StepReport

LOG_FROM = 8.0
"""Ratio of the highest to the median loss from which a logarithmic axis shows more."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Neighbouring rows: first and last step, lowest and highest loss; NaN where no loss was finite."""

    first_step: int
    last_step: int
    lowest: float
    highest: float
    nonfinite: bool


def buckets(reports: Sequence[StepReport], count: int) -> list[Bucket]:
    """At most ``count`` buckets of equally many rows."""
    size = max(1, math.ceil(len(reports) / count))
    return [_bucket(reports[at : at + size]) for at in range(0, len(reports), size)]


def _bucket(reports: Sequence[StepReport]) -> Bucket:
    losses = [each.loss for each in reports if each.loss is not None]
    finite = [loss for loss in losses if math.isfinite(loss)]
    lowest, highest = (min(finite), max(finite)) if finite else (math.nan, math.nan)
    return Bucket(reports[0].step, reports[-1].step, lowest, highest, len(finite) < len(losses))


@dataclass(frozen=True, slots=True)
class Axis:
    """From a loss to 0 (bottom) to 1 (top); logarithmic where the curve spans much."""

    low: float
    high: float
    logarithmic: bool

    def place(self, loss: float) -> float:
        """Where a finite loss lies."""
        low, high, value = (math.log(each) if self.logarithmic else each for each in (self.low, self.high, loss))
        return 0.5 if high <= low else (value - low) / (high - low)


def axis_of(curve: Sequence[Bucket]) -> Axis:
    """The axis that a curve needs."""
    finite = sorted(each.highest for each in curve if not math.isnan(each.highest))
    if not finite:
        return Axis(0.0, 1.0, logarithmic=False)
    low = min(each.lowest for each in curve if not math.isnan(each.lowest))
    return Axis(low, finite[-1], logarithmic=low > 0 and finite[-1] > LOG_FROM * finite[len(finite) // 2])
