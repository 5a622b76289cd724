"""Opens the database, and brings an embedded one to this release's schema."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from sentinel.domain.errors import StoreUnavailable

__all__ = [
    "Connection",
    "Database",
    "check_current",
    "lock",
    "migrate",
    "network_file_system",
    "open_current",
    "open_database",
    "revision",
]

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "lustre", "cifs", "smb3", "smbfs", "gpfs", "beegfs", "ceph", "afs", "fuse.sshfs", "fuse.glusterfs"}
)
"""SQLite's locks and write-ahead log do not hold on them (sqlite.org, "How To Corrupt An SQLite Database File")."""
BUSY_TIMEOUT_S: Final = 5.0
LOOKED_THROUGH_BYTES: Final = 64 << 20
"""A look through every page takes 5 s a gigabyte (measured): of this much a third of a second."""
_MAY_WRITE: Final = "allow this user to write it and its folder, or set SENTINEL_DATABASE_URL to another place"
PATIENCE: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""How long a server that does not answer is waited for: seconds, but the last is in milliseconds (libpq's names)."""


class Database:
    """A database that is open. Every failure of it is a ``StoreUnavailable``.

    Args:
        engine: connected to it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        one_moment = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
        self._for_reading = engine.execution_options(**one_moment)  # SQLite's transactions see one moment anyway

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction: committed at the end, and nothing of it kept after an error.

        Raises:
            StoreUnavailable: it cannot be written.
        """
        try:
            with self.engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be written: {getattr(error, 'orig', error)}") from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        try:
            with self._for_reading.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be read: {getattr(error, 'orig', error)}") from error

    def close(self) -> None:
        """Closes every connection."""
        self.engine.dispose()


def open_database(url: str) -> Database:
    """Connects to ``url`` without changing anything in it.

    Args:
        url: an SQLAlchemy URL, ``sqlite:///PATH`` or ``postgresql+psycopg://...``.

    Raises:
        StoreUnavailable: the URL is wrong, the file is no sound database, or it lies where SQLite is not safe.
    """
    try:
        parsed = make_url(url)
        engine = _open_sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _open_server(parsed)
    except ArgumentError as error:
        raise StoreUnavailable(f"{url!r} is not a database URL: {error}; an example is sqlite:///sentinel.db") from None
    except ModuleNotFoundError as error:
        if parsed.get_backend_name() == "postgresql":
            remedy = f"needs the module {error.name}: pip install 'training-sentinel[postgres]'"
        else:
            remedy = "is of no kind that Sentinel knows: use sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"
        raise StoreUnavailable(f"{parsed.render_as_string()!r} {remedy}") from None
    return Database(engine)


def open_current(url: str) -> Database:
    """Connects to a database that is there and has this release's schema; makes none.

    Raises:
        StoreUnavailable: as ``open_database``; there is none yet; its schema is behind or ahead.
    """
    database = open_database(url)
    path = _sqlite_path(database.engine.url)
    if path is not None and not path.exists():
        raise StoreUnavailable(
            f"there is no database {path}: name the daemon's with SENTINEL_DATABASE_URL or --database-url, or make one "
            "(`sentinel serve` does, or `sentinel database upgrade`)"
        )
    check_current(database)
    return database


def lock(url: str) -> Any:
    """Takes the embedded database for this process alone; returns the lock, held until it is closed. None on a server.

    Raises:
        StoreUnavailable: another daemon has it, or it cannot be written.
    """
    path = _sqlite_path(make_url(url))
    if path is None:
        return None
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreUnavailable(f"{path} cannot be written: {_MAY_WRITE}")
    try:
        handle = path.with_name(path.name + ".lock").open("a")
    except OSError as error:
        raise StoreUnavailable(f"{error.filename} cannot be written ({error.strerror}): {_MAY_WRITE}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise StoreUnavailable(
            f"another daemon has the database {path}: stop it, or give this one another SENTINEL_DATABASE_URL"
        ) from None
    return handle


def migrate(database: Database) -> None:
    """Brings the schema to this release's.

    Raises:
        StoreUnavailable: the database was written by a newer release.
    """
    config = _alembic()
    script = ScriptDirectory.from_config(config)
    current = revision(database)
    if current is not None and current not in {each.revision for each in script.walk_revisions()}:
        raise StoreUnavailable(
            f"the database is at schema {current!r}, which this release does not know: install the newer release again"
        )
    with database.transaction() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check_current(database: Database) -> None:
    """Refuses a schema that is behind.

    Raises:
        StoreUnavailable: it is behind or ahead of this release.
    """
    head = ScriptDirectory.from_config(_alembic()).get_current_head()
    current = revision(database)
    if current != head:
        raise StoreUnavailable(
            f"the database is {f'at schema {current!r}' if current else 'empty'} and not at schema {head!r}: "
            "run `sentinel database upgrade`"
        )


def revision(database: Database) -> str | None:
    """The schema's revision; None in an empty database."""
    with database.reading() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def network_file_system(path: Path, mounts: str) -> str | None:
    """The type of the network file system that ``path`` lies on, or None if it is a local one.

    Args:
        path: absolute and resolved.
        mounts: the text of ``/proc/self/mounts``.
    """
    longest, kind = -1, ""
    for line in mounts.splitlines():
        _, point, file_system, *_ = line.split(" ")
        mount = Path(point.encode().decode("unicode_escape"))
        if path.is_relative_to(mount) and len(mount.parts) >= longest:
            longest, kind = len(mount.parts), file_system
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def _open_sqlite(url: URL) -> Engine:
    path = _sqlite_path(url)
    if path is None:
        raise StoreUnavailable("a database in memory is lost with the daemon: name a file, as in sqlite:///sentinel.db")
    _check_place(path)
    _check_sound(path)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin)
    return engine


