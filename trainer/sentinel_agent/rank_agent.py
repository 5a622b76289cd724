"""What the agent of every rank does: goes back when it is ordered to, and looks where it has come to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch

from sentinel.protocol.commands import RollBack
from sentinel.protocol.observations import Mode
from sentinel.protocol.processes import TrainingPhase
from sentinel_agent import rollback
from sentinel_agent.agreement import Terms
from sentinel_agent.board import Board
from sentinel_agent.checkpoints import Checkpoint, CheckpointStore
from sentinel_agent.exact_loop import Rewind
from sentinel_agent.fail_open import HalfRestored
from sentinel_agent.peers import Appointment, Peers
from sentinel_agent.readings import StepClock


@dataclass(frozen=True, slots=True)
class Passage:
    """A rollback under way."""

    command: RollBack
    prepared: rollback.Prepared
    from_step: int
    began: float
    terms: Terms | None


class RankAgent:
    """A rank whose training can be set back; every method is called by the training's thread.

    Args:
        mode: whether it may.
        device: where the training computes.
        say: prints a line.
    """

    def __init__(self, mode: Mode, device: torch.device, say: Callable[[str], None]) -> None:
        self.clock = StepClock(device)
        self.step = 0
        self.segment = 0
        self.phase: TrainingPhase | None = None
        """None where the loop does not tell: an agent that told some phases alone would be taken to hang in others."""
        self.commands: deque[RollBack | Appointment | Passage] = deque()
        """What is to be done at the boundaries to come."""
        self.peers: Peers | None = None
        """The link, where the ranks may go back together."""
        self.link: Peers | Board | None = None
        """To the other ranks, if there are any."""
        self.impossible = ""
        self._mode: Mode = mode
        self._say = say

    def meet(self, link: Peers | Board, loop: rollback.TrainingLoop) -> None:
        """There are other ranks, and none goes back without them."""
        self.link = link
        if isinstance(link, Board):
            return
        self.peers = peers = link
        peers.prepare = lambda command, checkpoint: self.make_sure(command, checkpoint, loop)
        peers.step = lambda: self.step
        peers.arm = self.commands.append

    def enter(self, phase: TrainingPhase) -> None:
        """The training goes over to another kind of work."""
        if self.phase is not None:
            self.phase = phase

    def roll_back(self, loop: rollback.TrainingLoop) -> bool:
        """Does what the oldest of ``commands`` says; whether the batch under way begins anew.

        To be called between two optimizer steps, when the first batch of the next one is there.

        Raises:
            Rewind: the loop is to be left and run again, with its data.
            HalfRestored: the state is neither the old nor the new one, and training must end.
        """
        order = self.commands[0]
        if isinstance(order, Appointment) and self.step < order.terms.stop_step:
            return False
        self.commands.popleft()
        if isinstance(order, Passage):
            self._arrive(order, loop)
            return False
        self.enter("checkpoint")  # it takes as long to read one as to write it, and looks like a hang otherwise
        passage = self._kept(order) if isinstance(order, Appointment) else self._prepared(order, loop)
        if passage is None:
            self.enter("train")
            return False
        if passage.prepared.data == "exact":
            self.commands.appendleft(passage)
            raise Rewind(partial(self._go_back, passage, loop))
        self._go_back(passage, loop)
        self._arrive(passage, loop)
        return True

    def amend(self, late: Mapping[str, Any]) -> None:
        """Adds to the sidecar of a checkpoint of the newest step what came after its save.

        Raises:
            OSError: it cannot be written.
        """
        if store := self.find_store():
            store.amend_sidecar(self.step, self.segment, late)

    def find_store(self) -> CheckpointStore | None:
        """Where the pins are; None while that is not known."""
        raise NotImplementedError

    def check(self, command: RollBack) -> None:
        """Whether the command may be carried out here and now.

        Raises:
            CannotRollBack: it may not.
        """
        rollback.check(command, rollback.Standing(self._mode, self.impossible, self.segment, self.step))

    def prepare(self, command: RollBack, loop: rollback.TrainingLoop) -> rollback.Prepared:
        """Makes sure of everything that can fail.

        Raises:
            CannotRollBack: it did.
        """
        raise NotImplementedError

    def make_sure(self, command: RollBack, checkpoint: Checkpoint, loop: rollback.TrainingLoop) -> rollback.Prepared:
        """Likewise in an agreement, where rank 0 says which checkpoint it is.

        Raises:
            CannotRollBack: this rank cannot go back to it.
        """
        self.check(command)
        store = self.find_store()
        if store is None:
            raise rollback.CannotRollBack("it does not know the run")
        if store.get(checkpoint.id) is None:
            store.adopt(checkpoint)
        return self.prepare(command, loop)

    def refused(self, command: RollBack, no: rollback.CannotRollBack) -> None:
        """Nothing was done."""

    def broke_off(self, command: RollBack, error: HalfRestored) -> None:
        """The training ends."""

    def returned(self, passage: Passage, verdict: rollback.Verdict) -> None:
        """It was done."""

    def _prepared(self, command: RollBack, loop: rollback.TrainingLoop) -> Passage | None:
        began = perf_counter()
        try:
            self.check(command)
            return Passage(command, self.prepare(command, loop), self.step, began, None)
        except rollback.CannotRollBack as no:
            self.refused(command, no)
            return None

    def _kept(self, appointment: Appointment) -> Passage | None:
        assert self.peers is not None
        began = perf_counter()
        is_agreed = appointment.is_agreed()
        self.peers.kept()
        if not is_agreed:
            return None
        assert appointment.prepared is not None
        return Passage(appointment.command, appointment.prepared, self.step, began, appointment.terms)

    def _go_back(self, passage: Passage, loop: rollback.TrainingLoop) -> None:
        try:
            rollback.apply(passage.command, passage.prepared, loop)
        except HalfRestored as error:
            self.broke_off(passage.command, error)
            raise
        self.clock.restart()
        self.step = passage.command.step
        self.segment += 1

    def _arrive(self, passage: Passage, loop: rollback.TrainingLoop) -> None:
        verdict = rollback.verify(passage.command, passage.prepared, loop, batch=self.clock.reading.fingerprint)
        if self.peers is not None and passage.terms is not None:
            verdict = verdict.with_problem(self.peers.verdicts(passage.terms, verdict.problem))
        self.returned(passage, verdict)
        self.enter("train")
