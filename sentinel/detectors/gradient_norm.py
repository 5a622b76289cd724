"""A gradient norm that bursts, or vanishes."""

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

WINDOW: Final = 128
"""OLMo-core's StabilityMonitorCallback watches the gradient norm over as many steps."""
WARM_UP: Final = 16
CALM_Z: Final = 3.0
BURST_Z: Final = 8.0
SMALLEST_SPREAD: Final = 0.02
"""Of the logarithm: 2 %."""
CALM_ROWS: Final = 8
LONGEST_ROWS: Final = 256
VANISHED_RATIO: Final = 1e-3
"""Of the usual norm; nothing in a healthy run comes near: schedules and batches move it by factors, not thousands."""
VANISHED_ROWS: Final = 8


@dataclass(slots=True)
class GradientNormState:
    """Logarithms of the usual norms, and what is under way."""

    usual: RollingWindow = field(default_factory=lambda: RollingWindow(WINDOW))
    burst_onset: int | None = None
    burst_rows: int = 0
    calm_rows: int = 0
    vanished_rows: int = 0
    vanished_onset: int = 0


class GradientNorm(Detector[GradientNormState]):
    """Bursts of the gradient norm, and its end.

    Watches:
        ``grad_norm`` of each step report; norms that are not finite are another detector's.

    Fires when:
        its logarithm lies 8 robust deviations above the median of the last 128: a note, for a burst alone harms little
        where gradients are clipped, and often comes before a loss spike. Or it is below a thousandth of its usual size
        for 8 rows: a warning, for nothing is being learned any more.

    Stays quiet when:
        fewer than 16 norms are known; the norm is not reported.

    Memory:
        two lists of 128 logarithms.

    Source:
        BLOOM-176B's chronicle: the norm left its usual range 4 steps before its only loss spike peaked. Logarithms,
        because norms are near log-normal: ZClip's linear z of 2.5 flags 2.9 % of a clean series.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = GradientNorm()
        >>> norms = [1.0 + 0.1 * (step % 3) for step in range(1, 41)] + [30.0, 1.0] + [0.0] * 8
        >>> for step, norm in enumerate(norms, start=1):
        ...     report = StepReport(at=0.0, step=step, loss=2.0, grad_norm=norm)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.symptom, finding.phase, finding.severity)
        41 gradient_norm_burst began info
        49 gradient_norm_burst ended info
        50 gradient_norm_vanished began warning
    """

    name: ClassVar[str] = "gradient_norm"

    def __init__(self) -> None:
        self.state = GradientNormState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; a rollback or new attempt ends what was under way."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            norm = observation.grad_norm
            if norm is None or not math.isfinite(norm) or norm < 0:
                return ()
            return (*self._burst(observation.step, norm), *self._vanish(observation.step, norm))
        set_back = isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        if set_back or isinstance(observation, AttemptStarted):
            self.state.burst_onset = None
            self.state.vanished_rows = 0
        return ()

    def _burst(self, step: int, norm: float) -> Sequence[Finding]:
        state = self.state
        value = math.log(norm) if norm > 0 else -math.inf
        spread = max(state.usual.spread, SMALLEST_SPREAD)
        z = (value - state.usual.median) / spread if len(state.usual) >= WARM_UP else 0.0
        is_usual = abs(z) <= BURST_Z and math.isfinite(value)
        if state.burst_onset is None:
            if is_usual:
                state.usual.push(value)
            if z <= BURST_Z:
                return ()
            state.burst_onset, state.burst_rows, state.calm_rows = step, 0, 0
            usual = math.exp(state.usual.median)
            reason = f"gradient norm {norm:.4g} at step {step} is {norm / usual:.3g} times its usual {usual:.3g}"
            return (
                self._finding("gradient_norm_burst", step, onset=step, phase="began", severity="info", reason=reason),
            )
        return self._follow(state.burst_onset, step, value, z=z)

    def _follow(self, onset: int, step: int, value: float, *, z: float) -> Sequence[Finding]:
        state = self.state
        state.burst_rows += 1
        state.calm_rows = state.calm_rows + 1 if z <= CALM_Z else 0
        if state.calm_rows < CALM_ROWS and state.burst_rows < LONGEST_ROWS:
            return ()
        reason = "back in its usual range"
        if state.calm_rows < CALM_ROWS:
            reason = f"{LONGEST_ROWS} rows at a new size"
            state.usual = RollingWindow(WINDOW)
            state.usual.push(value)
        state.burst_onset = None
        return (self._finding("gradient_norm_burst", step, onset=onset, phase="ended", severity="info", reason=reason),)

    def _vanish(self, step: int, norm: float) -> Sequence[Finding]:
        state = self.state
        if len(state.usual) < WARM_UP:
            return ()
        usual = math.exp(state.usual.median)
        told = state.vanished_rows >= VANISHED_ROWS
        if norm > VANISHED_RATIO * usual:
            state.vanished_rows = 0
            if not told:
                return ()
            reason = f"gradient norm {norm:.3g}"
            return (
                self._finding(
                    "gradient_norm_vanished",
                    step,
                    onset=state.vanished_onset,
                    phase="ended",
                    severity="info",
                    reason=reason,
                ),
            )
        if state.vanished_rows == 0:
            state.vanished_onset = step
        state.vanished_rows += 1
        if state.vanished_rows != VANISHED_ROWS:
            return ()
        reason = f"gradient norm {norm:.3g} for {VANISHED_ROWS} rows, usually {usual:.3g}: nothing is being learned"
        return (
            self._finding(
                "gradient_norm_vanished",
                step,
                onset=state.vanished_onset,
                phase="began",
                severity="warning",
                reason=reason,
            ),
        )

    def _finding(
        self, symptom: str, step: int, *, onset: int, phase: Phase, severity: Severity, reason: str
    ) -> Finding:
        return Finding(
            detector=self.name,
            symptom=symptom,
            phase=phase,
            severity=severity,
            verdict="undecided" if phase == "began" else "benign",
            onset_step=onset,
            step=step,
            reason=reason,
        )
