"""What the daemon answers: orders and news for the sender of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sentinel.protocol.ids import AttemptId, CheckpointId, CommandId, IncidentId
from sentinel.protocol.observations import DataMode


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Go back to a checkpoint. Names it, never its path: the agent loads only what it reported itself.

    It is void for another segment than ``segment`` and after ``expires_step``. The id makes it safe to send twice.
    """

    kind: ClassVar[str] = "roll_back"
    id: CommandId
    incident: IncidentId
    checkpoint: CheckpointId
    digest: str
    step: int
    """The checkpoint's step."""
    segment: int
    """The segment that is to be given up: the one the run is in."""
    expires_step: int
    data: DataMode = "forward"
    skip_from_step: int = 0
    """With ``exact`` data, what steps ``skip_from_step`` to ``skip_to_step`` took is drawn and dropped."""
    skip_to_step: int = 0
    """0: nothing is dropped."""
    lr_scale: float = 1.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpStacks:
    """For a launcher: say where every thread of the training stands. Harmless, so in observe mode too."""

    kind: ClassVar[str] = "dump_stacks"
    id: CommandId
    incident: IncidentId
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """For a launcher: end what is left of the attempt and start the training again, from a checkpoint if named."""

    kind: ClassVar[str] = "restart"
    id: CommandId
    incident: IncidentId
    attempt: AttemptId
    """The one that is to be given up; void for another."""
    checkpoint: CheckpointId | None = None
    """None: there is none yet, so the script begins as it does by itself."""
    digest: str = ""
    step: int = 0
    """The checkpoint's step."""
    after_step: int = 0
    """The newest step that was known: a training that stands elsewhere lives and is left alone."""
    reason: str = ""


Command = RollBack | DumpStacks | Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line for the person at the training's terminal: an incident, what is done or would have been done."""

    sequence: int
    """Rises within the run; the newest seen goes back as ``ObservationBatch.notices_after``."""
    incident: IncidentId
    text: str
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a batch, given after it is durable."""

    accepted: int
    duplicates: int = 0
    commands: tuple[Command, ...] = ()
    notices: tuple[Notice, ...] = ()
    releasable: tuple[CheckpointId, ...] = ()
    """Checkpoints that need no pin any more. What is not named here stays pinned."""
