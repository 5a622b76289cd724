from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel import clock
from sentinel.domain.log_entry import LogEntry
from sentinel.engine import expiry as engine_expiry
from sentinel.engine import streams
from sentinel.engine.expiry import Expiry
from sentinel.engine.replay import replay
from sentinel.engine.streams import Advanced, Stream
from sentinel.engine.writer import Writer
from sentinel.pipeline import pipeline
from sentinel.protocol.codec import dumps
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.observations import AttemptEnded
from sentinel.store import expiry as store_expiry
from sentinel.store import observation_log, snapshots
from sentinel.store.series import Wanted, read_series
from sentinel.store.session import Database, open_database
from sentinel.store.tables import metadata
from tests.builders import RUN
from tests.daemons import Voice, database_url, writing
from tests.pipeline.world import HAPPENINGS, World

DAY_S = 86400.0


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A running writer over an empty database."""
    with writing(tmp_path) as writer:
        yield writer


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The writer's."""
    database = open_database(database_url(tmp_path))
    yield database
    database.close()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only element."""
    time = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: time[0])
    return time


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots, evidence and transactions of a few entries, so that a short log has many of them."""
    monkeypatch.setattr(streams, "SNAPSHOT_EVERY", 20)
    monkeypatch.setattr(snapshots, "EVIDENCE_BEFORE", 10)
    monkeypatch.setattr(engine_expiry, "REMOVED_AT_ONCE", 7)
    monkeypatch.setattr(store_expiry, "LOOKED_AT", 50)


def kinds(database: Database) -> list[str]:
    """What is in the log."""
    with database.reading() as connection:
        return [each.entry.observation.kind for each in observation_log.read(connection, RUN)]


def run_for_days(voice: Voice, at: list[float], days: int) -> None:
    """A healthy run that tells 10 steps and a reading of its device a day."""
    for _ in range(days):
        at[0] += DAY_S
        voice.tell(*voice.reports(10), DeviceSample(at=0.0, index=0))


@pytest.mark.usefixtures("small")
def test_steps_expire_after_the_days_given_and_readings_of_devices_in_an_hour(
    writer: Writer, database: Database, at: list[float]
) -> None:
    """What is told rarely stays; the series still has every step, each attempt's apart, as before."""
    voice = Voice(writer)
    voice.start()
    run_for_days(voice, at, 100)
    wanted = Wanted(run=RUN, name="loss", first_step=0, last_step=10_000, points=20)
    with database.reading() as connection:
        before = read_series(connection, wanted)
    removed: list[int] = []
    assert Expiry(database, writer, keep_s=30 * DAY_S, removed=removed.append).expire() == sum(removed)
    left = kinds(database)
    assert left.count("step") == 310
    assert left.count("device") < 10
    assert left[:3] == ["pipeline_started", "policy_changed", "attempt_started"]
    assert len(removed) > 10
    with database.reading() as connection:
        assert read_series(connection, wanted) == before


@pytest.mark.usefixtures("small")
def test_an_incident_keeps_what_its_decisions_follow_from(writer: Writer, database: Database, at: list[float]) -> None:
    """Months later the incident is decided again as it was, and the replay says which entries it has left."""
    voice = Voice(writer)
    voice.ready_to_roll_back()
    run_for_days(voice, at, 20)
    (command,) = voice.break_down().commands
    voice.roll_back(command.id, command.step)
    voice.train(60)
    run_for_days(voice, at, 150)
    whole = replay(database, RUN)
    assert Expiry(database, writer, keep_s=30 * DAY_S).expire() > 1000
    again = replay(database, RUN)
    assert (again.difference, again.beyond, again.decisions) == (None, 0, whole.decisions)
    assert whole.stretches == ((1, whole.entries),)
    assert len(again.stretches) == 3
    assert again.entries < whole.entries / 3
    assert Expiry(database, writer, keep_s=30 * DAY_S).expire() == 0


