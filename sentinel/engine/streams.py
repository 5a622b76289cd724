"""The pipelines of the runs in memory, each as far as its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentinel import clock
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import VERSION, Pipeline
from sentinel.protocol.codec import dumps
from sentinel.protocol.ids import AttemptId, RunId, SenderId
from sentinel.protocol.observations import Observation, PipelineStarted, PolicyChanged
from sentinel.store import action_outbox, decision_log, observation_log
from sentinel.store.observation_log import StoredEntry
from sentinel.store.session import Connection

SNAPSHOT_EVERY = 2000
"""Entries. A restart refolds at most as many for each run: about 0.1 s."""
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
        """Daemon's monotonic clock at the last word of a sender, or since when the daemon has listened for one."""
        self.ticked_at = 0.0
        """Likewise when its silence was noted last."""
        self._next_counters = observation_log.next_counters(connection, run)
        self._heard: set[tuple[AttemptId, SenderId]] = set()
        self._received_at = 0.0
        self._snapshot_at = 0
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

    def is_tick_due(self, now: float) -> bool:
        """Whether the silence is to be noted: often at first, and no more when even the longest start-up has passed."""
        phase = self.pipeline.run.phase
        if phase == "training":
            return True
        return (
            phase == "silent"
            and now - self.ticked_at >= TICK_SILENT_EVERY_S
            and now - self.heard_at <= SILENT_AT_MOST_S
        )

    def take_number(self, attempt: AttemptId, sender: SenderId, counter: int) -> bool:
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
        decision_log.put_run(connection, self.run, self.pipeline.run, sequence=self.sequence, at=at)
        for attempt, sender in self._heard:
            number = self._next_counters[attempt, sender]
            observation_log.put_next_counter(connection, self.run, attempt=attempt, sender=sender, next_counter=number)
        self._heard.clear()
        if self.sequence - self._snapshot_at >= SNAPSHOT_EVERY:
            observation_log.put_snapshot(connection, self.run, self.sequence, self.pipeline.snapshot())
            self._snapshot_at = self.sequence

    def _refold(self, connection: Connection) -> None:
        newest = observation_log.newest_snapshot(connection, self.run, VERSION)
        if newest is not None:
            self._snapshot_at, tree = newest
            self.pipeline.restore(tree)
            self._received_at = observation_log.received_at(connection, self.run, self._snapshot_at)
        self.sequence = self._snapshot_at
        for stored in observation_log.read(connection, self.run, after=self._snapshot_at):
            self.pipeline.advance(stored.entry)
            self.sequence = stored.entry.sequence
            self._received_at = stored.entry.received_at
