"""The demo's two forms: with faults, and healthy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from rich.console import Console

from sentinel import clock
from sentinel.client import Client
from sentinel.demo import processes
from sentinel.demo.processes import Process
from sentinel.demo.schedule import CHECKPOINT_EVERY, FAULTS, HEALTHY_STEPS, STEPS
from sentinel.demo.verdict import Verdict, judge
from sentinel.demo.watching import Watching

LOOK_EVERY_S: Final = 0.25
OTHER_SEEDS: Final = 5
LAST_STEPS: Final = 50
SIGMAS: Final = 3.0


@dataclass(slots=True)
class Healthy:
    """A run without faults beside others with other seeds."""

    incidents: int
    loss: float
    """Mean over the last 50 steps."""
    others: list[float]
    mean: float
    deviation: float
    passed: bool


def with_faults(folder: Path, console: Console, *, seed: int) -> Verdict:
    """Trains, injects the schedule's faults, narrates, and judges by what the REST API then says."""
    with _daemon(folder, console) as (server, client, url):
        console.print(f"Training a small language model on real text, with {len(FAULTS)} faults on its way.")
        log = folder / "faults.jsonl"
        options = ["--max-steps", str(STEPS), "--fault-log", str(log), *_common(seed)]
        for fault in FAULTS:
            options += ["--fault", fault.option]
        watching = Watching(client, "demo", console)
        with (
            processes.trainer(folder, "demo", url, options) as training,
            console.status("starting the trainer") as status,
        ):
            while training.exit_code is None:
                server.check()
                watching.look(_noted(log), status)
                clock.sleep(LOOK_EVERY_S)
            watching.look(_noted(log), status)
            training.check()
        return judge(client, "demo", _noted(log))


def healthy(folder: Path, console: Console, *, seed: int) -> Healthy:
    """Trains without a fault, beside other seeds: nothing may be found, and the loss must be one of theirs."""
    with _daemon(folder, console) as (server, client, url):
        names = {f"seed-{seed + offset}": seed + offset for offset in range(OTHER_SEEDS + 1)}
        console.print(f"Training {len(names)} seeds without any fault, two at a time.")
        with console.status("training") as status:
            waiting = list(names)
            while waiting:
                pair, waiting = waiting[:2], waiting[2:]
                with ExitStack() as running:
                    trainings = [
                        running.enter_context(
                            processes.trainer(
                                folder,
                                name,
                                url,
                                ["--max-steps", str(HEALTHY_STEPS), "--threads", "1", *_common(names[name])],
                            )
                        )
                        for name in pair
                    ]
                    _wait(server, trainings)
                for name in pair:
                    console.print(f"  {name}: loss {_last_loss(client, name):.4f}", highlight=False)
                status.update(f"{len(waiting)} seeds to go")
        incidents = client.pages("/v1/incidents", "incidents")
        loss, *others = (_last_loss(client, name) for name in names)
    mean, deviation = fmean(others), stdev(others)
    passed = not incidents and abs(loss - mean) <= SIGMAS * deviation
    return Healthy(len(incidents), loss, others, mean, deviation, passed)


@contextmanager
def _daemon(folder: Path, console: Console) -> Iterator[tuple[Process, Client, str]]:
    port = processes.free_port()
    url = f"http://127.0.0.1:{port}"
    with processes.daemon(folder, port) as server, Client(url) as client:
        processes.wait_ready(server, url)
        console.print(f"The daemon listens at {url}; everything is kept in {folder}.", highlight=False)
        yield server, client, url


def _common(seed: int) -> list[str]:
    return ["--mode", "act", "--checkpoint-every", str(CHECKPOINT_EVERY), "--seed", str(seed)]


def _wait(server: Process, trainings: Sequence[Process]) -> None:
    while any(training.exit_code is None for training in trainings):
        server.check()
        clock.sleep(LOOK_EVERY_S)
    for training in trainings:
        training.check()


def _noted(log: Path) -> list[dict[str, Any]]:
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def _last_loss(client: Client, run: str) -> float:
    step = client.get(f"/v1/runs/{run}")["step"]
    points = client.get(
        f"/v1/runs/{run}/series", names="loss", first_step=step - LAST_STEPS + 1, last_step=step, points=LAST_STEPS
    )["series"]["loss"]
    return fmean(point["mean"] for point in points)
