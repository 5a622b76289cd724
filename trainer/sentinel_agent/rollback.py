"""Carries out a rollback: first everything that can be found wrong, then the change itself.

Until the checkpoint is in memory and known to fit, nothing of the training is touched. What goes wrong after that would
leave a state that is neither the old nor the new one, and ends the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from sentinel.protocol.commands import RollBack
from sentinel.protocol.observations import Mode
from sentinel_agent import sidecar
from sentinel_agent.checkpoints import Checkpoint, CheckpointStore
from sentinel_agent.contents import digest_of
from sentinel_agent.fail_open import HalfRestored


class TrainingLoop(Protocol):
    """What a rollback needs of the loop that it sets back; between two optimizer steps."""

    def load(self, path: Path) -> Mapping[str, Any]:
        """Reads a checkpoint of this loop into host memory; may raise anything."""

    def misfit(self, checkpoint: Mapping[str, Any]) -> str:
        """Why the checkpoint cannot be restored into this loop; empty if it can."""

    def restore(self, checkpoint: Mapping[str, Any], *, step: int, lr_scale: float) -> None:
        """Sets weights, optimizers, schedulers and step back in place. The data goes on where it is."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the run is when a command arrives."""

    mode: Mode
    impossible: str
    """Why no rollback is possible here; empty if it is."""
    segment: int
    step: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checkpoint in memory, known to be whole and to fit."""

    path: Path
    contents: Mapping[str, Any]
    sidecar: Mapping[str, Any] | None


class CannotRollBack(Exception):
    """Nothing was touched.

    Attributes:
        reason: why not.
        outcome: what the daemon is answered.
        broken: the checkpoint that is at fault itself and so is bad, if one is.
    """

    def __init__(
        self,
        reason: str,
        *,
        outcome: Literal["failed", "refused", "expired"] = "failed",
        broken: Checkpoint | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome: Literal["failed", "refused", "expired"] = outcome
        self.broken = broken


def check(command: RollBack, standing: Standing) -> None:
    """Whether the command may be carried out here and now.

    Raises:
        CannotRollBack: it may not.
    """
    if standing.mode != "act":
        raise CannotRollBack(f"the agent's mode is {standing.mode!r}: it does not act", outcome="refused")
    if standing.impossible:
        raise CannotRollBack(standing.impossible, outcome="refused")
    if command.data != "forward":
        raise CannotRollBack(f"this agent has no rollback with data={command.data!r}", outcome="refused")
    if command.segment != standing.segment:
        reason = f"the command is for segment {command.segment}, the run is in segment {standing.segment}"
        raise CannotRollBack(reason, outcome="refused")
    if standing.step > command.expires_step:
        reason = f"the command was good until step {command.expires_step}, the run is at step {standing.step}"
        raise CannotRollBack(reason, outcome="expired")


def prepare(command: RollBack, store: CheckpointStore, loop: TrainingLoop) -> Prepared:
    """Reads the checkpoint into memory and makes sure that it is what was ordered and fits.

    Raises:
        CannotRollBack: it is not, or does not.
    """
    checkpoint = store.get(command.checkpoint)
    if checkpoint is None:
        raise CannotRollBack(f"the agent has no checkpoint {command.checkpoint}")
    if checkpoint.digest != command.digest or checkpoint.step != command.step:
        raise CannotRollBack(
            f"the command is for step {command.step} with {command.digest}, checkpoint {checkpoint.id} is of step "
            f"{checkpoint.step} with {checkpoint.digest or 'no digest yet'}"
        )
    path = store.path(checkpoint)
    try:
        digest = digest_of(path)
    except OSError as error:
        raise CannotRollBack(f"the file cannot be read: {error}", broken=checkpoint) from error
    if digest != checkpoint.digest:
        reason = f"the file has changed since it was verified: its digest is {digest}, was {checkpoint.digest}"
        raise CannotRollBack(reason, broken=checkpoint)
    try:
        contents, beside = loop.load(path), store.sidecar(checkpoint.id)
        misfit = loop.misfit(contents)
    except Exception as error:
        raise CannotRollBack(f"it does not load: {type(error).__name__}: {error}", broken=checkpoint) from error
    if misfit:
        raise CannotRollBack(f"it does not fit this training: {misfit}", broken=checkpoint)
    return Prepared(path, contents, beside)


def apply(command: RollBack, prepared: Prepared, loop: TrainingLoop) -> None:
    """Sets the training back.

    Raises:
        HalfRestored: it broke off in the middle.
    """
    try:
        loop.restore(prepared.contents, step=command.step, lr_scale=command.lr_scale)
        if prepared.sidecar is not None:
            sidecar.restore(prepared.sidecar)
    except Exception as error:
        raise HalfRestored(
            f"the rollback to step {command.step} broke off in the middle ({type(error).__name__}: {error}), so the "
            f"state in memory is neither the old nor the new one: start again with "
            f'trainer.fit(..., ckpt_path="{prepared.path}")'
        ) from error
