"""Behaviour of the spike detector on curves that say one thing each."""

from __future__ import annotations

from math import exp, nan

import pytest

from sentinel.detectors.episode import CALM_ROWS, LONGEST_ROWS, PATIENCE_ROWS
from sentinel.detectors.loss_spike import LossSpike
from sentinel.domain.findings import Finding
from sentinel.protocol.ids import CommandId
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport
from tests.builders import around, findings_of, steps_of

CALM = around(2.0, 200)
BLOOM_176B_SPIKE = (2.199, 2.220, 2.595, 2.242, 2.345, 5.098, 3.492, 3.213, 2.805)
"""Losses from iteration 31,214 on, from the published training log."""


def _found(losses: list[float | None]) -> list[Finding]:
    return findings_of(LossSpike(), steps_of(losses))


def _told(losses: list[float]) -> list[tuple[int, str, str]]:
    return [(each.step, each.phase, each.verdict) for each in _found([*losses])]


def _verdicts(losses: list[float]) -> list[str]:
    return [verdict for _, _, verdict in _told(losses)]


def test_a_returning_spike_passes_benign() -> None:
    """A spike that comes back is a warning and ends benign at the third row that is back."""
    told = _told([*CALM, 5.0, 4.0, 3.0, 2.5, *around(2.0, 20, seed=1)])
    assert told == [(201, "began", "undecided"), (203 + CALM_ROWS, "ended", "benign")]


def test_a_spike_that_stays_is_malignant_after_its_patience() -> None:
    """A loss that keeps its height is malignant at the 36th row of the spike, not before."""
    told = _told([*CALM, *around(4.0, PATIENCE_ROWS + 10, seed=1)])
    assert told == [(201, "began", "undecided"), (200 + PATIENCE_ROWS, "changed", "malignant")]


def test_a_spike_that_rises_is_malignant_after_its_patience() -> None:
    """A loss that climbs on is malignant too."""
    rising = [*CALM, *(2.5 + 0.1 * step for step in range(PATIENCE_ROWS))]
    assert _told(rising)[1] == (200 + PATIENCE_ROWS, "changed", "malignant")


@pytest.mark.parametrize("rows", [5, 12, 27])
def test_a_plateau_that_falls_by_itself_is_watched(rows: int) -> None:
    """A spike that stays flat for up to 27 rows and then drops is never malignant."""
    assert _verdicts([*CALM, *around(4.0, rows, seed=1), *around(2.0, 20, seed=2)]) == ["undecided", "benign"]


@pytest.mark.parametrize("rows_to_halve", [4, 10, 25])
def test_a_slowly_returning_spike_is_watched(rows_to_halve: int) -> None:
    """A loss that halves its height every few rows may take long to be back and is never malignant."""
    tail = [2.0 + 3.0 * 0.5 ** (step / rows_to_halve) for step in range(8 * rows_to_halve)]
    assert _verdicts([*CALM, *tail, *around(2.0, 20, seed=1)]) == ["undecided", "benign"]


def test_a_malignant_spike_that_returns_after_all_ends_malignant() -> None:
    """The end does not excuse what it was."""
    told = _told([*CALM, *[4.0] * 60, *around(2.0, 20, seed=1)])
    assert told[-1] == (260 + CALM_ROWS, "ended", "malignant")


def test_a_level_that_stays_becomes_the_new_level() -> None:
    """After 256 raised rows the new level is normal, its own spikes are found, and nothing else is said of it."""
    told = _told([*CALM, *around(4.0, LONGEST_ROWS + 100, seed=1), 8.0])
    assert told[2:] == [
        (200 + LONGEST_ROWS, "ended", "malignant"),
        (200 + LONGEST_ROWS + 101, "began", "undecided"),
    ]


def test_raised_rows_enter_no_baseline() -> None:
    """A smaller spike just after a large one stands out from the level before both."""
    spike = [9.0, 7.0, 5.0, 3.0, *around(2.0, 20, seed=1)]
    found = _found([*CALM, *spike, 2.5])
    assert [each.phase for each in found] == ["began", "ended", "began"]
    assert found[2].evidence["level"] == pytest.approx(2.0, abs=0.02)


def test_a_burst_that_is_no_alarm_row_by_row_adds_up() -> None:
    """Nine rows of four deviations alarm, though none of them would alone, and the onset is the first of them."""
    losses = around(2.0, 200, noise=0.05)
    found = _found([*losses, *[2.0 + 4.6 * 0.05] * 12])
    assert [each.phase for each in found] == ["began"]
    assert found[0].onset_step == 201


