"""Which callers there are, known by their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest
from typing import Final

from sentinel import clock
from sentinel.domain.access import Caller
from sentinel.domain.errors import NotAuthorized, StoreUnavailable
from sentinel.store import tokens
from sentinel.store.session import Database
from sentinel.store.tokens import StoredToken

FRESH_S: Final = 2.0
"""So long a revoked token may still be taken: every request would else read the database."""


class Access:
    """Knows the callers by their tokens.

    Args:
        database: keeps tokens that were made with ``sentinel tokens create``.
        operator_token: of SENTINEL_TOKEN_FILE; an operator's, whatever the database holds.
    """

    def __init__(self, database: Database, operator_token: str | None) -> None:
        self._database = database
        self._own = None if operator_token is None else tokens.digest(operator_token)
        self._stored: Sequence[StoredToken] | None = None
        self._read_at = -FRESH_S

    @property
    def is_stale(self) -> bool:
        """Whether the tokens are to be read again."""
        return clock.monotonic() - self._read_at >= FRESH_S

    def read(self) -> None:
        """Reads the tokens; while the database is away those that are known stand, so that /metrics can say so.

        Raises:
            StoreUnavailable: the database cannot be read, and never could.
        """
        self._read_at = clock.monotonic()
        try:
            with self._database.reading() as connection:
                self._stored = tokens.stored(connection)
        except StoreUnavailable:
            if self._stored is None:
                self._read_at = -FRESH_S
                raise

    def caller(self, authorization: str) -> Caller:
        """Who shows this header.

        Raises:
            NotAuthorized: a token is wanted, and this is none or an unknown one.
        """
        if self._own is None and not self._stored:
            return Caller()
        scheme, _, shown = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthorized("this daemon wants a token, and the request carries none")
        hashed = tokens.digest(shown.strip())
        valid = [(each.hash, each.caller) for each in self._stored or () if each.revoked_at is None]
        own = [] if self._own is None else [(self._own, Caller(name="SENTINEL_TOKEN_FILE"))]
        found = [caller for kept, caller in own + valid if compare_digest(kept, hashed)]  # all of them, whichever fits
        if not found:
            raise NotAuthorized("the request carries another token than this daemon's, or one that was revoked")
        return found[0]
