from __future__ import annotations

from math import exp, nan

import pytest

from sentinel.detectors.loss_spike import (
    CALM_STEPS,
    LEVEL_SHIFT_STEPS,
    PATIENCE_STEPS,
    RETURN_STEPS,
    WARM_UP,
    WINDOW,
    LossSpike,
)
from sentinel.detectors.rolling import RollingWindow
from sentinel.domain.findings import Finding
from sentinel.protocol.ids import CommandId
from sentinel.protocol.observations import AttemptStarted, CommandResult
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
    """A spike that is back within its patience is a warning, ends benign and is never malignant."""
    told = _told([*CALM, 5.0, 4.0, 3.0, 2.5, *around(2.0, 20, seed=1)])
    assert told == [(201, "began", "undecided"), (204 + CALM_STEPS, "ended", "benign")]


def test_a_spike_that_stays_is_malignant_within_its_patience() -> None:
    """A loss that keeps its height is malignant at the eighth step of the spike."""
    told = _told([*CALM, *around(4.0, 20, seed=1)])
    assert told == [(201, "began", "undecided"), (200 + PATIENCE_STEPS, "changed", "malignant")]


def test_a_spike_that_rises_is_malignant_within_its_patience() -> None:
    """A loss that climbs on is malignant too."""
    assert _told([*CALM, *(2.5 + 0.1 * step for step in range(20))])[1] == (208, "changed", "malignant")


def test_a_slowly_returning_spike_is_watched() -> None:
    """A loss that halves its height every four steps takes long to be back and is never malignant."""
    tail = [2.0 + 3.0 * exp(-step * 0.17) for step in range(40)]
    assert _verdicts([*CALM, *tail, *around(2.0, 20, seed=1)]) == ["undecided", "benign"]


def test_a_spike_that_stops_returning_is_malignant() -> None:
    """The verdict is reconsidered with every step: one that falls to a third and stays turns malignant."""
    told = _told([*CALM, 5.0, 4.5, 4.0, 3.5, *around(3.0, 60, seed=1)])
    assert [verdict for _, _, verdict in told] == ["undecided", "malignant"]
    assert told[1][0] <= 204 + RETURN_STEPS


def test_a_malignant_spike_that_returns_after_all_ends_malignant() -> None:
    """The end does not excuse what it was."""
    told = _told([*CALM, *[4.0] * 20, *around(2.0, 20, seed=1)])
    assert told[-1] == (220 + CALM_STEPS, "ended", "malignant")


def test_a_level_that_stays_becomes_the_new_level() -> None:
    """After 256 raised steps the new level is normal, its own spikes are found, and nothing else is said of it."""
    shifted = around(4.0, LEVEL_SHIFT_STEPS + 100, seed=1)
    told = _told([*CALM, *shifted, 8.0])
    assert told[2:] == [
        (200 + LEVEL_SHIFT_STEPS, "ended", "malignant"),
        (200 + LEVEL_SHIFT_STEPS + 101, "began", "undecided"),
    ]


def test_a_second_spike_right_after_the_first_is_found() -> None:
    """Raised losses do not enter the baseline: a smaller spike just after a large one stands out as before."""
    spike = [9.0, 7.0, 5.0, 3.0, *around(2.0, CALM_STEPS, seed=1)]
    found = _found([*CALM, *spike, 2.5])
    assert [each.phase for each in found] == ["began", "ended", "began"]
    assert found[2].evidence["level"] == pytest.approx(2.0, abs=0.01)
    assert found[2].evidence["spread"] == pytest.approx(0.01, rel=0.5)


@pytest.mark.parametrize("bad", [nan, float("inf"), None])
def test_one_bad_loss_does_not_blind_it(bad: float | None) -> None:
    """A loss that is not finite or not known leaves the baseline as it was, before and in a spike."""
    found = _found([*CALM, bad, 4.0, bad, *[4.0] * 8])
    assert [(each.step, each.verdict) for each in found] == [(202, "undecided"), (210, "malignant")]


def test_a_falling_loss_is_no_spike() -> None:
    """A step down, however large, is not this detector's."""
    assert _found([*CALM, *around(0.5, 50, seed=1)]) == []


def test_a_loss_that_hardly_moves_needs_more_than_a_flutter() -> None:
    """At zero spread the alarm line lies 1.6 percent above the level."""
    assert _found([*[2.0] * 100, 2.03]) == []
    assert [each.phase for each in _found([*[2.0] * 100, 2.033])] == ["began"]


def test_is_quiet_until_it_knows_enough() -> None:
    """With fewer than 32 losses there is no level to compare with."""
    assert _found([*around(2.0, WARM_UP - 1), 9.0]) == []
    assert [each.phase for each in _found([*around(2.0, WARM_UP), 9.0])] == ["began"]


def test_the_onset_is_where_the_loss_rose() -> None:
    """Losses that were raised before they were alarming belong to the spike."""
    window = RollingWindow(WINDOW)
    for loss in CALM:
        window.push(loss)
    raised = window.median + 5.0 * window.spread
    assert _found([*CALM, raised, raised, 4.0])[0].onset_step == 201


def test_the_evidence_tells_level_and_peak() -> None:
    """A finding carries what a plot needs: the level, the spread and the highest loss."""
    ended = _found([*CALM, 5.0, 6.0, *around(2.0, 10, seed=1)])[-1]
    assert ended.evidence["level"] == pytest.approx(2.0, abs=0.01)
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


def test_going_a_little_back_keeps_the_level() -> None:
    """A fault that returns right after a short rollback is found at once."""
    rollback = CommandResult(at=0.0, command=CommandId("k"), outcome="succeeded", step=190, segment=1)
    found = findings_of(LossSpike(), [*steps_of(CALM), rollback, *steps_of([2.0, 4.0], first_step=191)])
    assert [(each.step, each.phase) for each in found] == [(192, "began")]
