"""A loss that jumps above its own recent level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.rolling import RollingWindow
from sentinel.domain.findings import Finding, Phase, Severity, Verdict
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

WINDOW: Final = 128
"""OLMo-core's SkipStepOptimizer and StabilityMonitorCallback look back as far."""
WARM_UP: Final = 32
ALARM_Z: Final = 8.0
"""Robust standard deviations. Healthy runs of 130M to 1.2B parameters reached 4.5, and an alarm set calibrated on them
fires at 8; six plain ones, as in OLMo-core, fire 13 times in 10,000 steps on heavy-tailed noise."""
CALM_Z: Final = 3.0
SMALLEST_SPREAD_RATIO: Final = 0.002
"""Of the level: a loss that barely moves would otherwise alarm at the first flutter. 8 of these are 1.6 %."""
PATIENCE_STEPS: Final = 8
"""The loss spike of BLOOM-176B (its chronicle, iteration 31,219) had lost half its height 2 steps after its peak: one
that has not begun to return after four times that is no passing one."""
RETURNING_RATIO: Final = 0.7
RETURN_STEPS: Final = 32
"""What must have sunk is the highest of so many steps: that spike was back at its level 30 steps after its peak, and
one that stops halfway must not be excused by its peak for ever."""
HALF_STEPS: Final = 8
STAYING_RATIO: Final = 0.85
"""Of its height, from one half of 16 steps to the other: a spike that sinks more slowly needs 50 steps to lose two
thirds of it, as many as a rollback costs."""
CALM_STEPS: Final = 5
LEVEL_SHIFT_STEPS: Final = 256
"""Twice the window: a level kept that long is the run's new normal, and blindness to what follows would be worse."""


@dataclass(slots=True)
class Episode:
    """A spike that is under way."""

    onset_step: int
    began_step: int
    level: float
    spread: float
    heights: list[float] = field(default_factory=list)
    """Loss above ``level`` since the alarm, at most ``LEVEL_SHIFT_STEPS``."""
    calm_steps: int = 0
    verdict: Verdict = "undecided"


@dataclass(slots=True)
class LossSpikeState:
    """The baseline and its newest step, since when the loss has been above it, and the episode, if one is open."""

    baseline: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    newest_step: int = 0
    raised_since: int | None = None
    episode: Episode | None = None


