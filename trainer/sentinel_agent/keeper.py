"""Follows each checkpoint from the moment it is saved: pinned, reported, verified in the background, let go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any, Literal

from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import CheckpointReport, Observation
from sentinel_agent.checkpoints import Checkpoint, CheckpointStore
from sentinel_agent.contents import BrokenCheckpoint, verify
from sentinel_agent.courier import Work
from sentinel_agent.text import plain


@dataclass(frozen=True, slots=True)
class Contents:
    """What was found about a checkpoint while it was being saved."""

    problem: str
    """What is wrong with its numbers; empty if nothing is."""
    sidecar: Mapping[str, Any]


class CheckpointKeeper:
    """The run's checkpoints, kept and reported on.

    Args:
        store: where they are pinned.
        post: puts an observation or work into the agent's inbox, in order with the steps.
        offer: tells the daemon; for the agent's thread.
        say: prints a line.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        post: Callable[[Observation | Work], object],
        offer: Callable[[Observation], object],
        say: Callable[[str], None],
    ) -> None:
        self.store = store
        self._post = post
        self._offer = offer
        self._say = say
        self._said: set[str] = set()

    def found_again(self, step: int) -> None:
        """Reports what earlier attempts left; what lies beyond ``step``, where this one begins, is of another branch.

        Raises:
            OSError: the folder cannot be read.
        """
        for gone in self.store.load():
            self._post(_report(gone, "deleted", "its file is gone"))
        self.store.abandon(step)
        for checkpoint in self.store.checkpoints:
            if checkpoint.state == "abandoned":
                continue
            if checkpoint.state == "reported":
                self._post(self._verification(checkpoint))
            else:
                self._post(_report(checkpoint, checkpoint.state))

    def saved(self, path: Path, *, step: int, segment: int, contents: Contents) -> None:
        """The user's script has saved a checkpoint. For the training's thread."""
        if self.store.has(step, segment):
            return
        if not path.is_file():
            self._say_once("no file", f"{path} is no local file after saving: such checkpoints are not watched")
            return
        try:
            checkpoint = self.store.link(self.store.new(step, segment), path)
            if checkpoint.elsewhere:
                self._say_once("no link", f"{path} cannot be linked to {self.store.folder}: rotation may take it away")
            self.take(checkpoint, contents)
        except OSError as error:
            self._say_once("no folder", f"checkpoints cannot be kept, so there is nothing to go back to: {error}")

    def take(self, checkpoint: Checkpoint, contents: Contents) -> None:
        """A checkpoint lies at its place in the store. For the training's thread.

        Raises:
            OSError: its sidecar cannot be written.
        """
        self.store.add(checkpoint, contents.sidecar)
        if contents.problem:
            self._post(_report(checkpoint, "bad", contents.problem))
            self._post(_deferred(lambda: self.store.release(checkpoint)))
        else:
            self._post(_report(checkpoint, "reported"))
            self._post(self._verification(checkpoint))

    def condemn(self, checkpoint: Checkpoint, reason: str) -> None:
        """A checkpoint turned out broken. For the training's thread."""
        self._post(_report(checkpoint, "bad", reason))
        self._post(_deferred(lambda: self.store.update(replace(checkpoint, state="bad"))))

    def went_back(self, step: int) -> None:
        """The run has gone back to ``step``. For the training's thread."""
        self._post(_deferred(lambda: self.store.abandon(step)))

    def release(self, named: Collection[CheckpointId]) -> None:
        """Lets go what the daemon named. For the agent's thread."""
        for checkpoint in [each for each in self.store.checkpoints if each.id in named]:
            self._let_go(checkpoint, "released by the daemon")

    def _verification(self, checkpoint: Checkpoint) -> Work:
        state: Literal["verified", "bad"] = "verified"
        reason = ""
        self.store.update(checkpoint)
        try:
            verified = yield from verify(self.store.path(checkpoint))
            checkpoint = replace(checkpoint, digest=verified.digest, size_bytes=verified.size_bytes)
        except BrokenCheckpoint as problem:
            state, reason = "bad", str(problem)
        except FileNotFoundError:
            self._let_go(checkpoint, "its file is gone")
            return
        checkpoint = replace(checkpoint, state=state)
        self.store.update(checkpoint)
        self._offer(_report(checkpoint, state, reason))
        for surplus in self.store.surplus():
            self._let_go(surplus, "to keep the disk free")

    def _let_go(self, checkpoint: Checkpoint, reason: str) -> None:
        if self.store.get(checkpoint.id) is not None:
            self.store.release(checkpoint)
            self._offer(_report(checkpoint, "deleted", reason))

    def _say_once(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._say(text)


def _deferred(action: Callable[[], object]) -> Work:
    action()
    yield


def _report(
    checkpoint: Checkpoint, state: Literal["reported", "verified", "bad", "deleted"], reason: str = ""
) -> CheckpointReport:
    return CheckpointReport(
        at=time(),
        checkpoint=checkpoint.id,
        step=checkpoint.step,
        segment=checkpoint.segment,
        state=state,
        name=plain(checkpoint.name),
        digest=checkpoint.digest if state == "verified" else "",
        size_bytes=checkpoint.size_bytes,
        reason=plain(reason),
    )
