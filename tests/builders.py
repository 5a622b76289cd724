"""Small builders of the facts that tests tell the pipeline, so that a test states only what it is about."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from sentinel.detectors.base import Detector
from sentinel.domain.decisions import Decision
from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.commands import RollBack
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.ids import ActionId, AttemptId, CheckpointId, CommandId, RunId, SenderId
from sentinel.protocol.observations import (
    DAEMON_KINDS,
    ActionResult,
    AttemptEnded,
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    Heartbeat,
    Mode,
    Observation,
    OperatorRequest,
    PipelineStarted,
    PolicyChanged,
    StepReport,
    Tick,
    UnknownObservation,
)
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange, RankReport, StackReport

RUN = RunId("run-1")
ATTEMPT = AttemptId("attempt-1")
SENDER = SenderId("rank-0")
DEFAULT_POLICY = files("sentinel.policy").joinpath("default.toml").read_text()
DIGEST = "sha256:" + "0" * 64
ROLLED_BACK = CommandResult(at=0.0, command=CommandId("k"), outcome="succeeded", step=0, segment=1)
STARTED = AttemptStarted(at=0.0, mode="act")
ONE_OF_EACH: tuple[Observation, ...] = (
    STARTED,
    AttemptEnded(at=0.0, outcome="failed", step=7),
    StepReport(at=0.0, step=7, loss=2.0),
    Heartbeat(at=0.0, step=7),
    DeviceSample(at=0.0, index=0),
    RankReport(at=0.0, rank=0, step=7),
    PhaseChange(at=0.0, phase="evaluate", step=7),
    StackReport(at=0.0, stacks="Thread 1"),
    CrashReport(at=0.0, signal="SIGKILL"),
    LauncherStarted(at=0.0),
    CheckpointReport(at=0.0, checkpoint=CheckpointId("c"), step=7, state="verified", digest=DIGEST),
    ROLLED_BACK,
    PipelineStarted(at=0.0, version="1"),
    PolicyChanged(at=0.0, policy=DEFAULT_POLICY),
    OperatorRequest(at=0.0, request="hold"),
    ActionResult(at=0.0, action=ActionId("a"), outcome="failed"),
    Tick(at=0.0, silent_s=600.0),
    UnknownObservation(at=0.0, named="from_the_future"),
)


def entry(
    observation: Observation,
    sequence: int,
    *,
    attempt: str = ATTEMPT,
    sender: SenderId = SENDER,
    backlog: bool = False,
) -> LogEntry:
    """A log entry of the test run."""
    return LogEntry(
        run=RUN,
        sequence=sequence,
        received_at=1000.0 + sequence,
        attempt=AttemptId(attempt),
        sender=sender,
        observation=observation,
        backlog=backlog,
    )


def steps_of(losses: Iterable[float | None], *, first_step: int = 1, grad_norm: float = 1.0) -> list[StepReport]:
    """A report for each loss, a step apart."""
    return [
        StepReport(at=0.0, step=step, loss=loss, grad_norm=grad_norm)
        for step, loss in enumerate(losses, start=first_step)
    ]


def around(level: float, count: int, *, noise: float = 0.01, seed: int = 0) -> list[float]:
    """Losses with Gaussian noise around a level."""
    source = random.Random(seed)
    return [source.gauss(level, noise) for _ in range(count)]


def findings_of(detector: Detector[Any], observations: Iterable[Observation]) -> list[Finding]:
    """Everything that the detector finds in the observations, in their order."""
    return [found for number, each in enumerate(observations, 1) for found in detector.observe(entry(each, number))]


@dataclass
class Story:
    """A run told step by step to a pipeline; keeps every entry and outcome."""

    mode: Mode = "act"
    policy: str = DEFAULT_POLICY
    rollback: str = "forward"
    noise: float = 0.02
    pipeline: Pipeline = field(default_factory=lambda: Pipeline(RUN))
    entries: list[LogEntry] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    step: int = 0
    segment: int = 0
    backlog: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(7)
        self.tell(PolicyChanged(at=0.0, policy=self.policy))
        self.tell(AttemptStarted(at=0.0, mode=self.mode, rollback=self.rollback, rollback_reason="told so"))  # type: ignore[arg-type]

    def tell(self, observation: Observation, *, attempt: str = ATTEMPT, sender: SenderId = SENDER) -> Outcome:
        """Appends one observation; the daemon's own kinds are nobody's attempt and no backlog."""
        own = isinstance(observation, DAEMON_KINDS)
        number = len(self.entries) + 1
        told = entry(
            observation, number, attempt="" if own else attempt, sender=sender, backlog=self.backlog and not own
        )
        outcome = self.pipeline.advance(told)
        self.entries.append(told)
        self.outcomes.append(outcome)
        return outcome

    def steps(self, count: int, *, loss: float | None = None, grad_norm: float | None = None) -> Outcome:
        """Tells ``count`` more steps, healthy ones around 2.0 unless a loss is given; returns the last outcome."""
        outcome = Outcome()
        for _ in range(count):
            self.step += 1
            value = 2.0 + self._random.gauss(0.0, self.noise) if loss is None else loss
            report = StepReport(
                at=float(len(self.entries)),
                step=self.step,
                segment=self.segment,
                loss=value,
                grad_norm=1.0 if grad_norm is None else grad_norm,
            )
            outcome = self.tell(report)
        return outcome

    def checkpoint(self, name: str | None = None, *, state: str = "verified") -> CheckpointId:
        """Reports a checkpoint of the current step."""
        checkpoint = CheckpointId(name or f"c{self.step}-{self.segment}")
        self.tell(
            CheckpointReport(
                at=0.0,
                checkpoint=checkpoint,
                step=self.step,
                segment=self.segment,
                state=state,  # type: ignore[arg-type]
                digest=DIGEST,
            )
        )
        return checkpoint

    @property
    def decisions(self) -> list[Decision]:
        """Every decision so far."""
        return [decision for outcome in self.outcomes for decision in outcome.decisions]

    @property
    def told(self) -> list[tuple[str, str, str]]:
        """Change, rung and outcome of every decision so far."""
        return [(each.change, each.rung, each.outcome) for each in self.decisions]

    @property
    def alerts(self) -> list[str]:
        """Status of every alert so far."""
        actions = [action for outcome in self.outcomes for action in outcome.actions]
        return [action.payload["status"] for action in actions if action.executor == "alert"]

    @property
    def incident(self) -> Incident:
        """The row of the incident that changed last."""
        return [incident for outcome in self.outcomes for incident in outcome.incidents][-1]

    @property
    def order(self) -> RollBack:
        """The one order that waits for an answer."""
        (order,) = self.pipeline.orders_for(self.pipeline.run.attempt)
        return order

    def carry_out(self) -> Outcome:
        """The agent carries out the order."""
        return self.roll_back(self.order.id, self.order.step)

    def fail(self, outcome: str = "failed", *, reason: str = "") -> Outcome:
        """The agent answers the order in another way."""
        return self.tell(
            CommandResult(
                at=0.0,
                command=self.order.id,
                outcome=outcome,  # type: ignore[arg-type]
                step=self.step,
                segment=self.segment,
                reason=reason,
            )
        )

    def roll_back(self, command: str, to_step: int) -> Outcome:
        """The agent carries out a rollback."""
        from_step, self.step = self.step, to_step
        self.segment += 1
        return self.tell(
            CommandResult(
                at=float(len(self.entries)),
                command=CommandId(command),
                outcome="succeeded",
                step=to_step,
                segment=self.segment,
                from_step=from_step,
            )
        )
