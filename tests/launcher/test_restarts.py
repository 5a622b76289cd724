from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sentinel.launcher.restarts import FRUITLESS, Restarts


@given(allowed=st.integers(0, 6), steps=st.lists(st.integers(0, 40), max_size=30))
def test_a_training_is_never_started_again_too_often(allowed: int, steps: list[int]) -> None:
    """Whatever steps it fails at: no more than allowed in all, and never three times running without progress."""
    restarts = Restarts(allowed)
    furthest, in_vain = -1, 0
    for step in steps:
        restarts.failed(step)
        in_vain = 0 if step > furthest else in_vain + 1
        furthest = max(furthest, step)
        assert bool(restarts.left) is not bool(restarts.why_none)
        if not restarts.left:
            break
        assert in_vain < FRUITLESS
        restarts.started_again()
    assert restarts.made <= allowed


@given(allowed=st.integers(1, 6), steps=st.lists(st.integers(1, 9), max_size=6))
def test_progress_leaves_the_whole_budget(allowed: int, steps: list[int]) -> None:
    """A training that gets further each time may fail as often as is allowed."""
    restarts = Restarts(allowed)
    step = 0
    for further in steps:
        step += further
        restarts.failed(step)
        assert restarts.left == max(0, allowed - restarts.made)
        if restarts.left:
            restarts.started_again()


def test_it_says_why_it_stops() -> None:
    """The step at which it is stuck stands in the reason, or the number that was allowed."""
    stuck = Restarts(9)
    for _ in range(3):
        stuck.failed(17)
        stuck.started_again()
    assert stuck.why_none == "2 restarts in a row did not get beyond step 17, where it failed"
    assert Restarts(0).why_none == "the 0 restarts that were allowed are spent"
