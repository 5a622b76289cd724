"""The one thread that writes: appends to the logs, advances the pipelines, commits both together, then answers.

What waits when a transaction begins goes into it, so that a slow disk is paid for once by many. If a transaction fails
nothing of it happened: the streams it touched are read again from the database, and every caller is told.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from sentinel import clock
from sentinel.domain.actions import Executor
from sentinel.domain.errors import StoreUnavailable
from sentinel.engine.streams import Advanced, Stream
from sentinel.protocol.commands import Reply
from sentinel.protocol.ids import RunId
from sentinel.protocol.launching import is_launcher
from sentinel.protocol.observations import ObservationBatch, Tick
from sentinel.store import action_outbox
from sentinel.store.lease import Lease, LeaseLost
from sentinel.store.session import Connection, Database

log = logging.getLogger(__name__)

GROUP_LIMIT: Final = 1000
"""Observations in one transaction, about 0.1 s of work: a backlog must not keep a live NaN waiting longer."""
GAP_S: Final = 15.0
"""Ticks come every 5 s: after a longer pause between two of them the daemon has not listened."""
STANDS_BY: Final = "this daemon stands by, another one writes: send it there, or again until this one has taken over"
Answer = TypeVar("Answer")


class Witness(Protocol):
    """Whoever wants to know what was committed, such as metrics; called on the writer's thread after the commit."""

    def committed(self, stream: Stream, advanced: Sequence[Advanced]) -> None:
        """Entries of one run are durable."""


@dataclass(slots=True)
class _Job:
    work: Callable[[_Transaction], Any]
    future: Future[Any]
    size: int
    """Observations in it, about."""


@dataclass(slots=True)
class _Transaction:
    """What the jobs of one transaction share."""

    connection: Connection
    stream: Callable[[RunId], Stream]
    advanced: dict[RunId, list[Advanced]] = field(default_factory=dict)
    ordered: set[tuple[RunId, Executor]] = field(default_factory=set)
    """Runs whose orders to agents or launchers go out with an answer to this transaction."""

    def note(self, run: RunId, advanced: Sequence[Advanced]) -> None:
        self.advanced.setdefault(run, []).extend(advanced)


