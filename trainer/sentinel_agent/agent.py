"""The agent of one attempt, for any training loop: reads its steps, keeps its checkpoints, carries out commands.

The loop calls it at the boundaries it knows; nothing here knows which framework that is. Everything is called by the
training's thread but ``_on_reply``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter, time
from typing import Final, Literal

import torch

from sentinel.protocol.commands import Reply, RollBack
from sentinel.protocol.ids import LEADER, CommandId, IncidentId, RunId
from sentinel.protocol.observations import AttemptEnded, AttemptStarted, CommandResult, DataMode
from sentinel.protocol.processes import PhaseChange, TrainingPhase
from sentinel.transport.sender import Sender
from sentinel.transport.spool import Spool
from sentinel_agent import identity, rollback
from sentinel_agent.attempt import Attempt
from sentinel_agent.board import Board
from sentinel_agent.checkpoints import CheckpointStore
from sentinel_agent.courier import Courier
from sentinel_agent.fail_open import Guard, HalfRestored
from sentinel_agent.gpu import GpuReader, device_uuid
from sentinel_agent.keeper import CheckpointKeeper, Contents
from sentinel_agent.peers import Peers
from sentinel_agent.rank_agent import Passage, RankAgent
from sentinel_agent.rank_tally import RankTally
from sentinel_agent.readings import StepReading
from sentinel_agent.settings import Settings
from sentinel_agent.standby import Standby
from sentinel_agent.tally import Tally
from sentinel_agent.text import plain

FIRST_ANSWER_S: Final = 0.5
"""The longest a start waits to be able to say whether a daemon answers."""
DRIVER_S: Final = 0.1
"""Likewise for the GPU's driver, which was asked when the trainer was set up."""
LAST_DELIVERY_S: Final = 2.0