class LossSpike(Detector[LossSpikeState]):
    """A loss spike, and whether it is returning.

    Watches:
        ``loss`` of each step report; non-finite losses are another detector's.

    Fires when:
        the loss lies 8 robust standard deviations above the median of the last 128 losses that were not raised
        themselves: a warning, undecided. From its eighth step on it is malignant (critical) if the last four are above
        the alarm line and still at 70 % of the height of the highest four in a row among the last 32; from its
        sixteenth step on also if it is lower but stays there: the last eight at 85 % of the eight before them.

    Stays quiet when:
        fewer than 32 losses are known; the loss falls; the noise is heavy-tailed but within 8 robust deviations.

    Memory:
        two windows of 128 losses, one of 256 while a spike lasts.

    Source:
        Median and MAD: raised values must not enter their own baseline, or the rule goes blind right after the peak
        (seen when 6 sigma over 128 steps is run on BLOOM-176B's published losses). Constants: see each.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = LossSpike()
        >>> losses = [2.0 + 0.01 * (step % 5) for step in range(1, 61)] + [4.0] * 20
        >>> for step, loss in enumerate(losses, start=1):
        ...     report = StepReport(at=0.0, step=step, loss=loss)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.phase, finding.verdict)
        61 began undecided
        68 changed malignant
    """

    name: ClassVar[str] = "loss_spike"

    def __init__(self) -> None:
        self.state = LossSpikeState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt closes the episode, and one that goes far the baseline too."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            self.state.newest_step = observation.step
            if observation.loss is None or not math.isfinite(observation.loss):
                return ()
            if self.state.episode is not None:
                return self._follow(self.state.episode, observation.step, observation.loss)
            return self._watch(observation.step, observation.loss)
        if isinstance(observation, AttemptStarted) or (
            isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        ):
            self._set_back(observation.step)
        return ()

    def _set_back(self, to_step: int) -> None:
        if self.state.newest_step - to_step > WINDOW:
            self.state.baseline = RollingWindow(WINDOW)  # early in a run the loss back there was far higher
        self.state.episode = None
        self.state.raised_since = None

    def _watch(self, step: int, loss: float) -> Sequence[Finding]:
        state = self.state
        level, spread = state.baseline.median, self._spread()
        if len(state.baseline) < WARM_UP or loss <= level + CALM_Z * spread:
            state.raised_since = None
            state.baseline.push(loss)
            return ()
        if state.raised_since is None:
            state.raised_since = step
        if loss <= level + ALARM_Z * spread:
            state.baseline.push(loss)  # raised, not alarming: noise has tails, and the baseline must know them
            return ()
        state.episode = Episode(onset_step=state.raised_since, began_step=step, level=level, spread=spread)
        state.episode.heights.append(loss - level)
        times = (loss - level) / spread
        reason = f"loss {loss:.4g} at step {step} is {times:.1f} robust deviations above its level of {level:.4g}"
        return (self._finding(state.episode, step, phase="began", severity="warning", reason=reason),)

    def _follow(self, episode: Episode, step: int, loss: float) -> Sequence[Finding]:
        height = loss - episode.level
        episode.heights.append(height)
        if height <= CALM_Z * episode.spread:
            self.state.baseline.push(loss)
            episode.calm_steps += 1
            if episode.calm_steps >= CALM_STEPS:
                reason = f"{CALM_STEPS} steps in a row were back at the level of {episode.level:.4g}"
                return self._end(episode, step, reason=reason, benign=True)
            return ()
        episode.calm_steps = 0
        if len(episode.heights) >= LEVEL_SHIFT_STEPS:
            self.state.baseline = RollingWindow(WINDOW)
            for value in episode.heights[-WINDOW:]:
                self.state.baseline.push(episode.level + value)
            return self._end(
                episode, step, reason=f"it stayed for {LEVEL_SHIFT_STEPS} steps: the new level", benign=False
            )
        if episode.verdict == "malignant" or len(episode.heights) < PATIENCE_STEPS:
            return ()
        if not (_is_high(episode) or _is_staying(episode)):
            return ()
        episode.verdict = "malignant"
        reason = (
            f"loss has been {_mean(episode.heights[-4:]):.3g} above its level of {episode.level:.4g} "
            f"for {step - episode.began_step + 1} steps and is not returning"
        )
        return (self._finding(episode, step, phase="changed", severity="critical", reason=reason),)

    def _end(self, episode: Episode, step: int, *, reason: str, benign: bool) -> Sequence[Finding]:
        self.state.episode = None
        self.state.raised_since = None
        if benign and episode.verdict == "undecided":
            episode.verdict = "benign"
        return (self._finding(episode, step, phase="ended", severity="info", reason=reason),)

    def _spread(self) -> float:
        baseline = self.state.baseline
        return max(baseline.spread, SMALLEST_SPREAD_RATIO * abs(baseline.median), 1e-12)

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
            evidence={
                "level": episode.level,
                "spread": episode.spread,
                "peak": episode.level + max(episode.heights),
            },
        )


def _is_high(episode: Episode) -> bool:
    """Whether it has not begun to return."""
    recent = episode.heights[-RETURN_STEPS:]
    means = [_mean(recent[end - 4 : end]) for end in range(4, len(recent) + 1)]
    return min(recent[-4:]) > ALARM_Z * episode.spread and means[-1] >= RETURNING_RATIO * max(means)


def _is_staying(episode: Episode) -> bool:
    """Whether it has come down from its peak and stopped there."""
    earlier, later = episode.heights[-2 * HALF_STEPS : -HALF_STEPS], episode.heights[-HALF_STEPS:]
    if len(earlier) < HALF_STEPS:
        return False
    return _mean(later) > CALM_Z * episode.spread and _mean(later) >= STAYING_RATIO * _mean(earlier)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)  # statistics.fmean raises on overflow
