from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.store import snapshots
from sentinel.store.session import Connection, Database, migrate, open_database
from sentinel.store.tables import incidents
from tests.builders import RUN
from tests.daemons import database_url

pytestmark = pytest.mark.usefixtures("every_store")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database without any run."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    yield database
    database.close()


def keep(connection: Connection, *sequences: int, version: str = "1") -> None:
    """Puts a snapshot at each sequence."""
    for sequence in sequences:
        snapshots.put(connection, RUN, sequence, {"version": version, "at": sequence, "x": math.nan})


def kept(connection: Connection) -> list[int]:
    """Where there are snapshots, of whichever version."""
    return [
        sequence for version in ("1", "2") for sequence, _ in snapshots.oldest_first(connection, RUN, version, since=0)
    ]


def incident(connection: Connection, opened: int, changed: int, state: str) -> None:
    """Writes an incident."""
    connection.execute(
        incidents.insert().values(
            id=f"i{opened}",
            run=RUN,
            opened_sequence=opened,
            changed_sequence=changed,
            detected_at=0.0,
            state=state,
            severity="critical",
            symptom="nonfinite",
            symptoms=" nonfinite ",
            node="",
            document="{}",
        )
    )


def test_the_newest_snapshot_of_a_version_is_found_and_few_are_kept(database: Database) -> None:
    """A snapshot of another pipeline version is passed over; older ones than two are let go."""
    with database.transaction() as connection:
        keep(connection, 10, 20, 30)
        assert next(snapshots.newest_first(connection, RUN, "1")) == (30, {"version": "1", "at": 30, "x": "NaN"})
        assert snapshots.newest(connection, RUN, "2") == 0
        assert (snapshots.newest(connection, RUN, "1"), snapshots.newest(connection, RUN, "1", place=1)) == (30, 20)
        keep(connection, 40, version="2")
        assert snapshots.newest(connection, RUN, "1") == 30
        keep(connection, 50, version="2")
        assert snapshots.newest(connection, RUN, "1") == 0


def test_an_incident_keeps_the_snapshot_before_its_evidence(database: Database) -> None:
    """What an incident's decisions follow from begins behind that snapshot and ends with it, if it has ended."""
    with database.transaction() as connection:
        keep(connection, 1000, 2000)
        incident(connection, 2100, 2150, "resolved")  # its evidence reaches behind the snapshot of 2000
        keep(connection, 3000)
        incident(connection, 3900, 3950, "resolved")
        keep(connection, 4000, 5000, 6000)
        assert kept(connection) == [1000, 2000, 3000, 5000, 6000]
        assert snapshots.needed(connection, RUN) == [(1001, 2150), (3001, 3950)]
        incident(connection, 6500, 6500, "open")
        keep(connection, 7000, 8000, 9000)
        assert kept(connection) == [1000, 2000, 3000, 6000, 7000, 8000, 9000]
        assert snapshots.needed(connection, RUN)[-1] == (6001, MAX_INTEGER)
