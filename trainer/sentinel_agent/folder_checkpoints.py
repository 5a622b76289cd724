"""Checkpoints that are folders of a foreign trainer's: reported as they are, neither pinned nor loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Literal

from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import CheckpointReport, Observation
from sentinel_agent.contents import BrokenCheckpoint, verify
from sentinel_agent.courier import Work
from sentinel_agent.identity import new_checkpoint
from sentinel_agent.text import plain


class FolderCheckpoints:
    """The folders of one attempt.

    Args:
        attempt: makes their names.
        post: puts an observation or work into the agent's inbox.
        offer: tells the daemon; for the agent's thread.
    """

    def __init__(
        self,
        attempt: str,
        *,
        post: Callable[[Observation | Work], object],
        offer: Callable[[Observation], object],
    ) -> None:
        self._attempt = attempt
        self._post = post
        self._offer = offer
        self._known: dict[Path, int] = {}

    def saved(self, folder: Path, step: int, problem: str | None) -> None:
        """A folder is complete.

        Args:
            folder: with the checkpoint's files.
            step: whose state it holds.
            problem: what is wrong with its numbers; empty if nothing is, None if they were not looked at.
        """
        self.look_for_gone()
        if not folder.is_dir():
            return
        self._known[folder] = step
        if problem:
            self._post(self._report(folder, step, "bad", reason=problem))
            return
        self._post(self._report(folder, step, "reported"))
        if problem is not None:
            self._post(self._verification(folder, step))

    def look_for_gone(self) -> None:
        """Tells which folders the trainer's rotation has deleted."""
        for folder in [each for each in self._known if not each.exists()]:
            step = self._known.pop(folder)
            self._post(self._report(folder, step, "deleted", reason="the trainer has deleted it"))

    def _verification(self, folder: Path, step: int) -> Work:
        digest, size_bytes = hashlib.sha256(), 0
        try:
            for path in sorted(each for each in folder.rglob("*") if each.is_file()):
                verified = yield from verify(path)
                digest.update(f"{path.relative_to(folder)} {verified.digest}\n".encode())
                size_bytes += verified.size_bytes
        except BrokenCheckpoint as broken:
            self._offer(self._report(folder, step, "bad", reason=str(broken)))
        except FileNotFoundError:
            self._offer(self._report(folder, step, "deleted", reason="the trainer has deleted it"))
        else:
            report = self._report(folder, step, "verified", f"sha256:{digest.hexdigest()}", size_bytes=size_bytes)
            self._offer(report)

    def _report(
        self,
        folder: Path,
        step: int,
        state: Literal["reported", "verified", "bad", "deleted"],
        digest: str = "",
        *,
        size_bytes: int | None = None,
        reason: str = "",
    ) -> CheckpointReport:
        return CheckpointReport(
            at=time(),
            checkpoint=CheckpointId(new_checkpoint(step, 0, self._attempt)),
            step=step,
            segment=0,
            state=state,
            name=plain(folder.name),
            digest=digest,
            size_bytes=size_bytes,
            reason=plain(reason),
        )
