"""A training whose data, dropout and schedule are random, set back according to a plan; every micro-batch is recorded.

Run as a script it is one rank of several: ``python replaying.py '{"root": ...}'``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from sentinel.protocol.commands import Reply, RollBack
from sentinel.protocol.ids import CommandId, IncidentId
from sentinel.protocol.observations import CheckpointReport, CommandResult, DataMode, Mode, ObservationBatch, StepReport
from sentinel_agent import SentinelCallback, checkpoints
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.small_training import until

SLOW_S = 0.2


@dataclass(frozen=True)
class Return:
    """One rollback of the plan: ordered at a step, to a checkpoint, perhaps over a window of steps."""

    at: int
    to: int
    skip_from: int = 0
    skip_to: int = 0
    data: DataMode = "exact"


@dataclass(frozen=True)
class Plan:
    """A whole training."""

    root: str
    returns: Sequence[Return] = ()
    ranks: int = 1
    accumulate: int = 1
    workers: int = 0
    batches: int = 14
    """Of an epoch and rank."""
    max_steps: int = 30
    max_epochs: int = -1
    seed: int = 0
    url: str = ""
    validate: bool = False
    mode: Mode = "act"
    slow_rank: int = -1
    """Takes ``SLOW_S`` more in each forward pass; none by default."""


@dataclass
class Record:
    """One micro-batch."""

    segment: int
    step: int
    samples: list[int]
    data: str
    lr: str
    loss: str


class NoisySamples(Dataset[Any]):
    """Numbered samples; each look at one adds noise, if asked: not in workers, whose generators no loader saves."""

    def __init__(self, length: int, noise: float) -> None:
        self._length = length
        self._noise = noise

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        features = torch.sin(torch.arange(6.0) * (number + 1)) + self._noise * torch.randn(6)
        return features, features.sum().unsqueeze(0), number


class RecordingModule(pl.LightningModule):
    """A regression with dropout; every micro-batch is written down."""

    def __init__(self, segment: Callable[[], int], *, delay_s: float = 0.0) -> None:
        super().__init__()
        self._delay_s = delay_s
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))
        self.records: list[Record] = []
        self._segment = segment

    def configure_optimizers(self) -> Any:
        """AdamW with a schedule that changes the rate at every step."""
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + 0.1 * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The mean squared error, written down."""
        features, target, numbers = batch
        loss = nn.functional.mse_loss(self.net(features), target)
        if self._delay_s:
            threading.Event().wait(self._delay_s)
        lr = float(self.optimizers().optimizer.param_groups[0]["lr"])
        self.records.append(
            Record(
                self._segment(),
                self.trainer.global_step,
                numbers.tolist(),
                float(features.sum()).hex(),
                lr.hex(),
                float(loss.detach()).hex(),
            )
        )
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Draws from the generators, as validations do."""
        features, target, _ = batch
        self.log("val", nn.functional.mse_loss(self.net(features), target))


class Waiting(pl.Callback):
    """Rank 0 waits at the planned steps until the order has come to the agent. To be listed before the agent."""

    def __init__(self, plan: Plan, callback: SentinelCallback) -> None:
        self._plan = plan
        self._callback = callback

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Waits where an order is due."""
        if not self._plan.returns:
            return
        agent = self._callback.agent
        segment = agent.segment
        is_due = segment < len(self._plan.returns) and trainer.global_step == self._plan.returns[segment].at
        if trainer.is_global_zero and is_due and agent.clock.reading.batches == 0:
            until(lambda: agent.commands, timeout_s=40.0)


