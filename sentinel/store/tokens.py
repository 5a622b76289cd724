"""Tokens that callers show; kept hashed, so that who reads the database cannot call.

A token is 256 random bits. Nobody can try them all, so one round of SHA-256 hides it as well as a slow, salted hash
does; those are for passwords, which people choose (NIST SP 800-63B, 5.1.2.2: look-up secrets of 112 bits or more).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection, insert, select, update

from sentinel.domain.access import Caller, Role
from sentinel.domain.errors import Conflict, NotFound
from sentinel.store.tables import tokens

PREFIX = "sentinel_"
"""So that who finds one knows what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """What is kept of a token."""

    caller: Caller
    hash: str
    created_at: float
    revoked_at: float | None
    """A revoked one is kept: its name stands in logs, and a daemon without any token lets everyone in."""


def digest(token: str) -> str:
    """The hash under which a token is kept."""
    return sha256(token.encode()).hexdigest()


def create(connection: Connection, name: str, role: Role, *, runs: str, at: float) -> str:
    """Makes a token and returns it: this once.

    Raises:
        Conflict: there is or was one of this name.
    """
    if connection.execute(select(tokens.c.name).where(tokens.c.name == name)).first() is not None:
        raise Conflict(f"there is or was a token {name!r}: choose another name, so that old logs stay true")
    token = PREFIX + secrets.token_urlsafe(32)
    row = {"name": name, "role": role, "runs": runs, "hash": digest(token), "created_at": at, "revoked_at": None}
    connection.execute(insert(tokens).values(row))
    return token


def stored(connection: Connection) -> list[StoredToken]:
    """Every token that was made, by name."""
    return [
        StoredToken(
            caller=Caller(name=row["name"], role=row["role"], runs=row["runs"]),
            hash=row["hash"],
            created_at=row["created_at"],
            revoked_at=row["revoked_at"],
        )
        for row in connection.execute(select(tokens).order_by(tokens.c.name)).mappings()
    ]


def revoke(connection: Connection, name: str, *, at: float) -> None:
    """Lets a token open nothing any more; one that is revoked stays so.

    Raises:
        NotFound: there is none of this name.
    """
    known = connection.execute(select(tokens.c.revoked_at).where(tokens.c.name == name)).first()
    if known is None:
        raise NotFound("token", name, "`sentinel tokens list` lists them")
    if known.revoked_at is None:
        connection.execute(update(tokens).where(tokens.c.name == name).values(revoked_at=at))
