"""A training of a second, its diary, and a daemon's part in which one rollback is ordered."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sentinel.protocol.commands import Reply, RollBack
from sentinel.protocol.ids import CheckpointId, CommandId, IncidentId
from sentinel.protocol.observations import CheckpointReport, CommandResult, ObservationBatch, StepReport
from sentinel_agent import SentinelCallback

BATCH = 4


def loader(batches: int = 24, **options: Any) -> DataLoader[Any]:
    """Batches of (features, target, batch number), always the same."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(batches * BATCH, 6, generator=generator)
    targets = torch.randn(batches * BATCH, 1, generator=generator)
    numbers = torch.arange(batches).repeat_interleave(BATCH)
    return DataLoader(TensorDataset(features, targets, numbers), batch_size=BATCH, **options)


@dataclass
class Entry:
    """The training at the start of a micro-batch."""

    step: int
    batch: int
    state: dict[str, Any]


class SmallModule(pl.LightningModule):
    """A regression with dropout that keeps a diary; a poisoned batch makes its loss NaN."""

    def __init__(self, *, poisoned: Sequence[int] = ()) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.2), nn.ReLU(), nn.Linear(5, 1))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.poisoned = poisoned
        self.losses: list[str] = []
        self.diary: list[Entry] = []

    def configure_optimizers(self) -> Any:
        """AdamW with a schedule that changes the rate at every step."""
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_start(self, batch: Any, *_: Any) -> None:
        """Writes the diary; a module's hook comes after those of all callbacks."""
        optimizer = self.optimizers().optimizer
        state = {
            "model": self.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": self.lr_schedulers().state_dict(),
            "random": (torch.get_rng_state(), random.getstate()),
        }
        self.diary.append(Entry(self.trainer.global_step, int(batch[2][0]), deepcopy(state)))

    def training_step(self, batch: Any) -> torch.Tensor:
        """The mean squared error."""
        features, target, number = batch
        loss = nn.functional.mse_loss(self.net(features), target)
        if int(number[0]) in self.poisoned:
            loss = loss * float("nan")
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.losses.append(float(loss.detach()).hex())
        return loss


def train(
    root: Path,
    *callbacks: pl.Callback,
    module: SmallModule | None = None,
    data: Any = None,
    ckpt_path: str | None = None,
    **options: Any,
) -> tuple[pl.Trainer, SmallModule]:
    """Trains the small module for 24 batches, seeded; options are the trainer's."""
    torch.manual_seed(11)
    module = module or SmallModule()
    defaults: dict[str, Any] = {"max_epochs": 1, "logger": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(
        default_root_dir=root, callbacks=list(callbacks), enable_model_summary=False, **(defaults | options)
    )
    trainer.fit(module, loader() if data is None else data, ckpt_path=ckpt_path)
    return trainer, module


def same(left: object, right: object) -> bool:
    """Bit-identical trees of tensors and values."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def until(condition: Callable[[], object], *, timeout_s: float = 10.0) -> None:
    """Waits for another thread's work."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.002)):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError("what was waited for did not happen")


class Gate(pl.Callback):
    """Holds the training after a step until something has happened elsewhere. To be listed before the agent."""

    def __init__(self, step: int, condition: Callable[[], object]) -> None:
        self._step = step
        self._condition = condition
        self._is_open = False

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Waits, once."""
        if trainer.global_step == self._step and not self._is_open:
            self._is_open = True
            until(self._condition)


@dataclass
class Orders:
    """A daemon that orders one rollback: at ``at_step``, as soon as the checkpoint of ``to_step`` is verified.

    ``change`` may alter the command; it is repeated with each reply until ``repeats`` are sent.
    """

    at_step: int
    to_step: int
    change: Callable[[RollBack], RollBack] = lambda command: command
    repeats: int = 1
    newest_step: int = 0
    verified: dict[int, CheckpointReport] = field(default_factory=dict)
    results: list[CommandResult] = field(default_factory=list)
    sent: int = 0

    def __call__(self, batch: ObservationBatch) -> Reply:
        """The reply to a batch."""
        for each in batch.observations:
            if isinstance(each, StepReport):
                self.newest_step = max(self.newest_step, each.step)
            elif isinstance(each, CheckpointReport) and each.state == "verified":
                self.verified.setdefault(each.step, each)
            elif isinstance(each, CommandResult):
                self.results.append(each)
        reply = Reply(accepted=len(batch.observations))
        target = self.verified.get(self.to_step)
        if target is None or self.newest_step < self.at_step or self.sent >= self.repeats:
            return reply
        self.sent += 1
        command = RollBack(
            id=CommandId("c-1"),
            incident=IncidentId("i-1"),
            checkpoint=CheckpointId(target.checkpoint),
            digest=target.digest,
            step=target.step,
            segment=0,
            expires_step=self.at_step + 10,
            reason="the loss is not finite",
        )
        return replace(reply, commands=(self.change(command),))


def commanded(callback: SentinelCallback) -> Callable[[], object]:
    """Whether a command waits for the next boundary."""
    return lambda: callback.agent.commands
