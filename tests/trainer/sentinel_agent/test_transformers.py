from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from sentinel.protocol.observations import AttemptEnded, AttemptStarted, CheckpointReport, StepReport
from sentinel_agent.fail_open import guarded
from sentinel_agent.transformers import SentinelCallback
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.small_training import same

ABSENT = "http://127.0.0.1:9"
HOOKS = [
    "_begin",
    "_end",
    "_forward_begins",
    "_forward_ended",
    "on_step_begin",
    "on_substep_end",
    "on_pre_optimizer_step",
    "on_step_end",
    "on_log",
    "on_save",
]


class Regression(nn.Module):
    """A model that knows nothing of how many items a step has: the Trainer divides its loss by the micro-batches."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean squared error."""
        return {"loss": nn.functional.mse_loss(self.net(x), labels)}


def regression() -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    """A model and its samples."""
    transformers.set_seed(5)
    return Regression(), [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(64)]


def language_model() -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    """A model that divides its loss by the tokens of all micro-batches, and samples of unequal weight."""
    transformers.set_seed(5)
    config = transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    samples = []
    for number in range(64):
        row = torch.randint(0, 16, (8,))
        samples.append({"input_ids": row, "labels": row.masked_fill(torch.arange(8) > 2 + number % 6, -100)})
    return transformers.GPT2LMHeadModel(config), samples


def train(
    root: Path,
    *callbacks: Any,
    task: Callable[[], tuple[nn.Module, list[dict[str, torch.Tensor]]]] = regression,
    resume_from: str | None = None,
    **options: Any,
) -> Any:
    """Trains 12 steps and returns the trainer."""
    model, samples = task()
    defaults: dict[str, Any] = {
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    arguments = transformers.TrainingArguments(str(root / "out"), **(defaults | options))
    trainer = transformers.Trainer(
        model, arguments, train_dataset=samples, eval_dataset=samples[:8], callbacks=list(callbacks)
    )
    trainer.train(resume_from_checkpoint=resume_from)
    return trainer


def logged(trainer: Any, name: str) -> list[float]:
    """One value of the Trainer's own log."""
    return [each[name] for each in trainer.state.log_history if "loss" in each]


@pytest.mark.parametrize("task", [regression, language_model])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_readings_are_what_the_trainer_logs(tmp_path: Path, task: Any, accumulate: int) -> None:
    """Loss, norm before clipping and rate of each step are those of a Trainer that logs each one."""
    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url)
        trainer = train(tmp_path, sentinel, task=task, gradient_accumulation_steps=accumulate, max_grad_norm=0.1)
        told = daemon.told(StepReport)
        (start,) = daemon.told(AttemptStarted)
        (end,) = daemon.told(AttemptEnded)
    assert [each.step for each in told] == list(range(1, 13))
    assert [each.loss for each in told] == pytest.approx(logged(trainer, "loss"), rel=1e-5)
    assert [each.grad_norm for each in told] == pytest.approx(logged(trainer, "grad_norm"), rel=1e-5)
    assert [each.lr for each in told] == pytest.approx(logged(trainer, "learning_rate"))
    assert {each.samples for each in told} == {4 * accumulate}
    assert {each.tokens for each in told} == {None if task is regression else 32 * accumulate}
    for each in told:
        assert each.step_s is not None
        parts = (each.forward_s, each.backward_s, each.optimizer_s)
        assert all(seconds is not None and 0 < seconds < each.step_s for seconds in parts)
    assert (start.accumulate, start.max_steps, start.rollback) == (accumulate, 12, "none")
    assert start.versions["transformers"] == transformers.__version__
    assert (end.outcome, end.step) == ("finished", 12)


def test_norm_of_a_training_without_clipping_is_read_each_step(tmp_path: Path) -> None:
    """Where nothing is clipped the agent has the norm of every step, however seldom the Trainer logs."""
    every = train(tmp_path, max_grad_norm=0.0)
    with FakeDaemon() as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url), max_grad_norm=0.0, logging_steps=6)
        norms = [each.grad_norm for each in daemon.told(StepReport)]
    assert norms == pytest.approx(logged(every, "grad_norm"), rel=1e-5)


def test_seldom_logged_norm_stands_in_its_step(tmp_path: Path) -> None:
    """With clipping the norm is known where it is logged, and every step is told once, in order."""
    with FakeDaemon() as daemon:
        trainer = train(tmp_path, SentinelCallback(url=daemon.url), logging_steps=5)
        told = daemon.told(StepReport)
    assert [each.step for each in told] == list(range(1, 13))
    known = {each.step: each.grad_norm for each in told if each.grad_norm is not None}
    assert known == pytest.approx(dict(zip((5, 10), logged(trainer, "grad_norm"), strict=True)), rel=1e-5)


