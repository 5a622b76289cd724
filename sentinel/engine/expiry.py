"""Lets old entries of the logs go: never what a restart folds, nor what the decisions about an incident follow from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from sentinel import clock
from sentinel.engine.streams import Stream
from sentinel.engine.writer import Writer
from sentinel.pipeline.pipeline import VERSION
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import Heartbeat, StepReport, Tick
from sentinel.protocol.processes import RankReport
from sentinel.store import expiry, observation_log, snapshots
from sentinel.store.session import Database

TIMING_KEPT_S: Final = 3600.0
"""Told every 10 s by each rank and device: a thousand of them would fill 4 GB a day, and Prometheus has them longer."""
TIMING_KINDS: Final = frozenset({RankReport.kind, DeviceSample.kind})
STEP_KINDS: Final = frozenset({StepReport.kind, Heartbeat.kind, Tick.kind})
"""All other kinds are told rarely, and kept."""
REMOVED_AT_ONCE: Final = 500
"""Entries in one transaction of the writer, a few milliseconds: who waits behind it does not notice."""
ANSWER_WITHIN_S: Final = 60.0


class Expiry:
    """``expire`` is called from one thread at a time.

    Time is counted up to the newest word of any run: a daemon whose clock is years ahead at its start removes nothing
    for that.

    Args:
        database: only read here.
        writer: through which entries are removed.
        keep_s: how long steps are kept.
        removed: told how many entries went, such as a metric.
    """

    def __init__(
        self,
        database: Database,
        writer: Writer,
        *,
        keep_s: float,
        removed: Callable[[int], object] = lambda _count: None,
    ) -> None:
        self._database = database
        self._writer = writer
        self._keep_s = keep_s
        self._kept = ((STEP_KINDS, keep_s), (TIMING_KINDS, min(keep_s, TIMING_KEPT_S)))
        self._removed = removed
        self._passed: dict[tuple[RunId, Collection[str]], int] = {}
        """The entry up to which a log has been looked through."""
        self._over: dict[RunId, int] = {}
        """Last entries of runs of which nothing more will expire."""
        self._ending = False

    def stop(self) -> None:
        """Removes no more; what is old goes another time."""
        self._ending = True

    def expire(self) -> int:
        """Removes what is old; returns how many entries.

        Raises:
            StoreUnavailable: the database cannot be read or written; what was removed before is gone.
        """
        with self._database.reading() as connection:
            known = expiry.runs_heard(connection)
        now = min(clock.now(), max((each.last_at for each in known), default=0.0))
        count = 0
        for heard in known:
            if self._over.get(heard.run) == heard.sequence:
                continue
            is_over = heard.last_at < now - self._keep_s
            count += self._expire(heard.run, now, is_over=is_over)
            if self._ending:
                break
            if is_over:
                self._over[heard.run] = heard.sequence
        return count

    def _expire(self, run: RunId, now: float, *, is_over: bool) -> int:
        """Of a run that goes on two snapshots are left alone: an incident's evidence may reach behind the newest."""
        if is_over:
            self._put_down(run)
        with self._database.reading() as connection:
            before = snapshots.newest(connection, run, VERSION, place=0 if is_over else 1)
            needed = snapshots.needed(connection, run)
        before = min([before, *(first for first, last in needed if last == MAX_INTEGER)])
        return sum(
            self._remove(run, kinds, before=before, received_before=now - kept_s, needed=needed)
            for kinds, kept_s in self._kept
        )

    def _put_down(self, run: RunId) -> None:
        """Sees to it that a restart needs nothing but the newest snapshot."""
        with self._database.reading() as connection:
            is_down = snapshots.newest(connection, run, VERSION) == observation_log.last_sequence(connection, run)
        if not is_down:
            self._writer.write(lambda connection: Stream(connection, run).rest(connection)).result(ANSWER_WITHIN_S)

    def _remove(
        self,
        run: RunId,
        kinds: Collection[str],
        *,
        before: int,
        received_before: float,
        needed: Sequence[tuple[int, int]],
    ) -> int:
        count = 0
        is_end = False
        while not (is_end or self._ending):
            after = self._passed.get((run, kinds), 0)
            with self._database.reading() as connection:
                old = expiry.old_entries(
                    connection, run, kinds, after=after, before=before, received_before=received_before
                )
            spare = [each for each in old.sequences if not any(first <= each <= last for first, last in needed)]
            for start in range(0, len(spare), REMOVED_AT_ONCE):
                part = spare[start : start + REMOVED_AT_ONCE]
                removed = self._writer.write(partial(expiry.remove, run=run, sequences=part))
                self._removed(removed.result(ANSWER_WITHIN_S))
                count += len(part)
            self._passed[run, kinds] = old.until
            is_end = old.is_end
        return count
