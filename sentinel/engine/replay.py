"""Folds a run's log again and compares what comes out with what was decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from sentinel.domain.errors import NotFound
from sentinel.pipeline.pipeline import VERSION, Pipeline
from sentinel.protocol.codec import to_tree
from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import PipelineStarted, PolicyChanged
from sentinel.store import decision_log, observation_log, snapshots
from sentinel.store.session import Connection, Database

COMPARED = ("sequence", "incident", "step", "rule", "rung", "outcome", "checkpoint", "target_step")
"""A decision's essence: the wording of its reason may improve."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where stored and replayed decisions part."""

    sequence: int
    stored: dict[str, Any] | None
    replayed: dict[str, Any] | None
    version: str
    """Of the pipeline that wrote that stretch: another version may differ."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay came to."""

    run: RunId
    entries: int
    """Folded ones."""
    decisions: int
    """Stored ones that follow from them."""
    difference: Difference | None
    versions: tuple[str, ...]
    stretches: tuple[tuple[int, int], ...]
    """First and last entry of each stretch of the log that is whole; what lies between has expired."""
    beyond: int = 0
    """Stored decisions outside of them: they cannot be taken again."""

    @property
    def is_failure(self) -> bool:
        """Whether a stretch that this version wrote does not come out again."""
        return self.difference is not None and self.difference.version == VERSION


@dataclass(slots=True)
class _Fold:
    """What comes out of the log."""

    run: RunId
    policy: str | None
    decisions: list[dict[str, Any]] = field(default_factory=list)
    began: list[tuple[int, str]] = field(default_factory=list)
    """Entries from which on a version of the pipeline wrote."""
    stretches: list[tuple[int, int]] = field(default_factory=list)

    def fold(self, connection: Connection) -> None:
        """Goes through every stretch: the first from nothing, a later one from the snapshot before it."""
        pipeline, start = Pipeline(self.run), 0
        while True:
            end, gap = self._stretch(connection, pipeline, start)
            if end > start:
                self.stretches.append((start + 1, end))
            if gap is None:
                return
            taken_up = self._take_up(connection, gap - 1)
            if taken_up is None:
                return
            pipeline, start = taken_up
            self.began.append((start, VERSION))

    def _stretch(self, connection: Connection, pipeline: Pipeline, start: int) -> tuple[int, int | None]:
        """Folds what follows ``start``; returns its last entry, and the first one behind the gap, if there is a gap."""
        end = start
        for stored in observation_log.read(connection, self.run, after=start):
            entry = stored.entry
            if entry.sequence != end + 1:
                return end, entry.sequence
            end = entry.sequence
            if isinstance(entry.observation, PipelineStarted):
                self.began.append((end, entry.observation.version))
            if self.policy is not None and isinstance(entry.observation, PolicyChanged):
                entry = replace(entry, observation=replace(entry.observation, policy=self.policy))
            self.decisions += [_essence(to_tree(each)) for each in pipeline.advance(entry).decisions]
        return end, None

    def _take_up(self, connection: Connection, sequence: int) -> tuple[Pipeline, int] | None:
        """The pipeline as the first readable snapshot at ``sequence`` or later has it."""
        for at, tree in snapshots.oldest_first(connection, self.run, VERSION, since=sequence):
            if self.policy is not None:
                tree["deciding"]["policy"] = self.policy
            pipeline = Pipeline(self.run)
            with suppress(ValueError):
                pipeline.restore(tree)
                return pipeline, at
        return None


def replay(database: Database, run: RunId, *, policy: str | None = None) -> Replay:
    """Folds the log from its beginning; where entries have expired, from the snapshots that incidents have kept.

    Args:
        database: only read.
        run: whose log.
        policy: TOML that decides in place of the policies in the log: what it would have done.

    Raises:
        NotFound: there is no such run.
    """
    fold = _Fold(run, policy)
    with database.reading() as connection:
        stored = [_essence(each) for each in decision_log.decision_documents(connection, run=run)]
        fold.fold(connection)
    if not fold.stretches:
        raise NotFound("run", run, "`sentinel status` lists the runs")
    told = [each for each in stored if any(first <= each["sequence"] <= last for first, last in fold.stretches)]
    return Replay(
        run=run,
        entries=sum(last - first + 1 for first, last in fold.stretches),
        decisions=len(told),
        difference=next(_differences(told, fold.decisions, fold.began), None),
        versions=tuple(dict.fromkeys(version for _, version in fold.began)),
        stretches=tuple(fold.stretches),
        beyond=len(stored) - len(told),
    )


def _differences(
    stored: list[dict[str, Any]], replayed: list[dict[str, Any]], began: list[tuple[int, str]]
) -> Iterator[Difference]:
    for one, other in zip_longest(stored, replayed):
        if one != other:
            sequence = min(each["sequence"] for each in (one, other) if each is not None)
            version = next((version for start, version in reversed(began) if start <= sequence), "")
            yield Difference(sequence, one, other, version)


def _essence(decision: dict[str, Any]) -> dict[str, Any]:
    return {name: decision.get(name) for name in COMPARED}
