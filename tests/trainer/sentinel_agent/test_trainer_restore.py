from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint, Timer

from sentinel.protocol.commands import RollBack
from sentinel.protocol.observations import AttemptEnded, CheckpointReport, CommandResult, StepReport
from sentinel_agent import SentinelCallback
from sentinel_agent.fail_open import HalfRestored
from sentinel_agent.trainer_restore import LightningLoop
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.small_training import Gate, Orders, SmallModule, commanded, same, train


def roll_back(
    root: Path,
    *callbacks: Any,
    at_step: int = 5,
    to_step: int = 2,
    change: Callable[[RollBack], RollBack] = lambda command: command,
    **options: Any,
) -> tuple[pl.Trainer, SmallModule, FakeDaemon]:
    """A training set back once; returns the trainer, its module, and the daemon that ordered it."""
    orders = Orders(at_step=at_step, to_step=to_step, change=change)
    with FakeDaemon(orders) as daemon:
        sentinel = SentinelCallback(url=daemon.url, mode="act", checkpoint_every=2)
        gate = Gate(at_step, commanded(sentinel))
        trainer, module = train(root, gate, *callbacks, sentinel, **options)
    return trainer, module, daemon


def return_of(module: SmallModule) -> int:
    """The place in the diary where the step went back."""
    return next(at for at in range(1, len(module.diary)) if module.diary[at].step < module.diary[at - 1].step)


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_state_is_that_of_the_checkpoint_and_data_goes_on(tmp_path: Path, accumulate: int, clip: float | None) -> None:
    """After a rollback weights, moments, schedule, generators and step are the checkpoint's; the batch is the next."""
    _, module, daemon = roll_back(
        tmp_path, at_step=5, to_step=2, accumulate_grad_batches=accumulate, gradient_clip_val=clip
    )
    assert [entry.batch for entry in module.diary] == list(range(24))
    after = return_of(module)
    then = next(entry for entry in module.diary if entry.step == 2)
    assert module.diary[after].batch == 5 * accumulate
    assert module.diary[after].step == 2
    assert same(module.diary[after].state, then.state)
    (result,) = daemon.told(CommandResult)
    assert (result.outcome, result.step, result.segment, result.from_step) == ("succeeded", 2, 1, 5)
    steps = [(each.segment, each.step) for each in daemon.told(StepReport)]
    assert steps == [(0, step) for step in range(1, 6)] + [(1, step) for step in range(3, 24 // accumulate - 2)]


def test_run_with_a_nan_comes_back(tmp_path: Path) -> None:
    """Weights that one batch made NaN are finite again, so is the epoch's mean; what was saved between is told bad."""
    trainer, module, daemon = roll_back(tmp_path, at_step=8, to_step=4, module=SmallModule(poisoned=[6]))
    before = module.diary[return_of(module) - 1]
    assert before.state["model"]["net.3.weight"].isnan().all()
    (bad,) = [each for each in daemon.told(CheckpointReport) if each.state == "bad"]
    assert bad.step == 8
    assert bad.reason == "not finite: net.0.weight, net.0.bias, net.3.weight and 9 more"
    assert all(parameter.isfinite().all() for parameter in module.parameters())
    assert torch.isfinite(trainer.callback_metrics["loss_epoch"])


def test_learning_rate_is_scaled_for_good(tmp_path: Path) -> None:
    """A command with lr_scale multiplies the rate, and the schedule goes on from the scaled base."""
    _, module, _ = roll_back(tmp_path, change=lambda command: replace(command, lr_scale=0.5))
    rates = [entry.state["optimizer"]["param_groups"][0]["lr"] for entry in module.diary]
    expected = [0.05 / (1 + entry.step) for entry in module.diary]
    after = return_of(module)
    assert rates == pytest.approx([*expected[:after], *(0.5 * rate for rate in expected[after:])])


def test_callbacks_go_back_with_the_model(tmp_path: Path) -> None:
    """Early stopping and averaged weights are restored, and the average is not mixed up with the weights."""
    stopping = EarlyStopping("loss", patience=1000)
    averages: list[dict[str, Any]] = []
    counts: list[int] = []

    class Watching(SmallModule):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            super().on_train_batch_start(batch, batch_idx)
            averages.append({name: value.clone() for name, value in ema._average_model.state_dict().items()})
            counts.append(stopping.wait_count)
            stopping.wait_count += 1

    ema = EMAWeightAveraging(decay=0.5)
    _, module, _ = roll_back(tmp_path, ema, stopping, module=Watching())
    after = return_of(module)
    assert same(module.diary[after].state, module.diary[2].state)
    assert same(averages[after], averages[2])
    assert counts[after] == counts[2]


def test_own_checkpoints_of_the_user_go_on_untouched(tmp_path: Path) -> None:
    """A rollback loads no state into ModelCheckpoint and Timer, and a step that comes again is saved again."""
    saved: list[int] = []

    class Saver(ModelCheckpoint):
        def load_state_dict(self, *_: Any) -> None:
            raise AssertionError("the top-k must stay what it is")

        def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
            saved.append(trainer.global_step)
            super()._save_checkpoint(trainer, filepath)

    class Clock(Timer):
        def load_state_dict(self, *_: Any) -> None:
            raise AssertionError("time does not go back")

    saver = Saver(tmp_path / "mine", every_n_train_steps=3, save_top_k=-1, filename="{step}")
    _, _, daemon = roll_back(tmp_path, saver, Clock(duration=timedelta(hours=1)), max_steps=9)
    assert [each.outcome for each in daemon.told(CommandResult)] == ["succeeded"]
    assert saved == [3, 3, 6, 9]
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["step=3.ckpt", "step=6.ckpt", "step=9.ckpt"]


def test_breaking_off_in_the_middle_ends_the_training(tmp_path: Path) -> None:
    """A failure after the first change is the one error that is not caught; it names the file to resume from."""

    class Broken(pl.Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"something": 1}

        def load_state_dict(self, *_: Any) -> None:
            raise ValueError("out of order")

    orders = Orders(at_step=5, to_step=2)
    with FakeDaemon(orders) as daemon:
        sentinel = SentinelCallback(url=daemon.url, mode="act", checkpoint_every=2)
        with pytest.raises(HalfRestored, match=r"broke off in the middle \(ValueError: out of order\)") as broken:
            train(tmp_path, Gate(5, commanded(sentinel)), Broken(), sentinel)
        (result,) = daemon.told(CommandResult)
        (end,) = daemon.told(AttemptEnded)
    path = str(broken.value).split('"')[1]
    assert torch.load(path, weights_only=False)["global_step"] == 2
    assert (result.outcome, result.reason) == ("failed", str(broken.value))
    assert (end.outcome, end.reason) == ("failed", f"HalfRestored: {broken.value}")


def test_damaged_checkpoint_is_found_before_anything_is_touched(tmp_path: Path) -> None:
    """One flipped bit: the checkpoint is told bad, then the command failed, and the training goes on as it was."""

    class Vandal(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 5:
                (pin,) = tmp_path.glob(".sentinel/*/pins/2-0-*.ckpt")
                contents = bytearray(pin.read_bytes())
                contents[len(contents) // 2] ^= 1
                pin.write_bytes(contents)

    _, module, daemon = roll_back(tmp_path, Vandal())
    assert [entry.step for entry in module.diary] == list(range(24))
    told = [each for each in daemon.observations if isinstance(each, CommandResult | CheckpointReport)]
    result = next(each for each in told if isinstance(each, CommandResult))
    bad = told[told.index(result) - 1]
    assert (result.outcome, result.segment) == ("failed", 0)
    assert "the file has changed since it was verified" in result.reason
    assert isinstance(bad, CheckpointReport)
    assert (bad.checkpoint, bad.state) == (result.checkpoint, "bad")
    assert same(module.losses, train(tmp_path / "alone")[1].losses)


@pytest.mark.parametrize(
    ("change", "outcome", "reason"),
    [
        ({"segment": 3}, "refused", "is for segment 3, the run is in segment 0"),
        ({"expires_step": 4}, "expired", "good until step 4, the run is at step 5"),
        ({"data": "exact"}, "refused", "the data cannot be set back: a plain DataLoader"),
        ({"checkpoint": "never-seen"}, "failed", "no checkpoint never-seen"),
        ({"digest": "sha256:" + "0" * 64}, "failed", "the command is for step 2 with sha256:0"),
    ],
)
def test_command_that_does_not_fit_changes_nothing(
    tmp_path: Path, change: dict[str, Any], outcome: str, reason: str
) -> None:
    """A command for another segment, time, data mode or file is answered with the reason, and nothing is done."""
    orders = Orders(at_step=5, to_step=2, change=lambda command: replace(command, **change))
    with FakeDaemon(orders) as daemon:
        sentinel = SentinelCallback(url=daemon.url, mode="act", checkpoint_every=2)
        gate = Gate(5, lambda: orders.results or sentinel.agent.commands)
        _, module = train(tmp_path, gate, sentinel)
        (result,) = daemon.told(CommandResult)
    assert [entry.step for entry in module.diary] == list(range(24))
    assert (result.outcome, result.step, result.segment) == (outcome, 5, 0)
    assert reason in result.reason


def test_observe_mode_refuses(tmp_path: Path) -> None:
    """The agent's mode is a ceiling: in observe mode an order is refused, whatever the daemon thinks."""
    orders = Orders(at_step=5, to_step=2)
    with FakeDaemon(orders) as daemon:
        _, module = train(
            tmp_path, Gate(5, lambda: orders.results), SentinelCallback(url=daemon.url, checkpoint_every=2)
        )
    assert [entry.step for entry in module.diary] == list(range(24))
    assert [(each.outcome, each.reason) for each in orders.results] == [
        ("refused", "the agent's mode is 'observe': it does not act")
    ]


def test_repeated_command_is_done_once(tmp_path: Path) -> None:
    """A command that comes again is answered again with the same result and not carried out again."""
    orders = Orders(at_step=5, to_step=2, repeats=5)
    with FakeDaemon(orders) as daemon:
        sentinel = SentinelCallback(url=daemon.url, mode="act", checkpoint_every=2)
        gates = [Gate(5, commanded(sentinel)), Gate(12, lambda: len(orders.results) == 3)]
        train(tmp_path, *gates, sentinel)
        results = daemon.told(CommandResult)
    assert len(results) >= 3
    assert len(set(results)) == 1
    assert {each.segment for each in daemon.told(StepReport)} == {0, 1}


@pytest.mark.parametrize(
    ("section", "value", "misfit"),
    [
        ("optimizer_states", None, "it has no optimizer_states"),
        ("state_dict", {}, "the model has other entries: mask, net.0.bias, net.0.weight"),
        ("state_dict", {"net.0.bias": torch.zeros(9)}, "net.0.bias has another shape"),
        ("optimizer_states", [{"param_groups": [{"params": [0]}]}], "the optimizers have other parameters"),
        ("optimizer_states", [], "the optimizers have other parameters"),
        ("lr_schedulers", [], "there are more or fewer learning rate schedulers"),
    ],
)
def test_checkpoint_of_another_model_is_told_before_anything_is_touched(
    tmp_path: Path, section: str, value: Any, misfit: str
) -> None:
    """A checkpoint that does not fit is named by what differs."""
    trainer, _ = train(tmp_path)
    loop = LightningLoop(trainer)
    (path,) = tmp_path.glob("checkpoints/*.ckpt")
    checkpoint = dict(loop.load(path))
    assert loop.misfit(checkpoint) == ""
    if value is None:
        del checkpoint[section]
    elif isinstance(value, dict) and value:
        checkpoint[section] = {**checkpoint[section], **value}
    else:
        checkpoint[section] = value
    assert loop.misfit(checkpoint) == misfit
