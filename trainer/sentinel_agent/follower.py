"""The agent of every rank but the first: tells of its own steps and device, and goes back with the others if it may."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import torch

from sentinel.protocol.commands import RollBack
from sentinel.protocol.ids import AttemptId, RunId, SenderId
from sentinel.transport.sender import Sender
from sentinel_agent import rollback
from sentinel_agent.agreement import Unreachable
from sentinel_agent.checkpoints import CheckpointStore
from sentinel_agent.courier import Courier
from sentinel_agent.fail_open import Guard
from sentinel_agent.gpu import GpuReader, device_uuid
from sentinel_agent.keeper import Contents
from sentinel_agent.rank_agent import RankAgent
from sentinel_agent.rank_tally import RankTally
from sentinel_agent.settings import Settings

LOOK_EVERY_S: Final = 1.0
"""Between two looks whether rank 0 has said which run this is."""
LAST_DELIVERY_S: Final = 0.5


class Follower(RankAgent):
    """One rank's agent; rank 0's is a ``Leader``. Where the agents only observe it has no peers to meet.

    Args:
        rank: which.
        settings: how to behave.
        device: where the training computes.
        folder: where the runs' pins are kept, as on rank 0.
        guard: takes the agent's own errors.
        say: prints a line.
    """

    def __init__(
        self,
        rank: int,
        settings: Settings,
        *,
        device: torch.device,
        folder: Path,
        guard: Guard,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(settings.mode, device, say)
        self._rank = rank
        self._settings = settings
        self._folder = folder
        self._store: CheckpointStore | None = None
        self._looked_at = -LOOK_EVERY_S
        self._process = os.getpid()
        self.courier = Courier(
            device,
            RankTally(rank, device_uuid(device)),
            guard=guard,
            on_reply=lambda _reply: None,  # orders are rank 0's to take up
            say=lambda _line: None,  # rank 0 says the same
            find=self._find_daemon,
        )
        self.gpu = GpuReader(device, self.courier.inbox.append)
        self._has_gpu = device.type == "cuda"

    def start(self) -> None:
        """Starts its threads: to be called before the loaders fork their workers."""
        self.courier.start()
        if self._has_gpu:  # else the device that could be read is not this rank's
            self.gpu.start()
        if self.peers is not None:
            self.peers.start()

    def step_ended(self, step: int) -> None:
        """The optimizer has made its step number ``step``."""
        self.courier.inbox.append(self.clock.step_ended(step, self.segment))
        self.step = step

    def checkpoint_saved(self, _path: Path, contents: Contents) -> None:
        """A checkpoint of the state after the newest step has been saved, by rank 0.

        Raises:
            OSError: the sidecar cannot be written; the rank will not be able to go back there.
        """
        if store := self.find_store():
            store.add_sidecar(self.step, self.segment, contents.sidecar)

    def save_checkpoint(self, save: Callable[[Path], Contents]) -> None:
        """Rank 0's agent saves a checkpoint of its own: ``save`` writes it there and nowhere else."""
        self.checkpoint_saved(self._folder, save(self._folder / "rank 0 writes it"))

    def end(self, outcome: Literal["finished", "failed", "interrupted"], reason: str = "") -> None:  # noqa: ARG002 - as rank 0's
        """The training is over."""
        if os.getpid() != self._process:
            return
        self.gpu.stop()
        if self.peers is not None:
            self.peers.close()
        self.courier.close(None, timeout_s=LAST_DELIVERY_S)

    def prepare(self, command: RollBack, loop: rollback.TrainingLoop) -> rollback.Prepared:
        """As for every rank."""
        store = self.find_store()
        assert store is not None
        return rollback.prepare(command, store, loop)

    def find_store(self) -> CheckpointStore | None:
        """In the run's folder, once rank 0 has told which that is."""
        if self._store is None and self.peers is not None and (facts := self.peers.facts()):
            folder = self._folder / facts["run"] / "pins"
            self._store = CheckpointStore(folder, attempt=facts["attempt"], rank=self._rank)
        return self._store

    def _find_daemon(self) -> Sender | None:
        """In the agent's thread."""
        if monotonic() - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = monotonic()
        try:
            facts = {} if self.link is None else self.link.facts()
        except Unreachable:
            return None  # with rank 0 the job is gone
        if not facts:
            return None
        return Sender(
            self._settings.url,
            run=RunId(facts["run"]),
            attempt=AttemptId(facts["attempt"]),
            sender=SenderId(f"rank-{self._rank}"),
            token=self._settings.token,
        )
