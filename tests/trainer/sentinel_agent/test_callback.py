from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from sentinel.protocol.observations import AttemptEnded, AttemptStarted, CheckpointReport, StepReport
from sentinel_agent import SentinelCallback
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.small_training import Gate, Orders, SmallModule, commanded, loader, train, until


class Norms(pl.Callback):
    """The gradient norms as torch would compute them for clipping."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
        """Computes one."""
        grads = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
        self.seen.append(float(torch.nn.utils.get_total_norm(grads)))


@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.1}, {"accumulate_grad_batches": 4}])
def test_readings_are_true(tmp_path: Path, options: dict[str, Any]) -> None:
    """Each step's loss is the mean of its micro-batches, its norm that before clipping, its rate the one it used."""
    norms = Norms()
    with FakeDaemon() as daemon:
        _, module = train(tmp_path, norms, SentinelCallback(url=daemon.url), **options)
        told = daemon.told(StepReport)
    each_step = options.get("accumulate_grad_batches", 1)
    losses = [float.fromhex(loss) for loss in module.losses]
    means = [sum(losses[at : at + each_step]) / each_step for at in range(0, 24, each_step)]
    assert [each.step for each in told] == list(range(1, 24 // each_step + 1))
    assert [each.loss for each in told] == pytest.approx(means)
    assert [each.grad_norm for each in told] == norms.seen
    assert [each.lr for each in told] == pytest.approx([0.05 / (1 + step) for step in range(24 // each_step)])
    assert {each.samples for each in told} == {4 * each_step}
    assert len({each.batch_fingerprint for each in told}) == 24 // each_step
    for each in told:
        parts = (each.data_wait_s, each.forward_s, each.backward_s, each.optimizer_s)
        assert all(seconds is not None and seconds > 0 for seconds in parts)


def test_series_of_the_users_own(tmp_path: Path) -> None:
    """What the script records stands in the report of its step."""

    class Recording(SmallModule):
        def training_step(self, batch: Any) -> torch.Tensor:
            sentinel.record("twice", 2.0 * self.trainer.global_step)
            sentinel.record("tensor", torch.tensor(0.5, requires_grad=True))
            return super().training_step(batch)

    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url)
        sentinel.record("too early", 1.0)
        train(tmp_path, sentinel, module=Recording())
        assert [each.extra for each in daemon.told(StepReport)] == [
            {"twice": 2.0 * i, "tensor": 0.5} for i in range(24)
        ]


def test_attempt_is_told_from_start_to_end(tmp_path: Path) -> None:
    """The daemon learns how the training is set up, what it can do, and how it ended."""
    with FakeDaemon() as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url, run="my-run"), accumulate_grad_batches=2)
        start, end = daemon.observations[0], daemon.observations[-1]
    assert {batch.run for batch in daemon.batches} == {"my-run"}
    assert isinstance(start, AttemptStarted)
    assert (start.mode, start.step, start.max_steps, start.world_size) == ("observe", 0, 12, 1)
    assert (start.accumulate, start.precision, start.rollback) == (2, "32-true", "forward")
    assert start.versions.keys() == {"python", "torch", "lightning"}
    assert isinstance(end, AttemptEnded)
    assert (end.outcome, end.step) == ("finished", 12)


def test_pins_survive_rotation(tmp_path: Path) -> None:
    """With save_top_k=1 Lightning deletes every checkpoint but the newest; all are still pinned, verified, loadable."""
    mine = ModelCheckpoint(tmp_path / "mine", every_n_train_steps=6, save_top_k=1, save_last=True)
    with FakeDaemon() as daemon:
        train(tmp_path, mine, SentinelCallback(url=daemon.url))
        verified = {each.step: each for each in daemon.told(CheckpointReport) if each.state == "verified"}
    assert verified.keys() == {6, 12, 18, 24}
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["epoch=0-step=24.ckpt", "last.ckpt"]
    pins = {path.name.split("-")[0]: path for path in tmp_path.glob(".sentinel/*/pins/*.ckpt")}
    for step, report in verified.items():
        assert torch.load(pins[str(step)], weights_only=False)["global_step"] == step
        assert report.digest.startswith("sha256:")
        assert report.size_bytes == pins[str(step)].stat().st_size


def test_weights_alone_are_no_checkpoint(tmp_path: Path) -> None:
    """A file without the optimizer's state cannot be gone back to and is not told."""
    mine = ModelCheckpoint(tmp_path / "mine", every_n_train_steps=6, save_weights_only=True)
    with FakeDaemon() as daemon:
        train(tmp_path, mine, SentinelCallback(url=daemon.url))
        assert not daemon.told(CheckpointReport)


def test_releasable_pins_are_deleted_and_told(tmp_path: Path) -> None:
    """What the daemon needs no more is let go; the user's own file stays."""
    mine = ModelCheckpoint(tmp_path / "mine", every_n_train_steps=6, save_top_k=-1)

    class Releasing(Orders):
        def __call__(self, batch: Any) -> Any:
            reply = super().__call__(batch)
            names = tuple(each.checkpoint for step, each in self.verified.items() if step in (6, 12))
            return type(reply)(accepted=reply.accepted, releasable=names)

    with FakeDaemon(Releasing(at_step=999, to_step=0)) as daemon:
        gate = Gate(18, lambda: sum(each.state == "deleted" for each in daemon.told(CheckpointReport)) == 2)
        train(tmp_path, gate, mine, SentinelCallback(url=daemon.url))
    assert sorted(path.name[:2] for path in tmp_path.glob(".sentinel/*/pins/*.ckpt")) == ["18", "24"]
    assert len(list((tmp_path / "mine").iterdir())) == 4


def test_resumed_run_keeps_its_name_and_pins(tmp_path: Path) -> None:
    """A resume is the same run, another attempt, and the checkpoints up to its step are reported again."""
    mine = ModelCheckpoint(tmp_path / "mine", every_n_train_steps=6, save_top_k=-1)
    with FakeDaemon() as daemon:
        train(tmp_path, mine, SentinelCallback(url=daemon.url))
        first = daemon.batches[-1]
        daemon.batches.clear()
        resume_from = str(tmp_path / "mine" / "epoch=0-step=12.ckpt")
        train(tmp_path, SentinelCallback(url=daemon.url), ckpt_path=resume_from, max_epochs=2)
        again = daemon.batches[0]
        found = {each.step: each.state for each in daemon.told(CheckpointReport) if each.step <= 12}
        daemon.batches.clear()
        train(tmp_path, SentinelCallback(url=daemon.url))
        fresh = daemon.batches[0]
    assert again.run == first.run
    assert again.attempt != first.attempt
    assert found == {6: "verified", 12: "verified"}
    assert fresh.run != first.run


def test_process_of_workers_is_left_alone(tmp_path: Path) -> None:
    """With forked loader workers the training is watched to its end, and no thread is begun or ended meanwhile."""
    threads: set[frozenset[str]] = set()
    before = set(threading.enumerate())

    def agents() -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before if each.name == "sentinel-agent"]

    class Counting(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            threads.add(frozenset(agents()))

    with FakeDaemon() as daemon:
        data = loader(num_workers=2)
        train(tmp_path, Counting(), SentinelCallback(url=daemon.url), data=data, max_epochs=2)
        assert len(daemon.told(StepReport)) == 48
    assert threads == {frozenset({"sentinel-agent"})}
    until(lambda: not agents())


def test_module_that_optimizes_by_hand_is_observed(tmp_path: Path) -> None:
    """Manual optimization is watched, its commands are refused, and the daemon is told why."""

    class ByHand(SmallModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any) -> torch.Tensor:
            loss = super().training_step(batch)
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return loss

    with FakeDaemon() as daemon:
        _, module = train(tmp_path, SentinelCallback(url=daemon.url, mode="act"), module=ByHand())
        (start,) = daemon.told(AttemptStarted)
        assert [each.loss for each in daemon.told(StepReport)] == [float.fromhex(loss) for loss in module.losses]
    assert start.rollback == "none"
    assert "the module optimizes by hand" in start.rollback_reason


def test_other_stages_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Validation, test and prediction outside a fit print and send nothing, and the trainer is as it was."""

    class Evaluated(SmallModule):
        def test_step(self, batch: Any) -> None:
            """Does nothing."""

    with FakeDaemon() as daemon:
        callback = SentinelCallback(url=daemon.url)
        trainer = pl.Trainer(default_root_dir=tmp_path, callbacks=[callback], logger=False, enable_progress_bar=False)
        trainer.test(Evaluated(), loader(), verbose=False)
    assert not daemon.batches
    assert "sentinel:" not in capsys.readouterr().err


def test_callback_trains_twice(tmp_path: Path) -> None:
    """One callback in two fits is two attempts of one run, for the second goes on where the first ended."""
    with FakeDaemon() as daemon:
        trainer, module = train(tmp_path, SentinelCallback(url=daemon.url))
        trainer.fit_loop.max_epochs = 2
        trainer.fit(module, loader())
        starts = daemon.told(AttemptStarted)
        runs = {batch.run for batch in daemon.batches}
    assert [each.step for each in starts] == [0, 24]
    assert len(runs) == 1
    assert "save_checkpoint" not in vars(trainer)


def test_validation_is_not_counted_into_steps(tmp_path: Path) -> None:
    """The time of a validation between two steps belongs to neither."""

    class Validated(SmallModule):
        def validation_step(self, batch: Any) -> None:
            threading.Event().wait(0.05)

        def val_dataloader(self) -> Any:
            return loader(2)

    with FakeDaemon() as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url), module=Validated(), val_check_interval=4)
        steps = daemon.told(StepReport)
    assert len(steps) == 24
    assert sum(each.step_s or 0.0 for each in steps) < 0.1 * 6


def test_other_package_of_lightning_is_watched_and_rolled_back(tmp_path: Path) -> None:
    """A trainer of the package pytorch_lightning is the same to the agent, its checkpoint callbacks too."""
    other = pytest.importorskip("pytorch_lightning")

    class Module(other.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(6, 1)
            self.steps: list[int] = []

        def training_step(self, batch: Any) -> Any:
            self.steps.append(self.trainer.global_step)
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Saver(other.callbacks.ModelCheckpoint):  # type: ignore[name-defined,misc]
        def load_state_dict(self, *_: Any) -> None:
            raise AssertionError("the top-k must stay what it is")

    with FakeDaemon(Orders(at_step=5, to_step=2)) as daemon:
        sentinel = SentinelCallback(url=daemon.url, mode="act", checkpoint_every=2)
        gate = Gate(5, commanded(sentinel))
        trainer = other.Trainer(
            max_steps=8,
            default_root_dir=tmp_path,
            callbacks=[gate, Saver(every_n_train_steps=2), sentinel],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module()
        trainer.fit(module, loader())
    assert module.steps == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7]


def test_other_package_of_lightning_suffices() -> None:
    """Where only pytorch_lightning is installed, the callback is one of its callbacks."""
    pytest.importorskip("pytorch_lightning")
    program = (
        "import sys; sys.modules['lightning'] = None; import pytorch_lightning, sentinel_agent; "
        "assert issubclass(sentinel_agent.SentinelCallback, pytorch_lightning.Callback)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_agent_needs_no_lightning() -> None:
    """Importing the agent alone does not import Lightning."""
    program = (
        "import sys, sentinel_agent; sentinel_agent.Agent; "
        "assert not {'lightning', 'pytorch_lightning'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
