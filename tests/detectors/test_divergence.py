"""Behaviour of the divergence detector on curves that say one thing each."""

from __future__ import annotations

import math
import random

import pytest

from sentinel.detectors.divergence import RISE_ROWS, Divergence
from sentinel.domain.findings import Finding
from tests.builders import ROLLED_BACK, STARTED, around, findings_of, steps_of


def _found(losses: list[float]) -> list[Finding]:
    return findings_of(Divergence(), steps_of([*losses]))


def _rising(count: int, per_row: float, *, level: float = 2.0, seed: int = 1) -> list[float]:
    return [loss + per_row * row for row, loss in enumerate(around(level, count, noise=0.02, seed=seed))]


def test_a_slow_rise_is_found_and_becomes_malignant() -> None:
    """A loss that gains 0.1 nats in 100 rows is told before it has gained 0.3, and then called malignant."""
    found = _found([*around(2.0, 300, noise=0.02), *_rising(400, 0.001)])
    assert [(each.phase, each.verdict) for each in found[:2]] == [("began", "undecided"), ("changed", "malignant")]
    assert found[0].step < 600
    assert abs(found[0].onset_step - 340) <= 60


def test_the_scale_does_not_matter() -> None:
    """A loss a thousand times as large, or as small, gives the same findings."""
    losses = [*around(2.0, 300, noise=0.02), *_rising(400, 0.001)]
    told = [(each.step, each.phase) for each in _found(losses)]
    for scale in (1e-3, 1e3):
        assert [(each.step, each.phase) for each in _found([scale * loss for loss in losses])] == told


def test_a_spike_is_not_its_own() -> None:
    """What jumps and is back within a few rows is no rise."""
    assert _found([*around(2.0, 200), 6.0, 5.0, 4.0, 3.0, *around(2.0, 100, seed=1)]) == []


def test_a_rise_of_less_than_four_percent_is_only_told() -> None:
    """A level 2 % higher is a warning and calls for nothing."""
    found = _found([*around(2.0, 300, noise=0.005), *around(2.04, 200, noise=0.005, seed=1)])
    assert {each.verdict for each in found} <= {"undecided", "benign"}
    assert found[0].phase == "began"


def test_wandering_is_learned() -> None:
    """A smoothed loss that wanders up and down, slowly against its noise, gives few warnings."""
    source = random.Random(1)
    wander, losses = 0.0, []
    for _ in range(6000):
        wander = 0.97 * wander + source.gauss(0.0, 0.01)
        losses.append(2.8 + wander + source.gauss(0.0, 0.002))
    assert len([each for each in _found(losses) if each.phase == "began"]) <= 3


def test_a_level_that_stays_is_told_once() -> None:
    """After 256 rows the new level is the level, and nothing more is said of it."""
    found = _found([*around(2.0, 200), *around(2.5, 800, seed=1)])
    assert [each.phase for each in found] == ["began", "changed", "ended"]


def test_a_loss_that_is_not_positive_is_taken_as_it_is() -> None:
    """From the first negative loss on heights are differences: a rise is found there too."""
    found = _found([0.5, *around(-1.0, 200, noise=0.01), *around(-0.5, 60, noise=0.01, seed=1)])
    assert [each.phase for each in found][:1] == ["began"]
    assert 202 <= found[0].step <= 202 + 12 + RISE_ROWS


@pytest.mark.parametrize("set_back", [ROLLED_BACK, STARTED], ids=["rollback", "new attempt"])
def test_going_back_up_the_curve_is_no_rise(set_back: object) -> None:
    """After a rollback to where the loss was higher the best level is learned anew."""
    curve = [3.0 + 7.0 * math.exp(-row / 200) for row in range(1000)]
    stream = [*steps_of([*curve]), set_back, *steps_of([*curve], first_step=1)]
    assert findings_of(Divergence(), stream) == []  # type: ignore[arg-type]
