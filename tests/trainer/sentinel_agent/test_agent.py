from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch

from sentinel.launcher.announced import newest_verified
from sentinel.protocol.observations import AttemptEnded, CommandResult, Heartbeat, StepReport
from sentinel.protocol.processes import PhaseChange
from sentinel_agent.agent import Leader
from sentinel_agent.attempt import Attempt
from sentinel_agent.contents import non_finite
from sentinel_agent.fail_open import Guard
from sentinel_agent.keeper import Contents
from sentinel_agent.rollback import TrainingLoop
from sentinel_agent.settings import Settings
from sentinel_agent.sidecar import capture
from tests.fakes import FakeDaemon
from tests.launched import NOBODY
from tests.trainer.sentinel_agent.small_training import Orders, until

ATTEMPT = Attempt(
    step=0,
    is_resumed=False,
    max_steps=20,
    world_size=1,
    precision="32",
    accumulate=1,
    rollback_impossible="",
    versions={},
)


class PlainLoop(TrainingLoop):
    """A training loop without a framework: one weight that halves at every step."""

    def __init__(self) -> None:
        self.weight = torch.ones(1)
        self.step = 0

    def advance(self, agent: Leader) -> None:
        """One step."""
        agent.clock.batch_began(self.weight)
        self.weight = self.weight / 2
        self.step += 1
        agent.clock.batch_ended(self.weight.sum())
        agent.step_ended(self.step)

    def save(self, path: Path) -> Contents:
        """Writes a checkpoint."""
        contents = {"state_dict": {"weight": self.weight}, "step": self.step}
        torch.save(contents, path)
        return Contents(non_finite(contents, {"weight"}), capture())

    def load(self, path: Path) -> Mapping[str, Any]:
        """Reads one."""
        return torch.load(path)  # type: ignore[no-any-return]

    def misfit(self, checkpoint: Mapping[str, Any]) -> str:
        """Everything fits."""
        return ""

    def restore(self, checkpoint: Mapping[str, Any], *, step: int, lr_scale: float) -> None:
        """Sets weight and step back."""
        self.weight, self.step = checkpoint["state_dict"]["weight"], step


@pytest.fixture
def make_agent(tmp_path: Path) -> Callable[[str], Leader]:
    """Makes agents of a process without Lightning."""

    def make(url: str) -> Leader:
        settings = Settings(url=url, mode="act")
        return Leader(settings, device=torch.device("cpu"), folder=tmp_path, guard=Guard(print), say=print)

    return make


def test_loop_without_a_framework_is_watched_and_set_back(make_agent: Callable[[str], Leader]) -> None:
    """The agent needs no Lightning: a loop that calls it at its boundaries has reports, pins and rollbacks."""
    loop = PlainLoop()
    with FakeDaemon(Orders(at_step=5, to_step=2)) as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        for _ in range(5):
            loop.advance(agent)
            agent.save_checkpoint(loop.save)
        until(lambda: agent.commands)
        assert agent.roll_back(loop)
        assert (loop.step, loop.weight.item(), agent.step, agent.segment) == (2, 0.25, 2, 1)
        loop.advance(agent)
        agent.end("finished")
        assert [(each.segment, each.step) for each in daemon.told(StepReport)] == [
            *((0, step) for step in range(1, 6)),
            (1, 3),
        ]
        (result,) = daemon.told(CommandResult)
        assert (result.outcome, result.from_step, result.step) == ("succeeded", 5, 2)
        assert result.duration_s is not None
        assert agent.tally().rollbacks == 1


def test_a_rollback_that_takes_long_is_told_as_no_hang(make_agent: Callable[[str], Leader]) -> None:
    """To read a large checkpoint takes minutes without a step: an agent that tells phases says what it is at."""
    loop = PlainLoop()
    with FakeDaemon(Orders(at_step=5, to_step=2)) as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        agent.phase = "train"
        for step in range(1, 6):
            loop.advance(agent)
            if step == 2:
                agent.save_checkpoint(loop.save)
        until(lambda: agent.commands)
        assert agent.roll_back(loop)
        agent.end("finished")
        told = [each for each in daemon.batches for each in each.observations]
        news = [each for each in told if isinstance(each, PhaseChange | CommandResult)]
        words = [each.phase if isinstance(each, PhaseChange) else each.outcome for each in news]
        assert words == ["checkpoint", "train", "checkpoint", "succeeded", "train"]


def test_what_lies_on_a_branch_that_was_left_is_nothing_to_start_from(
    make_agent: Callable[[str], Leader], tmp_path: Path
) -> None:
    """Neither after a rollback nor where a person begins further back; the same step is pinned anew on each branch."""
    loop = PlainLoop()
    with FakeDaemon(Orders(at_step=5, to_step=2)) as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        for _ in range(5):
            loop.advance(agent)
            agent.save_checkpoint(loop.save)
        until(lambda: agent.commands)
        assert agent.roll_back(loop)
        agent.end("finished")
        pins = tmp_path / agent.run / "pins"
        assert (newest := newest_verified(pins)) is not None
        assert newest[1] == 2
    again, loop.step = make_agent(NOBODY), 1
    again.start()
    again.begin(replace(ATTEMPT, step=1, is_resumed=True))
    assert (newest := newest_verified(pins)) is not None
    assert newest[1] == 1
    loop.advance(again)
    again.save_checkpoint(loop.save)
    again.end("finished")
    assert again.keeper is not None
    assert [each.step for each in again.keeper.store.checkpoints if again.attempt[2:] in each.id] == [2]


