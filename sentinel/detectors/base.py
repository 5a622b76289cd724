"""The contract of a detector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from sentinel.domain.findings import Finding
from sentinel.domain.log_entry import LogEntry

State = TypeVar("State")


class Detector(ABC, Generic[State]):
    """A deterministic fold over a run's log: entries in, findings out.

    A subclass keeps everything it remembers in ``state``, a dataclass of plain values (numbers, text, lists, dicts,
    dataclasses of these), because that is what a snapshot saves. It reads no clock and no randomness, needs bounded
    memory, ignores kinds that it does not know, and never raises on values, be they NaN or infinite.

    Reports of an abandoned segment never reach it. A rollback reaches it as ``CommandResult``, a new start as
    ``AttemptStarted``: whatever episode was open is then over without a finding, since what it was about is gone. An
    episode that is not about the optimization outlasts a rollback: the same machines go on.
    """

    name: ClassVar[str]
    state: State

    @abstractmethod
    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Takes the next entry and returns what can now be claimed, oldest first."""
