from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest

from sentinel.protocol.observations import AttemptEnded, Heartbeat, StepReport
from sentinel.protocol.processes import PhaseChange
from sentinel_agent import SentinelCallback
from sentinel_agent.fail_open import Guard, HalfRestored, guarded
from tests.fakes import Behaviour, FakeDaemon
from tests.trainer.sentinel_agent.small_training import Gate, SmallModule, same, train

OPTIONS = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5, "max_epochs": 2}
HOOKS = [
    "_set_up",
    "on_train_start",
    "on_train_batch_start",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_save_checkpoint",
    "_end",
]


class Hooked:
    """Something with one hook that does what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.calls = 0
        self.guard = Guard(self.lines.append)

    @guarded
    def hook(self, error: BaseException | None) -> None:
        """Raises what it is given."""
        self.calls += 1
        if error is not None:
            raise error


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> SmallModule:
    """The training without the agent."""
    return train(tmp_path_factory.mktemp("alone"), **OPTIONS)[1]


@pytest.fixture
def absent_url() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def assert_identical(left: SmallModule, right: SmallModule) -> None:
    """Loss curve, weights, moments, schedule and generator at every step, to the last bit."""
    assert left.losses == right.losses
    assert same([entry.state for entry in left.diary], [entry.state for entry in right.diary])
    assert same(left.state_dict(), right.state_dict())


def test_guard_turns_the_agent_off_at_the_third_error() -> None:
    """Two errors are borne, the third ends the agent with one line; then hooks do nothing at all."""
    hooked = Hooked()
    for _ in range(5):
        hooked.hook(ValueError("broken"))
    assert (hooked.calls, hooked.guard.errors_total, hooked.guard.off) == (3, 3, True)
    (line,) = hooked.lines
    assert line.startswith(
        "the agent has turned itself off after 3 errors of its own, the last in hook: ValueError: broken;"
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), HalfRestored("half")])
def test_guard_lets_pass_what_must_end_the_training(error: BaseException) -> None:
    """Ctrl-C, SIGTERM's SystemExit and a half-done rollback are not the agent's to catch."""
    with pytest.raises(type(error)):
        Hooked().hook(error)


def test_training_with_a_daemon_is_bit_identical(tmp_path: Path, alone: SmallModule) -> None:
    """Watched with checkpoints of the agent's own, the training is what it is alone."""
    with FakeDaemon() as daemon:
        _, module = train(tmp_path, SentinelCallback(url=daemon.url, mode="act", checkpoint_every=3), **OPTIONS)
        assert [each.step for each in daemon.told(StepReport)] == list(range(1, 25))
    assert_identical(module, alone)


def test_training_without_a_daemon_is_bit_identical(tmp_path: Path, alone: SmallModule, absent_url: str) -> None:
    """Nobody listens at the address."""
    _, module = train(tmp_path, SentinelCallback(url=absent_url, mode="act"), **OPTIONS)
    assert_identical(module, alone)


@pytest.mark.parametrize("behaviour", ["slow", "garbage", "error", "closes"])
def test_training_with_a_sick_daemon_is_bit_identical(tmp_path: Path, alone: SmallModule, behaviour: Behaviour) -> None:
    """A daemon that is slow, talks nonsense, fails or hangs up changes nothing and stops nothing."""
    with FakeDaemon(behaviour=behaviour, delay_s=0.2) as daemon:
        _, module = train(tmp_path, SentinelCallback(url=daemon.url, mode="act"), **OPTIONS)
    assert_identical(module, alone)


