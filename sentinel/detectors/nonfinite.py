"""Loss or gradient norm that is NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.domain.findings import Finding, Verdict
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

CALM_STEPS: Final = 20
"""Finite steps in a row after which it is over: two poisoned steps of one cause are rarely further apart."""


@dataclass(slots=True)
class NonfiniteState:
    """What is remembered: whether the gradients are scaled (fp16), and the episode, if one is open."""

    scaled_gradients: bool = False
    onset_step: int | None = None
    verdict: Verdict = "undecided"
    calm_steps: int = 0


class Nonfinite(Detector[NonfiniteState]):
    """Non-finite loss or gradient norm.

    Watches:
        ``loss`` and ``grad_norm`` of each step report.

    Fires when:
        the loss is not finite, or the gradient norm is not. Malignant at once when the gradients are not finite or not
        known: the optimizer has then written NaN into the weights and every later step is lost. Undecided while only
        the loss is not finite and the gradients are (a batch without targets divides 0 by 0 and harms nothing);
        malignant if that happens in two steps running.

    Stays quiet when:
        gradients overflow under fp16 with a loss scaler (precision ``16-mixed``): the scaler skips such steps, they
        are part of its search.

    Memory:
        four values.

    Source:
        torchtitan refuses to step on a non-finite loss or gradient norm (trainer.py, ``_assert_async``); PyTorch's
        GradScaler documentation for fp16. One NaN step leaves only NaN checkpoints behind a Lightning
        ``ModelCheckpoint(save_top_k=1, save_last=True)``, so nothing is gained by waiting.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = Nonfinite()
        >>> for step, loss in enumerate([2.1, 2.0, float("nan"), 2.0], start=1):
        ...     report = StepReport(at=0.0, step=step, loss=loss, grad_norm=loss)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.phase, finding.verdict)
        3 began malignant
    """

    name: ClassVar[str] = "nonfinite"

    def __init__(self) -> None:
        self.state = NonfiniteState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges step reports; forgets the episode when the run is set back or started anew."""
        observation = entry.observation
        if isinstance(observation, StepReport):
            return self._judge(observation)
        if isinstance(observation, AttemptStarted):
            self.state = NonfiniteState(scaled_gradients=observation.precision == "16-mixed")
        elif isinstance(observation, CommandResult) and observation.outcome == "succeeded":
            self.state = NonfiniteState(scaled_gradients=self.state.scaled_gradients)
        return ()

    def _judge(self, report: StepReport) -> Sequence[Finding]:
        state = self.state
        bad_loss = report.loss is not None and not math.isfinite(report.loss)
        bad_gradient = report.grad_norm is not None and not math.isfinite(report.grad_norm)
        if bad_gradient and state.scaled_gradients and not bad_loss:
            return ()
        if not bad_loss and not bad_gradient:
            return self._calm(report)
        gradient_is_fine = report.grad_norm is not None and not bad_gradient
        first = state.onset_step is None
        follows = not first and state.calm_steps == 0
        verdict: Verdict = "undecided" if gradient_is_fine and not follows else "malignant"
        state.calm_steps = 0
        if first:
            state.onset_step = report.step
        elif verdict == "undecided" or state.verdict == "malignant":
            return ()
        state.verdict = verdict
        return (self._finding(report, bad_loss=bad_loss, bad_gradient=bad_gradient, first=first),)

    def _calm(self, report: StepReport) -> Sequence[Finding]:
        state = self.state
        if state.onset_step is None or report.loss is None:
            return ()
        state.calm_steps += 1
        if state.calm_steps < CALM_STEPS:
            return ()
        onset, verdict = state.onset_step, state.verdict
        self.state = NonfiniteState(scaled_gradients=state.scaled_gradients)
        return (
            Finding(
                detector=self.name,
                symptom="nonfinite",
                phase="ended",
                severity="info",
                verdict="benign" if verdict == "undecided" else verdict,
                onset_step=onset,
                step=report.step,
                reason=f"{CALM_STEPS} steps in a row were finite again",
            ),
        )

    def _finding(self, report: StepReport, *, bad_loss: bool, bad_gradient: bool, first: bool) -> Finding:
        what = " and ".join(
            text
            for text, bad in (
                (f"loss is {report.loss}", bad_loss),
                (f"gradient norm is {report.grad_norm}", bad_gradient),
            )
            if bad
        )
        malignant = self.state.verdict == "malignant"
        if not malignant:
            why = "the gradients are finite, so the weights are not poisoned: waiting for the next step"
        elif bad_gradient:
            why = "the optimizer has stepped on it, so the weights are poisoned"
        elif report.grad_norm is None:
            why = "no gradient norm is known, so the weights must be taken for poisoned"
        else:
            why = "the second step running"
        onset = self.state.onset_step
        return Finding(
            detector=self.name,
            symptom="nonfinite",
            phase="began" if first else "changed",
            severity="critical" if malignant else "warning",
            verdict=self.state.verdict,
            onset_step=report.step if onset is None else onset,
            step=report.step,
            reason=f"{what} at step {report.step}; {why}",
        )
