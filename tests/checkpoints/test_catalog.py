from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sentinel.checkpoints.catalog import CLEAN_STEPS, MARGIN_STEPS, SPENT_KEPT, Catalog
from sentinel.domain.checkpoints import Checkpoint
from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import CheckpointReport
from tests.builders import ATTEMPT, DIGEST


def _report(catalog: Catalog, checkpoint: str, step: int, state: str = "verified", **given: Any) -> list[Checkpoint]:
    doubt_from = given.pop("doubt_from", None)
    report = CheckpointReport(
        at=0.0,
        checkpoint=CheckpointId(checkpoint),
        step=step,
        state=state,  # type: ignore[arg-type]
        **{"digest": DIGEST} | given,
    )
    return catalog.report(report, ATTEMPT, doubt_from=doubt_from)


def _run(catalog: Catalog, steps: Iterable[int]) -> None:
    for step in steps:
        catalog.step(step, faults_open=False)


def _state(catalog: Catalog, name: str) -> str:
    checkpoint = catalog.get(CheckpointId(name))
    assert checkpoint is not None
    return checkpoint.state


@pytest.fixture
def catalog() -> Catalog:
    """A catalogue of a run at step 100 with one verified checkpoint, c100."""
    catalog = Catalog()
    _run(catalog, range(1, 101))
    _report(catalog, "c100", 100)
    return catalog


def test_a_checkpoint_is_reported_then_verified(catalog: Catalog) -> None:
    """An agent's second word adds what the first did not know."""
    _report(catalog, "c90", 90, "reported", digest="", name="epoch=0.ckpt")
    assert _state(catalog, "c90") == "reported"
    (changed,) = _report(catalog, "c90", 90, size_bytes=7)
    assert (changed.state, changed.name, changed.digest, changed.size_bytes) == ("verified", "epoch=0.ckpt", DIGEST, 7)


def test_the_same_word_twice_changes_nothing(catalog: Catalog) -> None:
    """A report that says nothing new changes no checkpoint."""
    assert _report(catalog, "c100", 100) == []


def test_clean_steps_make_it_known_good(catalog: Catalog) -> None:
    """A verified checkpoint is known good after 50 clean steps, and not one earlier."""
    _run(catalog, range(101, 100 + CLEAN_STEPS))
    assert _state(catalog, "c100") == "verified"
    _run(catalog, [100 + CLEAN_STEPS])
    assert _state(catalog, "c100") == "known_good"


def test_what_is_not_verified_is_never_known_good(catalog: Catalog) -> None:
    """Clean steps say nothing of contents that nobody has checked."""
    _report(catalog, "c99", 99, "reported")
    _run(catalog, range(101, 300))
    assert _state(catalog, "c99") == "reported"


def test_a_long_logging_interval_asks_for_more_steps() -> None:
    """Two logging intervals must follow where they are longer than 50 steps."""
    catalog = Catalog()
    _run(catalog, range(100, 1001, 100))
    _report(catalog, "c", 1000)
    _run(catalog, [1100])
    assert _state(catalog, "c") == "verified"
    _run(catalog, [1200])
    assert _state(catalog, "c") == "known_good"


def test_steps_with_a_fault_open_do_not_count(catalog: Catalog) -> None:
    """The clean steps are counted anew from the end of the last fault."""
    _run(catalog, range(101, 130))
    catalog.step(130, faults_open=True)
    _run(catalog, range(131, 130 + CLEAN_STEPS))
    assert _state(catalog, "c100") == "verified"
    _run(catalog, [130 + CLEAN_STEPS])
    assert _state(catalog, "c100") == "known_good"


def test_a_fault_throws_doubt_on_what_is_too_near_to_its_onset(catalog: Catalog) -> None:
    """What was saved after the onset or less than 5 steps before is suspect; what is older is not."""
    for step in (94, 95, 96):
        _report(catalog, f"c{step}", step)
    doubted = catalog.doubt(onset_step=100)
    assert {each.id for each in doubted} == {"c96", "c100"}
    assert "onset of a fault at step 100" in doubted[0].reason
    assert _state(catalog, "c95") == "verified"
    assert MARGIN_STEPS == 5


@pytest.mark.parametrize(("step", "state"), [(95, "verified"), (96, "suspect"), (110, "suspect")])
def test_the_same_margin_holds_for_what_is_reported_during_the_fault(catalog: Catalog, step: int, state: str) -> None:
    """Whether the fault or the report comes first makes no difference to a checkpoint."""
    _report(catalog, "c", step, doubt_from=100)
    assert _state(catalog, "c") == state


def test_a_passing_fault_clears_what_was_checked(catalog: Catalog) -> None:
    """When the fault passes, suspects whose contents were checked are verified again, the others stay suspect."""
    _report(catalog, "c98", 98, "reported")
    catalog.doubt(onset_step=98)
    catalog.clear()
    assert (_state(catalog, "c100"), _state(catalog, "c98")) == ("verified", "suspect")


def test_a_suspect_that_is_checked_later_can_be_cleared(catalog: Catalog) -> None:
    """Verification that ends during the fault counts once the fault has passed."""
    _report(catalog, "c98", 98, "reported")
    catalog.doubt(onset_step=98)
    _report(catalog, "c98", 98, doubt_from=98)
    assert _state(catalog, "c98") == "suspect"
    catalog.clear()
    assert _state(catalog, "c98") == "verified"


