"""A run's log and pipeline, as far as they go, and the runs that are in memory."""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sentinel import clock
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import VERSION, Pipeline
from sentinel.protocol.codec import dumps
from sentinel.protocol.ids import AttemptId, RunId, SenderId, leads
from sentinel.protocol.observations import (
    Observation,
    ObservationBatch,
    OperatorRequest,
    PipelineStarted,
    PolicyChanged,
    Tick,
)
from sentinel.store import action_outbox, decision_log, fleet_hold, observation_log, snapshots
from sentinel.store.fleet_hold import FleetHold
from sentinel.store.observation_log import StoredEntry
from sentinel.store.session import Connection

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 2000
"""Entries. A restart refolds at most as many for each run: about 0.1 s."""
RESTING_AT_ONCE = 20
"""Runs in one transaction: a snapshot takes about a millisecond."""
TICK_SILENT_EVERY_S = 30.0
SILENT_AT_MOST_S = 3 * 3600.0
"""Longer than any phase may last before it is called a hang."""
DAEMON = SenderId("daemon")


@dataclass(slots=True)
class Advanced:
    """An entry that was appended, and what it led to."""

    stored: StoredEntry
    outcome: Outcome


class Stream:
    """One run's log and pipeline. Used by the writer's thread alone."""

    def __init__(self, connection: Connection, run: RunId) -> None:
        self.run = run
        self.pipeline = Pipeline(run)
        self.sequence = 0
        self.heard_at = clock.monotonic()
        """Daemon's monotonic clock at the last word of rank 0, or since when the daemon has listened for one."""
        self._ticked_at = 0.0
        """Likewise when its silence was noted last."""
        self._next_counters = observation_log.next_counters(connection, run)
        self._heard: set[tuple[AttemptId, SenderId]] = set()
        self._received_at = 0.0
        self._snapshot_at = 0
        self._is_snapshot_due = False
        self._refold(connection)

    def append(
        self,
        observation: Observation,
        payload: str,
        *,
        received_at: float,
        attempt: AttemptId = AttemptId(""),
        sender: SenderId = DAEMON,
        backlog: bool = False,
    ) -> Advanced:
        """Gives the observation its place and folds it. The clock of the log never goes back."""
        self.sequence += 1
        self._received_at = max(self._received_at, received_at)
        entry = LogEntry(
            run=self.run,
            sequence=self.sequence,
            received_at=self._received_at,
            attempt=attempt,
            sender=sender,
            observation=observation,
            backlog=backlog,
        )
        return Advanced(StoredEntry(entry, payload), self.pipeline.advance(entry))

    def tell(self, observation: Observation, *, received_at: float) -> Advanced:
        """Appends an observation of the daemon's own."""
        return self.append(observation, dumps(observation), received_at=received_at)

    def begin(self, policy: str, *, received_at: float) -> list[Advanced]:
        """Notes in the log which pipeline and policy decide from here on."""
        told = [self.tell(PipelineStarted(at=received_at, version=VERSION), received_at=received_at)]
        if self.pipeline.policy_text != policy:
            told.append(self.tell(PolicyChanged(at=received_at, policy=policy), received_at=received_at))
        return told

    def follow(self, hold: FleetHold, *, received_at: float) -> list[Advanced]:
        """Notes in the log that all runs are held, or released, unless the run knows."""
        run = self.pipeline.run
        known = FleetHold(is_held=bool(run.all_held_by), by=run.all_held_by, reason=run.all_hold_reason)
        if hold == known or not (hold.is_held or known.is_held):
            return []
        request: Literal["hold", "release"] = "hold" if hold.is_held else "release"
        wish = OperatorRequest(at=received_at, request=request, fleet=True, by=hold.by, reason=hold.reason)
        return [self.tell(wish, received_at=received_at)]

    def take(self, batch: ObservationBatch, payloads: Sequence[str], *, received_at: float) -> list[Advanced]:
        """Appends what is new in a batch; ``payloads`` are its observations' texts as they came."""
        if leads(batch.sender):
            self.heard_at = clock.monotonic()
        return [
            self.append(
                observation,
                payload,
                received_at=received_at,
                attempt=batch.attempt,
                sender=batch.sender,
                backlog=batch.backlog,
            )
            for number, (observation, payload) in enumerate(
                zip(batch.observations, payloads, strict=True), start=batch.first_counter
            )
            if self._take_number(batch.attempt, batch.sender, number)
        ]

    def is_waited_for(self, now: float) -> bool:
        """Whether its next word may come any moment: it trains, or the longest start-up has not passed in silence."""
        phase = self.pipeline.run.phase
        return phase == "training" or (phase == "silent" and now - self.heard_at <= SILENT_AT_MOST_S)

    def is_tick_due(self, now: float, *, silent_s: float) -> bool:
        """Whether a silence of ``silent_s`` or more is to be noted: often at first, then every half minute."""
        if now - self.heard_at < silent_s or not self.is_waited_for(now):
            return False
        return self.pipeline.run.phase == "training" or now - self._ticked_at >= TICK_SILENT_EVERY_S

    def tick(self, now: float) -> list[Advanced]:
        """Notes the silence."""
        self._ticked_at = now
        at = clock.now()
        return [self.tell(Tick(at=at, silent_s=now - self.heard_at), received_at=at)]

    def _take_number(self, attempt: AttemptId, sender: SenderId, counter: int) -> bool:
        """Whether the sender's observation ``counter`` is new; if so, it is noted as heard."""
        if counter < self._next_counters.get((attempt, sender), 0):
            return False
        self._next_counters[attempt, sender] = counter + 1
        self._heard.add((attempt, sender))
        return True

    def save(self, connection: Connection, advanced: Sequence[Advanced]) -> None:
        """Writes new entries with what they led to, how far senders were heard and, every now and then, a snapshot."""
        at = clock.now()
        observation_log.append(connection, [each.stored for each in advanced])
        for each in advanced:
            decision_log.put_outcome(connection, each.stored.entry, each.outcome)
            action_outbox.plan(connection, self.run, each.outcome.actions, at=at)
            action_outbox.change(connection, each.outcome.action_changes, at=at)
        closed = ((each.stored.entry, rollup) for each in advanced for rollup in each.outcome.rollups)
        decision_log.put_rollups(connection, closed)
        decision_log.put_run(connection, self.run, self.pipeline.run, sequence=self.sequence, at=at)
        for attempt, sender in self._heard:
            number = self._next_counters[attempt, sender]
            observation_log.put_next_counter(connection, self.run, attempt=attempt, sender=sender, next_counter=number)
        self._heard.clear()
        if self._is_snapshot_due or self.sequence - self._snapshot_at >= SNAPSHOT_EVERY:
            self.rest(connection)

    def rest(self, connection: Connection) -> None:
        """Writes a snapshot, if there is none of this moment: who takes the run up again need fold nothing."""
        if self.sequence > self._snapshot_at:
            snapshots.put(connection, self.run, self.sequence, self.pipeline.snapshot())
            self._snapshot_at = self.sequence
            self._is_snapshot_due = False

    def _refold(self, connection: Connection) -> None:
        """From the newest snapshot that can be read, else from the beginning.

        Where old entries have expired, the beginning comes out a little different each time more of them do; so what
        comes out now is put down at once.
        """
        for sequence, tree in snapshots.newest_first(connection, self.run, VERSION):
            try:
                self.pipeline.restore(tree)
            except ValueError as error:
                log.warning("the snapshot of run %s at entry %d is passed over: %s", self.run, sequence, error)
                self.pipeline = Pipeline(self.run)
                continue
            self.sequence = self._snapshot_at = sequence
            self._received_at = observation_log.received_at(connection, self.run, sequence)
            break
        folded = 0
        for stored in observation_log.read(connection, self.run, after=self._snapshot_at):
            self.pipeline.advance(stored.entry)
            self.sequence = stored.entry.sequence
            self._received_at = stored.entry.received_at
            folded += 1
        self._is_snapshot_due = self.sequence - self._snapshot_at > folded


