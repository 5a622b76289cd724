"""One active daemon per PostgreSQL database: a lease with a fencing token.

Whoever holds the lease renews it in every transaction of the log's writer. The renewal names the token that the holder
was given, so a daemon that was stopped for a while and lost the lease cannot commit anything after the next one has
taken over, whatever it believes (M. Kleppmann, "How to do distributed locking": the store checks the fencing token).
Times are the database's own clock.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from sentinel.domain.errors import StoreUnavailable
from sentinel.store.session import Database
from sentinel.store.tables import leases

NAME: Final = "writer"
DURATION_S: Final = 6.0
"""With a look every second a standby is at work within 10 s of the holder's death."""
RENEW_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 1.0
IDLE_S: Final = 4.0
"""A holder that is stopped inside a transaction keeps the row locked until the server ends its session: earlier than
the lease runs out, and later than any stretch of work between two statements."""


class LeaseLost(StoreUnavailable):
    """Raised when another daemon has taken over: nothing more may be written by this one."""


class Lease:
    """This daemon's claim to be the one that writes.

    Args:
        holder: who, for people: host and process.
    """

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self._token = 0

    def acquire(self, database: Database) -> str | None:
        """Takes the lease if it is free or has run out.

        Returns:
            None once it is held, else who holds it.

        Raises:
            StoreUnavailable: the database cannot be used.
        """
        free = {"name": NAME, "holder": "", "token": 0, "expires_at": 0.0}
        with database.transaction() as connection:
            connection.execute(insert(leases).values(**free).on_conflict_do_nothing())
            query = select(leases.c.holder, leases.c.token, _has_run_out()).where(leases.c.name == NAME)
            holder, token, has_run_out = connection.execute(query).one()
            if not has_run_out:  # looked at first, so as not to wait for a row that its holder has locked
                return str(holder)
            taken = connection.execute(
                update(leases)
                .where(leases.c.name == NAME, leases.c.token == token, _has_run_out())
                .values(holder=self.holder, token=token + 1, expires_at=_now() + DURATION_S)
            )
        if taken.rowcount != 1:
            return "another daemon"  # it was quicker
        self._token = token + 1
        return None

    def renew(self, connection: Connection) -> None:
        """Proves, inside a transaction, that the lease is still held, and prolongs it.

        The row stays locked until the transaction ends: nobody can take over in between.

        Raises:
            LeaseLost: another daemon has it.
        """
        limit = func.set_config("idle_in_transaction_session_timeout", str(int(IDLE_S * 1000)), True)
        renewed = connection.execute(
            update(leases)
            .where(leases.c.name == NAME, leases.c.token == self._token)
            .values(expires_at=_now() + DURATION_S)
            .returning(limit)
        )
        if renewed.first() is None:
            raise LeaseLost("another daemon has taken over this database: this one must not write any more")

    def release(self, database: Database) -> None:
        """Gives it up, so that a standby need not wait for it to run out.

        Raises:
            StoreUnavailable: the database cannot be used; the lease runs out by itself.
        """
        with database.transaction() as connection:
            connection.execute(
                update(leases).where(leases.c.name == NAME, leases.c.token == self._token).values(expires_at=0.0)
            )


def _has_run_out() -> ColumnElement[bool]:
    """Further away than any renewal puts it, its end was set by a clock that has gone back since."""
    return or_(leases.c.expires_at <= _now(), leases.c.expires_at > _now() + 2 * DURATION_S)


def _now() -> ColumnElement[float]:
    return func.extract("epoch", func.clock_timestamp()).cast(leases.c.expires_at.type)
