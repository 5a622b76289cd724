"""What a logger or the callback adds to a training step, wall time and CPU of the whole process.

Short trainings alternate, one of each kind in every round, and the kinds change places from round to round: a machine
that slows down for a while slows all of them down. What is compared is each one's time per step with that of the plain
training of the same round.
"""

from __future__ import annotations

import contextlib
import gc
import io
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn

from sentinel_agent import SentinelCallback
from sentinel_reference.config import PRESETS, PresetName
from sentinel_reference.module import LanguageModeling
from sentinel_reference.train import Job, _loader
from tests.benchmarks.rows import Middle, Row, middle
from tests.daemons import DaemonProcess

PLAIN: Final = "no logger"
SENTINEL: Final = "SentinelCallback"
KINDS: Final = (PLAIN, SENTINEL, "CSVLogger", "TensorBoardLogger")
WARM_UP_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class Subject:
    """What is trained."""

    name: str
    steps: int
    """That count, in each training."""
    make: Callable[[Path, bool], tuple[pl.LightningModule, Any]]
    """The module, which logs loss and learning rate at every step if told so, and its loader."""


class TinyModule(pl.LightningModule):
    """Next to no work: what is measured is the loop around it."""

    def __init__(self, *, logs: bool) -> None:
        super().__init__()
        self.net = nn.Linear(16, 1)
        self.logs = logs

    def configure_optimizers(self) -> Any:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        """The mean square of the outputs."""
        loss = self.net(batch).square().mean()
        if self.logs:
            self.log_dict({"loss": loss, "lr": 0.01})
        return loss


class Logged(LanguageModeling):
    """The reference trainer's module, with the two values that everybody logs."""

    def training_step(self, batch: Any) -> torch.Tensor:
        """Likewise."""
        loss = super().training_step(batch)
        self.log_dict({"loss": loss, "lr": self.trainer.optimizers[0].param_groups[0]["lr"]})
        return loss


class Stretch(pl.Callback):
    """Takes the time from the start of one step to the start of another: whole turns of the loop. Listed first."""

    def __init__(self, steps: int) -> None:
        self._last = WARM_UP_STEPS + steps
        self._steps = steps
        self._began = (0.0, 0.0)
        self.wall_ms = self.cpu_ms = 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Looks at the clocks."""
        now = time.perf_counter(), time.process_time()
        if trainer.global_step == WARM_UP_STEPS:
            self._began = now
        elif trainer.global_step == self._last:
            self.wall_ms, self.cpu_ms = (
                (end - begin) / self._steps * 1e3 for begin, end in zip(self._began, now, strict=True)
            )


def _tiny(_folder: Path, logs: bool) -> tuple[pl.LightningModule, Any]:  # noqa: FBT001
    batches = torch.randn(5000, 4, 16)
    return TinyModule(logs=logs), torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def _laptop(folder: Path, logs: bool) -> tuple[pl.LightningModule, Any]:  # noqa: FBT001
    preset = PRESETS[PresetName.LAPTOP]
    return (Logged if logs else LanguageModeling)(preset), _loader(Job(preset=preset, root=folder))


def _train(subject: Subject, kind: str, url: str) -> Stretch:
    stretch = Stretch(subject.steps)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        folder = Path(name)
        loggers = {"CSVLogger": CSVLogger, "TensorBoardLogger": TensorBoardLogger}
        logger = loggers[kind](folder) if kind in loggers else False
        callbacks: list[pl.Callback] = [stretch]
        if kind == SENTINEL:
            callbacks.append(SentinelCallback(url=url, mode="observe"))
        pl.seed_everything(1, verbose=False)
        module, loader = subject.make(folder, kind in loggers)
        gc.collect()
        pl.Trainer(
            default_root_dir=folder,
            max_steps=WARM_UP_STEPS + subject.steps + 1,
            accelerator="cpu",
            logger=logger,
            log_every_n_steps=1,
            callbacks=callbacks,
            gradient_clip_val=1.0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(module, loader)
    return stretch


def _compare(subject: Subject, rounds: int, url: str) -> Iterator[Row]:
    kinds = [kind for kind in KINDS if kind != "TensorBoardLogger" or find_spec("tensorboard") is not None]
    times: dict[str, list[Stretch]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        place = number % len(kinds)
        for kind in kinds[place:] + kinds[:place]:
            times[kind].append(_train(subject, kind, url))
    plain = middle([each.wall_ms for each in times[PLAIN]])
    yield Row(
        f"step, {subject.name}", PLAIN, f"{plain.median:.3f} ms a step", {"wall_ms": plain.median, "rounds": rounds}
    )
    added: dict[str, Middle] = {}
    for kind in kinds[1:]:
        pairs = list(zip(times[kind], times[PLAIN], strict=True))
        wall = added[kind] = middle([each.wall_ms - base.wall_ms for each, base in pairs])
        cpu = middle([each.cpu_ms - base.cpu_ms for each, base in pairs])
        share = wall.median / plain.median
        figure = f"{wall} ms wall = {share:+.2%}; {cpu} ms CPU"
        target = ""
        if kind == SENTINEL:
            target = "<= 0.08 ms, a tenth of CSVLogger's" if subject.name == "tiny" else "< 1 % of a step"
        elif subject.name == "tiny":
            figure += f"; {wall.median / added[SENTINEL].median:.1f} x SentinelCallback's"
        numbers = {"wall_ms": wall.median, "low_ms": wall.low, "high_ms": wall.high, "cpu_ms": cpu.median}
        yield Row(f"step, {subject.name}", kind, figure, numbers | {"of_step_ratio": share}, target)


def measure(*, rounds: int, tiny_steps: int, laptop_steps: int) -> Iterator[Row]:
    """Both subjects, against a daemon beside them that has its log on SQLite."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        daemon = DaemonProcess(Path(name))
        try:
            for subject in (Subject("tiny", tiny_steps, _tiny), Subject("laptop preset", laptop_steps, _laptop)):
                for kind in KINDS:
                    _train(subject, kind, daemon.url)  # imports and caches
                yield from _compare(subject, rounds, daemon.url)
        finally:
            daemon.end(signal.SIGTERM)
