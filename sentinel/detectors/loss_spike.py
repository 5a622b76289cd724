"""A loss that jumps above its own recent level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.baseline import BLIP_Z, SHORT, Baseline
from sentinel.detectors.episode import CALM_Z, Episode
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

DRIFT_Z: Final = 3.0
"""Subtracted from each row's score: ordinary noise never adds up."""
ALARM_Z: Final = 12.0
"""A single row this far out, or more rows that are out less: two of 7.5, four of 5.25, nine of 4."""
FALSE_RATIO: Final = 5e-5
TAIL_INDEX: Final = 3.0
PENDING_ROWS: Final = 32
SHORT_ROWS: Final = 8


@dataclass(slots=True)
class LossSpikeState:
    """The baseline, the sum of what is too much, since when, and the episode, if one is open."""

    baseline: Baseline = field(default_factory=Baseline)
    gradient: Baseline = field(default_factory=Baseline)
    """Of the logarithm of the gradient norm."""
    excess: float = 0.0
    pending: list[float] = field(default_factory=list)
    raised_since: int = 0
    episode: Episode | None = None


class LossSpike(Detector[LossSpikeState]):
    """A loss spike, and whether it is returning."""

    name: ClassVar[str] = "loss_spike"

    def __init__(self) -> None:
        self.state = LossSpikeState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt closes the episode and keeps the baseline."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            if self.state.episode is not None:
                return self._follow(self.state.episode, observation.step, observation.loss)
            return self._watch(observation.step, observation.loss, self._gradient_z(observation.grad_norm))
        set_back = isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        if set_back or isinstance(observation, AttemptStarted):
            self.state.episode = None
            self.state.excess = 0.0
            self.state.pending.clear()
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
            for value in state.pending:
                if value - level <= BLIP_Z * spread:
                    baseline.push(value)
            if len(state.pending) == 2:
                baseline.blip(state.pending[0] - level)
            state.pending.clear()
            state.excess = 0.0
        tail = BLIP_Z * (baseline.blip_ratio / FALSE_RATIO) ** (1 / TAIL_INDEX)
        few = 1 + 8 / len(baseline.residuals)
        if gradient_z >= DRIFT_Z:
            tail = 0.0  # what the gradient feels too is not the noise of a batch
        if state.excess < max(ALARM_Z * few, tail) - DRIFT_Z:
            return ()
        state.pending.clear()
        episode = state.episode = Episode(onset_step=state.raised_since, level=level, spread=spread)
        episode.take(loss)
        reason = f"loss {loss:.4g} at step {step} is {z:.1f} robust deviations above its level of {level:.4g}"
        return (self._finding(episode, step, phase="began", severity="warning", reason=reason),)

    def _gradient_z(self, grad_norm: float | None) -> float:
        """How far out the gradient norm is; 0 where nothing is known."""
        if grad_norm is None or not 0 < grad_norm < math.inf:
            return 0.0
        value, baseline = math.log(grad_norm), self.state.gradient
        z = (value - baseline.level) / baseline.spread if baseline.is_ready else 0.0
        if z <= BLIP_Z:
            baseline.push(value)
        return z

    def _follow(self, episode: Episode, step: int, loss: float) -> Sequence[Finding]:
        episode.take(loss)
        if episode.blip is not None:
            self.state.baseline.blip(episode.blip)
        if loss - episode.level <= CALM_Z * episode.spread:
            self.state.baseline.residuals.push(loss - episode.level)
        if episode.is_over:
            return self._end(episode, step, reason=f"back at the level of {episode.level:.4g}")
        if episode.is_longest:
            return self._end(episode, step, reason=f"{len(episode.heights)} rows at a new level")
        if episode.verdict == "malignant":
            return ()
        staying = episode.staying()
        if staying is None:
            return ()
        episode.verdict = "malignant"
        reason = (
            f"loss is {staying[1]:.3g} above its level of {episode.level:.4g} "
            f"after {len(episode.heights)} rows and is not returning"
        )
        return (self._finding(episode, step, phase="changed", severity="critical", reason=reason),)

    def _end(self, episode: Episode, step: int, *, reason: str) -> Sequence[Finding]:
        state = self.state
        state.episode, state.excess = None, 0.0
        state.baseline.restart(episode.values(SHORT))
        if len(episode.heights) <= SHORT_ROWS:
            state.baseline.blip(episode.peak)
        if episode.verdict == "undecided":
            episode.verdict = "benign"
        return (self._finding(episode, step, phase="ended", severity="info", reason=reason),)

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
