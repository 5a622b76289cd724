"""The checkpoints that the run can go back to: pinned under the run's own folder, so that no rotation takes them away.

A pin is a hard link beside the user's file: it costs no disk until the user's file is gone. What is known is kept in a
manifest over restarts. The user's own files are never changed or deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import torch

from sentinel.protocol.ids import CheckpointId
from sentinel_agent.identity import new_checkpoint, replace_text

PINS_KEPT: Final = 8
"""At most, when no daemon says which may go: its two known-good ones, and six newer."""
OLDEST_KEPT: Final = 2
PINS_KEPT_ON_A_FULL_DISK: Final = 2
ROOM: Final = 4
"""A disk without room for this many more checkpoints is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was seen saved."""

    id: CheckpointId
    step: int
    segment: int
    name: str
    state: Literal["reported", "verified", "bad", "abandoned"] = "reported"
    """Abandoned: on a branch that the run has left."""
    digest: str = ""
    size_bytes: int | None = None
    elsewhere: str = ""
    """The user's own file, where it could not be linked; else empty."""


class CheckpointStore:
    """The pins of one run.

    ``add`` and the reading methods may be called by the training's thread, the others by the agent's.

    Args:
        folder: the run's own folder for pins; made when the first one is added.
        attempt: makes the names of its checkpoints the same on all ranks; by default each has a random one.
        rank: whose sidecars it keeps.
    """

    def __init__(self, folder: Path, *, attempt: str = "", rank: int = 0) -> None:
        self.folder = folder
        self._attempt = attempt
        self._rank = rank
        self._known: dict[CheckpointId, Checkpoint] = {}

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All that are known, in the order in which they were saved."""
        return list(self._known.values())

    def get(self, checkpoint: CheckpointId) -> Checkpoint | None:
        """One checkpoint, if it is known."""
        return self._known.get(checkpoint)

    def path(self, checkpoint: Checkpoint) -> Path:
        """The file to read."""
        return Path(checkpoint.elsewhere) if checkpoint.elsewhere else self.folder / f"{checkpoint.id}.ckpt"

    def has(self, step: int, segment: int) -> bool:
        """Whether this state is pinned already: a script may save it under several names."""
        known = [each for each in self.checkpoints if each.state != "abandoned"]
        return any(each.step == step and each.segment == segment for each in known)

    def new(self, step: int, segment: int) -> Checkpoint:
        """A checkpoint to be saved at its ``path``, not known yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        identity = new_checkpoint(step, segment, self._attempt)
        return Checkpoint(id=identity, step=step, segment=segment, name=f"{identity}.ckpt")

    def link(self, checkpoint: Checkpoint, saved: Path) -> Checkpoint:
        """Pins a file that the user's script saved; where that is impossible, remembers where it lies."""
        checkpoint = replace(checkpoint, name=saved.name)
        try:
            self.path(checkpoint).hardlink_to(saved)
        except OSError:
            return replace(checkpoint, elsewhere=str(saved.resolve()))
        return checkpoint

    def add(self, checkpoint: Checkpoint, sidecar: Mapping[str, Any]) -> None:
        """Takes a saved checkpoint into the store, with what it leaves out.

        Raises:
            OSError: the sidecar cannot be written.
        """
        torch.save(dict(sidecar), self._sidecar(checkpoint.id))
        self._known[checkpoint.id] = checkpoint

    def add_sidecar(self, step: int, segment: int, sidecar: Mapping[str, Any]) -> None:
        """Keeps this rank's sidecar of a checkpoint that rank 0 saves.

        Raises:
            OSError: it cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.save(dict(sidecar), self._sidecar(new_checkpoint(step, segment, self._attempt)))

    def amend_sidecar(self, step: int, segment: int, late: Mapping[str, Any]) -> None:
        """Adds to this rank's sidecar what came after the save; nothing is done where there is none.

        Raises:
            OSError: it cannot be written.
        """
        path = self._sidecar(new_checkpoint(step, segment, self._attempt))
        if path.exists():
            partial = path.with_suffix(".partial")
            torch.save(torch.load(path, weights_only=True) | late, partial)
            partial.replace(path)

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Learns of a checkpoint that rank 0 has."""
        self._known[checkpoint.id] = checkpoint

    def recall(self, checkpoint: CheckpointId) -> Checkpoint | None:
        """One checkpoint of the manifest, for a process that keeps none yet; nothing on disk is changed."""
        return next((each for each in self._read() or () if each.id == checkpoint), None)

    def sidecar(self, checkpoint: CheckpointId) -> Mapping[str, Any] | None:
        """What the checkpoint leaves out, if it was kept."""
        path = self._sidecar(checkpoint)
        return torch.load(path, weights_only=True) if path.exists() else None

    def update(self, checkpoint: Checkpoint) -> None:
        """More is known of a checkpoint.

        Raises:
            OSError: the manifest cannot be written.
        """
        if checkpoint.id in self._known:
            self._known[checkpoint.id] = checkpoint
            self._write()

    def abandon(self, after_step: int) -> None:
        """The run stands at ``after_step``, and what was saved beyond it is of another branch.

        Raises:
            OSError: the manifest cannot be written.
        """
        left = [each for each in self.checkpoints if each.step > after_step and each.state in ("reported", "verified")]
        self._known |= {each.id: replace(each, state="abandoned") for each in left}
        if left:
            self._write()

    def release(self, checkpoint: Checkpoint) -> None:
        """Lets a checkpoint go: our link and sidecar, never the user's file.

        Raises:
            OSError: something cannot be deleted.
        """
        del self._known[checkpoint.id]
        (self.folder / f"{checkpoint.id}.ckpt").unlink(missing_ok=True)
        for sidecar in self.folder.glob(f"{checkpoint.id}.sidecar*.pt"):
            sidecar.unlink(missing_ok=True)
        self._write()

    def surplus(self) -> list[Checkpoint]:
        """What to let go when nobody says: all but the oldest few and the newest, and more on a nearly full disk."""
        pinned = [each for each in self.checkpoints if not each.elsewhere]
        size_bytes = max((each.size_bytes or 0 for each in pinned), default=0)
        is_full = size_bytes > 0 and shutil.disk_usage(self.folder).free < ROOM * size_bytes
        kept = PINS_KEPT_ON_A_FULL_DISK if is_full else PINS_KEPT
        spent = [each for each in pinned if each.state == "bad"]
        good = [each for each in pinned if each.state != "bad"]
        oldest = min(OLDEST_KEPT, kept - 1)
        return spent + good[oldest : max(oldest, len(good) - (kept - oldest))]

    def held_bytes(self) -> int:
        """Disk that only the pins hold: files whose other name is gone, or that never had one."""
        held = 0
        for checkpoint in self.checkpoints:
            path = self.path(checkpoint)
            if not checkpoint.elsewhere and path.exists() and path.stat().st_nlink == 1:
                held += path.stat().st_size
        return held

    def load(self) -> list[Checkpoint]:
        """Finds what an earlier attempt left; files that no manifest knows are half-made pins and are deleted.

        Returns:
            Checkpoints of the manifest whose files are gone.

        Raises:
            OSError: the folder cannot be read.
        """
        known = self._read()
        if known is None:
            return []
        self._known = {each.id: each for each in known if self.path(each).is_file()}
        for stray in self.folder.iterdir():
            if stray.suffix in (".ckpt", ".pt", ".partial") and stray.name.split(".")[0] not in self._known:
                stray.unlink()
        return [each for each in known if each.id not in self._known]

    def _sidecar(self, checkpoint: CheckpointId) -> Path:
        return self.folder / f"{checkpoint}.sidecar{f'-{self._rank}' if self._rank else ''}.pt"

    def _write(self) -> None:
        rows = [asdict(each) for each in self.checkpoints]
        replace_text(self.folder / "manifest.json", json.dumps({"checkpoints": rows}, indent=1) + "\n")

    def _read(self) -> list[Checkpoint] | None:
        try:
            rows = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))["checkpoints"]
            return [Checkpoint(**row) for row in rows]
        except (OSError, ValueError, KeyError, TypeError):
            return None
