"""A training of two ranks with dropout and shuffled data, as a program for torchrun; asked, rank 1 is killed once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from sentinel import clock
from sentinel_agent import SentinelCallback

KILLED_AFTER = 33


class Regression(pl.LightningModule):
    """Notes each loss of its rank; a step takes 50 ms at least, so that checkpoints are verified meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.2), nn.ReLU(), nn.Linear(5, 1))

    def configure_optimizers(self) -> Any:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def training_step(self, batch: Any) -> torch.Tensor:
        """The mean squared error."""
        clock.sleep(0.05)
        features, target = batch
        loss = nn.functional.mse_loss(self.net(features), target)
        with Path(f"loss-{self.global_rank}.jsonl").open("a") as log:
            log.write(json.dumps([self.trainer.global_step + 1, float(loss.detach())]) + "\n")
        killed = Path("killed")
        is_its_time = self.trainer.global_step == KILLED_AFTER and self.global_rank == 1
        if "kill" in sys.argv and is_its_time and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss


class Data(pl.LightningDataModule):
    """800 samples whose order is drawn anew each epoch."""

    def train_dataloader(self) -> Any:
        """Each rank's share of them."""
        features = torch.randn(800, 6, generator=torch.Generator().manual_seed(1))
        data = TensorDataset(features, features.sum(1, keepdim=True))
        return StatefulDataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True, seed=1))


if __name__ == "__main__":
    pl.seed_everything(3)
    trainer = pl.Trainer(
        max_steps=50,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint("checkpoints", every_n_train_steps=10, save_top_k=-1), SentinelCallback()],
        default_root_dir=".",
    )
    trainer.fit(Regression(), Data())
