"""Tortures a daemon and its network while healthy runs train: nothing may be lost, doubled, or done to any of them.

python -m tests.faults.campaign --runs 100 --steps 600 --seed 1
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sentinel import clock
from tests.daemons import database_url, make_schema
from tests.faults.inspection import Inspection
from tests.faults.mortal import Fate, Mortal
from tests.faults.network import Network, Weather
from tests.faults.trainee import Trainee

AT_ONCE = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long, how many, how bad."""

    runs: int
    steps: int
    seed: int = 0
    weather: Weather = field(default_factory=Weather)
    longest_life_s: float = 2.0
    """A daemon is killed at a random time before it is so old."""
    longest_absence_s: float = 0.5
    dies: float = 0.01
    """How likely a trainer's process is killed, at each turn of its agent."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was done to them, and what came of it."""

    runs: int
    attempts: int
    observations: int
    lives: int
    """Of the daemon."""
    mishaps: dict[str, int]
    decisions: int
    actions: dict[str, int]
    """By executor."""
    rollbacks: int
    duration_s: float


def torture(plan: Plan, folder: Path) -> Report:
    """Runs a campaign; raises where a log is not what was told, once and in order.

    Args:
        plan: what to do.
        folder: for the database and the spools; both are left there.
    """
    began = clock.monotonic()
    over = threading.Event()
    make_schema(folder)
    daemon = Mortal(database_url=database_url(folder))
    with ExitStack() as ends:
        daemon.live()
        ends.callback(daemon.kill)
        network = ends.enter_context(Network(daemon.port, plan.weather, seed=plan.seed))
        killer = threading.Thread(target=_kill_again_and_again, args=(daemon, plan, over))
        killer.start()
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                trainees = list(pool.map(lambda number: _train(plan, number, network.url, folder), range(plan.runs)))
        finally:
            over.set()
            killer.join()
    inspection = Inspection(folder)
    for trainee in trainees:
        inspection.check_log(trainee)
        inspection.check_decisions(trainee)
    report = Report(
        runs=plan.runs,
        attempts=sum(each.attempts for each in trainees),
        observations=sum(len(told) for each in trainees for told in each.told.values()),
        lives=daemon.lives,
        mishaps=dict(network.mishaps),
        decisions=inspection.decisions(),
        actions=dict(Counter(each["executor"] for each in inspection.actions())),
        rollbacks=sum(len(each.rolled_back) for each in trainees),
        duration_s=clock.monotonic() - began,
    )
    inspection.close()
    return report


def _kill_again_and_again(daemon: Mortal, plan: Plan, over: threading.Event) -> None:
    chance = random.Random(plan.seed)
    while not over.wait(chance.uniform(0.0, plan.longest_life_s)):
        daemon.kill()
        over.wait(chance.uniform(0.0, plan.longest_absence_s))
        daemon.live(Fate(clock_shift_s=chance.uniform(-3600.0, 3600.0)))


def _train(plan: Plan, number: int, url: str, folder: Path) -> Trainee:
    chance = random.Random(plan.seed * 1000 + number)
    trainee = Trainee(url, f"run-{number}", folder / "spools", seed=chance.randrange(1 << 30))
    while trainee.step < plan.steps:
        trainee.train(chance.randint(1, 20))
        if chance.random() < 0.1:
            trainee.save()
        trainee.exchange()
        if chance.random() < plan.dies:
            trainee.die()
            trainee.start(back=chance.randint(0, 50))
        clock.sleep(0.005)
    trainee.end()
    return trainee


def main() -> None:
    """Prints the report of one campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sentinel-campaign-") as folder:
        print(torture(Plan(runs=given.runs, steps=given.steps, seed=given.seed), Path(folder)))


if __name__ == "__main__":
    main()
