"""A loss that jumps above its own recent level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.baseline import SHORT, WARM_UP, Baseline
from sentinel.detectors.episode import CALM_Z, Episode
from sentinel.detectors.rolling import RollingWindow
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

DRIFT_Z: Final = 3.0
"""Taken off each deviation before they are summed, so that noise never adds up: the reference value of a CUSUM."""
ALARM_Z: Final = 12.0
"""One row this far out, or more rows less far: two of 7.5, three of 6, nine of 4. In 600,000 healthy rows of recorded
runs single batches reached 10, two neighbours 7."""
FEW: Final = 8
"""A spread from n rows is uncertain: the alarm lies 1 + 8/n times as far out."""
BLIP_Z: Final = 5.0
"""A row this far out is not of the noise's middle and moves no level."""
FALSE_RATIO: Final = 4e-5
TAIL_INDEX: Final = 3.0
"""Single rows may alarm falsely this often when the noise's tail falls off with the third power,
as Student's t(3) does: the share of rows beyond ``BLIP_Z`` then says how far out the alarm must lie."""
PENDING_ROWS: Final = 32
"""Raised a little for so long, and it is the level."""
SHORT_ROWS: Final = 8
GRADIENT_WINDOW: Final = 64
SMALLEST_GRADIENT_SPREAD: Final = 0.02
"""Of the logarithm: 2 %."""


@dataclass(slots=True)
class LossSpikeState:
    """The baselines, what is summed and since when, the rows that wait for its outcome, and the episode."""

    baseline: Baseline = field(default_factory=Baseline)
    gradient: RollingWindow = field(default_factory=lambda: RollingWindow(GRADIENT_WINDOW))
    """Logarithms of the usual gradient norms."""
    excess: float = 0.0
    raised_since: int = 0
    pending: list[float] = field(default_factory=list)
    episode: Episode | None = None