class Writer:
    """Start it with ``start`` and end it with ``stop``; every method may be called from any thread.

    Args:
        database: at this release's schema.
        policy: the policy in force, as TOML.
        witnesses: told after each commit.
        took: told how many seconds each transaction took, such as a metric.
        lease: held where several daemons share the database; every transaction proves that it still is.
        lost: told when it is not: nothing more is written.
    """

    def __init__(
        self,
        database: Database,
        policy: str,
        witnesses: Sequence[Witness] = (),
        *,
        took: Callable[[float], object] = lambda _seconds: None,
        lease: Lease | None = None,
        lost: Callable[[str], object] = lambda _why: None,
    ) -> None:
        self._database = database
        self._policy = policy
        self._witnesses = witnesses
        self._took = took
        self._lease = lease
        self._lost = lost
        self._streams: dict[RunId, Stream] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._refusal = STANDS_BY
        self._ticked_at = 0.0
        self._submitting = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="sentinel-writer", daemon=True)

    def start(self) -> None:
        """Begins to write; the lease is held."""
        self._refusal = ""
        self._ticked_at = clock.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Finishes what waits, then ends; whoever comes later is refused."""
        with self._submitting:
            self._refusal = "the daemon is ending: try again when it is back"
            self._jobs.put(None)
        self._thread.join()

    @property
    def refusal(self) -> str:
        """Why nothing is written; empty if it is."""
        return self._refusal or ("" if self.alive else "the writer has ended: restart the daemon")

    @property
    def alive(self) -> bool:
        """Whether it writes."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Jobs that wait for the next transaction."""
        return self._jobs.qsize()

    def ingest(self, batch: ObservationBatch, payloads: Sequence[str], *, received_at: float) -> Future[Reply]:
        """Takes a batch; the future holds the reply once the batch is durable.

        Args:
            batch: decoded.
            payloads: the JSON text of each observation, as it came.
            received_at: Unix seconds.
        """
        return self._submit(lambda transaction: _ingest(transaction, batch, payloads, received_at), size=len(payloads))

    def tell(self, run: RunId, make: Callable[[Stream], Any | None]) -> Future[bool]:
        """Appends an observation of the daemon's own to a run's log, unless ``make`` returns None."""

        def work(transaction: _Transaction) -> bool:
            stream = transaction.stream(run)
            observation = make(stream)
            if observation is not None:
                transaction.note(run, [stream.tell(observation, received_at=clock.now())])
            return observation is not None

        return self._submit(work)

    def tick(self, *, silent_s: float) -> Future[int]:
        """Tells every training run of which nothing was heard for ``silent_s`` seconds so; the answer is how many."""

        def work(transaction: _Transaction) -> int:
            now = clock.monotonic()
            self._note_gap(transaction, now)
            told = 0
            for run, stream in self._streams.items():
                silence = now - stream.heard_at
                if silence >= silent_s and stream.is_tick_due(now):
                    at = clock.now()
                    stream.ticked_at = now
                    transaction.note(run, [transaction.stream(run).tell(Tick(at=at, silent_s=silence), received_at=at)])
                    told += 1
            return told

        return self._submit(work)

    def _note_gap(self, transaction: _Transaction, now: float) -> None:
        """Where this process was stopped for a while, it begins to listen anew to all who have not spoken since."""
        last, self._ticked_at = self._ticked_at, now
        if now - last <= GAP_S:
            return
        for run, stream in self._streams.items():
            if stream.heard_at - last < GAP_S:
                stream.heard_at = now
                transaction.note(run, transaction.stream(run).begin(self._policy, received_at=clock.now()))

    def write(self, work: Callable[[Connection], Answer]) -> Future[Answer]:
        """Runs ``work`` in the next transaction."""
        return self._submit(lambda transaction: work(transaction.connection))

    def _submit(self, work: Callable[[_Transaction], Answer], *, size: int = 1) -> Future[Answer]:
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()  # who goes away cannot take back what was told
        with self._submitting:
            if self._refusal:
                raise StoreUnavailable(self._refusal)
            self._jobs.put(_Job(work, future, size))
        return future

    def _loop(self) -> None:
        ending = False
        while not ending:
            job = self._jobs.get()
            group: list[_Job] = []
            while job is not None:
                group.append(job)
                if sum(each.size for each in group) >= GROUP_LIMIT or self._jobs.empty():
                    break
                job = self._jobs.get()
            ending = job is None
            if group:
                self._commit(group)

    def _commit(self, jobs: Sequence[_Job]) -> None:
        touched: set[RunId] = set()
        began = clock.monotonic()
        try:
            with self._database.transaction() as connection:
                transaction, answers = self._work(connection, jobs, touched)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing was committed, and the writer must go on
            self._failed(jobs, touched, error)
            return
        self._took(clock.monotonic() - began)
        for run, advanced in transaction.advanced.items():
            self._show(self._streams[run], advanced)
        for job, answer in zip(jobs, answers, strict=True):
            job.future.set_result(answer)

    def _work(
        self, connection: Connection, jobs: Sequence[_Job], touched: set[RunId]
    ) -> tuple[_Transaction, list[Any]]:
        """Does the jobs and writes what came of them; ``touched`` gets the runs whose streams ran ahead."""
        begun: dict[RunId, list[Advanced]] = {}

        def stream(run: RunId) -> Stream:
            touched.add(run)
            if run not in self._streams:
                self._streams[run] = Stream(connection, run)
                begun[run] = self._streams[run].begin(self._policy, received_at=clock.now())
            return self._streams[run]

        transaction = _Transaction(connection, stream)
        if self._lease is not None:
            self._lease.renew(connection)
        answers = [job.work(transaction) for job in jobs]
        for run, advanced in begun.items():
            transaction.advanced[run] = advanced + transaction.advanced.get(run, [])
        for run, advanced in transaction.advanced.items():
            self._streams[run].save(connection, advanced)
        for run, executor in transaction.ordered:
            action_outbox.claim_orders(connection, run, executor, at=clock.now())
        return transaction, answers

    def _show(self, stream: Stream, advanced: Sequence[Advanced]) -> None:
        for witness in self._witnesses:
            try:
                witness.committed(stream, advanced)
            except Exception:  # what is durable must be answered for, whoever could not watch it
                log.exception("a witness of the commits of run %s failed", stream.run)

    def _failed(self, jobs: Sequence[_Job], touched: set[RunId], error: Exception) -> None:
        for run in touched:
            self._streams.pop(run, None)
        if not isinstance(error, StoreUnavailable) and len(jobs) > 1:
            for job in jobs:  # one of them is at fault: the others must not pay for it
                self._commit([job])
            return
        if isinstance(error, LeaseLost):
            self._refusal = str(error)
            self._lost(str(error))
        log.error("a transaction failed and nothing of it was kept", exc_info=error)
        for job in jobs:
            job.future.set_exception(error)


def _ingest(transaction: _Transaction, batch: ObservationBatch, payloads: Sequence[str], received_at: float) -> Reply:
    stream = transaction.stream(batch.run)
    if batch.observations and not is_launcher(batch.sender):  # who stands by says nothing of the training
        stream.heard_at = clock.monotonic()
    advanced: list[Advanced] = []
    for offset, (observation, payload) in enumerate(zip(batch.observations, payloads, strict=True)):
        if stream.take_number(batch.attempt, batch.sender, batch.first_counter + offset):
            advanced.append(
                stream.append(
                    observation,
                    payload,
                    received_at=received_at,
                    attempt=batch.attempt,
                    sender=batch.sender,
                    backlog=batch.backlog,
                )
            )
    transaction.note(batch.run, advanced)
    commands = () if batch.backlog else stream.pipeline.commands_for(batch.attempt, batch.sender)
    if commands:
        executor: Executor = "launcher_command" if is_launcher(batch.sender) else "trainer_command"
        transaction.ordered.add((batch.run, executor))
    return Reply(
        accepted=len(advanced),
        duplicates=len(batch.observations) - len(advanced),
        commands=commands,
        notices=stream.pipeline.notices_after(batch.notices_after),
        releasable=stream.pipeline.releasable(),
    )
