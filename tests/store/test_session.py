from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from sentinel.domain.errors import StoreUnavailable
from sentinel.store import session
from sentinel.store.session import lock, migrate, network_file_system, open_current, open_database, revision
from tests.daemons import database_url

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
server:/home /srv/share nfs4 rw,vers=4.2 0 0
/dev/sdb1 /srv/share/local\\040disk xfs rw 0 0
10.0.0.1@tcp:/scratch /scratch lustre rw 0 0
proc /proc proc rw 0 0
"""


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Where the last table cannot be made, none is: the schema stays at no revision."""
    path = tmp_path / "sentinel.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE snapshots (x)")
    database = open_database(f"sqlite:///{path}")
    with pytest.raises(StoreUnavailable, match="snapshots already exists"):
        migrate(database)
    assert revision(database) is None
    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar_one() == 1
    database.close()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A database of a later release is left as it is."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    with database.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreUnavailable, match="'9999', which this release does not know"):
        migrate(database)
    assert revision(database) == "9999"
    database.close()


def test_a_second_lock_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """Two daemons never have the same SQLite file; the next gets it when the first has let go."""
    url = database_url(tmp_path)
    first = lock(url)
    with pytest.raises(StoreUnavailable, match="another daemon has the database"):
        lock(url)
    first.close()
    lock(url).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Where the lock beside the file cannot be made, the message says which file, why, and what to set."""
    (tmp_path / "sentinel.db.lock").mkdir()
    with pytest.raises(StoreUnavailable, match=r"sentinel\.db\.lock cannot be written .*SENTINEL_DATABASE_URL"):
        lock(database_url(tmp_path))


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    """A daemon does not begin to listen over a database that it could only read, and takes it for sound."""
    path = tmp_path / "sentinel.db"
    path.touch()
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everything")
    with pytest.raises(StoreUnavailable, match=r"sentinel\.db cannot be written: .*SENTINEL_DATABASE_URL"):
        lock(database_url(tmp_path))


def test_a_folder_that_may_not_be_written_ruins_no_file(tmp_path: Path) -> None:
    """What cannot be opened is not called unsound: nobody is told to move it away."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    database.close()
    tmp_path.chmod(0o555)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write everything")
        with pytest.raises(StoreUnavailable, match=r"sentinel\.db cannot be opened \(attempt to write"):
            open_database(database_url(tmp_path))
    finally:
        tmp_path.chmod(0o755)


def test_whoever_only_reads_makes_no_database(tmp_path: Path) -> None:
    """A file that is not there is named with the remedy, and none appears."""
    with pytest.raises(StoreUnavailable, match=r"there is no database \S+/sentinel\.db: .*--database-url"):
        open_current(database_url(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    """Opening a text file as a database says so and changes no byte."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 500)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"notes\.txt is no sound SQLite database .*nothing was changed"):
        open_database(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_corrupt_database_is_left_as_it_is(tmp_path: Path, journal: str) -> None:
    """A database with a ruined page is refused with the remedy, whatever its journal; no byte of it changes."""
    path = tmp_path / "sentinel.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE numbers (value)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(str(value) * 50,) for value in range(500)])
        connection.commit()
    ruined = bytearray(path.read_bytes())
    ruined[3 * 4096 : 3 * 4096 + 512] = b"\xff" * 512
    path.write_bytes(ruined)
    with pytest.raises(StoreUnavailable, match="move it away and restore a copy"):
        open_database(f"sqlite:///{path}")
    assert path.read_bytes() == ruined


@pytest.mark.parametrize("damage", ["header", "length"])
def test_a_large_database_is_looked_at_and_not_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Beyond a size a ruined page is not looked for; a ruined header or a file that was cut is refused."""
    monkeypatch.setattr(session, "LOOKED_THROUGH_BYTES", 4096)
    path = tmp_path / "sentinel.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE numbers (value)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(str(value) * 50,) for value in range(500)])
        connection.commit()
    ruined = bytearray(path.read_bytes())
    ruined[3 * 4096 : 3 * 4096 + 512] = b"\xff" * 512
    path.write_bytes(ruined)
    open_database(f"sqlite:///{path}").close()
    path.write_bytes(b"\xff" * 512 + ruined[512:] if damage == "header" else ruined[: 5 * 4096])
    with pytest.raises(StoreUnavailable, match="move it away and restore a copy"):
        open_database(f"sqlite:///{path}")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A database in a folder that is not there is refused with the folder's name, and nothing is made."""
    with pytest.raises(StoreUnavailable, match=r"the folder \S+/absent does not exist: create it"):
        open_database(f"sqlite:///{tmp_path}/absent/sentinel.db")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sentinel.db", "is not a database URL"),
        ("nosuch://host/name", "is not a database URL"),
        ("mysql://ada:secret@host/name", "is of no kind that Sentinel knows"),
        ("sqlite://", "in memory is lost with the daemon"),
        ("sqlite:///:memory:", "in memory is lost with the daemon"),
    ],
)
def test_a_wrong_url_is_refused_with_an_example(url: str, problem: str) -> None:
    """What cannot be a lasting database is refused before anything is opened."""
    with pytest.raises(StoreUnavailable, match=problem) as refused:
        open_database(url)
    assert "sqlite:///" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/sentinel/sentinel.db", None),
        ("/srv/share/me/sentinel.db", "nfs4"),
        ("/srv/shared/sentinel.db", None),
        ("/srv/share/local disk/sentinel.db", None),
        ("/scratch", "lustre"),
    ],
)
def test_network_file_systems_are_known_by_their_mounts(path: str, kind: str | None) -> None:
    """The innermost mount decides, names of mounts may hold spaces, and a common prefix of names is no mount."""
    assert network_file_system(Path(path), MOUNTS) == kind


def test_commits_are_synced_to_the_disk(tmp_path: Path) -> None:
    """Every connection has the write-ahead log and synchronous=FULL: accepted is durable."""
    database = open_database(database_url(tmp_path))
    with database.reading() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar_one() == 2
    database.close()
