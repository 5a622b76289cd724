from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.protocol.codec import dumps
from sentinel.protocol.ids import AttemptId, SenderId
from sentinel.protocol.observations import Observation, StepReport, UnknownObservation
from sentinel.store import observation_log
from sentinel.store.observation_log import StoredEntry
from sentinel.store.session import Database, migrate, open_database
from tests.builders import ATTEMPT, ONE_OF_EACH, RUN, SENDER, entry
from tests.daemons import database_url

pytestmark = pytest.mark.usefixtures("every_store")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database at this release's schema."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    yield database
    database.close()


def stored(observation: Observation, sequence: int) -> StoredEntry:
    """An entry as the writer appends it."""
    return StoredEntry(entry(observation, sequence), dumps(observation))


def test_every_kind_comes_back_as_it_was(database: Database) -> None:
    """Each kind of observation is read back equal, with its place, time and sender."""
    known = [each for each in ONE_OF_EACH if not isinstance(each, UnknownObservation)]
    entries = [stored(observation, sequence) for sequence, observation in enumerate(known, start=1)]
    with database.transaction() as connection:
        observation_log.append(connection, entries)
    with database.reading() as connection:
        assert list(observation_log.read(connection, RUN)) == entries


def test_a_kind_from_the_future_keeps_its_whole_text(database: Database) -> None:
    """What this release does not know is read back as unknown, with every field still in the payload."""
    text = '{"kind":"weather","at":3.0,"rain_mm":"NaN"}'
    told = StoredEntry(entry(UnknownObservation(at=3.0, named="weather"), 1), text)
    with database.transaction() as connection:
        observation_log.append(connection, [told])
    with database.reading() as connection:
        assert list(observation_log.read(connection, RUN)) == [told]


def test_nan_survives_the_database(database: Database) -> None:
    """A NaN loss and an infinite norm are the same after a round trip, where a numeric column would hold NULL."""
    report = StepReport(at=0.0, step=1, loss=math.nan, grad_norm=math.inf)
    with database.transaction() as connection:
        observation_log.append(connection, [stored(report, 1)])
    with database.reading() as connection:
        (read,) = observation_log.read(connection, RUN)
    assert isinstance(read.entry.observation, StepReport)
    assert math.isnan(read.entry.observation.loss or 0.0)
    assert read.entry.observation.grad_norm == math.inf


def test_a_long_log_is_read_whole_and_from_any_place(database: Database) -> None:
    """Reading goes on over pages without gap or repetition, and begins after the sequence that is named."""
    entries = [stored(StepReport(at=0.0, step=step), step) for step in range(1, 4501)]
    with database.transaction() as connection:
        observation_log.append(connection, entries)
    with database.reading() as connection:
        assert [each.entry.sequence for each in observation_log.read(connection, RUN)] == list(range(1, 4501))
        assert [each.entry.sequence for each in observation_log.read(connection, RUN, after=4400)][:2] == [4401, 4402]


def test_kinds_are_found_by_steps(database: Database) -> None:
    """Entries of some kinds within a range of steps come in the order of the log, ends included."""
    entries = [stored(StepReport(at=0.0, step=step), place) for place, step in enumerate([5, 6, 7, 5, 8], start=1)]
    with database.transaction() as connection:
        observation_log.append(connection, [*entries, stored(ONE_OF_EACH[0], 6)])
    with database.reading() as connection:
        found = observation_log.of_kinds(connection, RUN, ["step"], first_step=5, last_step=7)
        assert [each.entry.sequence for each in found] == [1, 2, 3, 4]
        (start,) = observation_log.of_kinds(connection, RUN, ["attempt_started"])
        assert start.entry.sequence == 6


def test_senders_are_remembered_each_for_itself(database: Database) -> None:
    """How far a sender was heard is kept by attempt and sender, and moves on."""
    other, second = SenderId("rank-1"), AttemptId("attempt-2")
    with database.transaction() as connection:
        for attempt, sender, number in (
            (ATTEMPT, SENDER, 10),
            (ATTEMPT, other, 3),
            (ATTEMPT, SENDER, 12),
            (second, SENDER, 1),
        ):
            observation_log.put_next_counter(connection, RUN, attempt=attempt, sender=sender, next_counter=number)
    with database.reading() as connection:
        assert observation_log.next_counters(connection, RUN) == {
            (ATTEMPT, SENDER): 12,
            (ATTEMPT, other): 3,
            (second, SENDER): 1,
        }