def test_distrust_meets_one_checkpoint(catalog: Catalog) -> None:
    """A checkpoint from which the run did not recover is suspect, and no other is."""
    _report(catalog, "c90", 90)
    catalog.distrust(CheckpointId("c100"), "the run did not recover from it")
    assert (_state(catalog, "c100"), _state(catalog, "c90")) == ("suspect", "verified")
    assert catalog.distrust(CheckpointId("nobody"), "x") == []


def test_a_rollback_abandons_what_lies_beyond(catalog: Catalog) -> None:
    """What was saved beyond the step that the run went back to belongs to a branch that was left."""
    _report(catalog, "c101", 101)
    assert {each.id for each in catalog.rolled_back(100, segment=1)} == {"c101"}
    assert (_state(catalog, "c101"), _state(catalog, "c100")) == ("suspect", "verified")


@pytest.mark.parametrize("known", ["reported", "not at all"])
def test_an_abandoned_checkpoint_is_never_cleared_even_if_verified_late(catalog: Catalog, known: str) -> None:
    """Verification of an abandoned branch's checkpoint, known before or not, does not bring it back."""
    if known == "reported":
        _report(catalog, "late", 110, "reported")
    catalog.rolled_back(100, segment=1)
    _report(catalog, "late", 110, "verified")
    assert _state(catalog, "late") == "suspect"
    catalog.clear()
    _run(catalog, range(101, 300))
    assert _state(catalog, "late") == "suspect"


def test_a_late_word_on_the_kept_part_of_an_old_segment_counts(catalog: Catalog) -> None:
    """Up to the step that the run went back to, the old segment is the live branch."""
    catalog.rolled_back(100, segment=1)
    _report(catalog, "c99", 99)
    assert _state(catalog, "c99") == "verified"


def test_each_segment_is_abandoned_from_the_earliest_later_start(catalog: Catalog) -> None:
    """After two rollbacks, the second going further back, the first segment is cut where the second began."""
    catalog.rolled_back(100, segment=1)
    catalog.rolled_back(50, segment=2)
    for name, step, segment in (("a", 60, 0), ("b", 60, 1), ("c", 60, 2), ("d", 50, 0)):
        _report(catalog, name, step, segment=segment)
    assert [_state(catalog, name) for name in "abcd"] == ["suspect", "suspect", "verified", "verified"]


def test_a_segment_number_without_end_costs_nothing(catalog: Catalog) -> None:
    """A sender's nonsense for a segment number needs no more memory than any other."""
    catalog.rolled_back(100, segment=2**63 - 1)
    assert len(catalog.state.branches) == 1


def test_a_new_attempt_further_back_abandons_what_lies_beyond(catalog: Catalog) -> None:
    """An attempt that resumes from an older step leaves the newer checkpoints on a branch of their own."""
    _report(catalog, "c60", 60)
    catalog.started(60)
    assert (_state(catalog, "c100"), _state(catalog, "c60")) == ("suspect", "verified")


def test_a_new_attempt_that_goes_on_keeps_everything(catalog: Catalog) -> None:
    """An attempt that resumes from the newest step changes no checkpoint's state; it has those that it announces."""
    before = {each.id: each.state for each in catalog.checkpoints}
    assert not any(each.at_hand for each in catalog.started(100))
    _report(catalog, "c100", 100)
    assert {each.id: each.state for each in catalog.checkpoints} == before
    assert [each.id for each in catalog.checkpoints if each.at_hand] == ["c100"]


def test_after_going_back_clean_steps_are_counted_anew(catalog: Catalog) -> None:
    """The steps before a rollback do not confirm what is left after it."""
    _report(catalog, "c60", 60)
    _run(catalog, range(101, 109))
    catalog.rolled_back(60, segment=1)
    _run(catalog, range(61, 60 + CLEAN_STEPS))
    assert _state(catalog, "c60") == "verified"
    _run(catalog, [60 + CLEAN_STEPS])
    assert _state(catalog, "c60") == "known_good"


@pytest.mark.parametrize("word", ["verified", "reported"])
def test_bad_stays_bad(catalog: Catalog, word: str) -> None:
    """What was found broken is not made good by any later word, doubt, end of a fault or clean step."""
    _report(catalog, "c100", 100, "bad", reason="its digest differs")
    _report(catalog, "c100", 100, word)
    catalog.doubt(50)
    catalog.clear()
    _run(catalog, range(101, 300))
    checkpoint = catalog.get(CheckpointId("c100"))
    assert checkpoint
    assert (checkpoint.state, checkpoint.reason) == ("bad", "its digest differs")


def test_deleted_is_the_end(catalog: Catalog) -> None:
    """A deleted checkpoint is neither doubted, abandoned, confirmed nor verified again."""
    _report(catalog, "c100", 100, "deleted")
    catalog.rolled_back(50, segment=1)
    _report(catalog, "c100", 100, "verified")
    assert _state(catalog, "c100") == "deleted"


def test_checkpoints_stand_newest_first(catalog: Catalog) -> None:
    """They are listed by step and, at one step, by segment, newest first, whatever the order of reports."""
    for name, step, segment in (("a", 50, 0), ("b", 100, 1), ("c", 120, 0)):
        _report(catalog, name, step, segment=segment)
    assert [each.id for each in catalog.checkpoints] == ["c", "b", "c100", "a"]


def test_spent_checkpoints_are_forgotten_in_the_end(catalog: Catalog) -> None:
    """Of bad and deleted checkpoints the newest few are remembered; the good one among them stays."""
    for step in range(1, 60):
        _report(catalog, f"d{step}", step, "deleted" if step % 2 else "bad")
    assert len(catalog.checkpoints) == SPENT_KEPT + 1
    assert _state(catalog, "c100") == "verified"
