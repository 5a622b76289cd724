"""Reading loss, norm and rate never makes the training wait for its device."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import transformers

from sentinel.protocol.observations import StepReport
from sentinel_agent import Agent, SentinelCallback
from sentinel_agent.pinned_ring import PinnedRing
from sentinel_agent.transformers import SentinelCallback as HuggingFaceCallback
from tests.fakes import FakeDaemon
from tests.gpu.plain_training import Training
from tests.gpu.waiting import never_waiting
from tests.trainer.sentinel_agent.small_training import SmallModule, train

pytestmark = pytest.mark.gpu


def test_torch_tells_who_waits(cuda: torch.device) -> None:
    """The means of the tests below: in this mode a value that is asked for at once is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchronizing"):
            torch.ones((), device=cuda).item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_copy_does_not_wait_for_work_under_way(cuda: torch.device) -> None:
    """While the device is busy for a second, scalars are handed over at once and come when it is done."""
    ring = PinnedRing(cuda)
    scalar = torch.tensor(7.0, device=cuda)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # clock cycles: a second or more
    began = perf_counter()
    ticket = ring.put([scalar, scalar * 2])
    assert ticket.values() is None
    assert perf_counter() - began < 0.2
    torch.cuda.synchronize()
    assert ticket.values() == [7.0, 14.0]


def test_plain_loop_is_read_without_waiting(cuda: torch.device, tmp_path: Path) -> None:
    """Every value arrives, exact, and ``step`` and ``record`` never wait."""
    training = Training(cuda)
    with FakeDaemon() as daemon:
        kind = never_waiting(Agent, "step", "record")
        with training.agent(tmp_path, kind=kind, url=daemon.url) as sentinel:
            training.run(100, sentinel)
            assert sentinel.guard.errors_total == 0
        told = daemon.told(StepReport)
    losses = [float(loss) for loss in training.losses]
    assert [each.loss for each in told] == losses
    assert [each.grad_norm for each in told] == [float(norm) for norm in training.norms]
    assert [each.extra for each in told] == [{"twice": 2.0 * loss} for loss in losses]
    assert all((each.peak_memory_bytes or 0) > 0 for each in told)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.1}, {"accumulate_grad_batches": 2}])
def test_lightning_is_read_without_waiting(tmp_path: Path, options: dict[str, Any]) -> None:
    """No hook of the callback waits, and the losses told are those computed."""
    hooks = [
        "on_train_batch_start",
        "on_before_backward",
        "on_after_backward",
        "on_before_optimizer_step",
        "on_train_batch_end",
    ]
    with FakeDaemon() as daemon:
        sentinel = never_waiting(SentinelCallback, *hooks)(url=daemon.url)
        _, module = train(tmp_path, sentinel, accelerator="gpu", devices=1, **options)
        told = daemon.told(StepReport)
    each_step = options.get("accumulate_grad_batches", 1)
    losses = [float.fromhex(loss) for loss in module.losses]
    means = [sum(losses[at : at + each_step]) / each_step for at in range(0, 24, each_step)]
    assert sentinel.guard.errors_total == 0
    assert [each.loss for each in told] == pytest.approx(means)
    assert all((each.grad_norm or 0.0) > 0.0 for each in told)


@pytest.mark.usefixtures("cuda")
def test_hugging_face_is_read_without_waiting(tmp_path: Path) -> None:
    """No hook of the callback waits, whatever the Trainer itself does."""
    hooks = [
        "_forward_begins",
        "_forward_ended",
        "on_step_begin",
        "on_substep_end",
        "on_pre_optimizer_step",
        "on_step_end",
        "on_log",
    ]
    transformers.set_seed(5)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    )
    samples = [{"input_ids": row, "labels": row} for row in torch.randint(0, 16, (64, 8))]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=12, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_grad_norm=0.0,
        logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    with FakeDaemon() as daemon:
        sentinel = never_waiting(HuggingFaceCallback, *hooks)(url=daemon.url)
        trainer = transformers.Trainer(model, arguments, train_dataset=samples, callbacks=[sentinel])
        trainer.args._n_gpu = 1  # on a machine with several the Trainer would call copies of the model
        trainer.train()
        told = daemon.told(StepReport)
    logged = [each for each in trainer.state.log_history if "loss" in each]
    assert sentinel.guard.errors_total == 0
    assert [each.loss for each in told] == pytest.approx([each["loss"] for each in logged], rel=1e-3)
    assert [each.grad_norm for each in told] == pytest.approx([each["grad_norm"] for each in logged], rel=1e-3)


@pytest.mark.usefixtures("cuda")
def test_module_is_on_the_device(tmp_path: Path) -> None:
    """The Lightning trainings of these tests do compute there."""

    class Looking(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            assert pl_module.device.type == "cuda"

    train(tmp_path, Looking(), module=SmallModule(), accelerator="gpu", devices=1)
