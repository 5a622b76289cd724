from __future__ import annotations

from math import inf, nan

import pytest

from sentinel.detectors.nonfinite import CALM_STEPS, Nonfinite
from sentinel.domain.findings import Finding
from sentinel.protocol.observations import AttemptStarted, StepReport
from tests.builders import ROLLED_BACK, findings_of

Readings = list[tuple[float | None, float | None]]


def _found(readings: Readings, *, precision: str = "32-true") -> list[Finding]:
    reports = [
        StepReport(at=0.0, step=step, loss=loss, grad_norm=norm) for step, (loss, norm) in enumerate(readings, 1)
    ]
    return findings_of(Nonfinite(), [AttemptStarted(at=0.0, mode="act", precision=precision), *reports])


def _told(readings: Readings, *, precision: str = "32-true") -> list[tuple[int, str, str, str]]:
    return [(each.step, each.phase, each.severity, each.verdict) for each in _found(readings, precision=precision)]


@pytest.mark.parametrize(
    "reading", [(nan, nan), (nan, None), (inf, inf), (2.0, nan), (2.0, inf), (None, nan), (-inf, None), (nan, -inf)]
)
def test_poisoned_weights_are_malignant_at_once(reading: tuple[float | None, float | None]) -> None:
    """Where the gradients are not finite, or not known beside a bad loss, there is nothing to wait for."""
    assert _told([(2.0, 1.0), reading]) == [(2, "began", "critical", "malignant")]


def test_a_bad_loss_with_fine_gradients_is_undecided() -> None:
    """A batch without targets makes the loss NaN and harms nothing: one such step is a warning."""
    assert _told([(2.0, 1.0), (nan, 1.0)]) == [(2, "began", "warning", "undecided")]


def test_two_bad_losses_running_are_malignant() -> None:
    """The second step running changes the verdict, once."""
    told = _told([(nan, 1.0), (nan, 1.0), (nan, 1.0)])
    assert told == [(1, "began", "warning", "undecided"), (2, "changed", "critical", "malignant")]


def test_two_bad_losses_apart_stay_undecided() -> None:
    """Bad batches with a good one between them are still only that."""
    assert _told([(nan, 1.0), (2.0, 1.0), (nan, 1.0)]) == [(1, "began", "warning", "undecided")]


def test_bad_gradients_after_a_bad_loss_are_malignant() -> None:
    """An undecided episode turns malignant with the first gradient that is not finite, however much later."""
    told = _told([(nan, 1.0), (2.0, 1.0), (2.0, nan)])
    assert told == [(1, "began", "warning", "undecided"), (3, "changed", "critical", "malignant")]


def test_overflows_under_a_loss_scaler_are_normal() -> None:
    """With fp16 and its scaler infinite gradients are skipped steps, and no finding."""
    assert _told([(2.0, inf), (2.0, nan), (2.0, 1.0)], precision="16-mixed") == []


@pytest.mark.parametrize("precision", ["16-true", "bf16-mixed", "bf16-true", "32-true"])
def test_overflows_without_a_scaler_are_not(precision: str) -> None:
    """Every other precision has no scaler that would skip the step, Lightning's ``16-true`` neither."""
    assert _told([(2.0, inf)], precision=precision) == [(1, "began", "critical", "malignant")]


def test_a_bad_loss_counts_under_a_scaler_too() -> None:
    """The scaler excuses gradients, not the loss."""
    assert _told([(nan, inf)], precision="16-mixed") == [(1, "began", "critical", "malignant")]


def test_a_new_attempt_has_its_own_precision() -> None:
    """The scaler of an earlier attempt excuses nothing in the next."""
    detector = Nonfinite()
    attempts = [AttemptStarted(at=0.0, mode="act", precision=each) for each in ("16-mixed", "32-true")]
    found = findings_of(detector, [*attempts, StepReport(at=0.0, step=1, loss=2.0, grad_norm=inf)])
    assert [each.verdict for each in found] == ["malignant"]


def test_a_rollback_keeps_the_precision() -> None:
    """After a rollback the run still has its scaler."""
    started = AttemptStarted(at=0.0, mode="act", precision="16-mixed")
    assert findings_of(Nonfinite(), [started, ROLLED_BACK, StepReport(at=0.0, step=1, loss=2.0, grad_norm=inf)]) == []


def test_ends_benign_when_the_loss_stays_finite() -> None:
    """After 20 finite steps in a row an undecided episode ends, and was harmless."""
    told = _told([(nan, 1.0)] + [(2.0, 1.0)] * CALM_STEPS)
    assert told[1:] == [(1 + CALM_STEPS, "ended", "info", "benign")]


def test_what_was_malignant_ends_malignant() -> None:
    """The end of an episode does not excuse what it was."""
    told = _told([(nan, nan)] + [(2.0, 1.0)] * CALM_STEPS)
    assert told[1:] == [(1 + CALM_STEPS, "ended", "info", "malignant")]


def test_only_known_losses_count_as_calm() -> None:
    """Reports without a loss bring the end no nearer, and a bad step starts the count anew."""
    silent: Readings = [(None, 1.0)] * CALM_STEPS
    calm: Readings = [(2.0, 1.0)] * (CALM_STEPS - 1)
    assert len(_told([(nan, 1.0), *silent, *calm, (nan, 1.0), *calm])) == 1


def test_a_second_episode_has_its_own_onset() -> None:
    """After an end the next bad step begins anew."""
    found = _found([(nan, 1.0)] + [(2.0, 1.0)] * CALM_STEPS + [(nan, 1.0)])
    assert [(each.phase, each.onset_step) for each in found] == [("began", 1), ("ended", 1), ("began", 22)]


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ((nan, 1.0), "loss is nan at step 1; the gradients are finite"),
        ((nan, None), "loss is nan at step 1; no gradient norm is known"),
        ((2.0, inf), "gradient norm is inf at step 1; the optimizer has stepped on it"),
        ((nan, inf), "loss is nan and gradient norm is inf at step 1; the optimizer has stepped on it"),
    ],
)
def test_says_what_is_not_finite_and_why_it_matters(reading: tuple[float | None, float | None], words: str) -> None:
    """The reason names the value that is not finite and what it means for the weights."""
    assert _found([reading])[0].reason.startswith(words)
