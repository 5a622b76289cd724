from __future__ import annotations

import random
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.protocol.commands import RollBack
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.replaying import Plan, Planned, Record, Return, play, read, start
from tests.trainer.sentinel_agent.small_training import until

pytestmark = pytest.mark.slow
STEPS = 120
"""Enough that the stop step lies before the end, however fast the steps are."""


def path_of(records: list[Record]) -> list[tuple[int, int]]:
    """Where a rank was, micro-batch by micro-batch."""
    return [(each.segment, each.step) for each in records]


def test_two_ranks_go_back_together_while_their_data_goes_on(tmp_path: Path) -> None:
    """A forward rollback: both ranks leave the same step for the same step, and each draws the batches that follow."""
    plan = Plan(str(tmp_path), [Return(9, 4, data="forward")], ranks=2, batches=200, max_steps=STEPS)
    ranks, daemon = play(plan)
    (result,) = daemon.results
    assert (result.outcome, result.step, result.segment) == ("succeeded", 4, 1)
    assert path_of(ranks[0]) == path_of(ranks[1])
    for records in ranks:
        samples = [number for each in records for number in each.samples]
        assert len(set(samples)) == len(samples)


def test_rank_that_cannot_go_back_keeps_all_from_it(tmp_path: Path) -> None:
    """Rank 1 has lost its sidecar: nobody goes back, and the daemon hears which rank could not and why."""

    def lose(command: RollBack) -> RollBack:
        (sidecar,) = tmp_path.glob(f".sentinel/*/pins/{command.checkpoint}.sidecar-1.pt")
        sidecar.unlink()
        return command

    plan = Plan(str(tmp_path), [Return(9, 4)], ranks=2, batches=200, max_steps=STEPS)
    ranks, daemon = play(plan, change=lose)
    (result,) = daemon.results
    assert result.outcome == "failed"
    assert result.reason.startswith("rank 1: the data cannot be set back: its sidecar is gone")
    assert [path_of(records) for records in ranks] == [[(0, step) for step in range(STEPS)]] * 2


@pytest.mark.parametrize(("ranks", "returns"), [(3, 1), (4, 6)])
def test_ranks_that_are_delayed_at_random_go_back_together(tmp_path: Path, ranks: int, returns: int) -> None:
    """Processes are stopped for up to 0.3 s at random while they agree; all end having taken the same path."""
    points = [Return(9 + 3 * each, 4 + each) for each in range(returns)]
    plan = Plan(str(tmp_path), points, ranks=ranks, batches=2 * STEPS, max_steps=STEPS)
    daemon_part = Planned(plan)
    chance, pause = random.Random(3), threading.Event()
    with FakeDaemon(daemon_part) as daemon:
        processes = start(replace(plan, url=daemon.url))
        while any(process.poll() is None for process in processes):
            delayed = chance.choice(processes)
            if daemon_part.sent and delayed.poll() is None:
                delayed.send_signal(signal.SIGSTOP)
                pause.wait(chance.uniform(0.0, 0.3))
                delayed.send_signal(signal.SIGCONT)
            pause.wait(0.05)
    assert [process.returncode for process in processes] == [0] * ranks
    paths = [path_of(read(plan, rank)) for rank in range(ranks)]
    assert paths == [paths[0]] * ranks
    assert len(daemon_part.results) == returns
    assert any(each.outcome == "succeeded" for each in daemon_part.results)


@pytest.mark.parametrize(
    ("killed", "delay_s"),
    [(2, 0.05), (0, 0.0), (0, 0.1), (2, 0.0)],
)
def test_rank_killed_while_agreeing_leaves_no_half(tmp_path: Path, killed: int, delay_s: float) -> None:
    """A rank is killed just after the order: the others end too, and none makes a step without the rest."""
    plan = Plan(str(tmp_path), [Return(9, 4)], ranks=3, batches=2 * STEPS, max_steps=10 * STEPS)
    daemon_part = Planned(plan)
    with FakeDaemon(daemon_part) as daemon:
        processes = start(replace(plan, url=daemon.url))
        try:
            until(lambda: daemon_part.sent, timeout_s=60.0)
            threading.Event().wait(delay_s)
            processes[killed].kill()
            codes = [process.wait(timeout=45) for process in processes]
        finally:
            for process in processes:
                process.kill()
    assert all(codes), codes
    survivors = [path_of(read(plan, rank)) for rank in range(3) if rank != killed]
    newest = [max(path) for path in survivors]
    assert max(newest)[0] - min(newest)[0] <= 1
    if max(newest)[0] != min(newest)[0]:  # one was quicker, and stands before the first collective of its new path
        assert max(newest) == (1, 4)
