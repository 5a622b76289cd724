"""The agent of every rank but the first: talks to no daemon, keeps its rank's sidecars, goes back with the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from sentinel.protocol.commands import RollBack
from sentinel_agent import rollback
from sentinel_agent.checkpoints import CheckpointStore
from sentinel_agent.keeper import Contents
from sentinel_agent.peers import Peers
from sentinel_agent.rank_agent import RankAgent


class Follower(RankAgent):
    """One rank's agent; rank 0's is a ``Leader``.

    Args:
        peers: the link to it.
        loop: the training.
        device: where it computes.
        folder: where the runs' pins are kept, as on rank 0.
        say: prints a line.
    """

    def __init__(
        self,
        peers: Peers,
        loop: rollback.TrainingLoop,
        *,
        device: torch.device,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        super().__init__("act", device, say)
        self.meet(peers, loop)
        self._folder = folder
        self._store: CheckpointStore | None = None

    def start(self) -> None:
        """Starts its thread."""
        assert self.peers is not None
        self.peers.start()

    def step_ended(self, step: int) -> None:
        """The optimizer has made its step number ``step``."""
        self.clock.restart()
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
        assert self.peers is not None
        self.peers.close()

    def prepare(self, command: RollBack, loop: rollback.TrainingLoop) -> rollback.Prepared:
        """As for every rank."""
        store = self.find_store()
        assert store is not None
        return rollback.prepare(command, store, loop)

    def find_store(self) -> CheckpointStore | None:
        """In the run's folder, once rank 0 has told which that is."""
        if self._store is None and self.peers is not None and (facts := self.peers.facts()):
            folder = self._folder / facts["run"] / "pins"
            self._store = CheckpointStore(folder, attempt=facts["attempt"], rank=self.peers.rank)
        return self._store
