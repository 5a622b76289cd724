"""The agent's side of a run, without a model: real sender, real spool, losses like those of a training."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

from sentinel import clock
from sentinel.protocol import codec
from sentinel.protocol.commands import RollBack
from sentinel.protocol.ids import AttemptId, CheckpointId, CommandId, RunId, SenderId
from sentinel.protocol.observations import (
    AttemptEnded,
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    Heartbeat,
    Observation,
    StepReport,
)
from sentinel.transport.sender import Sender
from sentinel.transport.spool import Spool
from tests.builders import DIGEST

HURRY: Final = 20.0
"""The sender's seconds pass so many times faster: a back-off of 30 s takes 1.5 s."""
DELIVERED_WITHIN_S: Final = 60.0


def hurried() -> float:
    """The sender's clock."""
    return monotonic() * HURRY


class Trainee:
    """One run, in one or several attempts.

    Args:
        url: of the daemon, or of the network before it.
        run: its name.
        folder: for its spool.
        seed: of its losses.
    """

    def __init__(self, url: str, run: str, folder: Path, *, seed: int = 0) -> None:
        self.run = RunId(run)
        self.step = self.segment = self.attempts = 0
        self.told: dict[AttemptId, list[str]] = {}
        """All that was offered to the sender, in the order of its numbers."""
        self.rolled_back: list[CommandId] = []
        self.lost_in_death = 0
        """Observations that died with a process."""
        self._url = url
        self._folder = folder / run
        self._random = random.Random(seed)
        self._drift = 0.0
        self._answers: dict[CommandId, CommandResult] = {}
        self.sender: Sender
        self._spool: Spool
        self.start()

    def start(self, *, back: int = 0) -> None:
        """A new attempt begins ``back`` steps before where the run stood."""
        self.step, self.segment = max(0, self.step - back), 0
        self.attempts += 1
        self.attempt = AttemptId(f"attempt-{self.attempts}")
        sender = SenderId("rank-0")
        self._spool = Spool(self._folder, attempt=self.attempt, sender=sender, clock=hurried)
        self.sender = Sender(
            self._url,
            run=self.run,
            attempt=self.attempt,
            sender=sender,
            timeout_s=2.0,
            spool=self._spool,
            clock=hurried,
        )
        self._answers.clear()
        self.offer(AttemptStarted(at=clock.now(), mode="act", step=self.step, rollback="forward"))

    def offer(self, observation: Observation) -> None:
        """Hands an observation to the sender."""
        self.told.setdefault(self.attempt, []).append(codec.dumps(observation))
        self.sender.offer(observation)

    def train(self, steps: int, *, loss: float | None = None) -> None:
        """Some steps, healthy ones unless a loss is given."""
        for _ in range(steps):
            self.step += 1
            self._drift = 0.9 * self._drift + self._random.gauss(0.0, 0.01)
            healthy = 2.0 + 4.0 * math.exp(-self.step / 150) + self._drift + self._random.gauss(0.0, 0.02)
            self.offer(
                StepReport(
                    at=clock.now(),
                    step=self.step,
                    segment=self.segment,
                    loss=healthy if loss is None else loss,
                    grad_norm=math.exp(self._random.gauss(0.0, 0.2)) if loss is None else loss,
                    lr=1e-3,
                    step_s=0.1,
                )
            )

    def save(self) -> None:
        """A verified checkpoint of this step."""
        self.offer(
            CheckpointReport(
                at=clock.now(),
                checkpoint=CheckpointId(f"{self.attempt}-{self.segment}-{self.step}"),
                step=self.step,
                segment=self.segment,
                state="verified",
                digest=DIGEST,
            )
        )

    def exchange(self) -> None:
        """One turn of the agent's thread."""
        if self.sender.pending and self.sender.due:
            reply = self.sender.exchange()
            for command in () if reply is None else reply.commands:
                self._take(command)
        self.sender.keep()

    def deliver(self, until: Callable[[], bool] = lambda: False) -> None:
        """Turns until nothing waits any more, or ``until`` says so."""
        deadline = monotonic() + DELIVERED_WITHIN_S
        while self.sender.pending and not until():
            assert monotonic() < deadline, self.sender.problem
            self.exchange()
            if not self.sender.due:
                clock.sleep(0.01)

    def die(self) -> None:
        """The process ends by kill -9: what was not on disk is lost."""
        self.lost_in_death += self.sender.pending - self.sender.kept
        self._spool.close()
        self.sender._pending.clear()  # memory does not outlive its process
        self.sender.close()

    def beat(self) -> None:
        """A sign of life."""
        self.offer(Heartbeat(at=clock.now(), step=self.step, segment=self.segment))

    def end(self) -> None:
        """The training is over, and all is told."""
        self.offer(AttemptEnded(at=clock.now(), outcome="finished", step=self.step, segment=self.segment))
        self.deliver()
        self.sender.close()

    def _take(self, command: RollBack) -> None:
        """Carries a command out once, and answers each time it comes."""
        if command.id not in self._answers:
            from_step = self.step
            outcome = CommandResult(
                at=clock.now(), command=command.id, outcome="succeeded", step=command.step, segment=self.segment + 1
            )
            if command.segment != self.segment or self.step > command.expires_step:
                outcome = replace(outcome, outcome="expired", step=self.step, segment=self.segment, reason="too late")
            else:
                self.rolled_back.append(command.id)
                self.step, self.segment = command.step, self.segment + 1
                outcome = replace(outcome, from_step=from_step)
            self._answers[command.id] = outcome
        self.offer(self._answers[command.id])
