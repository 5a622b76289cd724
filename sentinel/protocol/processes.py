"""What is told of the processes of a run: by each rank, and by the launcher that started them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

TrainingPhase = Literal["start_up", "train", "evaluate", "checkpoint", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank's steps since its last report, about 10 s of them; ``step`` is the newest."""

    kind: ClassVar[str] = "rank"
    at: float
    rank: int
    step: int
    segment: int = 0
    steps: int = 0
    host: str = ""
    device_uuid: str = ""
    step_s: float | None = None
    """Mean over the steps."""
    step_max_s: float | None = None
    work_s: float | None = None
    """Mean time of the rank's own work: the step without waiting for data or other ranks, where that is known."""
    data_wait_s: float | None = None
    """Mean."""
    loss: float | None = None
    """This rank's own mean loss."""
    nonfinite: int = 0
    """Steps whose loss was not finite on this rank."""
    batch_fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """A rank went over to another kind of work, whose steps take another time."""

    kind: ClassVar[str] = "phase"
    at: float
    phase: TrainingPhase
    step: int
    segment: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReport:
    """Where every thread of one process stood."""

    kind: ClassVar[str] = "stacks"
    at: float
    stacks: str
    """As text, the most recent call of each thread first."""
    rank: int | None = None
    host: str = ""
    process_id: int | None = None
    step: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """A training process ended otherwise than it should have."""

    kind: ClassVar[str] = "crash"
    at: float
    rank: int | None = None
    host: str = ""
    process_id: int | None = None
    exit_code: int | None = None
    signal: str = ""
    """Its name, such as SIGKILL; empty where the process ended by itself."""
    stderr_tail: str = ""
    """The last lines that it wrote."""
    restarts_left: int = 0
    """How often the launcher may still start it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherStarted:
    """A launcher stands by the run's processes on this node and can start them again."""

    kind: ClassVar[str] = "launcher_started"
    at: float
    host: str = ""
    process_id: int | None = None
    restarts_left: int = 0
    can_restart: bool = False
    """False in observe mode."""
