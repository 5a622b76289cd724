"""One active daemon per database: a lease with a fencing token.

Whoever holds the lease renews it in every transaction of the log's writer. The renewal names the token that the holder
was given, so a daemon that was stopped for a while and lost the lease cannot commit anything after the next one has
taken over, whatever it believes (M. Kleppmann, "How to do distributed locking"). Times are the database's own clock.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, select, text, update

from sentinel.domain.errors import StoreUnavailable
from sentinel.store.session import Database
from sentinel.store.tables import leases

NAME: Final = "writer"
DURATION_S: Final = 6.0
"""With a renewal every 2 s and a look every second a standby is at work within 10 s of the holder's death."""
RENEW_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 1.0


class LeaseLost(StoreUnavailable):
    """Raised when another daemon has taken over: nothing more may be written by this one."""


class Lease:
    """This daemon's claim to be the one that writes.

    Args:
        holder: who, for people: host and process.
    """

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self._token: int | None = None

    def acquire(self, database: Database) -> str | None:
        """Takes the lease if it is free or has run out.

        Returns:
            None once it is held, else who holds it.

        Raises:
            StoreUnavailable: the database cannot be used.
        """
        with database.transaction() as connection:
            now = _now(connection)
            row = connection.execute(select(leases).where(leases.c.name == NAME).with_for_update()).mappings().first()
            if row is not None and row["expires_at"] > now:
                return str(row["holder"])
            token = 1 if row is None else row["token"] + 1
            values = {"holder": self.holder, "token": token, "expires_at": now + DURATION_S}
            if row is None:
                connection.execute(leases.insert().values(name=NAME, **values))
            else:
                connection.execute(update(leases).where(leases.c.name == NAME).values(**values))
        self._token = token
        return None

    def renew(self, connection: Connection) -> None:
        """Proves, inside a transaction, that the lease is still held, and prolongs it.

        The row stays locked until the transaction ends: nobody can take over in between.

        Raises:
            LeaseLost: another daemon has it.
        """
        renewed = connection.execute(
            update(leases)
            .where(leases.c.name == NAME, leases.c.token == self._token)
            .values(expires_at=_now(connection) + DURATION_S)
        )
        if renewed.rowcount != 1:
            raise LeaseLost("another daemon has taken over this database: this one must not write any more")

    def release(self, database: Database) -> None:
        """Gives it up, so that a standby need not wait for it to run out."""
        with database.transaction() as connection:
            connection.execute(
                update(leases).where(leases.c.name == NAME, leases.c.token == self._token).values(expires_at=0.0)
            )
        self._token = None


def _now(connection: Connection) -> float:
    if connection.dialect.name == "postgresql":
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return float(connection.execute(text("SELECT (julianday('now') - 2440587.5) * 86400.0")).scalar_one())
