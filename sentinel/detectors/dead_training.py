"""A loss that does not move at all, or never leaves what guessing gives."""

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

SAME_ROWS: Final = 64
"""Logs round to 3 or 4 digits, and a loss that learns still does not repeat itself so often."""
FIRST_ROWS: Final = 8
GUESS_LOSS: Final = math.log(1000)
"""The cross-entropy of a uniform guess among 1,000 classes; vocabularies are larger."""
GUESS_RATIO: Final = 0.01
GUESS_ROWS: Final = 512
"""Linear warm-ups of GPT-2-sized runs have left the start by more than a tenth after half as many steps."""
WINDOW: Final = 32


@dataclass(slots=True)
class DeadTrainingState:
    """The start, the newest losses, and how often the last one was repeated."""

    first: list[float] = field(default_factory=list)
    rows: int = 0
    newest: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    last: float = math.nan
    same_rows: int = 0
    told: str = ""
    onset_step: int = 0


class DeadTraining(Detector[DeadTrainingState]):
    """Training that runs and learns nothing.

    Watches:
        ``loss`` of each step report.

    Fires when:
        the very same loss, not zero, was reported 64 times running; or after 512 rows the median of the last 32 is
        within 1 % of the median of the first 8, and that is at least ln(1000): the model still guesses.

    Stays quiet when:
        the run starts from a trained model (its first loss is low); the loss is exactly zero.

    Memory:
        8 and twice 32 losses.

    Source:
        A model that knows nothing has the cross-entropy ln(vocabulary), as A. Karpathy's recipe for training neural
        networks says: verify the loss at init.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = DeadTraining()
        >>> for step in range(1, 70):
        ...     report = StepReport(at=0.0, step=step, loss=10.82)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.severity)
        64 warning
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
            self.state.told, self.state.same_rows = "", 0
        return ()

    def _judge(self, step: int, loss: float) -> Sequence[Finding]:
        state = self.state
        state.rows += 1
        if len(state.first) < FIRST_ROWS:
            state.first.append(loss)
        state.newest.push(loss)
        if loss != state.last or state.same_rows == 0:
            state.last, state.same_rows = loss, 0
        state.same_rows += 1
        problem = self._problem()
        if bool(problem) == bool(state.told):
            return ()
        onset = step if not problem else state.onset_step
        state.told = problem
        if problem:
            state.onset_step = onset = step
            return (self._finding(step, onset=onset, phase="began", severity="warning", reason=problem),)
        return (self._finding(step, onset=state.onset_step, phase="ended", severity="info", reason="the loss moves"),)

    def _problem(self) -> str:
        state = self.state
        if state.same_rows >= SAME_ROWS and state.last != 0:
            return f"loss was exactly {state.last:.6g} in {state.same_rows} rows running"
        start = sorted(state.first)[len(state.first) // 2]
        if state.rows >= GUESS_ROWS and start >= GUESS_LOSS and abs(state.newest.median / start - 1) <= GUESS_RATIO:
            return f"after {state.rows} rows the loss is still at its start, {start:.4g}: the model guesses"
        return ""

    def _finding(self, step: int, *, onset: int, phase: Phase, severity: Severity, reason: str) -> Finding:
        return Finding(
            detector=self.name,
            symptom="dead_training",
            phase=phase,
            severity=severity,
            verdict="undecided" if phase == "began" else "benign",
            onset_step=onset,
            step=step,
            reason=reason,
        )
