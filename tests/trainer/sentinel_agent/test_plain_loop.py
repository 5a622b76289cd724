from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sentinel.protocol.observations import AttemptEnded, AttemptStarted, CheckpointReport, CommandResult, StepReport
from sentinel_agent import Agent
from sentinel_agent.fail_open import HalfRestored, guarded
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.small_training import Orders, loader, same, until

ABSENT = "http://127.0.0.1:9"
ACT = {"mode": "act", "checkpoint_every": 2}


class Loop:
    """A loop of 12 steps over pairs of micro-batches, with a diary of what was computed."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.2), nn.ReLU(), nn.Linear(5, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0 / (1.0 + step))
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.steps: list[int] = []
        self.folder = folder
        self.before_step: Callable[[int], object] = lambda _: None

    def agent(self, url: str, **options: Any) -> Agent:
        """One for this loop."""
        return Agent(self.model, self.optimizer, also=[self.schedule], folder=self.folder, url=url, **options)

    def run(self, sentinel: Agent | None) -> None:
        """Trains, within the agent's ``with``."""
        mean = torch.zeros(())  # the same tensor at every step, as scripts do it
        batches = loader() if sentinel is None else sentinel.batches(loader())
        for number, (inputs, wanted, _) in enumerate(batches, start=1):
            loss = nn.functional.mse_loss(self.model(inputs), wanted) / 2
            loss.backward()
            mean += loss.detach()
            if number % 2:
                continue
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.optimizer.step()
            self.schedule.step()
            self.losses.append(float(mean))
            self.norms.append(float(norm))
            self.before_step(number // 2)
            self.steps.append(number // 2 if sentinel is None else sentinel.step(loss=mean, grad_norm=norm))
            self.optimizer.zero_grad()
            mean.zero_()

    def state(self) -> list[Any]:
        """All that the loop has come to."""
        return [self.model.state_dict(), self.optimizer.state_dict(), self.schedule.state_dict(), torch.get_rng_state()]


@pytest.fixture
def alone(tmp_path: Path) -> Loop:
    """The loop without an agent."""
    loop = Loop(tmp_path)
    loop.run(None)
    return loop


def run_watched(loop: Loop, sentinel: Agent) -> Loop:
    """The loop with an agent, to its end."""
    with sentinel:
        loop.run(sentinel)
    return loop


def test_readings_are_true(tmp_path: Path) -> None:
    """Each step is told with its loss, though the loop empties that tensor, its norm, and the rate it was made with."""
    with FakeDaemon() as daemon:
        loop = Loop(tmp_path)
        sentinel = loop.agent(daemon.url)
        loop.before_step = lambda step: sentinel.record("twice", torch.tensor(2.0 * step))
        run_watched(loop, sentinel)
        told = daemon.told(StepReport)
        (start,) = daemon.told(AttemptStarted)
        (end,) = daemon.told(AttemptEnded)
    assert [each.step for each in told] == list(range(1, 13)) == loop.steps
    assert [each.loss for each in told] == loop.losses
    assert [each.grad_norm for each in told] == loop.norms
    assert [each.lr for each in told] == pytest.approx([0.05 / (1 + step) for step in range(12)])
    assert [each.extra for each in told] == [{"twice": 2.0 * each.step} for each in told]
    assert {each.samples for each in told} == {8}
    assert len({each.batch_fingerprint for each in told}) == 12
    assert all(each.data_wait_s and each.step_s and each.step_s > each.data_wait_s for each in told)
    assert (start.mode, start.precision, start.world_size, start.rollback) == ("observe", "float32", 1, "forward")
    assert (end.outcome, end.step) == ("finished", 12)


@pytest.mark.parametrize("options", [{}, ACT, {"mode": "off"}])
def test_loop_is_bit_identical(tmp_path: Path, alone: Loop, options: dict[str, Any]) -> None:
    """With a daemon that answers, and with none, the loop computes what it computes alone."""
    with FakeDaemon() as daemon:
        for url in (daemon.url, ABSENT):
            loop = Loop(tmp_path)
            run_watched(loop, loop.agent(url, **options))
            assert (loop.losses, loop.steps) == (alone.losses, alone.steps)
            assert same(loop.state(), alone.state())


@pytest.mark.parametrize("hook", ["_begin", "_end", "_optimizer_steps", "_fetch_began", "_fetch_ended", "_step_ended"])
def test_loop_with_raising_hooks_is_bit_identical(tmp_path: Path, alone: Loop, hook: str) -> None:
    """A hook of the agent's that raises each time is caught, and steps are counted all the same."""

    def raising(*_: Any) -> None:
        raise RuntimeError("broken")

    kind = type("Broken", (Agent,), {hook: guarded(raising)})
    loop = Loop(tmp_path)
    sentinel = kind(loop.model, loop.optimizer, also=[loop.schedule], folder=tmp_path, url=ABSENT, **ACT)
    run_watched(loop, sentinel)
    assert sentinel.guard.errors_total
    assert (loop.losses, loop.steps) == (alone.losses, alone.steps)
    assert same(loop.state(), alone.state())


def test_rollback_sets_back_all_that_was_named(tmp_path: Path) -> None:
    """In ``step`` weights, moments, schedule, generators and the count return to the checkpoint; the data goes on."""
    orders = Orders(at_step=5, to_step=2)
    with FakeDaemon(orders) as daemon:
        loop = Loop(tmp_path)
        sentinel = loop.agent(daemon.url, **ACT)

        def before_step(step: int) -> None:
            if step == 6 and not orders.results:
                until(lambda: sentinel._agent.commands)

        loop.before_step = before_step
        run_watched(loop, sentinel)
        (result,) = daemon.told(CommandResult)
        told = [(each.segment, each.step) for each in daemon.told(StepReport)]
        verified = [each.step for each in daemon.told(CheckpointReport) if each.state == "verified"]
    assert (result.outcome, result.from_step, result.step, result.reason) == ("succeeded", 6, 2, "")
    assert result.verified.startswith("step, learning rate, weights, random generators")
    assert loop.steps == [1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 7, 8]
    assert told == [*((0, step) for step in range(1, 7)), *((1, step) for step in range(3, 9))]
    assert verified[:3] == [2, 4, 6]


def test_state_after_a_rollback_is_the_one_saved(tmp_path: Path) -> None:
    """Right after ``step`` has set the loop back, everything but the gradients is as it was at the save, to the bit."""
    with FakeDaemon(Orders(at_step=3, to_step=2)) as daemon:
        loop = Loop(tmp_path)
        with loop.agent(daemon.url, **ACT) as sentinel:
            for step in (1, 2, 3):
                loop.model(torch.ones(1, 6)).sum().backward()
                loop.optimizer.step()
                loop.schedule.step()
                if step == 2:
                    torch.save(loop.state(), tmp_path / "state.pt")
                sentinel.step(loss=1.0)
            until(lambda: sentinel._agent.commands)
            assert sentinel.step() == 2
            assert same(loop.state(), torch.load(tmp_path / "state.pt"))


def test_lowered_rate_goes_into_optimizer_and_schedule(tmp_path: Path) -> None:
    """A rollback that also halves the learning rate does so for all steps to come."""
    orders = Orders(at_step=2, to_step=2, change=lambda command: replace(command, lr_scale=0.5))
    with FakeDaemon(orders) as daemon:
        loop = Loop(tmp_path)
        with loop.agent(daemon.url, **ACT) as sentinel:
            for _ in range(2):
                loop.optimizer.step()
                loop.schedule.step()
                sentinel.step(loss=1.0)
            until(lambda: sentinel._agent.commands)
            assert sentinel.step() == 2
        loop.optimizer.step()
        loop.schedule.step()
    assert loop.optimizer.param_groups[0]["lr"] == pytest.approx(0.05 / 4 / 2)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ValueError("bad batch"), "failed", "ValueError: bad batch"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt: "),
        (SystemExit(0), "finished", ""),
    ],
)
def test_end_is_told(tmp_path: Path, error: BaseException, outcome: str, reason: str) -> None:
    """How the loop was left is how the attempt ended, and the exception goes on upwards."""

    def raising(step: int) -> None:
        if step == 2:
            raise error

    with FakeDaemon() as daemon:
        loop = Loop(tmp_path)
        loop.before_step = raising
        with pytest.raises(type(error)):
            run_watched(loop, loop.agent(daemon.url))
        (end,) = daemon.told(AttemptEnded)
    assert (end.outcome, end.step, end.reason) == (outcome, 1, reason)


