from __future__ import annotations

from typing import Any

from sentinel.checkpoints.selection import Selection, select
from sentinel.domain.checkpoints import Checkpoint
from tests.builders import ATTEMPT, DIGEST


def _checkpoint(step: int, state: str, **given: Any) -> Checkpoint:
    base = {"id": f"c{step}", "attempt": ATTEMPT, "step": step, "segment": 0, "state": state, "digest": DIGEST}
    return Checkpoint(**base | given)


def _select(*checkpoints: Checkpoint, onset_step: int = 100) -> Selection:
    return select(sorted(checkpoints, key=lambda each: each.step, reverse=True), onset_step)


def _target(*checkpoints: Checkpoint) -> str | None:
    target = _select(*checkpoints).target
    return target.id if target else None


def test_takes_the_newest_known_good() -> None:
    """Of two known-good checkpoints before the fault the newer is taken."""
    assert _target(_checkpoint(40, "known_good"), _checkpoint(90, "known_good")) == "c90"


def test_known_good_goes_before_a_newer_verified_one() -> None:
    """A confirmed checkpoint is taken though a verified one is newer, and the newer one is told why not."""
    selection = _select(_checkpoint(40, "known_good"), _checkpoint(90, "verified"))
    assert selection.target
    assert selection.target.id == "c40"
    assert [(each.checkpoint, each.why) for each in selection.passed_over] == [
        ("c90", "verified, but not confirmed by enough clean steps")
    ]
    assert selection.reason == "the newest known-good checkpoint: step 40"


def test_without_known_good_the_newest_verified_is_taken() -> None:
    """A run that breaks early goes back to what was at least checked."""
    selection = _select(_checkpoint(40, "verified"), _checkpoint(90, "verified"), _checkpoint(20, "reported"))
    assert selection.target
    assert selection.target.id == "c90"
    assert selection.reason == "no checkpoint is known good; the newest verified one from before step 95 is step 90"


def test_keeps_the_margin_to_the_onset() -> None:
    """A checkpoint five steps before the onset may be taken, one four steps before may not."""
    assert _target(_checkpoint(95, "known_good")) == "c95"
    assert _target(_checkpoint(96, "known_good")) is None


def test_what_the_live_attempt_has_not_announced_is_no_target() -> None:
    """A known-good checkpoint of an attempt on another machine is passed over for an older one at hand, and said so."""
    selection = _select(_checkpoint(90, "known_good", at_hand=False), _checkpoint(40, "known_good"))
    assert selection.target
    assert selection.target.id == "c40"
    assert [each.why for each in selection.passed_over] == [
        "of an earlier attempt, and this one has not said that it has it"
    ]


def test_never_takes_what_is_in_doubt_or_gone() -> None:
    """Reported, suspect, bad and deleted checkpoints are no target, nor is one without a digest to check."""
    for state in ("reported", "suspect", "bad", "deleted"):
        assert _target(_checkpoint(50, state)) is None
    assert _target(_checkpoint(50, "verified", digest="")) is None


def test_every_newer_checkpoint_is_told_why_not() -> None:
    """Each one newer than the target has its reason, newest first; deleted ones are no choice and not told."""
    selection = _select(
        _checkpoint(40, "known_good"),
        _checkpoint(50, "bad", reason="its digest differs"),
        _checkpoint(60, "reported"),
        _checkpoint(70, "suspect", reason="on a branch that was abandoned"),
        _checkpoint(80, "deleted"),
        _checkpoint(98, "known_good"),
        _checkpoint(30, "known_good"),
    )
    assert [(each.step, each.why) for each in selection.passed_over] == [
        (98, "known good, but not before the onset"),
        (70, "suspect: on a branch that was abandoned"),
        (60, "not verified yet"),
        (50, "bad: its digest differs"),
    ]


def test_without_a_target_says_what_was_looked_for() -> None:
    """When nothing can be taken the reason names the step, and every checkpoint has its own."""
    selection = _select(_checkpoint(50, "reported"))
    assert (selection.target, selection.reason) == (None, "no verified checkpoint from before step 95")
    assert [each.why for each in selection.passed_over] == ["not verified yet"]