class Resident:
    """The runs in memory. Used by the writer's thread alone.

    Args:
        policy: the policy in force, as TOML.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._streams: dict[RunId, Stream] = {}
        self._begun: set[RunId] = set()
        """Runs whose logs say that this daemon listens."""

    def __getitem__(self, run: RunId) -> Stream:
        return self._streams[run]

    def __contains__(self, run: object) -> bool:
        return run in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def items(self) -> ItemsView[RunId, Stream]:
        """Each with its stream."""
        return self._streams.items()

    def take_up(self, connection: Connection, run: RunId) -> list[Advanced]:
        """Brings a run into memory; returns what its log is told of who listens, and who holds all runs."""
        stream = self._streams[run] = Stream(connection, run)
        at = clock.now()
        begun = [] if run in self._begun else stream.begin(self._policy, received_at=at)
        self._begun.add(run)
        return begun + stream.follow(fleet_hold.read(connection), received_at=at)

    def spare(self, now: float, *, silent_s: float) -> list[RunId]:
        """Some runs that are not waited for and of which nothing was heard for so long."""
        silent = [run for run, each in self._streams.items() if now - each.heard_at > silent_s]
        return [run for run in silent if not self._streams[run].is_waited_for(now)][:RESTING_AT_ONCE]

    def let_go(self, runs: Iterable[RunId]) -> None:
        """Forgets streams that rest."""
        for run in runs:
            del self._streams[run]

    def doubt(self, runs: Iterable[RunId]) -> None:
        """Forgets streams that ran ahead of what was committed."""
        for run in runs:
            self._streams.pop(run, None)
            self._begun.discard(run)

    def listen_anew(self) -> None:
        """There was a gap: who rests hears of it at its next word."""
        self._begun.intersection_update(self._streams)