def test_evaluation_is_left_out(tmp_path: Path) -> None:
    """Losses and time of an evaluation between two steps belong to neither."""

    class Slow(transformers.TrainerCallback):
        def on_prediction_step(self, *_: Any, **__: Any) -> None:
            torch.randn(400, 400) @ torch.randn(400, 400)

    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url)
        trainer = train(tmp_path, Slow(), sentinel, eval_strategy="steps", eval_steps=3)
        told = daemon.told(StepReport)
    assert [each.loss for each in told] == pytest.approx(logged(trainer, "loss"), rel=1e-5)
    assert {each.samples for each in told} == {4}


@pytest.mark.parametrize("hook", [None, *HOOKS])
def test_training_is_bit_identical(tmp_path: Path, hook: str | None) -> None:
    """Without a daemon, and with a hook that raises each time, the training is what it is alone."""

    def raising(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    options: dict[str, Any] = {"gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 6}
    alone = train(tmp_path / "alone", **options)
    kind = type("Broken", (SentinelCallback,), {hook: guarded(raising)} if hook else {})
    sentinel = kind(url=ABSENT)
    watched = train(tmp_path / "watched", sentinel, **options)
    assert bool(sentinel.guard.errors_total) == bool(hook)
    assert logged(watched, "loss") == logged(alone, "loss")
    assert same(watched.model.state_dict(), alone.model.state_dict())
    assert same(watched.optimizer.state_dict(), alone.optimizer.state_dict())
    assert not watched.model._forward_hooks
    assert not watched.model._forward_pre_hooks


def test_folders_are_told_as_they_come_and_go(tmp_path: Path) -> None:
    """Each checkpoint is verified with a digest over its files; what the Trainer's rotation deletes is told deleted."""
    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url)
        train(tmp_path, sentinel, save_strategy="steps", save_steps=4, save_total_limit=1)
        told = daemon.told(CheckpointReport)
    assert {each.step for each in told if each.state == "deleted"} == {4, 8}
    (last,) = [each for each in told if each.step == 12 and each.state == "verified"]
    assert last.name == "checkpoint-12"
    assert last.size_bytes == sum(each.stat().st_size for each in (tmp_path / "out/checkpoint-12").iterdir())
    assert {each.digest for each in told if each.state != "verified"} == {""}


def test_resumed_training_is_another_attempt_of_its_run(tmp_path: Path) -> None:
    """A resume keeps the run's name and goes on at its step."""
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 6}
    with FakeDaemon() as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url), **options)
        folder = str(tmp_path / "out" / "checkpoint-6")
        train(tmp_path, SentinelCallback(url=daemon.url), resume_from=folder, **options)
        assert len({batch.run for batch in daemon.batches}) == 1
        assert [each.step for each in daemon.told(AttemptStarted)] == [0, 6]


def test_training_that_raised_is_ended_by_the_next(tmp_path: Path) -> None:
    """No hook tells of an exception: at the latest the next training with the callback ends the attempt before it."""

    class Raising(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step == 3:
                raise ValueError("bad batch")

    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url)
        with pytest.raises(ValueError, match="bad batch"):
            train(tmp_path, sentinel, Raising())
        train(tmp_path, sentinel)
        assert [each.outcome for each in daemon.told(AttemptEnded)] == ["interrupted", "finished"]


def test_loss_outside_of_the_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the script computes the loss from the model's outputs it is not read, and one line says so."""

    class Bare(Regression):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.net(x)}

    class Own(transformers.Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> torch.Tensor:
            return model(**inputs)["out"].square().mean()

    _, samples = regression()
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=3, save_strategy="no", report_to="none", use_cpu=True, dataloader_pin_memory=False
    )
    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url)
        Own(Bare(), arguments, train_dataset=samples, callbacks=[sentinel]).train()
        assert [each.loss for each in daemon.told(StepReport)] == [None] * 3
    assert capsys.readouterr().err.count("the model's forward pass returns no loss") == 1


def test_mode_off_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In mode off no line is printed, no file written, no daemon asked."""
    with FakeDaemon() as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url, mode="off"))
        assert not daemon.batches
    assert "sentinel:" not in capsys.readouterr().err
    assert not (tmp_path / "out" / ".sentinel").exists()
