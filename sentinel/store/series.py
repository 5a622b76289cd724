"""A run's numbers over its steps, few enough to draw: from the rollups, and from the log where it is finer or newer.

At each level closed buckets tile every segment from its beginning; a coarse level ends a little behind a finer one, and
the newest reports are in no bucket yet. So a series is read at one level, then what came later at the finer ones, then
in the log, and neighbours are merged until no more are left than wanted. Minimum and maximum survive all of it: a spike
of one step is seen at any zoom.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, exists, func, select

from sentinel.pipeline.rollups import WIDTHS, Rollup
from sentinel.protocol.codec import decode_observation, parse
from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import StepReport
from sentinel.store.observation_log import last_sequence
from sentinel.store.tables import observations, rollups

REPORTS_READ: Final = 4
"""Reports read from the log for each bucket wanted, at most; a report costs about 10 us."""
ROLLUPS_READ: Final = 16
"""Rollups read for each bucket wanted, at most: with more, the level above is fine enough."""
TAIL: Final = 256
"""Reports read behind the last closed bucket, at most. Fewer than 16 are in none, abandoned segments' apart."""
SCANNED: Final = 100_000
"""Entries of the log looked through for a series that is told so rarely that no bucket of it is full."""
EXTRA: Final = "extra."
"""Begins the names of the user's own series."""
_LOG: Final = -1
"""The level below the finest buckets: single reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One series over consecutive reports of one segment. NaN and infinities are counted, and in no other number."""

    attempt: str
    segment: int
    first_step: int
    last_step: int
    count: int
    nonfinite: int
    minimum: float | None = None
    mean: float | None = None
    maximum: float | None = None
    last: float | None = None
    """The last finite value; in a bucket of one report that value, whatever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which part of which series: ``name`` is a field of the step report or ``extra.NAME``, steps are inclusive."""

    run: RunId
    name: str
    first_step: int
    last_step: int
    points: int
    """So many buckets at most, but for one of each segment."""


def read_series(connection: Connection, wanted: Wanted) -> list[Bucket]:
    """The buckets that touch the range of steps, in the order of the log.

    Args:
        connection: in one transaction, so that rollups and log agree.
        wanted: what to read.
    """
    coarsest = _coarsest(connection, wanted)
    tiles: list[_Tile] = []
    covered = 0
    for level in range(coarsest, _LOG, -1):
        closed = list(_closed(connection, wanted, level, covered))
        tiles += [tile for tile, _ in closed]
        covered = closed[-1][1] if closed else covered
    tiles += _reported(connection, wanted, after=0 if coarsest == _LOG else _open_since(connection, wanted))
    return [_bucket(tile) for tile in _merged(tiles, wanted.points)]


@dataclass(slots=True)
class _Tile:
    attempt: str
    rollup: Rollup
    told: float | None = None
    """The value of a single report."""

    @property
    def branch(self) -> tuple[str, int]:
        return self.attempt, self.rollup.segment


def _coarsest(connection: Connection, wanted: Wanted) -> int:
    """The level to begin with."""
    reports = select(observations.c.sequence).where(*_in_log(wanted))
    if _is_within(connection, reports, wanted.points * REPORTS_READ) and not _has_expired(connection, wanted):
        return _LOG
    for level in range(len(WIDTHS) - 1):
        if _is_within(
            connection, select(rollups.c.level).where(*_in_rollups(wanted, level)), wanted.points * ROLLUPS_READ
        ):
            return level
    return len(WIDTHS) - 1


def _is_within(connection: Connection, rows: Select[Any], most: int) -> bool:
    found = connection.execute(select(func.count()).select_from(rows.limit(most + 1).subquery())).scalar_one()
    return bool(found <= most)


def _has_expired(connection: Connection, wanted: Wanted) -> bool:
    """Whether there are buckets whose reports have gone from the log."""
    first = (observations.c.run == rollups.c.run, observations.c.sequence == rollups.c.first_sequence)
    gone = ~exists().where(*first)
    return connection.execute(select(rollups.c.level).where(*_in_rollups(wanted, 0), gone).limit(1)).first() is not None


