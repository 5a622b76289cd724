from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from sentinel_reference.data import PackedSequences
from sentinel_reference.faults import Fault, FaultError, StaleTargets, parse_fault
from sentinel_reference.train import Job

Run = Callable[..., list[dict[str, Any]]]


class Rewinds(Callback):
    """Sets the step back by five, once, while the data goes on."""

    def __init__(self) -> None:
        self.done = False

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Does so after the eighth step."""
        if trainer.global_step == 8 and not self.done:
            self.done = True
            progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
            progress.ready = progress.completed = 3


class Finite(Callback):
    """Keeps, by step, whether all weights are finite after it."""

    def __init__(self) -> None:
        self.by_step: dict[int, bool] = {}

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Looks at every weight."""
        self.by_step[trainer.global_step] = all(bool(weight.isfinite().all()) for weight in module.parameters())


def _struck(job: Job) -> list[dict[str, Any]]:
    assert job.fault_log
    return [json.loads(line) for line in job.fault_log.read_text().splitlines()]


@pytest.fixture
def faulty(job: Job, tmp_path: Path) -> Callable[..., Job]:
    """The job with faults, which it notes."""
    return lambda *texts: replace(
        job, faults=[parse_fault(text) for text in texts], fault_log=tmp_path / "faults.jsonl"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("corrupt_data@250:12", Fault("corrupt_data", 250, 12)),
        ("corrupt_data@250", Fault("corrupt_data", 250, 8)),
        ("nan@7", Fault("nan", 7, 0)),
        ("flip_checkpoint@560:50", Fault("flip_checkpoint", 560, 50)),
    ],
)
def test_fault_is_read(text: str, fault: Fault) -> None:
    """Kind, step and length are read, and a missing length is the kind's own."""
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corupt_data@5:2", "did you mean corrupt_data"),
        ("NaN@5", "did you mean nan"),
        ("flip@5", "did you mean flip_checkpoint"),
        ("nan", "not KIND@STEP"),
        ("nan@0", "not KIND@STEP"),
        ("nan@-1", "not KIND@STEP"),
        ("corrupt_data@5:0", "not KIND@STEP"),
        ("nan@5:3", "nan has no length; write nan@5"),
    ],
)
def test_mistyped_fault_is_refused(text: str, message: str) -> None:
    """What cannot be read is refused with the nearest right name or the right form."""
    with pytest.raises(FaultError, match=message):
        parse_fault(text)


def test_targets_stand_still_in_the_window_and_nowhere_else() -> None:
    """Each row of the window has the targets of its row in the step before the window; tokens are never touched."""
    sound = PackedSequences(
        torch.arange(201).to(torch.uint16), source="here", context_tokens=4, vocabulary_size=257, seed=0
    )
    stale = StaleTargets(sound, Fault("corrupt_data", step=3, length=2), step_sequences=4)
    for position in range(50):
        kept = 8 + position % 4 if 12 <= position < 20 else position
        assert torch.equal(stale[position]["targets"], sound[kept]["targets"])
        assert torch.equal(stale[position]["tokens"], sound[position]["tokens"])


def test_corrupt_data_raises_the_loss_and_is_noted(faulty: Callable[..., Job], run: Run) -> None:
    """The losses of the window are not those of a sound run, those before it are, and its first step is noted once."""
    job = faulty("corrupt_data@8:2")
    losses, sound = ([line["loss"] for line in run(each)] for each in (job, replace(job, faults=())))
    assert losses[:8] == sound[:8]
    assert losses[8] > sound[8]
    noted = _struck(job)
    assert [(note["kind"], note["step"], note["data_step"], note["length_steps"]) for note in noted] == [
        ("corrupt_data", 9, 8, 2)
    ]


def test_fault_belongs_to_the_data_not_to_the_step(faulty: Callable[..., Job], run: Run) -> None:
    """When the step goes back and the data goes on, a fault that is past is not met again, nor a later one early."""
    job = faulty("nan@6", "corrupt_data@10:1")
    lines = run(job, Rewinds())
    assert [line["step"] for line in lines] == [*range(1, 9), *range(4, 13)]
    assert [line["position"] // 8 for line in lines] == list(range(17))
    assert [(note["kind"], note["step"], note["data_step"]) for note in _struck(job)] == [
        ("nan", 7, 6),
        ("corrupt_data", 6, 10),
    ]


def test_nan_arises_in_one_forward_pass_and_reaches_the_weights(faulty: Callable[..., Job], run: Run) -> None:
    """Loss and weights are finite up to the struck step and NaN from it on, and one activation was enough."""
    finite = Finite()
    lines = run(faulty("nan@6"), finite)
    assert [line["loss"] == line["loss"] for line in lines] == [True] * 6 + [False] * 6
    assert list(finite.by_step.values()) == [True] * 7 + [False] * 6


class LinksCheckpoints(Callback):
    """Gives every checkpoint a hard link when it is new, and keeps its bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before: dict[str, bytes] = {}

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Looks for new ones."""
        for path in Path(trainer.checkpoint_callback.dirpath).glob("*.ckpt"):
            if path.name not in self.before:
                self.before[path.name] = path.read_bytes()
                os.link(path, self.folder / path.name)


@pytest.mark.parametrize(
    ("text", "name"), [("flip_checkpoint@11", "step=10.ckpt"), ("flip_checkpoint@11:5", "step=5.ckpt")]
)
def test_flip_changes_one_bit_of_the_newest_old_enough(
    faulty: Callable[..., Job], run: Run, tmp_path: Path, *, text: str, name: str
) -> None:
    """One bit of one checkpoint differs, and differs in a hard link made before; all other checkpoints are whole."""
    (tmp_path / "pins").mkdir()
    links = LinksCheckpoints(tmp_path / "pins")
    job = faulty(text)
    run(job, links)
    flipped = {}
    for path in (tmp_path / "pins").iterdir():
        pairs = zip(path.read_bytes(), links.before[path.name], strict=True)
        flipped[path.name] = sum((now ^ before).bit_count() for now, before in pairs)
    assert flipped == {"step=5.ckpt": 0, "step=10.ckpt": 0} | {name: 1}
    assert [Path(note["file"]).name for note in _struck(job)] == [name]


def test_flip_without_a_checkpoint_stops_with_the_remedy(faulty: Callable[..., Job], run: Run) -> None:
    """A bit cannot be flipped in a checkpoint that does not exist: the message says what to change."""
    with pytest.raises(FaultError, match=r"flip_checkpoint@6:5: .*no checkpoint that is 5 steps old at step 6.*later"):
        run(faulty("flip_checkpoint@6:5"))
