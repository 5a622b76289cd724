"""What the pages are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sentinel.store.session import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts of the running daemon that the pages show."""

    database: Database
    public_url: str
    """Where people and agents reach the daemon."""
    admit: Callable[[str], None] | None
    """Takes a token and raises NotAuthorized where it may not read; None lets everyone in."""
