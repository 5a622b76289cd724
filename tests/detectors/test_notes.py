"""Behaviour of the detectors that mostly take notes: loss drops, gradient norms, models that guess."""

from __future__ import annotations

import math

import pytest

from sentinel.detectors.dead_training import GUESS_ROWS, DeadTraining
from sentinel.detectors.gradient_norm import VANISHED_ROWS, GradientNorm
from sentinel.detectors.loss_drop import LossDrop
from sentinel.domain.findings import Finding
from sentinel.protocol.observations import AttemptStarted, StepReport
from tests.builders import around, findings_of, steps_of

CALM = around(3.0, 200, noise=0.04)


def _norms(norms: list[float]) -> list[Finding]:
    reports = [StepReport(at=0.0, step=step, loss=2.0, grad_norm=norm) for step, norm in enumerate(norms, start=1)]
    return findings_of(GradientNorm(), [*reports])


@pytest.mark.parametrize("drop", [0.3, 1.0, 2.9])
def test_a_drop_is_noted(drop: float) -> None:
    """A loss that falls at once by seven deviations or more is a note within six rows, with the row where it fell."""
    found = findings_of(LossDrop(), steps_of([*CALM, *around(3.0 - drop, 60, noise=0.04, seed=1)]))
    assert [(each.phase, each.severity) for each in found] == [("began", "info"), ("ended", "info")]
    assert found[0].step <= 206
    assert found[0].onset_step == 201


def test_a_drop_after_a_resume_is_a_warning() -> None:
    """A run that goes on where it was and drops may see its data again: people are told so."""
    resumed = AttemptStarted(at=0.0, mode="act", step=200)
    again = steps_of(around(2.5, 60, noise=0.04, seed=1), first_step=201)
    found = findings_of(LossDrop(), [*steps_of([*CALM]), resumed, *again])
    assert found[0].severity == "warning"
    assert "seeing data again" in found[0].reason


def test_easy_batches_and_learning_are_no_drop() -> None:
    """Two easy batches are none, and a loss that starts to fall after a plateau is none either."""
    assert findings_of(LossDrop(), steps_of([*CALM, 1.0, 0.5, *around(3.0, 60, noise=0.04, seed=1)])) == []
    learning = [loss - 0.01 * row for row, loss in enumerate(around(3.0, 150, noise=0.04, seed=1))]
    assert findings_of(LossDrop(), steps_of([*CALM, *learning])) == []


def test_a_burst_of_the_gradient_norm_is_a_note() -> None:
    """Thirty times the usual norm is noted at its step, with how many times it was."""
    usual = [math.exp(noise) for noise in around(0.0, 200, noise=0.2)]
    found = _norms([*usual, 30.0, *usual])
    assert (found[0].step, found[0].phase, found[0].severity) == (201, "began", "info")
    assert "times its usual" in found[0].reason


def test_clean_log_normal_norms_give_next_to_no_notes() -> None:
    """10,000 steps of a clean log-normal norm, of which ZClip clips 2.9 %, give no burst."""
    assert _norms([math.exp(noise) for noise in around(0.0, 10_000, noise=0.25)]) == []


def test_a_vanished_gradient_is_a_warning_until_it_returns() -> None:
    """A norm of zero for eight rows means that nothing is learned; when it is back the incident ends."""
    usual = around(1.0, 50)
    found = _norms([*usual, *[0.0] * 20, *usual])
    assert [(each.step, each.phase, each.severity) for each in found] == [
        (50 + VANISHED_ROWS, "began", "warning"),
        (71, "ended", "info"),
    ]
    assert found[0].onset_step == 51


@pytest.mark.parametrize(("start", "told"), [(math.log(50257), True), (math.log(1000) + 0.01, True), (2.0, False)])
def test_a_model_that_still_guesses_is_told(start: float, *, told: bool) -> None:
    """A loss that stays at ln(vocabulary) for 512 rows is a warning; a trained model's steady loss is none."""
    found = findings_of(DeadTraining(), steps_of(around(start, GUESS_ROWS + 10, noise=0.005)))
    assert [(each.step, each.severity) for each in found] == ([(GUESS_ROWS, "warning")] if told else [])
