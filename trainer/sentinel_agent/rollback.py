"""Carries out a rollback: first everything that can be found wrong, then the change itself.

Until the checkpoint is in memory and known to fit, nothing of the training is touched. What goes wrong after that would
leave a state that is neither the old nor the new one, and ends the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sentinel.protocol.commands import RollBack
from sentinel.protocol.observations import DataMode, Mode
from sentinel_agent import sidecar
from sentinel_agent.checkpoints import Checkpoint, CheckpointStore
from sentinel_agent.contents import digest_of
from sentinel_agent.fail_open import HalfRestored


class TrainingLoop:
    """What a rollback needs of the loop that it sets back, between two optimizer steps. Data is optional."""

    exact_impossible: str = "this loop does not set its data back"
    """Why not; empty if it does."""

    def load(self, path: Path) -> Mapping[str, Any]:
        """Reads a checkpoint of this loop into host memory; may raise anything."""
        raise NotImplementedError

    def misfit(self, checkpoint: Mapping[str, Any]) -> str:
        """Why the checkpoint cannot be restored into this loop; empty if it can."""
        raise NotImplementedError

    def restore(self, checkpoint: Mapping[str, Any], *, step: int, lr_scale: float) -> None:
        """Sets weights, optimizers, schedulers and step back in place. The data goes on where it is."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """What is recorded at a save and compared after a rollback: step, lr (of each group), weights (a checksum)."""
        return {}

    def cannot_rewind(self, command: RollBack, beside: Mapping[str, Any] | None) -> str:
        """Why the data cannot be set back to this checkpoint; empty if it can."""
        raise NotImplementedError

    def is_between_epochs(self, checkpoint: Mapping[str, Any]) -> bool:
        """Whether the checkpoint was saved after the last batch of an epoch, where data cannot be set back."""
        raise NotImplementedError

    def rewind(self, command: RollBack, checkpoint: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """Sets everything back, the data too; the loop is about to be run again."""
        raise NotImplementedError

    def is_other_batch(self, fingerprint: int | None) -> bool | None:
        """Whether the first batch after a rewind is another one than the first time; None if that is not known."""
        raise NotImplementedError


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
    data: DataMode
    """Forward where exact was ordered but the checkpoint stands between two epochs."""

    def said_of_data(self, command: RollBack) -> str:
        """What becomes of the data, in words."""
        if self.data == "exact":
            return "the data went back too"
        why = " since the checkpoint was saved at the end of an epoch" if command.data == "exact" else ""
        return f"the data goes on{why}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found after a rollback."""

    verified: str
    """What is as it was when the checkpoint was saved, in words."""
    problem: str
    """What is not; empty if all is."""

    def with_problem(self, problem: str) -> Verdict:
        """The same with what all ranks found wrong."""
        return Verdict(self.verified, problem)


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
    if command.data == "exact" and (problem := loop.exact_impossible or loop.cannot_rewind(command, beside)):
        raise CannotRollBack(f"the data cannot be set back: {problem}", outcome="refused")
    is_exact = command.data == "exact" and not loop.is_between_epochs(contents)
    return Prepared(path, contents, beside, "exact" if is_exact else "forward")


def apply(command: RollBack, prepared: Prepared, loop: TrainingLoop) -> None:
    """Sets the training back.

    Raises:
        HalfRestored: it broke off in the middle.
    """
    try:
        if prepared.data == "exact":
            assert prepared.sidecar is not None
            loop.rewind(command, prepared.contents, prepared.sidecar)
            return
        loop.restore(prepared.contents, step=command.step, lr_scale=command.lr_scale)
        if prepared.sidecar is not None:
            sidecar.restore(prepared.sidecar)
    except Exception as error:
        raise HalfRestored(
            f"the rollback to step {command.step} broke off in the middle ({type(error).__name__}: {error}), so the "
            f"state in memory is neither the old nor the new one: start again from "
            f'"{prepared.path}" (with Lightning: trainer.fit(..., ckpt_path=...))'
        ) from error


def verify(command: RollBack, prepared: Prepared, loop: TrainingLoop, *, batch: int | None) -> Verdict:
    """Compares where the training has come to with what was recorded when the checkpoint was saved.

    Args:
        command: what was ordered.
        prepared: what was loaded.
        loop: the training, at its next step.
        batch: the fingerprint of the batch at hand.
    """
    beside = prepared.sidecar or {}
    recorded, now = beside.get("at_save", {}), loop.facts()
    expected = {**recorded, "step": command.step, "lr": [rate * command.lr_scale for rate in recorded.get("lr", [])]}
    is_same = {_NAMES[name]: now[name] == expected[name] for name in recorded if name in now}
    if "torch" in beside and prepared.data == "forward":
        is_same["random generators"] = sidecar.is_current(beside)
    if prepared.data == "exact" and (is_other := loop.is_other_batch(batch)) is not None:
        is_same["data"] = not is_other
    wrong = [name for name, same in is_same.items() if not same]
    problem = f"not as it was at the save: {', '.join(wrong)}" if wrong else ""
    return Verdict(", ".join(name for name, same in is_same.items() if same), problem)


_NAMES = {"step": "step", "lr": "learning rate", "weights": "weights"}