@pytest.mark.parametrize("bad", [nan, float("inf"), None])
def test_one_bad_loss_does_not_blind_it(bad: float | None) -> None:
    """A loss that is not finite or not known leaves the baseline as it was, before and in a spike."""
    found = _found([*CALM, bad, 4.0, bad, *[4.0] * PATIENCE_ROWS])
    assert [(each.step, each.verdict) for each in found] == [
        (202, "undecided"),
        (202 + PATIENCE_ROWS, "malignant"),
    ]


def test_a_falling_loss_is_no_spike() -> None:
    """A step down, however large, is not this detector's."""
    assert _found([*CALM, *around(0.5, 50, seed=1)]) == []


def test_a_jump_during_the_descent_is_found() -> None:
    """Where the loss falls from 11 to 4 within 40 rows, a jump of three nats at row 30 is found within ten rows."""
    descent = [4.0 + 7.0 * exp(-step / 10) + noise for step, noise in enumerate(around(0.0, 40, noise=0.02))]
    jump = descent[30] + 3.0
    found = _found([*descent[:30], *[jump] * 10])
    assert [(each.phase, each.onset_step) for each in found] == [("began", 31)]


def test_single_rows_of_a_heavy_tail_are_learned() -> None:
    """A run in which every hundredth row is ten deviations out gives no warning after the first few."""
    losses = around(2.0, 3000, noise=0.02)
    for row in range(50, 3000, 100):
        losses[row] = 2.2
    assert [each.step for each in _found([*losses]) if each.phase == "began" and each.step > 1000] == []


def test_the_gradient_norm_decides_about_a_lone_row() -> None:
    """In that run a lone row is a warning if the gradient norm left its usual range with it."""
    losses = around(2.0, 1000, noise=0.02)
    for row in range(50, 1000, 50):
        losses[row] = 2.2
    norms = [exp(noise) for noise in around(0.0, 1000, noise=0.2, seed=5)]
    reports = [
        StepReport(at=0.0, step=step, loss=loss, grad_norm=norm)
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), start=1)
    ]
    for grad_norm, phases in ((1.0, []), (30.0, ["began"])):
        last = StepReport(at=0.0, step=1001, loss=2.4, grad_norm=grad_norm)
        found = findings_of(LossSpike(), [*reports, last])
        assert [each.phase for each in found if each.step == 1001] == phases


def test_the_evidence_tells_level_and_peak() -> None:
    """A finding carries what a plot needs: the level, the spread and the highest loss."""
    ended = _found([*CALM, 5.0, 6.0, *around(2.0, 10, seed=1)])[-1]
    assert ended.evidence["level"] == pytest.approx(2.0, abs=0.02)
    assert ended.evidence["peak"] == pytest.approx(6.0)


@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_the_published_spike_of_bloom_176b_is_found_and_not_malignant(noise: float, seed: int) -> None:
    """BLOOM-176B's loss spike, which passed by itself, is seen at its peak at the latest and never called malignant."""
    peak = BLOOM_176B_SPIKE[-1]
    back = [2.216 + (peak - 2.216) * (1.0 - step / 30) for step in range(1, 31)]
    before, after = around(2.22, 1000, noise=noise, seed=seed), around(0.0, 60, noise=noise, seed=seed + 100)
    tail = [*back, *[2.216] * 30]
    losses = [*before, *BLOOM_176B_SPIKE, *(loss + shift for loss, shift in zip(tail, after, strict=True))]
    found = _found([*losses])
    assert found[0].phase == "began"
    assert found[0].step <= 1006
    assert {each.verdict for each in found} == {"undecided", "benign"}
    assert found[-1].phase == "ended"


@pytest.mark.parametrize("goes_back_to", [0, 100])
def test_going_far_back_is_no_spike(goes_back_to: int) -> None:
    """A run set back to where its loss was far higher starts from a level of its own, not from the later one."""
    curve = [3.0 + 7.0 * exp(-step / 200) + noise for step, noise in enumerate(around(0.0, 1000, noise=0.02))]
    rollback = CommandResult(at=0.0, command=CommandId("k"), outcome="succeeded", step=goes_back_to, segment=1)
    restart = AttemptStarted(at=0.0, mode="act", step=goes_back_to)
    again = steps_of(curve[goes_back_to:], first_step=goes_back_to + 1)
    for set_back in (rollback, restart):
        assert findings_of(LossSpike(), [*steps_of(curve), set_back, *again]) == []


def test_a_fault_that_returns_after_a_rollback_is_found() -> None:
    """Three rows after a rollback a level is known again, and what rises from it is found at once."""
    rollback = CommandResult(at=0.0, command=CommandId("k"), outcome="succeeded", step=190, segment=1)
    found = findings_of(LossSpike(), [*steps_of(CALM), rollback, *steps_of([2.0, 2.0, 2.0, 4.0], first_step=191)])
    assert [(each.step, each.phase) for each in found] == [(194, "began")]