def test_a_run_that_is_over_keeps_no_steps_and_goes_on_when_it_is_heard_of_again(
    writer: Writer, database: Database, at: list[float]
) -> None:
    """Of a run too short for any snapshot nothing but its story stays, once it is old; its state is put down before."""
    voice = Voice(writer)
    voice.start()
    voice.train(50)
    voice.tell(AttemptEnded(at=0.0, outcome="finished", step=50))
    at[0] += 40 * DAY_S
    Voice(writer, "another").start()
    expiry = Expiry(database, writer, keep_s=30 * DAY_S)
    assert expiry.expire() == 50
    assert "step" not in kinds(database)
    assert expiry.expire() == 0
    voice.train(1)
    with database.reading() as connection:
        assert Stream(connection, RUN).pipeline.run.step == 51


def test_a_clock_that_is_years_ahead_removes_nothing(writer: Writer, database: Database, at: list[float]) -> None:
    """Nothing is older than the newest word of any run."""
    voice = Voice(writer)
    voice.start()
    voice.train(50)
    at[0] += 4000 * DAY_S
    assert Expiry(database, writer, keep_s=DAY_S).expire() == 0


@pytest.mark.usefixtures("small")
def test_an_upgrade_over_an_expired_log_is_put_down_at_once(
    tmp_path: Path, at: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline of another version folds what is left, and from then on a restart brings back what it came to."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.start()
        run_for_days(voice, at, 100)
        database = open_database(database_url(tmp_path))
        assert Expiry(database, writer, keep_s=30 * DAY_S).expire() > 0
    for module in (pipeline, streams, engine_expiry):
        monkeypatch.setattr(module, "VERSION", "next")
    with writing(tmp_path) as writer:
        writer.tell(RUN, lambda _stream: None).result(timeout=30)
        with database.reading() as connection:
            folded = Stream(connection, RUN).pipeline.snapshot()
            assert snapshots.newest(connection, RUN, "next") == Stream(connection, RUN).sequence
        Expiry(database, writer, keep_s=DAY_S).expire()
    with database.reading() as connection:
        assert Stream(connection, RUN).pipeline.snapshot() == folded
    database.close()


COURSES = st.tuples(
    st.lists(st.integers(1, 60), min_size=1, max_size=8), st.sampled_from([1.0, 10.0, 100.0]), st.booleans()
)
"""Entries in each transaction, how many seconds steps are kept, and whether the daemon starts anew all the time."""


@pytest.mark.usefixtures("small")
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(happenings=HAPPENINGS, course=COURSES)
def test_whatever_expires_a_restart_is_none_and_every_decision_comes_out_again(
    writer: Writer, database: Database, happenings: list[Any], course: tuple[list[int], float, bool]
) -> None:
    """Any story, with old entries going again and again: the state is that of the whole log, each decision replays."""
    sizes, keep_s, restarts = course
    world = World()
    world.train_well(60)
    world.save("verified")
    world.train_well(60)
    world.train([math.nan])
    world.answer("succeeded")
    world.train_well(80)
    for name, arguments, named in happenings:
        getattr(world, name)(*arguments, **named)
    with database.transaction() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
        stream = Stream(connection, RUN)
    expiry = Expiry(database, writer, keep_s=keep_s)
    told = iter(world.entries)
    for size in cycle(sizes):
        part = list(islice(told, size))
        if not part:
            break
        with database.transaction() as connection:
            stream.save(connection, [_appended(stream, each) for each in part])
        expiry.expire()
        if restarts:
            with database.reading() as connection:
                stream = Stream(connection, RUN)
    with database.reading() as connection:
        assert dumps(Stream(connection, RUN).pipeline.snapshot()) == dumps(world.pipeline.snapshot())
    again = replay(database, RUN)
    assert (again.difference, again.beyond) == (None, 0)
    assert again.decisions == sum(len(outcome.decisions) for outcome in world.outcomes)


def _appended(stream: Stream, entry: LogEntry) -> Advanced:
    return stream.append(
        entry.observation,
        dumps(entry.observation),
        received_at=entry.received_at,
        attempt=entry.attempt,
        sender=entry.sender,
        backlog=entry.backlog,
    )
