"""A small image classifier as somebody writes it who has never heard of a supervisor: plain loader, default callbacks.

Run as a script; the one line for Sentinel is added when SENTINEL_MODE is set. Writes each step's loss to losses.json.
"""

import json
import os

import lightning as L  # noqa: N812 - as in Lightning's own examples
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4
IMAGES = 1600
BATCH = 16  # 100 steps an epoch


class Classifier(L.LightningModule):
    """Tells squares from crosses in noise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 2))
        self.losses: list[float] = []

    def training_step(self, batch, batch_idx):  # noqa: ARG002, D102
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):  # noqa: D102
        return torch.optim.Adam(self.parameters(), lr=1e-4)


def shapes() -> TensorDataset:
    """Noisy 16 x 16 images with their labels."""
    labels = torch.randint(2, (IMAGES,))
    images = torch.randn(IMAGES, 1, 16, 16)
    images[labels == 0, :, 4:12, 4:12] += 0.4
    images[labels == 1, :, 7:9, :] += 0.4
    images[labels == 1, :, :, 7:9] += 0.4
    return TensorDataset(images, labels)


if __name__ == "__main__":
    L.seed_everything(3)
    model = Classifier()
    trainer = L.Trainer(max_epochs=EPOCHS, enable_progress_bar=False, accelerator="cpu")
    if "SENTINEL_MODE" in os.environ:
        from sentinel_agent import SentinelCallback

        trainer = L.Trainer(
            max_epochs=EPOCHS, enable_progress_bar=False, accelerator="cpu", callbacks=[SentinelCallback()]
        )
    trainer.fit(model, DataLoader(shapes(), batch_size=BATCH, shuffle=True))
    with open("losses.json", "w") as file:  # noqa: PTH123 - a beginner's script
        json.dump(model.losses, file)
