"""Whoever watches what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sentinel.engine.streams import Advanced, Stream


class Witness(Protocol):
    """Whoever wants to know what was committed, such as metrics; called on the writer's thread after the commit."""

    def committed(self, stream: Stream, advanced: Sequence[Advanced]) -> None:
        """Entries of one run are durable."""
