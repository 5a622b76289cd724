"""A loss that falls faster than learning explains: data seen before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.rolling import RollingWindow, median
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

RECENT: Final = 13
"""Values whose median follows a descent, so that learning that sets in is no drop."""
RESIDUALS: Final = 128
WARM_UP: Final = 64
DRIFT_Z: Final = 3.0
ALARM_EXCESS: Final = 12.0
"""Summed deviations beyond 3: three rows of 7, twelve of 4."""
MOST_Z: Final = 8.0
"""So that one easy batch is no drop, however easy."""
ROWS: Final = 3
SETTLED_ROWS: Final = 32
LOW_ROWS: Final = 32
"""A little low for so long, and it is the level."""
RESUME_ROWS: Final = 256
SMALLEST_SPREAD_RATIO: Final = 0.002


@dataclass(slots=True)
class LossDropState:
    """The level and its noise, the sum of what is too little, and the drop that is told of."""

    recent: list[float] = field(default_factory=list)
    residuals: RollingWindow = field(default_factory=lambda: RollingWindow(RESIDUALS))
    excess: float = 0.0
    waiting: list[float] = field(default_factory=list)
    """Residuals of rows that are low and may be a drop's first."""
    low_since: int = 0
    newest_step: int = 0
    resumed_rows: int = RESUME_ROWS
    """Rows since the run was resumed."""
    told_onset: int | None = None
    told_rows: int = 0


class LossDrop(Detector[LossDropState]):
    """A sudden drop of the loss.

    Watches:
        ``loss`` of each step report.

    Fires when:
        three or more losses lie so far below the curve's course that what exceeds 3 robust deviations adds up to 12.
        A note as a rule; a warning within 256 rows of a resume that goes on where the run was, for then the data
        iterator was not restored and the model sees samples again.

    Stays quiet when:
        fewer than 64 losses are known; the loss falls as it has fallen; one batch is easy.

    Memory:
        13 losses, two lists of 128 residuals, up to 33 while it is low.

    Source:
        None of seven public rules sees a data repeat of 0.3 nats (measured by ``make bench``). Median and MAD as in
        the spike's baseline; the residuals' own median is subtracted, which takes the curve's slope out.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = LossDrop()
        >>> losses = [3.0 + 0.01 * (step % 5) for step in range(1, 101)] + [2.5] * 5
        >>> for step, loss in enumerate(losses, start=1):
        ...     report = StepReport(at=0.0, step=step, loss=loss)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.phase, finding.severity, finding.onset_step)
        103 began info 101
    """

    name: ClassVar[str] = "loss_drop"

    def __init__(self) -> None:
        self.state = LossDropState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; after a resume a drop says more, after going back there is nothing to compare with."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            return self._judge(observation.step, observation.loss)
        if isinstance(observation, CommandResult) and observation.outcome == "succeeded":
            self.state = LossDropState()
        elif isinstance(observation, AttemptStarted):
            if not 0 < self.state.newest_step <= observation.step:
                self.state = LossDropState()
                return ()
            self.state = replace(self.state, waiting=[], excess=0.0, told_onset=None, resumed_rows=0)
        return ()

    def _judge(self, step: int, loss: float) -> Sequence[Finding]:
        state = self.state
        state.resumed_rows += 1
        state.newest_step = step
        level = median(sorted(state.recent))
        state.recent.append(loss)
        del state.recent[:-RECENT]
        if len(state.recent) < RECENT:
            return ()
        state.waiting.append(loss - level)
        if len(state.residuals) < WARM_UP:
            self._learn()
            return ()
        course = level + min(0.0, state.residuals.median)
        spread = max(state.residuals.spread, SMALLEST_SPREAD_RATIO * abs(course), 1e-12)
        z = (course - loss) / spread
        if state.excess == 0.0:
            state.low_since = step
        state.excess = max(0.0, state.excess + min(z, MOST_Z) - DRIFT_Z)
        if state.excess == 0.0 or len(state.waiting) > LOW_ROWS:
            self._learn()
            return self._settle(step)
        if state.excess < ALARM_EXCESS or len(state.waiting) < ROWS:
            return ()
        state.excess = 0.0
        state.waiting.clear()
        return self._tell(step, f"loss {loss:.4g} at step {step} is {z:.1f} robust deviations below {course:.4g}")

    def _tell(self, step: int, reason: str) -> Sequence[Finding]:
        state = self.state
        first, state.told_rows = state.told_onset is None, 0
        if not first:
            return ()
        state.told_onset = state.low_since
        if state.resumed_rows > RESUME_ROWS:
            return (self._finding(step, phase="began", severity="info", reason=reason),)
        reason += "; the run was resumed a little before: is it seeing data again?"
        return (self._finding(step, phase="began", severity="warning", reason=reason),)

    def _settle(self, step: int) -> Sequence[Finding]:
        state = self.state
        if state.told_onset is None:
            return ()
        state.told_rows += 1
        if state.told_rows < SETTLED_ROWS:
            return ()
        ended = self._finding(step, phase="ended", severity="info", reason=f"{SETTLED_ROWS} rows without another drop")
        state.told_onset = None
        return (ended,)

    def _learn(self) -> None:
        """What waited is of the noise."""
        for residual in self.state.waiting:
            self.state.residuals.push(residual)
        self.state.waiting.clear()
        self.state.excess = 0.0

    def _finding(self, step: int, *, phase: Phase, severity: Severity, reason: str) -> Finding:
        onset = self.state.told_onset
        return Finding(
            detector=self.name,
            symptom="loss_drop",
            phase=phase,
            severity=severity,
            verdict="undecided" if phase == "began" else "benign",
            onset_step=step if onset is None else onset,
            step=step,
            reason=reason,
        )
