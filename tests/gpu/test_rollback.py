"""A training on the device goes back to the bit, and leaves no memory behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from sentinel.protocol.commands import Reply, RollBack
from sentinel.protocol.ids import CommandId, IncidentId
from sentinel.protocol.observations import CheckpointReport, CommandResult, ObservationBatch
from sentinel_agent import SentinelCallback
from sentinel_reference.config import PRESETS, PresetName
from sentinel_reference.train import Job, train
from tests.fakes import FakeDaemon
from tests.gpu.plain_training import Training
from tests.trainer.sentinel_agent.small_training import Gate, Orders, commanded, same, until

pytestmark = pytest.mark.gpu
ROLLBACKS = 5


class Diary(Callback):
    """The data, the loss and a number of the device's generator at each micro-batch, with the step it belongs to."""

    def __init__(self, device: torch.device) -> None:
        self.entries: list[tuple[int, int, str, str]] = []
        self._device = device
        self._drawn = ""

    def on_train_batch_start(self, *_: Any) -> None:
        """Draws a number, as dropout would."""
        self._drawn = float(torch.randn((), device=self._device)).hex()

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """Writes the entry."""
        loss = float(outputs["loss"]).hex()
        self.entries.append((trainer.global_step, int(batch["position"][0]), loss, self._drawn))


def test_reference_training_is_replayed_to_the_bit(deterministic: torch.device, tmp_path: Path) -> None:
    """After a rollback with exact data, losses, data and the device's random numbers are those of the first time."""
    job = Job(preset=PRESETS[PresetName.LAPTOP], root=tmp_path / "run", max_steps=20, checkpoint_every_steps=5)
    diary = Diary(deterministic)
    orders = Orders(at_step=13, to_step=10, change=lambda command: replace(command, data="exact"))
    with FakeDaemon(orders) as daemon:
        sentinel = SentinelCallback(url=daemon.url, mode="act")
        train(job, [Gate(13, commanded(sentinel)), diary, sentinel])
        (result,) = daemon.told(CommandResult)
    assert (result.outcome, result.step) == ("succeeded", 10), result.reason
    assert "weights" in result.verified
    steps = [entry[0] for entry in diary.entries]
    assert steps == [*range(1, 14), *range(11, 21)]
    assert diary.entries[13:16] == diary.entries[10:13]


def test_plain_loop_goes_back_to_the_bit(deterministic: torch.device, tmp_path: Path) -> None:
    """Weights, moments, schedule and the device's generator are those of the save, and so are the losses after it."""
    with FakeDaemon(Orders(at_step=7, to_step=4)) as daemon:
        training = Training(deterministic)
        with training.agent(tmp_path, url=daemon.url, mode="act", checkpoint_every=4) as sentinel:
            training.run(4, sentinel)
            torch.save(training.state(), tmp_path / "state.pt")
            training.run(3, sentinel)
            until(lambda: sentinel._agent.commands)
            assert sentinel.step() == 4
            assert same(training.state(), torch.load(tmp_path / "state.pt"))
            training.run(3, sentinel)
        (result,) = daemon.told(CommandResult)
    assert (result.outcome, result.reason) == ("succeeded", "")
    losses = [float(loss).hex() for loss in training.losses]
    assert losses[7:] == losses[4:7]


class Again:
    """A daemon that orders a rollback to the first verified checkpoint again and again."""

    def __init__(self) -> None:
        self.target: CheckpointReport | None = None
        self.done: set[CommandId] = set()
        self.wanted = 0

    def __call__(self, batch: ObservationBatch) -> Reply:
        """The reply to a batch."""
        for each in batch.observations:
            if isinstance(each, CheckpointReport) and each.state == "verified" and self.target is None:
                self.target = each
            if isinstance(each, CommandResult) and each.outcome == "succeeded":
                self.done.add(each.command)
        reply = Reply(accepted=len(batch.observations))
        if self.target is None or len(self.done) >= self.wanted:
            return reply
        command = RollBack(
            id=CommandId(f"c-{len(self.done)}"),
            incident=IncidentId("i-1"),
            checkpoint=self.target.checkpoint,
            digest=self.target.digest,
            step=self.target.step,
            segment=len(self.done),
            expires_step=10**6,
        )
        return replace(reply, commands=(command,))


def test_rollbacks_leave_no_memory_behind(cuda: torch.device, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """After each of five rollbacks the device holds what it held before the first, and torch has reserved no more."""
    daemon_side = Again()
    allocated, reserved = [], []
    with FakeDaemon(daemon_side) as daemon:
        training = Training(cuda, width=2048)
        with training.agent(tmp_path, url=daemon.url, mode="act", checkpoint_every=2) as sentinel:
            training.run(2, sentinel)
            until(lambda: daemon_side.target is not None)
            for number in range(ROLLBACKS + 1):
                daemon_side.wanted = number
                training.run(1)
                if number:
                    sentinel.step()  # a report, whose reply brings the order
                    until(lambda: sentinel._agent.commands)
                    assert sentinel.step() == 2
                torch.cuda.synchronize()
                allocated.append(torch.cuda.memory_allocated(cuda))
                reserved.append(torch.cuda.memory_reserved(cuda))
        results = [each.duration_s or 0.0 for each in daemon.told(CommandResult)]
    assert len(daemon_side.done) == ROLLBACKS
    assert max(allocated) <= allocated[0] + 2**20
    assert reserved[-1] <= reserved[1]
    weights_mb = sum(each.numel() for each in training.model.parameters()) * 4 / 1e6
    figure(f"rollback of {weights_mb:.0f} MB of weights with AdamW's moments: {min(results) * 1e3:.0f} ms at best")
