"""Folds a run's log again and compares what comes out with what was decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from sentinel.domain.errors import NotFound
from sentinel.pipeline.pipeline import VERSION, Pipeline
from sentinel.protocol.codec import to_tree
from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import PipelineStarted, PolicyChanged
from sentinel.store import decision_log, observation_log
from sentinel.store.session import Database

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
    decisions: int
    """Stored ones."""
    difference: Difference | None
    versions: tuple[str, ...]

    @property
    def is_failure(self) -> bool:
        """Whether a stretch that this version wrote does not come out again."""
        return self.difference is not None and self.difference.version == VERSION


def replay(database: Database, run: RunId, *, policy: str | None = None) -> Replay:
    """Folds the log from its beginning.

    Args:
        database: only read.
        run: whose log.
        policy: TOML that decides in place of the policies in the log: what it would have done.

    Raises:
        NotFound: there is no such run.
    """
    with database.reading() as connection:
        stored = [_essence(each) for each in decision_log.decision_documents(connection, run=run)]
        pipeline = Pipeline(run)
        replayed: list[dict[str, Any]] = []
        began: list[tuple[int, str]] = []
        entries = 0
        for stored_entry in observation_log.read(connection, run):
            entries += 1
            entry = stored_entry.entry
            if isinstance(entry.observation, PipelineStarted):
                began.append((entry.sequence, entry.observation.version))
            if policy is not None and isinstance(entry.observation, PolicyChanged):
                entry = replace(entry, observation=replace(entry.observation, policy=policy))
            replayed += [_essence(to_tree(each)) for each in pipeline.advance(entry).decisions]
    if not entries:
        raise NotFound("run", run, "`sentinel status` lists the runs")
    difference = next(_differences(stored, replayed, began), None)
    return Replay(run, entries, len(stored), difference, tuple(dict.fromkeys(version for _, version in began)))


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