def test_resumed_loop_keeps_its_run(tmp_path: Path) -> None:
    """A loop that goes on at a step is another attempt of the run that its folder names."""
    with FakeDaemon() as daemon:
        for start_step in (0, 7):
            with Loop(tmp_path).agent(daemon.url, start_step=start_step) as sentinel:
                assert sentinel.step(loss=1.0) == start_step + 1
        assert len({batch.run for batch in daemon.batches}) == 1
        assert [each.step for each in daemon.told(AttemptStarted)] == [0, 7]
        assert [each.step for each in daemon.told(StepReport)] == [1, 8]


def test_other_ranks_are_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several processes the first one alone speaks, it is not set back, and no rank saves for the agent."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FakeDaemon() as daemon:
        for rank in ("1", "0"):
            monkeypatch.setenv("RANK", rank)
            with Loop(tmp_path).agent(daemon.url, **ACT) as sentinel:
                assert [sentinel.step(loss=float(rank)) for _ in range(4)] == [1, 2, 3, 4]
        assert [each.loss for each in daemon.told(StepReport)] == [0.0] * 4
        (start,) = daemon.told(AttemptStarted)
        assert not daemon.told(CheckpointReport)
    assert (start.world_size, start.rollback) == (2, "none")


def test_tensor_that_may_call_others_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tensor of another kind (a DTensor would ask all ranks) or of several elements is not read, and told of once."""

    class Distributed(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.__name__ in {"__float__", "item", "detach", "clone"}:
                raise AssertionError("a collective")
            return super().__torch_function__(function, types, args, kwargs or {})

    with FakeDaemon() as daemon:
        with Loop(tmp_path).agent(daemon.url) as sentinel:
            for _ in range(2):
                sentinel.step(loss=torch.ones(2), grad_norm=torch.ones(()).as_subclass(Distributed))
            assert sentinel.guard.errors_total == 0
        assert [(each.loss, each.grad_norm) for each in daemon.told(StepReport)] == [(None, None)] * 2
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert [line.split(":")[2].split()[0] for line in warnings] == ["loss", "grad_norm"]


def test_agent_without_its_with_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who forgets the ``with`` reads one line about it, and the steps are counted."""
    sentinel = Loop(tmp_path).agent(ABSENT)
    assert [sentinel.step(loss=1.0), sentinel.step(loss=1.0)] == [1, 2]
    (line,) = capsys.readouterr().err.splitlines()
    assert "the loop belongs into `with Agent(...) as sentinel:`" in line


def test_rollback_that_breaks_off_ends_the_loop(tmp_path: Path) -> None:
    """An object that fails to load after the weights went back is the one error that ``step`` raises."""

    class Broken:
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, _: Any) -> None:
            raise ValueError("out of order")

    with FakeDaemon(Orders(at_step=3, to_step=2)) as daemon:
        loop = Loop(tmp_path)
        sentinel = Agent(loop.model, loop.optimizer, also=[Broken()], folder=tmp_path, url=daemon.url, **ACT)
        loop.before_step = lambda step: step == 4 and until(lambda: sentinel._agent.commands)
        with pytest.raises(HalfRestored, match=r"\(ValueError: out of order\)"):
            run_watched(loop, sentinel)
        (result,) = daemon.told(CommandResult)
        (end,) = daemon.told(AttemptEnded)
    assert (result.outcome, end.outcome) == ("failed", "failed")
