"""A loss that never leaves what guessing gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.rolling import RollingWindow
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

FIRST_ROWS: Final = 8
GUESS_LOSS: Final = math.log(1000)
"""The cross-entropy of a uniform guess among 1,000 classes; vocabularies are larger."""
GUESS_RATIO: Final = 0.01
GUESS_ROWS: Final = 512
"""Linear warm-ups of GPT-2-sized runs have left the start by more than a tenth after half as many steps."""
WINDOW: Final = 32


@dataclass(slots=True)
class DeadTrainingState:
    """The start, and the newest losses."""

    first: list[float] = field(default_factory=list)
    rows: int = 0
    newest: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    told: bool = False
    onset_step: int = 0


class DeadTraining(Detector[DeadTrainingState]):
    """Training that runs and learns nothing.

    Watches:
        ``loss`` of each step report.

    Fires when:
        after 512 rows the median of the last 32 is within 1 % of the median of the first 8, and that is at least
        ln(1000): the model still guesses. It ends when the loss has left that value.

    Stays quiet when:
        the run starts from a trained model: its first loss is low.

    Memory:
        8 and twice 32 losses.

    Source:
        A model that knows nothing has the cross-entropy ln(vocabulary), as A. Karpathy's recipe for training neural
        networks says: verify the loss at init.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = DeadTraining()
        >>> for step in range(1, 600):
        ...     report = StepReport(at=0.0, step=step, loss=10.82)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.severity)
        512 warning
    """

    name: ClassVar[str] = "dead_training"

    def __init__(self) -> None:
        self.state = DeadTrainingState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt ends what was told."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            return self._judge(observation.step, observation.loss)
        set_back = isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        if set_back or isinstance(observation, AttemptStarted):
            self.state = DeadTrainingState()
        return ()

    def _judge(self, step: int, loss: float) -> Sequence[Finding]:
        state = self.state
        state.rows += 1
        if len(state.first) < FIRST_ROWS:
            state.first.append(loss)
        state.newest.push(loss)
        start = sorted(state.first)[len(state.first) // 2]
        guesses = start >= GUESS_LOSS and abs(state.newest.median / start - 1) <= GUESS_RATIO
        if state.rows < GUESS_ROWS or guesses == state.told:
            return ()
        state.told = guesses
        if not guesses:
            return (self._finding(step, phase="ended", severity="info", reason="the loss has left its start"),)
        state.onset_step = step
        reason = f"after {state.rows} rows the loss is still at its start, {start:.4g}: the model guesses"
        return (self._finding(step, phase="began", severity="warning", reason=reason),)

    def _finding(self, step: int, *, phase: Phase, severity: Severity, reason: str) -> Finding:
        return Finding(
            detector=self.name,
            symptom="dead_training",
            phase=phase,
            severity=severity,
            verdict="undecided" if phase == "began" else "benign",
            onset_step=self.state.onset_step,
            step=step,
            reason=reason,
        )
