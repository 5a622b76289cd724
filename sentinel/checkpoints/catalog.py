"""Which checkpoints a run has, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from sentinel.domain.checkpoints import TRANSITIONS, Checkpoint, CheckpointEvent
from sentinel.domain.errors import IllegalTransition
from sentinel.domain.transitions import next_state
from sentinel.protocol.ids import AttemptId, CheckpointId
from sentinel.protocol.observations import CheckpointReport

MARGIN_STEPS: Final = 5
"""A fault begins before it shows: BLOOM-176B's gradient norm rose 4 steps before its loss peaked."""
CLEAN_STEPS: Final = 50
CLEAN_INTERVALS: Final = 2
"""Steps without a finding, or logging intervals where those are longer, that confirm a checkpoint: faults can hide for
a while after the state that carries them was saved."""
SPENT_KEPT: Final = 16
"""Bad and deleted checkpoints that are remembered; the database has them all."""


@dataclass(slots=True)
class CatalogState:
    """All checkpoints by id, and the step since which the run has been clean."""

    checkpoints: dict[CheckpointId, Checkpoint] = field(default_factory=dict)
    branches: dict[int, int] = field(default_factory=dict)
    """The step at which each later segment of the attempt began: what earlier ones hold beyond it was abandoned."""
    clean_since: int = 0
    newest_step: int = 0
    interval_steps: int = 1


class Catalog:
    """A fold of checkpoint reports, steps and faults; each method returns the checkpoints that it changed."""

    def __init__(self) -> None:
        self.state = CatalogState()

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All that are remembered, newest step first."""
        return sorted(self.state.checkpoints.values(), key=lambda each: (each.step, each.segment), reverse=True)

    def get(self, checkpoint: CheckpointId) -> Checkpoint | None:
        """One checkpoint, if it is remembered."""
        return self.state.checkpoints.get(checkpoint)

    def report(self, report: CheckpointReport, attempt: AttemptId, *, doubt_from: int | None) -> list[Checkpoint]:
        """Takes an agent's word about a checkpoint.

        Args:
            report: what it says.
            attempt: who says it.
            doubt_from: onset of the fault that is open, if one is.
        """
        known = self.state.checkpoints.get(report.checkpoint)
        checkpoint = known or Checkpoint(
            id=report.checkpoint, attempt=attempt, step=report.step, segment=report.segment, state="reported"
        )
        verified = report.state == "verified"
        checkpoint = replace(
            checkpoint,
            name=report.name or checkpoint.name,
            digest=report.digest or checkpoint.digest,
            size_bytes=checkpoint.size_bytes if report.size_bytes is None else report.size_bytes,
            verified=checkpoint.verified or verified,
            at_hand=True,
        )
        event: CheckpointEvent | None = None
        if verified and checkpoint.state == "reported":
            event = "verify"
        elif report.state == "bad":
            event = "condemn"
        elif report.state == "deleted":
            event = "delete"
        if event is not None:
            checkpoint = _moved(checkpoint, event, report.reason)
        for segment, began_at in self.state.branches.items():
            if checkpoint.segment < segment and checkpoint.step > began_at:
                checkpoint = _abandoned(checkpoint, began_at)
        if doubt_from is not None:
            checkpoint = _doubted(checkpoint, doubt_from)
        return self._keep([checkpoint])

    def step(self, step: int, *, faults_open: bool) -> list[Checkpoint]:
        """Takes a judged step: confirms what enough clean steps have followed."""
        state = self.state
        if step > state.newest_step:
            state.interval_steps = step - state.newest_step
        state.newest_step = step
        if faults_open:
            state.clean_since = step
            return []
        needed = max(CLEAN_STEPS, CLEAN_INTERVALS * state.interval_steps)
        confirmed = [
            _moved(each, "confirm", f"{needed} clean steps followed")
            for each in state.checkpoints.values()
            if each.state == "verified" and step - max(each.step, state.clean_since) >= needed
        ]
        return self._keep(confirmed)

    def doubt(self, onset_step: int) -> list[Checkpoint]:
        """A fault began at ``onset_step``: what was saved after it, or ``MARGIN_STEPS`` before, is suspect."""
        return self._keep(_doubted(each, onset_step) for each in self.state.checkpoints.values())

    def distrust(self, checkpoint: CheckpointId, reason: str) -> list[Checkpoint]:
        """One checkpoint gave cause for doubt, such as a run that did not recover from it."""
        known = self.state.checkpoints.get(checkpoint)
        return [] if known is None else self._keep([_moved(known, "doubt", reason)])

    def clear(self) -> list[Checkpoint]:
        """The fault passed by itself, and no other is open: suspects whose contents were checked are verified again."""
        return self._keep(
            _moved(each, "clear", "the fault passed by itself")
            for each in self.state.checkpoints.values()
            if each.state == "suspect" and each.verified and not each.abandoned
        )

    def rolled_back(self, to_step: int, segment: int) -> list[Checkpoint]:
        """The run went back within its attempt, now in ``segment``: what lies beyond ``to_step`` is abandoned."""
        self.state.branches[segment] = to_step
        return self._go_back(to_step)

    def started(self, step: int) -> list[Checkpoint]:
        """A new attempt began at ``step``; which of the checkpoints it has, it will say."""
        self.state.branches.clear()
        self._keep(replace(each, at_hand=False) for each in self.state.checkpoints.values())
        if step < self.state.newest_step:
            self._go_back(step)
        return list(self.state.checkpoints.values())

    def _go_back(self, to_step: int) -> list[Checkpoint]:
        self.state.newest_step = self.state.clean_since = to_step
        return self._keep(_abandoned(each, to_step) for each in self.state.checkpoints.values() if each.step > to_step)

    def _keep(self, changed: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Remembers what really changed and returns it."""
        checkpoints = self.state.checkpoints
        kept = [each for each in list(changed) if checkpoints.get(each.id) != each]
        for each in kept:
            checkpoints[each.id] = each
        spent = [each for each in checkpoints.values() if each.state in ("deleted", "bad")]
        for each in spent[: max(0, len(spent) - SPENT_KEPT)]:
            del checkpoints[each.id]
        return kept


def _doubted(checkpoint: Checkpoint, onset_step: int) -> Checkpoint:
    if checkpoint.step <= onset_step - MARGIN_STEPS:
        return checkpoint
    reason = f"taken less than {MARGIN_STEPS} steps before, or after, the onset of a fault at step {onset_step}"
    return _moved(checkpoint, "doubt", reason)


def _abandoned(checkpoint: Checkpoint, to_step: int) -> Checkpoint:
    """On a branch that the run has left: suspect, and no end of a fault clears it."""
    if checkpoint.state in ("bad", "deleted"):
        return checkpoint
    reason = f"on a branch that was abandoned for step {to_step}"
    return replace(_moved(checkpoint, "doubt", reason), abandoned=True, reason=reason)


def _moved(checkpoint: Checkpoint, event: CheckpointEvent, reason: str) -> Checkpoint:
    """The checkpoint after ``event``; unchanged where the event says nothing new in its state (bad stays bad)."""
    try:
        state = next_state(TRANSITIONS, checkpoint.state, event, f"checkpoint {checkpoint.id}")
    except IllegalTransition:
        return checkpoint
    return replace(checkpoint, state=state, reason=reason or checkpoint.reason)
