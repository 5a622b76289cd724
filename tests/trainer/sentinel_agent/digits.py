"""A classifier of small images, as people write them for Lightning; it knows nothing of Sentinel."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_images(count: int) -> TensorDataset:
    """Noisy images of 16 x 16 pixels with a bright square at one of ten places."""
    labels = torch.randint(0, 10, (count,))
    images = torch.rand(count, 1, 16, 16)
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 4)
        image[0, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] += 0.5
    return TensorDataset(images, labels)


class Classifier(pl.LightningModule):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip

    def training_step(self, batch):
        """Cross-entropy."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch):
        """The share of images that are told right."""
        images, labels = batch
        self.log("accuracy", (self.net(images).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        """Adam, slower every second epoch."""
        optimizer = torch.optim.Adam(self.parameters(), lr=3e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]


def main() -> None:
    """Trains, and keeps the weights."""
    pl.seed_everything(1)
    train, valid = make_images(1024), make_images(256)
    model = Classifier()
    trainer = pl.Trainer(
        max_epochs=6,
        accelerator="cpu",
    )
    trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(valid, batch_size=64))
    torch.save(model.state_dict(), "model.pt")
    print(f"accuracy {float(trainer.callback_metrics['accuracy']):.3f}")


if __name__ == "__main__":
    main()
