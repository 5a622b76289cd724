from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from sentinel.domain.errors import StoreUnavailable
from sentinel.store import session
from sentinel.store.session import Database, check_current, migrate, open_database, revision
from tests.daemons import database_url

pytestmark = pytest.mark.usefixtures("every_store")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    database = open_database(database_url(tmp_path))
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    """What is in it."""
    with database.reading() as connection:
        return set(inspect(connection).get_table_names())


def test_models_are_what_the_migrations_make(database: Database) -> None:
    """A migrated database needs no further migration to become what the tables say (alembic check)."""
    migrate(database)
    check_current(database)
    config = session._alembic()
    with database.transaction() as connection:
        config.attributes["connection"] = connection
        command.check(config)


def test_every_migration_goes_down_and_up_again(database: Database) -> None:
    """Each step down and up again leads to the revision it names; at the bottom only alembic's own table is left."""
    migrate(database)
    whole = tables(database)
    config = session._alembic()
    steps = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()]
    for below in [*steps[1:], "base"]:
        with database.transaction() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, below)
        assert revision(database) == (None if below == "base" else below)
    assert tables(database) == {"alembic_version"}
    for above in reversed(steps):
        with database.transaction() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, above)
        assert revision(database) == above
    assert tables(database) == whole


def test_incidents_of_an_older_release_are_found_by_what_is_new(database: Database) -> None:
    """The columns that 0002 adds are filled from the documents that are there."""
    config = session._alembic()
    with database.transaction() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        document = '{"id": "i1", "symptoms": ["hang", "nonfinite"], "node": "n7", "detected_at": "NaN"}'
        row = "'i1', 'run', 1, 1, 0.0, 'open', 'critical', 'hang'"
        connection.execute(text(f"INSERT INTO incidents VALUES ({row}, :document)"), {"document": document})
    migrate(database)
    with database.reading() as connection:
        found = connection.execute(text("SELECT symptoms, node FROM incidents")).one()
    assert tuple(found) == (" hang nonfinite ", "n7")


def test_a_schema_that_is_behind_is_refused_with_the_command(database: Database) -> None:
    """An empty database and one of an older release are named so, with what brings them up."""
    with pytest.raises(StoreUnavailable, match=r"is empty .*run `sentinel database upgrade`"):
        check_current(database)
    migrate(database)
    with database.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    with pytest.raises(StoreUnavailable, match=r"at schema '0000' .*run `sentinel database upgrade`"):
        check_current(database)


def test_a_reader_sees_one_moment(database: Database) -> None:
    """What is committed while somebody reads is not seen by that reader, in whichever of its queries."""
    with database.transaction() as connection:
        connection.execute(text("CREATE TABLE numbers (value INTEGER)"))
    count = text("SELECT count(*) FROM numbers")
    with database.reading() as reader:
        assert reader.execute(count).scalar_one() == 0
        with database.transaction() as writer:
            writer.execute(text("INSERT INTO numbers VALUES (1)"))
        assert reader.execute(count).scalar_one() == 0
    with database.reading() as reader:
        assert reader.execute(count).scalar_one() == 1