def run(plan: Plan) -> list[Record]:
    """Trains this rank."""
    torch.manual_seed(plan.seed)
    checkpoints.PINS_KEPT = 10_000  # every step can be gone back to, however late the order comes
    callback = SentinelCallback(url=plan.url, mode=plan.mode, checkpoint_every=1, run="replayed")
    is_slow = str(plan.slow_rank) == os.environ.get("RANK")
    module = RecordingModule(
        lambda: callback.agent.segment if plan.mode == "act" else 0, delay_s=SLOW_S if is_slow else 0.0
    )
    samples = NoisySamples(plan.batches * 4 * plan.ranks, noise=0.0 if plan.workers else 0.1)
    sampler = None
    options: dict[str, Any] = {}
    if plan.ranks > 1:
        rank = int(os.environ["RANK"])
        sampler = StatefulDistributedSampler(samples, plan.ranks, rank, shuffle=True, seed=plan.seed)
        options = {"strategy": "ddp", "devices": plan.ranks, "use_distributed_sampler": False}
    if plan.workers:
        torch.multiprocessing.set_forkserver_preload(["__main__", "tests.trainer.sentinel_agent.replaying"])
    loader = StatefulDataLoader(
        samples,
        batch_size=4,
        shuffle=None if sampler else True,
        sampler=sampler,
        num_workers=plan.workers,
        multiprocessing_context="forkserver" if plan.workers else None,
    )
    trainer = pl.Trainer(
        default_root_dir=plan.root,
        accelerator="cpu",
        callbacks=[Waiting(plan, callback), callback],
        max_steps=plan.max_steps,
        max_epochs=plan.max_epochs,
        accumulate_grad_batches=plan.accumulate,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        val_check_interval=5 if plan.validate else None,
        num_sanity_val_steps=0,
        **options,
    )
    try:
        trainer.fit(module, loader, DataLoader(samples, batch_size=8) if plan.validate else None)
    finally:
        if plan.ranks > 1:
            text = json.dumps([asdict(each) for each in module.records])
            Path(plan.root, f"{os.environ['RANK']}.json").write_text(text)
    return module.records


@dataclass
class Planned:
    """The daemon's part: orders each return when its step is reached and its checkpoint verified."""

    plan: Plan
    verified: dict[int, CheckpointReport] = field(default_factory=dict)
    results: list[CommandResult] = field(default_factory=list)
    reached: tuple[int, int] = (0, 0)
    sent: int = 0
    change: Callable[[RollBack], RollBack] = lambda command: command

    def __call__(self, batch: ObservationBatch) -> Reply:
        """The reply to a batch."""
        for each in batch.observations:
            if isinstance(each, StepReport):
                self.reached = max(self.reached, (each.segment, each.step))
            elif isinstance(each, CheckpointReport) and each.state == "verified":
                self.verified[each.step] = each
            elif isinstance(each, CommandResult):
                self.results.append(each)
        reply = Reply(accepted=len(batch.observations))
        if self.sent == len(self.plan.returns):
            return reply
        next_return = self.plan.returns[self.sent]
        target = self.verified.get(next_return.to)
        if target is None or self.reached < (self.sent, next_return.at) or len(self.results) < self.sent:
            return reply
        self.sent += 1
        command = RollBack(
            id=CommandId(f"c-{self.sent}"),
            incident=IncidentId("i-1"),
            checkpoint=target.checkpoint,
            digest=target.digest,
            step=target.step,
            segment=self.sent - 1,
            expires_step=next_return.at + 200,
            data=next_return.data,
            skip_from_step=next_return.skip_from,
            skip_to_step=next_return.skip_to,
        )
        return replace(reply, commands=(self.change(command),))


def play(plan: Plan, **options: Any) -> tuple[list[list[Record]], Planned]:
    """Carries a plan out; returns the records of each rank and the daemon's part."""
    daemon_part = Planned(plan, **options)
    with FakeDaemon(daemon_part) as daemon:
        plan = replace(plan, url=daemon.url)
        if plan.ranks == 1:
            return [run(plan)], daemon_part
        processes = start(plan)
        codes = [process.wait(timeout=300) for process in processes]
    assert codes == [0] * plan.ranks, [Path(plan.root, f"{rank}.log").read_text()[-3000:] for rank in range(plan.ranks)]
    return [read(plan, rank) for rank in range(plan.ranks)], daemon_part


def start(plan: Plan, script: str = __name__, **environ: str) -> list[subprocess.Popen[bytes]]:
    """One process for each rank, as an elastic agent starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    Path(plan.root).mkdir(parents=True, exist_ok=True)
    for rank in range(plan.ranks):
        ranked = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": plan.ranks, "MASTER_PORT": port}
        named = {"LOCAL_WORLD_SIZE": plan.ranks, "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}
        environment = os.environ | {name: str(value) for name, value in (ranked | named).items()} | environ
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with Path(plan.root, f"{rank}.log").open("wb") as log:
            command = [sys.executable, "-m", script, json.dumps(asdict(plan))]
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    return processes


def read(plan: Plan, rank: int) -> list[Record]:
    """What a rank of another process has recorded."""
    return [Record(**each) for each in json.loads(Path(plan.root, f"{rank}.json").read_text())]


def plan_of(text: str) -> Plan:
    """A plan from a command line."""
    tree = json.loads(text)
    return Plan(**(tree | {"returns": [Return(**each) for each in tree["returns"]]}))


if __name__ == "__main__":
    run(plan_of(sys.argv[1]))
