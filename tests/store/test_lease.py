from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from sentinel import clock
from sentinel.store.lease import DURATION_S, Lease, LeaseLost
from sentinel.store.session import Database, migrate, open_database
from sentinel.store.tables import leases
from tests.daemons import database_url

pytestmark = [
    pytest.mark.usefixtures("every_store"),
    pytest.mark.parametrize("every_store", ["postgresql"], indirect=True),
]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """At this release's schema."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    yield database
    database.close()


def end_of_lease(connection: Connection, *, shifted_s: float = 0.0) -> float:
    """When the lease runs out by the server's clock; ``shifted_s`` moves it, as the passing of time would."""
    if shifted_s:
        connection.execute(update(leases).values(expires_at=leases.c.expires_at + shifted_s))
    return connection.execute(select(leases.c.expires_at)).scalar_one()


def take_over(lease: Lease, database: Database) -> float:
    """Looks until the lease is taken; returns how many seconds that took."""
    began = clock.monotonic()
    while lease.acquire(database) is not None:
        assert clock.monotonic() - began < 30.0
        clock.sleep(0.1)
    return clock.monotonic() - began


def test_the_second_waits_until_the_first_gives_up(database: Database) -> None:
    """A lease that is held names its holder to others, and is theirs as soon as it is released."""
    first, second = Lease("first"), Lease("second")
    assert first.acquire(database) is None
    assert second.acquire(database) == "first"
    first.release(database)
    assert second.acquire(database) is None
    assert first.acquire(database) == "second"


def test_a_renewal_prolongs(database: Database) -> None:
    """What a transaction renews runs out later; what a transaction did that was undone does not count."""
    lease = Lease("first")
    lease.acquire(database)
    with database.transaction() as connection:
        before = end_of_lease(connection, shifted_s=-3.0)
    with database.engine.connect() as undone:
        lease.renew(undone)
    with database.reading() as connection:
        assert end_of_lease(connection) == before
    with database.transaction() as connection:
        lease.renew(connection)
    with database.reading() as connection:
        assert before + 2.0 < end_of_lease(connection) < before + 3.0 + DURATION_S


def test_who_has_lost_it_commits_nothing(database: Database) -> None:
    """After another has taken over a renewal raises, and giving up the old lease takes nothing from the new holder."""
    first, second = Lease("first"), Lease("second")
    first.acquire(database)
    with database.transaction() as connection:
        end_of_lease(connection, shifted_s=-DURATION_S)
    assert second.acquire(database) is None
    with pytest.raises(LeaseLost, match="must not write any more"), database.transaction() as connection:
        first.renew(connection)
    first.release(database)
    with database.transaction() as connection:
        second.renew(connection)


def test_a_holder_that_stops_inside_a_transaction_is_replaced(database: Database) -> None:
    """Its session is ended by the server, the lease runs out, and what the transaction had written is undone."""
    first, second = Lease("first"), Lease("second")
    first.acquire(database)
    with database.engine.connect() as stopped:
        first.renew(stopped)
        stopped.execute(leases.insert().values(name="written", holder="first", token=1, expires_at=0.0))
        assert take_over(second, database) < 10.0
        with pytest.raises(DBAPIError, match="idle-in-transaction"):
            stopped.commit()
    with database.reading() as connection:
        assert connection.execute(select(leases.c.name)).scalars().all() == ["writer"]


def test_a_clock_that_is_set_back_does_not_make_a_lease_endless(database: Database) -> None:
    """A lease that seems to run out later than any renewal could have set has run out."""
    first, second = Lease("first"), Lease("second")
    first.acquire(database)
    with database.transaction() as connection:
        end_of_lease(connection, shifted_s=3600.0)
    assert second.acquire(database) is None
