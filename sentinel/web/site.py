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
    admit: Callable[[str], object]
    """Takes the Authorization header that a program would send; NotAuthorized or Forbidden where that may not read."""
