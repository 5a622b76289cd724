"""Small builders of the facts that tests tell the pipeline, so that a test states only what it is about."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from importlib.resources import files

from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.ids import AttemptId, CheckpointId, CommandId, RunId, SenderId
from sentinel.protocol.observations import (
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    Mode,
    Observation,
    PolicyChanged,
    StepReport,
)

RUN = RunId("run-1")
ATTEMPT = AttemptId("attempt-1")
SENDER = SenderId("rank-0")
DEFAULT_POLICY = files("sentinel.policy").joinpath("default.toml").read_text()
DIGEST = "sha256:" + "0" * 64


def entry(observation: Observation, sequence: int, *, attempt: str = ATTEMPT, backlog: bool = False) -> LogEntry:
    """A log entry of the test run."""
    return LogEntry(
        run=RUN,
        sequence=sequence,
        received_at=1000.0 + sequence,
        attempt=AttemptId(attempt),
        sender=SENDER,
        observation=observation,
        backlog=backlog,
    )


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

    def tell(self, observation: Observation, *, attempt: str = ATTEMPT) -> Outcome:
        """Appends one observation."""
        told = entry(observation, len(self.entries) + 1, attempt=attempt, backlog=self.backlog)
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
