from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from sentinel_agent import SentinelCallback
from tests.trainer.sentinel_agent.replaying import NoisySamples, Plan, Planned, Record, RecordingModule, Return, play
from tests.trainer.sentinel_agent.small_training import train


def random_plan(root: Path, seed: int, *, returns: int, **options: Any) -> Plan:
    """A plan with returns at random steps to checkpoints in the middle of an epoch."""
    chance = random.Random(seed)
    plan = Plan(str(root), seed=seed, **options)
    epoch_steps = -(-plan.batches // plan.accumulate)
    points, to = [], 1
    for _ in range(returns):
        at = chance.randint(to + 2, 26)
        to = chance.choice([step for step in range(1, min(at, 24)) if step % epoch_steps])
        points.append(Return(at, to))
    newest = 26 + (60 if plan.ranks > 1 else 0)  # several ranks stop some steps after the order
    return Plan(**(vars(plan) | {"returns": points, "max_steps": newest + 2}))


def assert_replayed(records: list[Record], daemon: Planned) -> None:
    """Whatever step came again saw the same samples, noise and rate and gave the same loss, to the last bit."""
    segments = len(daemon.plan.returns) + 1
    assert [each.outcome for each in daemon.results] == ["succeeded"] * (segments - 1)
    assert {each.segment for each in records} == set(range(segments))
    first: dict[int, list[Any]] = {}
    for (_, step), batches in groupby(records, key=lambda each: (each.segment, each.step)):
        seen = [(each.samples, each.data, each.lr, each.loss) for each in batches]
        assert seen == first.setdefault(step, seen)
    assert all("weights, data; the data went back too" in each.verified for each in daemon.results)


def play_at_random(root: Path, seed: int, *, returns: int, **options: Any) -> None:
    """Plays a random plan and compares every rank's losses."""
    ranks, daemon = play(random_plan(root, seed, returns=returns, **options))
    for records in ranks:
        assert_replayed(records, daemon)


@pytest.mark.parametrize(
    ("options", "returns"),
    [({"validate": True}, 2), ({"accumulate": 4}, 1), ({"workers": 2}, 1), ({"ranks": 2, "max_epochs": 40}, 1)],
)
def test_steps_after_an_exact_rollback_are_those_of_the_first_time(
    tmp_path: Path, options: dict[str, Any], returns: int
) -> None:
    """At random points, with validation, accumulation, workers or two ranks, every later loss is bit-identical."""
    play_at_random(tmp_path, 7, returns=returns, **options)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_exact_rollbacks_at_fifty_random_points(tmp_path: Path) -> None:
    """At fifty points, with one rank and two, accumulation, workers and validation, later losses are the same bits."""
    played = 0
    for seed, (ranks, accumulate, workers) in enumerate(
        (ranks, accumulate, workers) for ranks in (1, 2) for accumulate in (1, 4) for workers in (0, 2)
    ):
        returns = (10 if ranks == 1 else 9) if workers == 0 else (5 if ranks == 1 else 2)
        play_at_random(
            tmp_path / str(seed),
            seed,
            returns=returns,
            ranks=ranks,
            accumulate=accumulate,
            workers=workers,
            validate=seed % 2 == 0,
        )
        played += returns
    assert played >= 50


def test_suspect_window_is_drawn_and_dropped_and_stays_dropped(tmp_path: Path) -> None:
    """The batches of the window's steps never come again, even after a later rollback over them; all others do."""
    plan = Plan(str(tmp_path), [Return(10, 4, 7, 8), Return(11, 5)], accumulate=2, batches=40, max_steps=14)
    ([records], daemon) = play(plan)
    assert [each.outcome for each in daemon.results] == ["succeeded", "succeeded"]
    by_segment = [[each.samples for each in records if each.segment == segment] for segment in range(3)]
    first = by_segment[0]
    kept = first[8:12] + first[16:]
    assert by_segment[1][: len(kept)] == kept
    assert by_segment[2][: len(kept) - 2] == kept[2:]


def test_checkpoint_from_the_end_of_an_epoch_is_restored_with_the_data_going_on(tmp_path: Path) -> None:
    """Between two epochs Lightning cannot be set back exactly: forward is used, and the result says so."""
    ([records], daemon) = play(Plan(str(tmp_path), [Return(9, 7)], batches=7, max_steps=12))
    (result,) = daemon.results
    assert result.outcome == "succeeded"
    assert "the data goes on since the checkpoint was saved at the end of an epoch" in result.verified
    assert [each.step for each in records] == [*range(9), *range(7, 12)]


class Stream(IterableDataset[Any]):
    """Samples without a number."""

    def __iter__(self) -> Any:
        samples = NoisySamples(40, noise=0.0)
        return (samples[number] for number in range(40))


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (
            DataLoader(NoisySamples(40, 0.0)),
            "a plain DataLoader cannot be set back: use torchdata's StatefulDataLoader",
        ),
        (StatefulDataLoader(Stream()), "give its dataset a __len__"),
        (
            StatefulDataLoader(NoisySamples(40, 0.0), sampler=RandomSampler(range(40))),
            "RandomSampler keeps no state: give it state_dict and load_state_dict, or use torchdata's",
        ),
        (StatefulDataLoader(NoisySamples(40, 0.0), shuffle=True), ""),
    ],
    ids=["plain", "no length", "no state", "exact"],
)
def test_start_says_whether_data_can_go_back_and_what_to_change(
    tmp_path: Path, data: Any, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start lines say exact, or forward with the reason and the remedy."""
    train(tmp_path, SentinelCallback(mode="act"), module=RecordingModule(lambda: 0), data=data, max_steps=2)
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "rollback: " in each]
    assert ("rollback: forward" in line) == bool(advice)
    assert advice in line
