"""A training that goes on from the checkpoint that ``SENTINEL_RESUME`` names, whatever its script asks for.

The variable holds a checkpoint's id and never a path: only what the run's own manifest knows is loaded, and only while
its digest is what it was when it was verified. What cannot be used is told, and the script begins as it does by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentinel.protocol.ids import CheckpointId, RunId
from sentinel.protocol.launching import RESUME_VARIABLE
from sentinel_agent.checkpoints import CheckpointStore
from sentinel_agent.contents import digest_of
from sentinel_agent.exact_loop import ExactLoop
from sentinel_agent.identity import kept_run
from sentinel_agent.trainer_taps import Taps


class CannotResume(Exception):
    """The checkpoint is not to be loaded; the message says why."""


def find(wanted: str, pins: Path) -> Path:
    """The file of a checkpoint, known to be whole.

    Raises:
        CannotResume: there is none, or it is broken.
    """
    store = CheckpointStore(pins)
    checkpoint = store.recall(CheckpointId(wanted))
    if checkpoint is None:
        raise CannotResume(f"{pins / 'manifest.json'} knows no such checkpoint")
    if checkpoint.state != "verified":
        raise CannotResume(f"it is {checkpoint.state} and not verified")
    path = store.path(checkpoint)
    try:
        digest = digest_of(path)
    except OSError as error:
        raise CannotResume(f"its file cannot be read: {error}") from None
    if digest != checkpoint.digest:
        raise CannotResume(f"its file has changed since it was verified: digest {digest}, was {checkpoint.digest}")
    return path


def resume(trainer: Any, taps: Taps, loop: ExactLoop, *, run: RunId | None, say: Callable[[str], None]) -> None:
    """Has a Lightning trainer go on from the checkpoint named, once in a process; for its ``setup`` on every rank."""
    wanted = os.environ.pop(RESUME_VARIABLE, "")
    if not wanted:
        return
    folder = Path(trainer.default_root_dir).absolute() / ".sentinel"
    pins = folder / (run or kept_run(folder) or "") / "pins"
    path: str | None = None
    if trainer.is_global_zero:
        try:
            path = str(find(wanted, pins))
        except CannotResume as no:
            say(f"warning: {RESUME_VARIABLE}={wanted} is not resumed from: {no}; {_instead(trainer)}")
    path = trainer.strategy.broadcast(path)
    if path is None:
        return
    taps.on_restore(trainer, path)
    loop.resume_beside(CheckpointStore(pins, rank=trainer.global_rank).sidecar(CheckpointId(wanted)))
    if trainer.is_global_zero:
        say(f"resumes from checkpoint {wanted}, as {RESUME_VARIABLE} says: {path}")


def _instead(trainer: Any) -> str:
    own = trainer.ckpt_path
    return f"the script resumes from its own choice, {own}" if own else "the script begins AT STEP 0, its own choice"
