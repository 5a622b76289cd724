"""A loss that creeps away from the best level it has reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.episode import CALM_Z, Episode
from sentinel.detectors.rolling import RollingWindow, median
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

WINDOW: Final = 12
SHORTEST_WINDOW: Final = 3
NOISE_WINDOW: Final = 32
WARM_UP: Final = 8
SMALLEST_SPREAD: Final = 0.002
"""Of the logarithm: 0.2 %."""
RISE_Z: Final = 7.0
"""Deviations of a single row. The median of 12 lies within 2 of its best in stationary noise, and stayed within 4 in
healthy rows of recorded runs."""
FALLEN_Z: Final = 5.0
NEAR_Z: Final = 2.0
RISE_ROWS: Final = 16
WORTH_RATIO: Final = 0.04
"""A rise of less than 4 % is told and not acted on: 0.1 nats of 2.5, the smallest spike that arXiv:2608.30320
counts."""
WANDERS: Final = 16
WANDER_TIMES: Final = 1.5


@dataclass(slots=True)
class DivergenceState:
    """The newest losses, the best level, the noise, how far the level wanders, and the rise, if there is one."""

    linear: bool = False
    """Whether losses are taken as they are: one was not positive."""
    rows: int = 0
    newest: list[float] = field(default_factory=list)
    noise: RollingWindow = field(default_factory=lambda: RollingWindow(NOISE_WINDOW))
    near_noise: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    best: float = math.inf
    near_level: float = math.inf
    near_step: int = 0
    """The last step at which the loss was near its best."""
    highest: float = -math.inf
    """Since then."""
    wander: float = 0.0
    wanders: list[float] = field(default_factory=list)
    """Heights from which the level came back by itself, newest last."""
    rise: Episode | None = None
    told: bool = False


class Divergence(Detector[DivergenceState]):
    """A loss that rises slowly, or does not come back.

    Watches:
        ``loss`` of each step report, as a logarithm while it is positive: eruptions do not drown what lies between.

    Fires when:
        the median of 12 rows has been 7 deviations of a row, and 1.5 times what the run's own level has wandered and
        come back from, above the best such median, for 16 rows: a warning, undecided. Malignant (critical) once it
        stays (see ``Episode``) and is at least 4 %. The onset is the last row that was near the best level.

    Stays quiet when:
        fewer than 11 losses are known; the level has wandered as far before (smoothed losses do); the loss jumps and
        returns within 16 rows (``LossSpike``).

    Memory:
        12 losses, two lists of 32 and of 12 residuals, 16 heights, 256 while a rise lasts.

    Source:
        Slow divergence has no public rule: none of seven finds +1.5 nats over 2,000 steps (``make bench``). The window
        is a third of the run's age while that is less than 12 rows: over a young run's descent a longer one says
        nothing. Constants: measured on labelled runs, ``make bench``.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = Divergence()
        >>> losses = [2.0 + 0.02 * (step % 3) for step in range(1, 101)] + [2.0 + 0.004 * step for step in range(100)]
        >>> for step, loss in enumerate(losses, start=1):
        ...     report = StepReport(at=0.0, step=step, loss=loss)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.phase, finding.verdict)
        132 began undecided
        152 changed malignant
    """

    name: ClassVar[str] = "divergence"

    def __init__(self) -> None:
        self.state = DivergenceState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt ends the rise, and the best level is learned anew."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            if observation.loss <= 0 and not self.state.linear:
                return self._go_linear(observation.step)
            return self._judge(observation.step, observation.loss if self.state.linear else math.log(observation.loss))
        set_back = isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        if set_back or isinstance(observation, AttemptStarted):
            self._forget()
            self.state.newest, self.state.best, self.state.near_level = [], math.inf, math.inf
        return ()

    def _go_linear(self, step: int) -> Sequence[Finding]:
        rise, told = self.state.rise, self.state.told
        self.state = DivergenceState(linear=True)
        if rise is None or not told:
            return ()
        return (self._finding(rise, step, phase="ended", severity="info", reason="the loss is not positive any more"),)

    def _judge(self, step: int, value: float) -> Sequence[Finding]:
        state = self.state
        before = self._median()
        state.rows += 1
        state.newest.append(value)
        del state.newest[:-WINDOW]
        if value <= state.near_level:
            state.near_step, state.highest = step, value
        state.highest = max(state.highest, value)
        if len(state.newest) <= SHORTEST_WINDOW:
            return ()
        now = self._median()
        state.best = min(state.best, now)
        height = now - state.best
        if state.rise is not None:
            return self._follow(state.rise, step, value, height=height)
        state.noise.push(value - before)
        state.near_noise.push(value - before)
        spread = max(min(state.noise.spread, state.near_noise.spread), SMALLEST_SPREAD)
        state.near_level = state.best + NEAR_Z * spread
        self._learn(height, spread)
        usual = WANDER_TIMES * max(state.wanders, default=0.0)
        if len(state.noise) >= WARM_UP and height > max(RISE_Z * spread, usual):
            peak = state.highest - state.best
            state.rise = Episode(onset_step=state.near_step, level=state.best, spread=spread, peak=peak)
            state.rise.take(value)
        return ()

    def _median(self) -> float:
        length = min(WINDOW, max(SHORTEST_WINDOW, self.state.rows // 3))
        return median(sorted(self.state.newest[-length:]))

    def _learn(self, height: float, spread: float) -> None:
        """Remembers how far the level went before it came back by itself."""
        state = self.state
        state.wander = max(state.wander, height)
        if height <= spread:
            if state.wander > NEAR_Z * spread:
                state.wanders = [*state.wanders, state.wander][-WANDERS:]
            state.wander = 0.0

    def _follow(self, rise: Episode, step: int, value: float, *, height: float) -> Sequence[Finding]:
        state = self.state
        rise.take(value)
        if height <= rise.spread * (CALM_Z if state.told else FALLEN_Z):
            return self._end(rise, step, reason=f"back at its best level of {self._shown(rise.level)}")
        if rise.is_longest:
            state.best = self._median()
            return self._end(rise, step, reason=f"it stayed for {len(rise.heights)} rows: the new level")
        if not state.told and len(rise.heights) >= RISE_ROWS:
            state.told = True
            far, best = self._far(height), self._shown(rise.level)
            reason = f"for {RISE_ROWS} rows the loss has been well above its best level, {best}, now by {far}"
            return (self._finding(rise, step, phase="began", severity="warning", reason=reason),)
        if not state.told or rise.verdict == "malignant" or (staying := rise.staying_height()) is None:
            return ()
        if staying < WORTH_RATIO and not state.linear:
            return ()
        rise.verdict = "malignant"
        reason = (
            f"the loss is {self._far(staying)} above its best level, {self._shown(rise.level)}, and is not returning"
        )
        return (self._finding(rise, step, phase="changed", severity="critical", reason=reason),)

    def _end(self, rise: Episode, step: int, *, reason: str) -> Sequence[Finding]:
        state, told = self.state, self.state.told
        if told and not rise.is_longest:
            learned = min(max(rise.heights), 2 * RISE_Z * rise.spread)  # a fault's own height is no wandering
            state.wanders = [*state.wanders, learned][-WANDERS:]
        self._forget()
        if not told:
            return ()
        if rise.verdict == "undecided":
            rise.verdict = "benign"
        return (self._finding(rise, step, phase="ended", severity="info", reason=reason),)

    def _forget(self) -> None:
        self.state.rise, self.state.told, self.state.wander = None, False, 0.0

    def _shown(self, value: float) -> str:
        return f"{value if self.state.linear else math.exp(value):.4g}"

    def _far(self, height: float) -> str:
        if self.state.linear:
            return f"{height:.3g}"
        rise = 100 * math.expm1(min(height, 99.0))
        return f"{rise:,.0f} %" if 1e3 <= rise < 1e6 else f"{rise:.3g} %"

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
            evidence={"best": rise.level, "spread": rise.spread, "peak": rise.level + rise.peak},
        )