class LossSpike(Detector[LossSpikeState]):
    """A loss spike, and whether it is returning.

    Watches:
        ``loss`` and ``grad_norm`` of each step report; a loss that is not finite is another detector's.

    Fires when:
        the losses of the last rows lie so far above their expected level that what exceeds 3 robust deviations adds up
        to 9: a warning, undecided. The onset is the row where the sum began. After 36 rows it is malignant (critical)
        if it stays (see ``Episode``); it is benign once three rows running were back, or within a quarter of the peak.

    Stays quiet when:
        fewer than 11 losses are known; the noise's tail is heavy and a row stands out alone, unless the gradient norm
        left its usual range too; the loss creeps (``Divergence``).

    Memory:
        a baseline (see there), two lists of 64 gradient norms, 33 losses, 256 heights while a spike lasts.

    Source:
        A CUSUM (E. S. Page, 1954) of robust deviations. Raised rows wait and enter no baseline before they are known
        to be noise: 6 sigma over 128 steps that include them goes blind right after the peak (seen on BLOOM-176B's
        published losses). Constants: measured on labelled runs, ``make bench``.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = LossSpike()
        >>> losses = [2.0 + 0.01 * (step % 5) for step in range(1, 61)] + [4.0] * 40
        >>> for step, loss in enumerate(losses, start=1):
        ...     report = StepReport(at=0.0, step=step, loss=loss)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.phase, finding.verdict)
        61 began undecided
        96 changed malignant
    """

    name: ClassVar[str] = "loss_spike"

    def __init__(self) -> None:
        self.state = LossSpikeState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt ends the episode, and the level is learned anew."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            gradient_z = self._gradient_z(observation.grad_norm)
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            if self.state.episode is not None:
                return self._follow(self.state.episode, observation.step, observation.loss)
            return self._watch(observation.step, observation.loss, gradient_z)
        set_back = isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        if set_back or isinstance(observation, AttemptStarted):
            self._end_waiting([])
        return ()

    def _watch(self, step: int, loss: float, gradient_z: float) -> Sequence[Finding]:
        state, baseline = self.state, self.state.baseline
        if not baseline.is_ready:
            baseline.push(loss)
            return ()
        level, spread = baseline.level, baseline.spread
        z = (loss - level) / spread
        if state.excess == 0.0:
            state.raised_since = step
        state.excess = max(0.0, state.excess + z - DRIFT_Z)
        state.pending.append(loss)
        if state.excess == 0.0 or len(state.pending) > PENDING_ROWS:
            self._release(level, spread)
        if state.excess <= ALARM_Z - DRIFT_Z or state.excess <= self._alarm(gradient_z) - DRIFT_Z:
            return ()
        state.pending.clear()
        episode = state.episode = Episode(onset_step=state.raised_since, level=level, spread=spread)
        episode.take(loss)
        reason = f"loss {loss:.4g} at step {step} is {z:.1f} robust deviations above its level of {level:.4g}"
        if gradient_z >= DRIFT_Z:
            reason += f", the gradient norm {gradient_z:.1f} above its own"
        return (self._finding(episode, step, phase="began", severity="warning", reason=reason),)

    def _release(self, level: float, spread: float) -> None:
        """The rows that waited are of the noise."""
        state = self.state
        raised = [loss for loss in state.pending if loss - level > BLIP_Z * spread]
        for loss in state.pending:
            if loss not in raised:
                state.baseline.push(loss)
        if len(raised) == 1:
            state.baseline.blip(raised[0] - level)
        state.pending.clear()
        state.excess = 0.0

    def _alarm(self, gradient_z: float) -> float:
        """How far out a single row must be."""
        baseline = self.state.baseline
        alarm = ALARM_Z * (1 + FEW / len(baseline.residuals))
        if gradient_z >= DRIFT_Z:  # what the gradient feels too is not the noise of a batch
            return alarm
        return max(alarm, BLIP_Z * math.pow(baseline.blip_ratio / FALSE_RATIO, 1 / TAIL_INDEX))

    def _gradient_z(self, grad_norm: float | None) -> float:
        """How far out the gradient norm is; 0 where nothing is known."""
        if grad_norm is None or not 0 < grad_norm < math.inf:
            return 0.0
        value, usual = math.log(grad_norm), self.state.gradient
        z = (value - usual.median) / max(usual.spread, SMALLEST_GRADIENT_SPREAD) if len(usual) >= WARM_UP else 0.0
        if z <= BLIP_Z:
            usual.push(value)
        return z

    def _follow(self, episode: Episode, step: int, loss: float) -> Sequence[Finding]:
        episode.take(loss)
        baseline = self.state.baseline
        if (blip := episode.blip) is not None:
            baseline.blip(blip)
        if loss - episode.level <= CALM_Z * episode.spread:
            baseline.residuals.push(loss - episode.level)
        if episode.is_over:
            peak = episode.level + episode.peak
            reason = f"back near the level of {episode.level:.4g} after a peak of {peak:.4g}"
            return self._end(episode, step, reason=reason)
        if episode.is_longest:
            return self._end(episode, step, reason=f"it stayed for {len(episode.heights)} rows: the new level")
        if episode.verdict == "malignant" or (height := episode.staying_height()) is None:
            return ()
        episode.verdict = "malignant"
        reason = (
            f"loss is {height:.3g} above its level of {episode.level:.4g} after {len(episode.heights)} rows "
            f"and is not returning"
        )
        return (self._finding(episode, step, phase="changed", severity="critical", reason=reason),)

    def _end(self, episode: Episode, step: int, *, reason: str) -> Sequence[Finding]:
        if len(episode.heights) <= SHORT_ROWS:
            self.state.baseline.blip(episode.peak)
        self._end_waiting(episode.values(SHORT))
        if episode.verdict == "undecided":
            episode.verdict = "benign"
        return (self._finding(episode, step, phase="ended", severity="info", reason=reason),)

    def _end_waiting(self, values: list[float]) -> None:
        """Watches on, from the level of ``values``."""
        state = self.state
        state.episode, state.excess = None, 0.0
        state.pending.clear()
        state.baseline.restart(values)

    def _finding(self, episode: Episode, step: int, *, phase: Phase, severity: Severity, reason: str) -> Finding:
        return Finding(
            detector=self.name,
            symptom="loss_spike",
            phase=phase,
            severity=severity,
            verdict=episode.verdict,
            onset_step=episode.onset_step,
            step=step,
            reason=reason,
            evidence={"level": episode.level, "spread": episode.spread, "peak": episode.level + episode.peak},
        )
