"""A run's series as a chart shows them: the path that counts, and the branches that rollbacks gave up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.store.series import Bucket, Wanted, read_series
from sentinel.store.session import Connection

TITLES: Final = {"loss": "Loss", "grad_norm": "Gradient norm", "lr": "Learning rate", "step_s": "Step time, s"}
LOGARITHMIC_RATIO: Final = 100.0
"""Of the highest to the lowest: beyond it a linear axis shows nothing but the highest."""
NUMBERS_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Curve:
    """One series over a range of steps.

    Args:
        name: of the series.
        kept: buckets of the path that counts, by rising steps.
        abandoned: for each branch that was given up, its buckets.
    """

    name: str
    kept: Sequence[Bucket]
    abandoned: Sequence[Sequence[Bucket]] = field(default=())

    @property
    def title(self) -> str:
        """For people."""
        return TITLES[self.name]

    @property
    def buckets(self) -> list[Bucket]:
        """All, the branches' too."""
        return [*self.kept, *(bucket for branch in self.abandoned for bucket in branch)]

    @property
    def lowest(self) -> float | None:
        """The lowest finite value."""
        return min((each.minimum for each in self.buckets if each.minimum is not None), default=None)

    @property
    def highest(self) -> float | None:
        """The highest finite value."""
        return max((each.maximum for each in self.buckets if each.maximum is not None), default=None)

    @property
    def newest(self) -> float | None:
        """The newest value of the path that counts, NaN included."""
        return self.kept[-1].last if self.kept else None

    @property
    def nonfinite(self) -> int:
        """How many values were NaN or infinite."""
        return sum(each.nonfinite for each in self.buckets)

    @property
    def numbers(self) -> list[Bucket]:
        """A few buckets, evenly spread, for those who read and do not look."""
        some = self.kept[:: -(-len(self.kept) // NUMBERS_SHOWN)] if self.kept else []
        return [*some, *self.kept[-1:]] if some and some[-1] is not self.kept[-1] else list(some)

    def tree(self) -> dict[str, Any]:
        """For the script that draws it; a value that is not finite is null there."""
        lowest, highest = self.lowest, self.highest
        wide = any(each.count > 1 for each in self.kept)
        return {
            "name": self.name,
            "title": self.title,
            "log": bool(lowest and highest and lowest > 0 and highest > LOGARITHMIC_RATIO * lowest),
            "steps": [each.last_step for each in self.kept],
            "mean": [_short(each.mean) for each in self.kept],
            "low": [_short(each.minimum) for each in self.kept] if wide else None,
            "high": [_short(each.maximum) for each in self.kept] if wide else None,
            "abandoned": [[_point(each) for each in branch] for branch in self.abandoned],
            "nonfinite": [[each.last_step, each.nonfinite] for each in self.buckets if each.nonfinite],
        }


def read_curve(connection: Connection, wanted: Wanted) -> Curve:
    """One series over the steps that are wanted; its name is one of ``TITLES``."""
    kept, abandoned = split(read_series(connection, wanted))
    return Curve(wanted.name, kept, abandoned)


def split(buckets: Sequence[Bucket]) -> tuple[list[Bucket], list[list[Bucket]]]:
    """The path that counts, and the branches given up: what a later branch of the log went over again.

    >>> def bucket(segment, step):
    ...     return Bucket(attempt="a", segment=segment, first_step=step, last_step=step, count=1, nonfinite=0)
    >>> kept, abandoned = split([bucket(0, 1), bucket(0, 2), bucket(0, 3), bucket(1, 2)])
    >>> [(each.segment, each.last_step) for each in kept], [len(branch) for branch in abandoned]
    ([(0, 1), (1, 2)], [2])
    """
    kept: list[Bucket] = []
    abandoned: list[list[Bucket]] = []
    branches = [list(branch) for _, branch in groupby(buckets, key=lambda each: (each.attempt, each.segment))]
    floor = MAX_INTEGER + 1
    for branch in reversed(branches):
        kept[:0] = [each for each in branch if each.last_step < floor]
        lost = [each for each in branch if each.last_step >= floor]
        if lost:
            abandoned.insert(0, lost)
        floor = min(floor, branch[0].first_step)
    return kept, abandoned


def spans(incidents: Iterable[dict[str, Any]], *, step: int, acted: Mapping[str, int]) -> list[dict[str, Any]]:
    """Where each incident lies on the curves.

    Args:
        incidents: oldest first; their place in the row is their number on the page.
        step: the newest of the run.
        acted: by incident, the step at which the last rollback for it was ordered: there its branch ends.
    """
    found = []
    for number, incident in enumerate(incidents, 1):
        last = acted.get(incident["id"], incident.get("end_step"))
        found.append(
            {
                "label": str(number),
                "from": incident["onset_step"],
                "to": max(step if last is None else last, incident["onset_step"]),
                "severity": incident["severity"],
            }
        )
    return found


def _point(bucket: Bucket) -> list[float | None]:
    """Step, mean, lowest and highest: a spike of one step is seen in a bucket of many."""
    return [bucket.last_step, _short(bucket.mean), _short(bucket.minimum), _short(bucket.maximum)]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
