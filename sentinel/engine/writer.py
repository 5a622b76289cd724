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
from typing import Any, Final, TypeVar

from sentinel import clock
from sentinel.domain.actions import Executor
from sentinel.domain.errors import StoreUnavailable
from sentinel.engine.streams import Advanced, Resident, Stream
from sentinel.engine.witness import Witness
from sentinel.protocol.commands import Reply
from sentinel.protocol.ids import RunId
from sentinel.protocol.launching import is_launcher
from sentinel.protocol.observations import ObservationBatch
from sentinel.store import action_outbox, fleet_hold
from sentinel.store.fleet_hold import FleetHold
from sentinel.store.lease import Lease, LeaseLost
from sentinel.store.session import Connection, Database

log = logging.getLogger(__name__)

GROUP_LIMIT: Final = 1000
"""Observations in one transaction, about 0.1 s of work: a backlog must not keep a live NaN waiting longer."""
GAP_S: Final = 15.0
"""Ticks come every 5 s: after a longer pause between two of them the daemon has not listened."""
STANDS_BY: Final = "this daemon stands by, another one writes: send it there, or again until this one has taken over"
Answer = TypeVar("Answer")


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
    resting: set[RunId] = field(default_factory=set)
    """Runs that leave the memory after it, should nothing be told of them in it."""

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
        self._streams = Resident(policy)
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
    def resident(self) -> int:
        """Runs in memory."""
        return len(self._streams)

    @property
    def waiting(self) -> int:
        """Jobs that wait for the next transaction."""
        return self._jobs.qsize()

    def ingest(self, batch: ObservationBatch, payloads: Sequence[str], *, received_at: float) -> Future[Reply]:
        """Takes a batch with each observation's JSON text as it came; the future holds the reply once it is durable."""
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
                if stream.is_tick_due(now, silent_s=silent_s):
                    transaction.note(run, transaction.stream(run).tick(now))
                    told += 1
            return told

        return self._submit(work)

    def rest(self, *, silent_s: float) -> Future[int]:
        """Lets runs that do not train go from memory after a silence; each is taken up again at its next word."""

        def work(transaction: _Transaction) -> int:
            runs = self._streams.spare(clock.monotonic(), silent_s=silent_s)
            for run in runs:
                transaction.stream(run).rest(transaction.connection)
            transaction.resting.update(runs)
            return len(runs)

        return self._submit(work)

    def _note_gap(self, transaction: _Transaction, now: float) -> None:
        """Where this process was stopped for a while, it begins to listen anew to all who have not spoken since."""
        last, self._ticked_at = self._ticked_at, now
        if now - last <= GAP_S:
            return
        self._streams.listen_anew()
        for run, stream in self._streams.items():
            if stream.heard_at - last < GAP_S:
                stream.heard_at = now
                transaction.note(run, transaction.stream(run).begin(self._policy, received_at=clock.now()))

    def hold_all(self, hold: FleetHold) -> Future[None]:
        """Holds or releases all runs: those in memory are told at once, each other one when it is taken up."""

        def work(transaction: _Transaction) -> None:
            fleet_hold.put(transaction.connection, hold, at=clock.now())
            for run in [run for run, _ in self._streams.items()]:
                transaction.note(run, transaction.stream(run).follow(hold, received_at=clock.now()))

        return self._submit(work)

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
        self._streams.let_go(transaction.resting - transaction.advanced.keys())
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
                begun[run] = self._streams.take_up(connection, run)
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
        self._streams.doubt(touched)
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
    advanced = stream.take(batch, payloads, received_at=received_at)
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
