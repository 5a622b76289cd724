"""Which checkpoint to go back to, and why not a newer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.checkpoints.catalog import MARGIN_STEPS
from sentinel.domain.checkpoints import Checkpoint, CheckpointState
from sentinel.domain.decisions import PassedOver
from sentinel.protocol.ids import CheckpointId

_WHY_NOT: dict[CheckpointState, str] = {
    "reported": "not verified yet",
    "verified": "verified, but not confirmed by enough clean steps",
    "known_good": "known good, but not before the onset",
    "suspect": "suspect",
    "bad": "bad",
    "deleted": "deleted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The target, if there is one, and every newer checkpoint with the reason against it, newest first."""

    target: Checkpoint | None
    passed_over: tuple[PassedOver, ...]
    reason: str


def select(checkpoints: Sequence[Checkpoint], onset_step: int) -> Selection:
    """Chooses the newest known-good checkpoint, else the newest verified one, both at hand and before onset - margin.

    Args:
        checkpoints: all of the run, newest first.
        onset_step: where the fault began.
    """
    limit = onset_step - MARGIN_STEPS
    eligible = [each for each in checkpoints if each.step <= limit and each.digest and each.at_hand]
    target = next((each for each in eligible if each.state == "known_good"), None)
    if target is not None:
        reason = f"the newest known-good checkpoint: step {target.step}"
    else:
        target = next((each for each in eligible if each.state == "verified"), None)
        reason = (
            f"no checkpoint is known good; the newest verified one from before step {limit} is step {target.step}"
            if (target)
            else f"no verified checkpoint from before step {limit}"
        )
    passed_over = tuple(
        PassedOver(checkpoint=each.id, step=each.step, why=_why_not(each))
        for each in checkpoints
        if each.state != "deleted" and (target is None or each.step > target.step)
    )
    return Selection(target=target, passed_over=passed_over, reason=reason)


def named(checkpoints: Sequence[Checkpoint], checkpoint: CheckpointId) -> Selection:
    """The checkpoint that a person names, if it can be gone back to.

    Args:
        checkpoints: all of the run.
        checkpoint: the one that is wanted.
    """
    found = next((each for each in checkpoints if each.id == checkpoint), None)
    if found is None:
        return Selection(target=None, passed_over=(), reason=f"no checkpoint {checkpoint!r} of this run is known")
    if found.state in ("known_good", "verified") and found.digest:
        reason = f"the one that was named: step {found.step}, {found.state.replace('_', ' ')}"
        return Selection(target=found, passed_over=(), reason=reason)
    return Selection(
        target=None, passed_over=(), reason=f"checkpoint {checkpoint!r} of step {found.step} is {_why_not(found)}"
    )


def _why_not(checkpoint: Checkpoint) -> str:
    if not checkpoint.at_hand:
        return "of an earlier attempt, and this one has not said that it has it"
    text = _WHY_NOT[checkpoint.state]
    return f"{text}: {checkpoint.reason}" if checkpoint.state in ("suspect", "bad") and checkpoint.reason else text