def test_quiet_agent_gives_a_sign_of_life(make_agent: Callable[[str], Leader]) -> None:
    """When no step ends for some seconds the daemon hears that the agent lives, and where it stands."""
    loop = PlainLoop()
    with FakeDaemon() as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        loop.advance(agent)
        assert daemon.wait_for(lambda each: bool(each.told(Heartbeat)))
        agent.end("finished")
        assert daemon.told(Heartbeat)[0].step == 1


def test_daemon_that_comes_late_hears_everything(
    make_agent: Callable[[str], Leader], capsys: pytest.CaptureFixture[str]
) -> None:
    """What happened while the daemon was out of order is told when it is mended, once each; and that it is mended."""
    loop = PlainLoop()
    with FakeDaemon(behaviour="error") as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        for _ in range(5):
            loop.advance(agent)
        until(lambda: agent.courier.sender is not None and agent.courier.sender.pending >= 6)
        daemon.behaviour = "answers"
        assert daemon.wait_for(lambda each: len(each.told(StepReport)) == 5)
        agent.end("interrupted", "Ctrl-C")
        (end,) = daemon.told(AttemptEnded)
    assert (end.outcome, end.step, end.reason) == ("interrupted", 5, "Ctrl-C")
    assert capsys.readouterr().out.splitlines() == ["the daemon answers"]


def test_loss_of_the_daemon_is_said_once(
    make_agent: Callable[[str], Leader], capsys: pytest.CaptureFixture[str]
) -> None:
    """A daemon that fails in mid-run is one line, however often it is tried again."""
    loop = PlainLoop()
    with FakeDaemon() as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        daemon.behaviour = "error"
        loop.advance(agent)
        answered = len(daemon.batches)
        until(lambda: daemon.requests_total >= answered + 2)
        agent.end("finished")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("the daemon is lost (HTTP 500: ")


def test_end_does_not_wait_for_a_daemon_that_hangs(make_agent: Callable[[str], Leader]) -> None:
    """With a daemon that takes its time the end of the training is bounded; what is left counts as not delivered."""
    loop = PlainLoop()
    with FakeDaemon(behaviour="slow", delay_s=60.0) as daemon:
        agent = make_agent(daemon.url)
        agent.start()
        agent.begin(ATTEMPT)
        loop.advance(agent)
        began = perf_counter()
        agent.end("finished")
        assert perf_counter() - began < 10.0
        assert agent.tally().lost >= 1


def test_next_attempt_of_a_named_run_reports_what_is_pinned(
    make_agent: Callable[[str], Leader], tmp_path: Path
) -> None:
    """A resume at a step gets the pins up to that step back; those beyond it belong to a branch that is left."""
    loop = PlainLoop()
    with FakeDaemon() as daemon:
        first = make_agent(daemon.url)
        first.start()
        first.begin(ATTEMPT)
        for _ in range(4):
            loop.advance(first)
            first.save_checkpoint(loop.save)
        first.end("failed")
        second = make_agent(daemon.url)
        second.start()
        second.begin(replace(ATTEMPT, step=2, is_resumed=True))
        second.end("finished")
        again = [each for batch in daemon.batches if batch.attempt == second.attempt for each in batch.observations]
    assert second.run == first.run
    assert [each.step for each in again[1:-1]] == [1, 2]
    assert len(list(tmp_path.glob("*/pins/*.ckpt"))) == 4


def test_what_no_daemon_took_is_delivered_by_the_next_attempt(make_agent: Callable[[str], Leader]) -> None:
    """An attempt without a daemon leaves its reports on disk; the next one tells them first, as history, once each."""
    loop = PlainLoop()
    with FakeDaemon(behaviour="error") as absent:
        first = make_agent(absent.url)
        first.start()
        first.begin(ATTEMPT)
        for _ in range(5):
            loop.advance(first)
        first.end("interrupted")
    assert (first.tally().lost, first.tally().kept) == (0, 8)
    with FakeDaemon() as daemon:
        second = make_agent(daemon.url)
        second.start()
        second.begin(replace(ATTEMPT, step=5, is_resumed=True))
        loop.advance(second)
        second.end("finished")
        told = [(batch.attempt, batch.backlog) for batch in daemon.batches]
        assert told[0] == (first.attempt, True)
        assert set(told[1:]) == {(second.attempt, False)}
        assert [each.step for each in daemon.told(StepReport)] == [1, 2, 3, 4, 5, 6]
    assert second.tally().kept == 0
