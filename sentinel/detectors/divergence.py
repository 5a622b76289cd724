"""A loss that creeps away from the best level it has reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.episode import LONGEST_ROWS, Episode
from sentinel.detectors.rolling import RollingWindow, median
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

WINDOW: Final = 12
SHORTEST_WINDOW: Final = 3
WARM_UP: Final = 8
SPREAD_WINDOW: Final = 32
RISE_Z: Final = 6.0
RISE_ROWS: Final = 16
NEAR_Z: Final = 2.0
WORTH_RATIO: Final = 0.04
WANDERS: Final = 16
WANDER_TIMES: Final = 1.5
SMALLEST_SPREAD: Final = 0.002


@dataclass(slots=True)
class DivergenceState:
    """The loss's median now and at its best, its noise, and the rise, if there is one."""

    count: int = 0
    newest: list[float] = field(default_factory=list)
    noise: RollingWindow = field(default_factory=lambda: RollingWindow(SPREAD_WINDOW))
    near_noise: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    best: float = math.inf
    near_step: int = 0
    """The last step at which the loss was near its best."""
    near_level: float = math.inf
    highest: float = -math.inf
    """Since then."""
    wander: float = 0.0
    wanders: list[float] = field(default_factory=list)
    linear: bool = False
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
        value = self._scaled(loss)
        before = self._median()
        state.count += 1
        state.newest = [*state.newest, value][-WINDOW:]
        if value <= state.near_level:
            state.near_step, state.highest = step, value
        state.highest = max(state.highest, value)
        if state.count <= SHORTEST_WINDOW:
            return ()
        now = self._median()
        state.best = min(state.best, now)
        height = now - state.best
        if state.rise is not None:
            return self._follow(state.rise, step, value, height)
        state.noise.push(value - before)
        state.near_noise.push(value - before)
        spread = max(min(state.noise.spread, state.near_noise.spread), SMALLEST_SPREAD)
        state.near_level = state.best + NEAR_Z * spread
        self._learn(height, spread)
        if height > max(RISE_Z * spread, WANDER_TIMES * max(state.wanders, default=0.0)) and len(state.noise) >= WARM_UP:
            state.rise = Episode(onset_step=state.near_step, level=state.best, spread=spread)
            state.rise.peak = state.highest - state.best
            state.rise.take(value)
        return ()

    def _median(self) -> float:
        """Of a window as long as a third of the run: over a young run's steep descent a longer one says nothing."""
        length = min(WINDOW, max(SHORTEST_WINDOW, self.state.count // 3))
        return median(sorted(self.state.newest[-length:]))

    def _scaled(self, loss: float) -> float:
        """Logarithms, so that eruptions do not drown what lies between them; a loss that may be negative stays as it is."""
        if loss > 0 and not self.state.linear:
            return math.log(loss)
        if not self.state.linear:
            self.state = DivergenceState(linear=True)
        return loss

    def _learn(self, height: float, spread: float) -> None:
        """Remembers how high the median went before it came back by itself."""
        state = self.state
        state.wander = max(state.wander, height)
        if height <= spread:
            if state.wander > NEAR_Z * spread:
                state.wanders = [*state.wanders, state.wander][-WANDERS:]
            state.wander = 0.0

    def _follow(self, rise: Episode, step: int, value: float, height: float) -> Sequence[Finding]:
        rise.take(value)
        if height <= rise.spread * (3.0 if self.state.told else 5.0):
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
        if staying is None or staying[1] < WORTH_RATIO:
            return ()
        rise.verdict = "malignant"
        reason = f"the loss is {staying[1]:.3g} above its best level, {rise.level:.4g}, and is not returning"
        return (self._finding(rise, step, phase="changed", severity="critical", reason=reason),)

    def _end(self, rise: Episode, step: int, *, reason: str) -> Sequence[Finding]:
        state = self.state
        told = state.told
        if len(rise.heights) >= LONGEST_ROWS:
            state.best = self._median()
        elif told:
            state.wanders = [*state.wanders, min(max(rise.heights), 2 * RISE_Z * rise.spread)][-WANDERS:]
        self._forget()
        if not told:
            return ()
        if rise.verdict == "undecided":
            rise.verdict = "benign"
        return (self._finding(rise, step, phase="ended", severity="info", reason=reason),)

    def _forget(self) -> None:
        self.state.rise = None
        self.state.told = False
        self.state.wander = 0.0

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