class Leader(RankAgent):
    """Watches one attempt: the agent of rank 0, which alone talks to the daemon.

    Args:
        settings: how to behave.
        device: where the training computes.
        folder: where the run's name and pins are kept.
        guard: takes the agent's own errors.
        say: prints a line for the person at the terminal, and never raises.
    """

    def __init__(
        self, settings: Settings, *, device: torch.device, folder: Path, guard: Guard, say: Callable[[str], None]
    ) -> None:
        super().__init__(settings.mode, device, say)
        self.settings = settings
        self.attempt = identity.new_attempt()
        self.run = RunId("")
        self.courier = Courier(device, RankTally(0, device_uuid(device)), guard=guard, on_reply=self._on_reply, say=say)
        self.gpu = GpuReader(device, self.courier.inbox.append)
        self.keeper: CheckpointKeeper | None = None
        self.spool: Spool | None = None
        self._folder, self._steps = folder, 0
        self._incidents: set[IncidentId] = set()
        self._taken: dict[CommandId, RollBack] = {}
        self._answers: dict[CommandId, CommandResult] = {}
        self._standby = Standby()
        self._process = os.getpid()

    def start(self) -> None:
        """Starts the agent's threads: to be called before the loaders fork their workers."""
        self.courier.start()
        self.gpu.start()
        if self.peers is not None:
            self.peers.start()

    def meet(self, link: Peers | Board, loop: rollback.TrainingLoop) -> None:
        """There are other ranks, and this one speaks for them."""
        super().meet(link, loop)
        if self.peers is not None:
            self.peers.refused = lambda command, reason: self.refused(command, rollback.CannotRollBack(reason))

    def begin(self, attempt: Attempt) -> None:
        """The training starts; waits up to ``FIRST_ANSWER_S`` for the daemon's first answer."""
        kept = identity.kept_run(self._folder) if attempt.is_resumed else None
        self.run = self.settings.run or kept or identity.new_run()
        self.step, self.impossible = attempt.step, attempt.rollback_impossible
        try:
            identity.keep_run(self._folder, self.run)
        except OSError as error:
            self._say(f"the run's name cannot be kept, a resume will not find it: {error}; set SENTINEL_RUN={self.run}")
        sender = LEADER
        kept_in = self._folder / self.run / "spool" if self.settings.spool is None else self.settings.spool / self.run
        self.spool = Spool(kept_in, attempt=self.attempt, sender=sender, say=self._say)
        self.courier.begin(
            Sender(
                self.settings.url,
                run=self.run,
                attempt=self.attempt,
                sender=sender,
                token=self.settings.token,
                spool=self.spool,
            ),
            self._started(attempt),
        )
        self.keeper = CheckpointKeeper(
            CheckpointStore(self._folder / self.run / "pins", attempt=self.attempt),
            post=self.courier.inbox.append,
            offer=self.courier.offer,
            say=self._say,
        )
        try:
            self.keeper.found_again(attempt.step)
        except OSError as error:
            self._say(f"the checkpoints of earlier attempts cannot be read: {error}")
        if self.link is not None:
            self.link.publish({"run": self.run, "attempt": self.attempt})
        self._standby.announce(self.run, self.attempt, pins=self.keeper.store.folder, step=attempt.step)
        self.courier.on_step, self.courier.on_off = self._standby.reached, self._standby.unwatched
        self.courier.first_answer.wait(FIRST_ANSWER_S)
        self.gpu.first_answer.wait(DRIVER_S)

    def step_ended(self, step: int) -> None:
        """The optimizer has made its step number ``step``."""
        self.courier.inbox.append(self.close_step(step))

    def close_step(self, step: int) -> StepReading:
        """Likewise, for a loop that knows more of the step in a moment and puts it into ``courier.inbox`` itself."""
        self.step = step
        self.enter("train")
        self._steps += 1
        return self.clock.step_ended(step, self.segment)

    def enter(self, phase: TrainingPhase) -> None:
        """The training goes over to another kind of work; nothing waits for the daemon to know."""
        if self.phase not in (None, phase):
            super().enter(phase)
            self.courier.inbox.append(PhaseChange(at=time(), phase=phase, step=self.step, segment=self.segment))

    def checkpoint_saved(self, path: Path, contents: Contents) -> None:
        """The user's script has saved a checkpoint of the state after the newest step."""
        if self.keeper is not None:
            self.keeper.saved(path, step=self.step, segment=self.segment, contents=contents)

    def save_checkpoint(self, save: Callable[[Path], Contents]) -> None:
        """Has the loop save a checkpoint of the agent's own."""
        if self.keeper is None or self.keeper.store.has(self.step, self.segment):
            return
        self.enter("checkpoint")
        checkpoint = self.keeper.store.new(self.step, self.segment)
        self.keeper.take(checkpoint, save(self.keeper.store.path(checkpoint)))
        self.enter("train")

    def find_store(self) -> CheckpointStore | None:
        """The keeper's."""
        return None if self.keeper is None else self.keeper.store

    def prepare(self, command: RollBack, loop: rollback.TrainingLoop) -> rollback.Prepared:
        """Reads the checkpoint from the pins.

        Raises:
            CannotRollBack: it is not there, broken, or does not fit.
        """
        if self.keeper is None:
            raise rollback.CannotRollBack("the training has not begun")
        try:
            return rollback.prepare(command, self.keeper.store, loop)
        except rollback.CannotRollBack as no:
            if no.broken is not None:
                self.keeper.condemn(no.broken, no.reason)
            raise

    def refused(self, command: RollBack, no: rollback.CannotRollBack) -> None:
        """Answers for a command that was not carried out."""
        self._say(f"no rollback to step {command.step}: {no.reason}")
        self.courier.inbox.append(self._answer(command, no.outcome, no.reason))

    def broke_off(self, command: RollBack, error: HalfRestored) -> None:
        """Answers for a command that ends the training."""
        self.courier.inbox.append(self._answer(command, "failed", str(error)))

    def returned(self, passage: Passage, verdict: rollback.Verdict) -> None:
        """Answers for a command that was carried out."""
        command, duration_s = passage.command, perf_counter() - passage.began
        outcome: Literal["succeeded", "failed"] = "failed" if verdict.problem else "succeeded"
        reason = f"it went back, but {verdict.problem}" if verdict.problem else ""
        data = passage.prepared.said_of_data(command)
        done = self._answer(command, outcome, reason)
        done = replace(done, from_step=passage.from_step, duration_s=duration_s, verified=f"{verdict.verified}; {data}")
        self._answers[command.id] = done
        self.courier.inbox.append(done)
        if self.keeper is not None:
            self.keeper.went_back(command.step)
        self._say(
            f"rolled back from step {passage.from_step} to step {command.step} in {duration_s * 1e3:.0f} ms, "
            f"{data}: {reason or command.reason or command.incident}"
        )

    def end(self, outcome: Literal["finished", "failed", "interrupted"], reason: str = "") -> None:
        """The training is over. Delivers what it can in ``LAST_DELIVERY_S``, at once where no daemon answers."""
        if os.getpid() != self._process:
            return
        self._standby.ended(outcome)
        self.gpu.stop()
        if self.peers is not None:
            self.peers.close()
        last = AttemptEnded(at=time(), outcome=outcome, step=self.step, segment=self.segment, reason=plain(reason))
        self.courier.close(last, timeout_s=LAST_DELIVERY_S)

    def tally(self) -> Tally:
        """The sum of the attempt, once it has ended."""
        sender, store = self.courier.sender, None if self.keeper is None else self.keeper.store
        return Tally(
            steps=self._steps,
            incidents=len(self._incidents),
            rollbacks=self.segment,
            lost=0 if sender is None else sender.dropped_total + sender.pending - sender.kept,
            kept=0 if sender is None else sender.kept,
            pinned=0 if store is None else sum(not each.elsewhere for each in store.checkpoints),
            held_bytes=0 if store is None else store.held_bytes(),
        )

    def _started(self, attempt: Attempt) -> AttemptStarted:
        kind: DataMode = "forward" if attempt.exact_impossible else "exact"
        forward = f"weights, optimizer and schedulers go back, the data goes on: {attempt.exact_impossible}"
        exact = "weights, optimizer, schedulers, random generators and data go back"
        reason = attempt.rollback_impossible or (forward if attempt.exact_impossible else exact)
        return AttemptStarted(
            at=time(),
            mode=self.settings.mode,
            step=attempt.step,
            max_steps=attempt.max_steps,
            world_size=attempt.world_size,
            precision=attempt.precision,
            accumulate=attempt.accumulate,
            rollback="none" if attempt.rollback_impossible else kind,
            rollback_reason=reason,
            host=os.uname().nodename,
            process_id=os.getpid(),
            job_id=os.environ.get("SLURM_JOB_ID"),
            versions=attempt.versions,
        )

    def _on_reply(self, reply: Reply) -> None:
        """Takes the daemon's word, in the agent's thread."""
        for notice in reply.notices:
            self._incidents.add(notice.incident)
            self._say(f"{notice.text} {notice.link}".rstrip())
        for command in reply.commands:
            if isinstance(command, RollBack):
                self._take(command)
        if self.keeper is not None:
            in_use = {each.checkpoint for each in self._taken.values() if each.id not in self._answers}
            self.keeper.release(set(reply.releasable) - in_use)

    def _take(self, command: RollBack) -> None:
        """Leaves a command for the next boundary. One that was answered is answered again and not done again."""
        if command.id in self._answers:
            self.courier.inbox.append(self._answers[command.id])  # behind what it rests on
            return
        if command.id in self._taken:
            return
        self._taken[command.id] = command
        try:
            self.check(command)
        except rollback.CannotRollBack as no:
            self.courier.offer(self._answer(command, no.outcome, no.reason))
            return
        if self.peers is None:
            self.commands.append(command)
            return
        assert self.keeper is not None
        checkpoint = self.keeper.store.get(command.checkpoint)
        if checkpoint is None:
            self.refused(command, rollback.CannotRollBack(f"the agent has no checkpoint {command.checkpoint}"))
        else:
            path = self.keeper.store.path(checkpoint).resolve()  # where rank 0 finds it, as the others must
            self.peers.propose(command, replace(checkpoint, elsewhere=str(path)))

    def _answer(
        self, command: RollBack, outcome: Literal["succeeded", "failed", "refused", "expired"], reason: str
    ) -> CommandResult:
        result = CommandResult(
            at=time(),
            command=command.id,
            outcome=outcome,
            step=self.step,
            segment=self.segment,
            checkpoint=command.checkpoint,
            reason=plain(reason),
        )
        self._answers[command.id] = result
        return result