def _closed(connection: Connection, wanted: Wanted, level: int, covered: int) -> Iterator[tuple[_Tile, int]]:
    """Closed buckets of a level after a sequence, each with the sequence at which it was closed."""
    query = (
        select(rollups)
        .where(*_in_rollups(wanted, level), rollups.c.first_sequence > covered)
        .order_by(rollups.c.first_sequence)
    )
    for row in connection.execute(query).mappings():
        rollup = Rollup(
            wanted.name,
            level,
            row["segment"],
            row["first_sequence"],
            row["first_step"],
            row["last_step"],
            count=row["count"],
            nonfinite=row["nonfinite"],
            minimum=row["minimum"],
            maximum=row["maximum"],
            total=row["total"],
            last=row["last"],
        )
        yield _Tile(row["attempt"], rollup), row["last_sequence"]


def _open_since(connection: Connection, wanted: Wanted) -> int:
    """The place in the log from which on reports are in no bucket yet."""
    newest = (
        select(rollups.c.last_sequence)
        .where(rollups.c.run == wanted.run, rollups.c.series == wanted.name, rollups.c.level == 0)
        .order_by(rollups.c.first_sequence.desc())
        .limit(1)
    )
    return max(connection.execute(newest).scalar() or 0, last_sequence(connection, wanted.run) - SCANNED)


def _reported(connection: Connection, wanted: Wanted, *, after: int) -> list[_Tile]:
    """Single reports that hold the series; the newest, should there be too many."""
    key = json.dumps(wanted.name.removeprefix(EXTRA)) + ":"  # as the codec writes it
    query = (
        select(observations.c.attempt, observations.c.segment, observations.c.sequence, observations.c.payload)
        .where(*_in_log(wanted), observations.c.payload.contains(key, autoescape=True))
        .order_by(observations.c.sequence.desc())
        .limit(max(wanted.points * REPORTS_READ, TAIL))
    )
    if after:
        query = query.where(observations.c.sequence > after)
    tiles = []
    for attempt, segment, sequence, payload in reversed(connection.execute(query).all()):
        report = decode_observation(parse(payload))
        assert isinstance(report, StepReport)  # the query asks for these alone
        value = _value(report, wanted.name)
        if value is not None:
            rollup = Rollup(wanted.name, 0, segment, sequence, report.step, report.step)
            rollup.take(value)
            tiles.append(_Tile(attempt, rollup, value))
    return tiles


def _in_log(wanted: Wanted) -> tuple[ColumnElement[bool], ...]:
    return (
        observations.c.run == wanted.run,
        observations.c.kind == "step",
        observations.c.step.between(wanted.first_step, wanted.last_step),
    )


def _in_rollups(wanted: Wanted, level: int) -> tuple[ColumnElement[bool], ...]:
    return (
        rollups.c.run == wanted.run,
        rollups.c.series == wanted.name,
        rollups.c.level == level,
        rollups.c.last_step >= wanted.first_step,
        rollups.c.first_step <= wanted.last_step,
    )


def _value(report: StepReport, name: str) -> float | None:
    own = name.startswith(EXTRA)
    value: float | None = report.extra.get(name.removeprefix(EXTRA)) if own else getattr(report, name)
    return value


def _merged(tiles: Iterable[_Tile], points: int) -> Iterator[_Tile]:
    """Merges neighbours of one branch, as many as it takes."""
    branches = [list(branch) for _, branch in groupby(tiles, key=lambda tile: tile.branch)]
    width = 1
    while sum(-(-len(branch) // width) for branch in branches) > max(points, len(branches)):
        width += 1
    for branch in branches:
        for start in range(0, len(branch), width):
            yield _joined(branch[start : start + width])


def _joined(tiles: Sequence[_Tile]) -> _Tile:
    first, *others = tiles
    for other in others:
        first.rollup.merge(other.rollup)
        first.told = None
    return first


def _bucket(tile: _Tile) -> Bucket:
    rollup = tile.rollup
    finite = rollup.count - rollup.nonfinite
    return Bucket(
        attempt=tile.attempt,
        segment=rollup.segment,
        first_step=rollup.first_step,
        last_step=rollup.last_step,
        count=rollup.count,
        nonfinite=rollup.nonfinite,
        minimum=rollup.minimum,
        mean=rollup.total / finite if finite else None,
        maximum=rollup.maximum,
        last=rollup.last if tile.told is None else tile.told,
    )
