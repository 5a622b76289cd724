from __future__ import annotations

from math import inf, nan

import pytest

from sentinel.incidents.recovery import AFTER_STEPS, DEADLINE_STEPS, PATH_STEPS, Recovery, RecoveryOutcome
from tests.builders import around

LEVEL = around(2.0, 100, noise=0.02)


def _run(recovery: Recovery, losses: list[float | None], *, first_step: int = 1) -> list[RecoveryOutcome]:
    """Steps two seconds apart; returns what became known."""
    told = [recovery.step(step, 2.0 * step, loss) for step, loss in enumerate(losses, start=first_step)]
    return [each for each in told if each is not None]


@pytest.fixture
def rolled_back() -> Recovery:
    """A run of a hundred steps around 2.0, set back to step 80."""
    recovery = Recovery()
    _run(recovery, [*LEVEL])
    recovery.rolled_back(80, at=300.0)
    return recovery


def test_a_loss_at_its_level_is_back(rolled_back: Recovery) -> None:
    """Ten steps whose median is near the level before the checkpoint are a recovery, told once."""
    (outcome,) = _run(rolled_back, [*around(2.0, 50, noise=0.02, seed=1)], first_step=81)
    assert outcome.recovered
    assert outcome.reason.startswith("back on its path: median loss 2.0")


def test_it_takes_ten_steps_to_tell(rolled_back: Recovery) -> None:
    """Nine good steps prove nothing yet."""
    assert _run(rolled_back, [2.0] * (AFTER_STEPS - 1), first_step=81) == []
    assert len(_run(rolled_back, [2.0], first_step=80 + AFTER_STEPS)) == 1


def test_a_loss_that_stays_above_is_not_back(rolled_back: Recovery) -> None:
    """A loss above the tolerance until the deadline is a recovery that failed, told once."""
    (outcome,) = _run(rolled_back, [2.5] * 200, first_step=81)
    assert not outcome.recovered
    assert outcome.reason.startswith("100 steps on, the loss is not back on its path (at most 2.0")


def test_a_late_return_counts_until_the_deadline(rolled_back: Recovery) -> None:
    """A loss that comes down within a hundred steps has recovered."""
    losses = [2.5] * (DEADLINE_STEPS - AFTER_STEPS) + [2.0] * AFTER_STEPS
    (outcome,) = _run(rolled_back, [*losses], first_step=81)
    assert outcome.recovered


@pytest.mark.parametrize("bad", [nan, inf, None])
def test_a_loss_that_is_not_finite_is_not_back(rolled_back: Recovery, bad: float | None) -> None:
    """Of the ten steps each must have a finite loss."""
    losses = ([2.0] * (AFTER_STEPS - 1) + [bad]) * 20
    (outcome,) = _run(rolled_back, losses, first_step=81)
    assert not outcome.recovered


def test_a_falling_curve_is_expected_where_it_was() -> None:
    """Early in a run the level is that of the steps before the checkpoint, not of those given up."""
    recovery = Recovery()
    curve = [10.0 - 0.05 * step for step in range(1, 121)]
    _run(recovery, [*curve])
    recovery.rolled_back(60, at=300.0)
    (outcome,) = _run(recovery, [*curve[60:80]], first_step=61)
    assert outcome.recovered


def test_the_detour_is_timed_from_the_first_time_there(rolled_back: Recovery) -> None:
    """Seconds lost are those since the run stood at that step before; twice back to one step counts each."""
    recovery = Recovery()
    _run(recovery, [*LEVEL])
    assert recovery.rolled_back(80, at=300.0) == 300.0 - 160.0
    assert rolled_back.rolled_back(80, at=310.0) == 310.0 - 160.0


def test_a_loss_far_below_its_path_is_not_back(rolled_back: Recovery) -> None:
    """A drop that learning does not explain says that data is seen again, and is no recovery."""
    (outcome,) = _run(rolled_back, [*around(1.7, 50, noise=0.02, seed=1)], first_step=81)
    assert outcome.is_below
    assert not outcome.recovered
    assert outcome.reason.startswith("median loss 1.7")


@pytest.mark.parametrize("fall", [0.0, 0.005, 0.05])
def test_a_curve_that_goes_on_falling_is_on_its_path(fall: float) -> None:
    """However fast the loss was falling, falling on as fast is no drop."""
    recovery = Recovery()
    curve = [loss - fall * step for step, loss in enumerate(around(9.0, 120, noise=0.02))]
    _run(recovery, [*curve[:100]])
    recovery.rolled_back(80, at=300.0)
    (outcome,) = _run(recovery, [loss + 0.01 for loss in curve[80:100]], first_step=81)
    assert outcome.recovered


def test_what_the_run_did_there_before_is_not_too_low() -> None:
    """A drop of the loss that was there the first time, such as a new part of the data, is its path."""
    recovery = Recovery()
    _run(recovery, [*around(2.0, 80, noise=0.02), *around(1.5, 40, noise=0.02)])
    recovery.rolled_back(80, at=300.0)
    (outcome,) = _run(recovery, [*around(1.5, 20, noise=0.02, seed=1)], first_step=81)
    assert outcome.recovered


def test_with_a_lower_learning_rate_no_loss_is_too_low() -> None:
    """The loss falls when the rate does."""
    recovery = Recovery()
    _run(recovery, [*LEVEL])
    recovery.rolled_back(80, at=300.0, lr_scale=0.1)
    (outcome,) = _run(recovery, [*around(1.7, 50, noise=0.02)], first_step=81)
    assert outcome.recovered


@pytest.mark.parametrize(("to_step", "at"), [(0, 300.0), (500, 300.0), (80, 100.0), (80, nan)])
def test_what_cannot_be_timed_costs_nothing(to_step: int, at: float) -> None:
    """A step that is not remembered, or a sender's clock that went back, gives zero and never a negative time."""
    recovery = Recovery()
    _run(recovery, [*LEVEL])
    assert recovery.rolled_back(to_step, at=at) == 0.0


def test_without_any_path_a_finite_loss_will_do() -> None:
    """A rollback to before the first remembered step has nothing to compare with: finite losses are the return."""
    recovery = Recovery()
    recovery.rolled_back(10, at=0.0)
    (outcome,) = _run(recovery, [9.0] * AFTER_STEPS, first_step=11)
    assert outcome.recovered


def test_a_new_attempt_waits_for_nothing(rolled_back: Recovery) -> None:
    """What an attempt before had to return to is no concern of the next."""
    rolled_back.start()
    assert _run(rolled_back, [9.0] * 200) == []


def test_memory_is_bounded() -> None:
    """Only the newest steps of the path are remembered."""
    recovery = Recovery()
    _run(recovery, [2.0] * 3 * PATH_STEPS)
    assert len(recovery.state.path) <= PATH_STEPS
    assert recovery.state.path[-1].step == 3 * PATH_STEPS
