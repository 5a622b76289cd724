"""Everything the daemon is told: frozen facts, each with the sender's clock ``at`` (Unix seconds).

What senders report comes first (what ranks, launchers and devices tell has modules of its own); then what the daemon
itself appends to a run's log, so that its decisions are a function of that log alone. Units are in the names; ``None``
means "not known", never zero. Every integer is 0 or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.ids import ActionId, AttemptId, CheckpointId, CommandId, IncidentId, RunId, SenderId
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange, RankReport, StackReport

Mode = Literal["observe", "act", "off"]
DataMode = Literal["forward", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A process (or set of ranks) begins to train the run: first start, resume or restart."""

    kind: ClassVar[str] = "attempt_started"
    at: float
    mode: Mode
    """The agent's ceiling: policy may lower it, never raise it."""
    step: int = 0
    """Optimizer steps done before this attempt: more than 0 after a resume."""
    max_steps: int | None = None
    world_size: int = 1
    precision: str = "32-true"
    accumulate: int = 1
    rollback: DataMode | Literal["none"] = "none"
    rollback_reason: str = ""
    """Why this kind of rollback, in words for the operator."""
    host: str = ""
    process_id: int | None = None
    job_id: str | None = None
    """The scheduler's id (Slurm, Kubernetes) where there is one; it never names the run."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The attempt stopped in an orderly way. A preempted or time-limited job is an end too, not an incident."""

    kind: ClassVar[str] = "attempt_ended"
    at: float
    outcome: Literal["finished", "failed", "interrupted"]
    step: int
    segment: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimizer step, seen by rank 0. ``loss`` is the mean over the micro-batches of the step."""

    kind: ClassVar[str] = "step"
    at: float
    step: int
    segment: int = 0
    """Rises by one with each in-process rollback; a step number may return, (segment, step) does not."""
    loss: float | None = None
    grad_norm: float | None = None
    """L2 norm over all gradients before clipping."""
    lr: float | None = None
    step_s: float | None = None
    data_wait_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    tokens: int | None = None
    samples: int | None = None
    peak_memory_bytes: int | None = None
    batch_fingerprint: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    """Up to 16 series of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The agent lives though it has nothing to report; also how it accounts for what it could not do."""

    kind: ClassVar[str] = "heartbeat"
    at: float
    step: int
    segment: int = 0
    dropped_total: int = 0
    """Observations thrown away because the daemon was away and the buffer full."""
    guarded_errors_total: int = 0
    """Errors of the agent's own that were caught so as not to harm the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """What the agent knows of a checkpoint that it saved or saw saved."""

    kind: ClassVar[str] = "checkpoint"
    at: float
    checkpoint: CheckpointId
    step: int
    segment: int = 0
    state: Literal["reported", "verified", "bad", "deleted"]
    """verified: complete, digest recorded, weights and optimizer state finite."""
    name: str = ""
    """The file's name, for people; a rollback never travels by path."""
    digest: str = ""
    """``sha256:`` and 64 hexadecimal digits, once verified."""
    size_bytes: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What became of a command. ``segment`` and ``step`` are where the run stands after it."""

    kind: ClassVar[str] = "command_result"
    at: float
    command: CommandId
    outcome: Literal["succeeded", "failed", "refused", "expired"]
    """failed: tried in vain; refused: not tried (its segment was over, the mode forbids it); expired: too late."""
    step: int
    segment: int = 0
    checkpoint: CheckpointId | None = None
    from_step: int | None = None
    """The newest step before a rollback: ``from_step - step`` steps were given up."""
    duration_s: float | None = None
    reason: str = ""
    verified: str = ""
    """After a rollback: what was found to be what it was when the checkpoint was saved, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStarted:
    """This version of the daemon's pipeline reads the stream from here on."""

    kind: ClassVar[str] = "pipeline_started"
    at: float
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The policy that decides from here on, whole, as TOML text: a decision can be replayed from the log alone."""

    kind: ClassVar[str] = "policy_changed"
    at: float
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """A person holds the run (nothing is done to it), releases it, asks for a rollback, or speaks of an incident."""

    kind: ClassVar[str] = "operator_request"
    at: float
    request: Literal["hold", "release", "roll_back", "acknowledge", "annotate", "resolve"]
    incident: IncidentId | None = None
    checkpoint: CheckpointId | None = None
    """Where to go back to; the newest good one where none is named."""
    fleet: bool = False
    """Whether all runs are held or released, and this one with them."""
    by: str = ""
    reason: str = ""
    """Why; of an annotation, what is to be known."""
    key: str = ""
    """Names the request: told again under the same name it is the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """An executor's answer about an action that no agent reports on, such as an alert."""

    kind: ClassVar[str] = "action_result"
    at: float
    action: ActionId
    outcome: Literal["succeeded", "failed", "expired"]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The daemon listened and the run was silent: absence is judged by these, never by a difference of clocks."""

    kind: ClassVar[str] = "tick"
    at: float
    silent_s: float
    """Daemon-listening time since the last word of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownObservation:
    """A kind that this version does not know: kept in the log as it came, judged by nobody."""

    kind: ClassVar[str] = "unknown"
    at: float
    named: str


Observation = (
    AttemptStarted
    | AttemptEnded
    | StepReport
    | Heartbeat
    | DeviceSample
    | RankReport
    | PhaseChange
    | StackReport
    | CrashReport
    | LauncherStarted
    | CheckpointReport
    | CommandResult
    | PipelineStarted
    | PolicyChanged
    | OperatorRequest
    | ActionResult
    | Tick
    | UnknownObservation
)

SENDER_KINDS: tuple[type, ...] = (
    AttemptStarted,
    AttemptEnded,
    StepReport,
    Heartbeat,
    DeviceSample,
    RankReport,
    PhaseChange,
    StackReport,
    CrashReport,
    LauncherStarted,
    CheckpointReport,
    CommandResult,
)
"""What a sender may report; the rest only the daemon itself may append."""

DAEMON_KINDS: tuple[type, ...] = (PipelineStarted, PolicyChanged, OperatorRequest, ActionResult, Tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationBatch:
    """What one POST carries.

    Observation ``i`` is number ``first_counter + i`` of (attempt, sender): sent twice, it is taken once.
    """

    protocol: int
    run: RunId
    attempt: AttemptId
    sender: SenderId
    first_counter: int
    observations: tuple[Observation, ...]
    backlog: bool = False
    """These waited for a daemon that was away: to be recorded and judged, never answered with a command."""
    notices_after: int = 0
    """The newest notice that the sender has seen; newer ones come with the reply."""