def test_training_whose_daemon_dies_is_bit_identical(tmp_path: Path, alone: SmallModule) -> None:
    """The daemon is killed in mid-run."""
    daemon = FakeDaemon()

    class Killer(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 10 and not daemon.is_closed:
                assert daemon.wait_for(lambda each: bool(each.told(StepReport)))
                daemon.close()

    with daemon:
        _, module = train(tmp_path, Killer(), SentinelCallback(url=daemon.url, mode="act"), **OPTIONS)
    assert daemon.told(StepReport)
    assert not daemon.told(AttemptEnded)
    assert_identical(module, alone)


@pytest.mark.parametrize("hook", [*HOOKS, "all"])
def test_training_with_raising_hooks_is_bit_identical(
    tmp_path: Path, alone: SmallModule, hook: str, absent_url: str
) -> None:
    """One hook, or every hook, raises each time it is called."""

    def broken(name: str) -> Callable[..., None]:
        def raising(*_: Any, **__: Any) -> None:
            raise RuntimeError(f"{name} is broken")

        raising.__name__ = name
        return guarded(raising)

    names = HOOKS if hook == "all" else [hook]
    kind = type("Broken", (SentinelCallback,), {name: broken(name) for name in names})
    callback = kind(url=absent_url, mode="act", checkpoint_every=3)
    _, module = train(tmp_path, callback, **OPTIONS)
    assert callback.guard.errors_total
    assert_identical(module, alone)


def test_training_with_a_broken_thread_is_bit_identical(
    tmp_path: Path, alone: SmallModule, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors in the agent's own thread turn it off too; daemon and launcher are told, lest they take it for a hang."""
    monkeypatch.setenv("SENTINEL_LAUNCHER", str(tmp_path))

    class Poisoned(SentinelCallback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            super().on_train_start(trainer, pl_module)
            for _ in range(3):
                self.agent.courier.inbox.append(self._raising())

        def _raising(self) -> Any:
            raise RuntimeError("the thread is broken")
            yield

    with FakeDaemon() as daemon:
        callback = Poisoned(url=daemon.url)
        _, module = train(tmp_path, Gate(3, lambda: callback.guard.off), callback, **OPTIONS)
        assert daemon.wait_for(lambda each: [beat.guarded_errors_total for beat in each.told(Heartbeat)][-1:] == [3])
        assert daemon.wait_for(lambda each: [told.phase for told in each.told(PhaseChange)][-1:] == ["done"])
    assert (tmp_path / "ended").read_text() == "unwatched"
    assert "the agent has turned itself off after 3 errors" in capsys.readouterr().err
    assert_identical(module, alone)


def test_mode_off_does_nothing(tmp_path: Path, alone: SmallModule, capsys: pytest.CaptureFixture[str]) -> None:
    """In mode off no line is printed, no file written, no thread started, no daemon asked."""
    with FakeDaemon() as daemon:
        callback = SentinelCallback(url=daemon.url, mode="off")
        _, module = train(tmp_path, callback, **OPTIONS)
    assert not daemon.batches
    assert "sentinel:" not in capsys.readouterr().err
    assert not (tmp_path / ".sentinel").exists()
    assert not hasattr(callback, "agent")
    assert_identical(module, alone)


def test_tap_that_fails_still_saves_and_clips_once(tmp_path: Path, alone: SmallModule) -> None:
    """What the agent does beside the trainer's own methods may fail: the methods are called all the same."""

    class Broken(SentinelCallback):
        def _saved(self, *_: Any) -> None:
            raise RuntimeError("broken")

    trainer, module = train(tmp_path, Broken(), **OPTIONS)
    assert len(list(tmp_path.glob("checkpoints/*.ckpt"))) == 1
    assert "save_checkpoint" not in vars(trainer)
    assert "clip_grad_by_norm" not in vars(trainer.precision_plugin)
    assert_identical(module, alone)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ValueError("bad batch"), "failed", "ValueError: bad batch"),
        (SystemExit(143), "interrupted", "SystemExit: 143"),
    ],
)
def test_end_is_told(tmp_path: Path, error: BaseException, outcome: str, reason: str) -> None:
    """An exception of the user's own ends the attempt as failed, a signal's as interrupted, and both go on upwards."""

    class Ending(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 5:
                raise error

    with FakeDaemon() as daemon:
        with pytest.raises(type(error)):
            train(tmp_path, Ending(), SentinelCallback(url=daemon.url))
        (end,) = daemon.told(AttemptEnded)
    assert (end.outcome, end.step, end.reason) == (outcome, 4, reason)
