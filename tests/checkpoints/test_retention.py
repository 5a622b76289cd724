from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.checkpoints.catalog import Catalog
from sentinel.checkpoints.retention import CANDIDATES_KEPT, KNOWN_GOOD_KEPT, releasable
from sentinel.domain.checkpoints import Checkpoint, CheckpointState
from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import CheckpointReport
from tests.builders import ATTEMPT, DIGEST

LISTS = st.lists(st.tuples(st.sampled_from(get_args(CheckpointState)), st.booleans(), st.booleans()), max_size=30)


def _checkpoints(facts: list[tuple[CheckpointState, bool, bool]]) -> list[Checkpoint]:
    return [
        Checkpoint(
            id=CheckpointId(f"c{step}"),
            attempt=ATTEMPT,
            step=step,
            segment=0,
            state=state,
            verified=verified,
            abandoned=abandoned,
        )
        for step, (state, verified, abandoned) in zip(range(len(facts), 0, -1), facts, strict=True)
    ]


@given(facts=LISTS)
def test_never_lets_the_two_newest_known_good_go(facts: list[tuple[CheckpointState, bool, bool]]) -> None:
    """Whatever else there is, the two newest known-good checkpoints stay pinned."""
    checkpoints = _checkpoints(facts)
    known_good = [each.id for each in checkpoints if each.state == "known_good"]
    assert not {*releasable(checkpoints)} & {*known_good[:KNOWN_GOOD_KEPT]}


@given(facts=LISTS)
def test_pins_are_bounded(facts: list[tuple[CheckpointState, bool, bool]]) -> None:
    """At most two known-good checkpoints, four candidates and one more hold disk; what is gone is not named."""
    checkpoints = _checkpoints(facts)
    released = releasable(checkpoints)
    there = [each.id for each in checkpoints if each.state != "deleted"]
    assert {*released} <= {*there}
    assert len(there) - len(released) <= KNOWN_GOOD_KEPT + CANDIDATES_KEPT + 1


@pytest.mark.parametrize(
    ("state", "verified", "abandoned"), [("bad", True, False), ("suspect", True, True), ("suspect", False, False)]
)
def test_lets_go_what_can_never_be_a_target(state: CheckpointState, *, verified: bool, abandoned: bool) -> None:
    """Broken checkpoints, abandoned ones and suspects that nothing can clear need no pin."""
    assert releasable(_checkpoints([(state, verified, abandoned)])) == ("c1",)


def test_keeps_what_may_become_a_target() -> None:
    """New, verified and clearable suspect checkpoints stay."""
    facts: list[tuple[CheckpointState, bool, bool]] = [
        ("reported", False, False),
        ("suspect", True, False),
        ("verified", True, False),
    ]
    assert releasable(_checkpoints(facts)) == ()


def test_what_the_live_attempt_has_not_announced_is_left_alone() -> None:
    """Known-good checkpoints of an attempt before are not let go, and do not count for those that are kept."""
    known = _checkpoints([("known_good", True, False)] * 3)
    before, live = [replace(each, at_hand=False) for each in known[:2]], known[2:]
    assert releasable([*before, *live]) == ()


@pytest.mark.parametrize("interval_steps", [1, 5, 10, 20, 100])
def test_checkpoints_live_long_enough_to_be_confirmed(interval_steps: int) -> None:
    """However fast checkpoints come, an agent that deletes all it may still has two known-good ones."""
    catalog = Catalog()
    for step in range(1, 501):
        catalog.step(step, faults_open=False)
        if step % interval_steps == 0:
            reports = [(CheckpointId(f"c{step}"), step, "verified")]
            reports += [(each, 0, "deleted") for each in releasable(catalog.checkpoints)]
            for checkpoint, at_step, state in reports:
                report = CheckpointReport(at=0.0, checkpoint=checkpoint, step=at_step, state=state, digest=DIGEST)  # type: ignore[arg-type]
                catalog.report(report, ATTEMPT, doubt_from=None)
    assert len([each for each in catalog.checkpoints if each.state == "known_good"]) >= KNOWN_GOOD_KEPT