def _open_server(url: URL) -> Engine:
    given = PATIENCE | {name: url.query[name] for name in PATIENCE if name in url.query}
    return create_engine(url, connect_args=given, pool_pre_ping=True)


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreUnavailable(f"the folder {path.parent} does not exist: create it, or set SENTINEL_DATABASE_URL")
    mounts = Path("/proc/self/mounts")
    kind = network_file_system(path.parent, mounts.read_text()) if mounts.exists() else None
    if kind is not None:
        raise StoreUnavailable(
            f"{path} lies on {kind}, where SQLite loses data: put it on a local disk or use PostgreSQL "
            "(SENTINEL_DATABASE_URL=postgresql+psycopg://USER@HOST/DATABASE)"
        )


def _check_sound(path: Path) -> None:
    """Looks through a connection that cannot write: even closing an ordinary one may change the file.

    Header, length and schema are looked at always, every page only of a small file. A daemon that was killed must be
    back in seconds, and its death ruins no page: that is what the write-ahead log is for. A page that a disk has ruined
    is refused when it is read.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            is_small = path.stat().st_size <= LOOKED_THROUGH_BYTES
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone() if is_small else ("ok",)
    except sqlite3.OperationalError as error:  # not what is in the file, but what may be done with it
        raise StoreUnavailable(f"{path} cannot be opened ({error}): {_MAY_WRITE}") from None
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    if verdict != "ok":
        raise StoreUnavailable(
            f"{path} is no sound SQLite database ({verdict}): nothing was changed; move it away and restore a copy"
        )


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # else the driver begins late: reads see no snapshot, and DDL no transaction
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _sqlite_path(url: URL) -> Path | None:
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database)).resolve()


def _alembic() -> Config:
    """Migrations lie inside an installed package, and beside the packages in a checkout."""
    packed = Path(str(files("sentinel.store"))) / "migrations"
    config = Config()
    config.set_main_option("script_location", str(packed if packed.is_dir() else packed.parents[2] / "alembic"))
    return config
