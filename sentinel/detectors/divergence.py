"""A loss that creeps away from the best level it has reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.episode import LONGEST_ROWS, Episode
from sentinel.detectors.rolling import RollingWindow
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

WINDOW: Final = 16
WARM_UP: Final = 8
SPREAD_WINDOW: Final = 32
RISE_Z: Final = 5.0
RISE_ROWS: Final = 16
NEAR_Z: Final = 2.0
SMALLEST_SPREAD_RATIO: Final = 0.002


@dataclass(slots=True)
class DivergenceState:
    """The loss's median now and at its best, its noise, and the rise, if there is one."""

    window: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    noise: RollingWindow = field(default_factory=lambda: RollingWindow(SPREAD_WINDOW))
    best: float = math.inf
    near_step: int = 0
    """The last step at which the loss was near its best."""
    rise: Episode | None = None
    told: bool = False
    """Whether the rise has been reported."""


class Divergence(Detector[DivergenceState]):
    """The loss rises, slowly or for good."""

    name: ClassVar[str] = "divergence"

    def __init__(self) -> None:
        self.state = DivergenceState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt closes the episode and keeps the best level."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            return self._judge(observation.step, observation.loss)
        set_back = isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        if set_back or isinstance(observation, AttemptStarted):
            self._forget()
        return ()

    def _judge(self, step: int, loss: float) -> Sequence[Finding]:
        state = self.state
        before = state.window.median
        state.window.push(loss)
        if len(state.window) <= WARM_UP:
            return ()
        now = state.window.median
        state.best = min(state.best, now)
        spread = max(state.noise.spread, SMALLEST_SPREAD_RATIO * abs(state.best), 1e-12)
        height = now - state.best
        rise = state.rise
        if rise is not None:
            return self._follow(rise, step, loss, height)
        if height <= NEAR_Z * spread:
            state.near_step = step
        state.noise.push(loss - before)
        if height > RISE_Z * spread and len(state.noise) >= WARM_UP:
            state.rise = Episode(onset_step=state.near_step, level=state.best, spread=spread)
            state.rise.take(loss)
        return ()

    def _follow(self, rise: Episode, step: int, loss: float, height: float) -> Sequence[Finding]:
        rise.take(loss)
        if height <= rise.spread * (3.0 if self.state.told else RISE_Z):
            return self._end(rise, step, reason=f"back at its best level of {rise.level:.4g}")
        if len(rise.heights) >= LONGEST_ROWS:
            return self._end(rise, step, reason=f"{LONGEST_ROWS} rows at a new level")
        if not self.state.told and len(rise.heights) >= RISE_ROWS:
            self.state.told = True
            reason = f"the median loss of {WINDOW} rows is {height:.3g} above its best, {rise.level:.4g}, for {RISE_ROWS} rows"
            return (self._finding(rise, step, phase="began", severity="warning", reason=reason),)
        if rise.verdict == "malignant":
            return ()
        staying = rise.staying()
        if staying is None:
            return ()
        rise.verdict = "malignant"
        reason = f"the loss is {staying[1]:.3g} above its best level, {rise.level:.4g}, and is not returning"
        return (self._finding(rise, step, phase="changed", severity="critical", reason=reason),)

    def _end(self, rise: Episode, step: int, *, reason: str) -> Sequence[Finding]:
        state = self.state
        told = state.told
        state.best = state.window.median
        self._forget()
        if not told:
            return ()
        if rise.verdict == "undecided":
            rise.verdict = "benign"
        return (self._finding(rise, step, phase="ended", severity="info", reason=reason),)

    def _forget(self) -> None:
        self.state.rise = None
        self.state.told = False

    def _finding(self, rise: Episode, step: int, *, phase: Phase, severity: Severity, reason: str) -> Finding:
        return Finding(
            detector=self.name,
            symptom="divergence",
            phase=phase,
            severity=severity,
            verdict=rise.verdict,
            onset_step=rise.onset_step,
            step=step,
            reason=reason,
            evidence={"level": rise.level, "spread": rise.spread, "peak": rise.level + rise.peak},
        )
