"""Minimum, mean, maximum, last and non-finite count of each series in buckets of steps: spikes survive the zoom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sentinel.protocol.ids import AttemptId
from sentinel.protocol.observations import StepReport

WIDTHS: Final = (16, 256, 4096)
"""Reports in a bucket, by level: a million steps are 245 buckets of the coarsest."""
SERIES: Final = (
    "loss",
    "grad_norm",
    "lr",
    "step_s",
    "data_wait_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "tokens",
    "peak_memory_bytes",
)


EXTRA_SERIES_KEPT: Final = 64
"""Series of the user's own in one run: a name made anew with each step must not fill the memory."""


@dataclass(slots=True)
class Rollup:
    """One series over some consecutive reports of one segment. Non-finite values are counted and in nothing else."""

    series: str
    level: int
    segment: int
    first_sequence: int
    first_step: int
    last_step: int
    count: int = 0
    nonfinite: int = 0
    minimum: float | None = None
    maximum: float | None = None
    total: float = 0.0
    last: float | None = None
    attempt: AttemptId = AttemptId("")

    def take(self, value: float) -> None:
        """Adds one value."""
        self.count += 1
        if not math.isfinite(value):
            self.nonfinite += 1
            return
        self.last = value
        self.total += value
        if self.minimum is None or value < self.minimum:
            self.minimum = value
        if self.maximum is None or value > self.maximum:
            self.maximum = value

    def merge(self, later: Rollup) -> None:
        """Adds a finer bucket that follows."""
        self.last_step = later.last_step
        self.count += later.count
        self.nonfinite += later.nonfinite
        self.total += later.total
        self.last = self.last if later.last is None else later.last
        if later.minimum is not None:
            self.minimum = later.minimum if self.minimum is None else min(self.minimum, later.minimum)
        if later.maximum is not None:
            self.maximum = later.maximum if self.maximum is None else max(self.maximum, later.maximum)


@dataclass(slots=True)
class RollupsState:
    """The open bucket of each series and level; keys are ``level/series``."""

    buckets: dict[str, Rollup] = field(default_factory=dict)
    extras: list[str] = field(default_factory=list)
    """The user's series that are kept: the first ones."""


class Rollups:
    """Fills buckets and returns those that are full; memory is one bucket for each series and level."""

    def __init__(self) -> None:
        self.state = RollupsState()

    def take(self, report: StepReport, sequence: int, attempt: AttemptId) -> list[Rollup]:
        """Adds a report's values."""
        full: list[Rollup] = []
        extras = self.state.extras
        extras += [name for name in report.extra if name not in extras][: EXTRA_SERIES_KEPT - len(extras)]
        for series, value in _values(report, extras):
            bucket = self.state.buckets.get(series)
            if bucket is None:
                bucket = self.state.buckets[series] = Rollup(
                    series, 0, report.segment, sequence, report.step, report.step, attempt=attempt
                )
            bucket.last_step = report.step
            bucket.take(value)
            if bucket.count >= WIDTHS[0]:
                full += self._close(series, bucket)
        return full

    def flush(self) -> list[Rollup]:
        """Closes all open buckets: the segment is over."""
        done: list[Rollup] = []
        for level in range(len(WIDTHS)):
            for key, bucket in list(self.state.buckets.items()):
                if bucket.level == level:
                    done += self._close(key, bucket)
        return done

    def _close(self, key: str, bucket: Rollup) -> list[Rollup]:
        del self.state.buckets[key]
        closed = [bucket]
        level = bucket.level + 1
        if level == len(WIDTHS):
            return closed
        above_key = f"{level}/{bucket.series}"
        above = self.state.buckets.get(above_key)
        if above is None:
            above = self.state.buckets[above_key] = Rollup(
                bucket.series,
                level,
                bucket.segment,
                bucket.first_sequence,
                bucket.first_step,
                bucket.last_step,
                attempt=bucket.attempt,
            )
        above.merge(bucket)
        return closed + self._close(above_key, above) if above.count >= WIDTHS[level] else closed


def _values(report: StepReport, extras: Sequence[str]) -> Iterator[tuple[str, float]]:
    for series in SERIES:
        value = getattr(report, series)
        if value is not None:
            yield series, float(value)  # as a snapshot gives it back
    for name, value in report.extra.items():
        if name in extras:
            yield f"extra.{name}", value
