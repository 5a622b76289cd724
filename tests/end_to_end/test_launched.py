"""A training under `sentinel run`: killed, and brought back."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sentinel.engine.replay import replay
from sentinel.launcher.announced import newest_verified
from sentinel.protocol.ids import RunId
from sentinel.store import observation_log
from sentinel.store.session import open_database
from tests.daemons import Agent, database_url, serving
from tests.launched import NOBODY, Launched
from tests.launcher.trainee import losses

ROOT = Path(__file__).parents[2]
STEPS = "40"
KILL = "kill@27"
END_WITHIN_S = 100.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@contextmanager
def launched(folder: Path, url: str, *arguments: str, mode: str = "act", **more: str) -> Iterator[Launched]:
    """The training in a folder of its own."""
    folder.mkdir(exist_ok=True)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "trainer")]),
        "SENTINEL_URL": url,
        "SENTINEL_RUN": "run",
        "SENTINEL_MODE": mode,
        **more,
    }
    command = [sys.executable, "-m", "tests.launcher.trainee", *arguments]
    with Launched(folder, command, "--patience", "1", "--grace", "1", environment=environment) as process:
        yield process


def finish(folder: Path, url: str, *arguments: str, mode: str = "act", **more: str) -> tuple[int, str]:
    """Runs it to its end; exit code and standard error."""
    with launched(folder, url, *arguments, mode=mode, **more) as process:
        return process.end(END_WITHIN_S), process.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of the training that nothing befalls."""
    folder = tmp_path_factory.mktemp("whole")
    assert finish(folder, NOBODY, STEPS)[0] == 0
    return losses(folder)


def test_a_killed_training_goes_on_as_if_nothing_had_been(tmp_path: Path, whole: dict[int, float]) -> None:
    """The daemon's choice of a checkpoint, an unchanged script: each loss is the uninterrupted run's, to the bit."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        code, said = finish(tmp_path / "killed", daemon.url, STEPS, KILL)
        (incident,) = person.get("/v1/incidents")["incidents"]
        story = person.get(f"/v1/incidents/{incident['id']}")
        attempts = person.get("/v1/runs/run/attempts")["attempts"]
    assert code == 0, said
    (restart,) = [each for each in story["decisions"] if each["rung"] == "restart"]
    assert restart["target_step"] > 0
    assert f"from checkpoint {restart['checkpoint']}" in said
    assert losses(tmp_path / "killed") == whole
    assert (incident["symptom"], incident["state"], incident["restarts"]) == ("crash", "resolved", 1)
    assert incident["end_step"] == incident["detected_step"] + 1
    assert [each["signal"] for each in story["crashes"]] == ["SIGKILL"]
    assert [each["started"]["step"] for each in attempts] == [0, restart["target_step"]]
    assert replay(open_database(database_url(tmp_path)), RunId("run")).difference is None


def test_without_a_daemon_the_newest_verified_checkpoint_is_taken(tmp_path: Path, whole: dict[int, float]) -> None:
    """The launcher says that it decides by itself, and the losses are the same all the same."""
    code, said = finish(tmp_path / "run", NOBODY, STEPS, KILL)
    assert code == 0, said
    assert "the launcher decides by itself" in said
    assert "starting the training again from checkpoint" in said
    assert losses(tmp_path / "run") == whole


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training that was killed and, in observe mode, stayed dead; its daemon's database beside it."""
    folder = tmp_path_factory.mktemp("dead")
    with serving(folder) as daemon:
        code, said = finish(folder / "train", daemon.url, STEPS, KILL, mode="observe")
    assert code == 137, said
    return folder


def test_in_observe_mode_a_killed_training_stays_dead(dead: Path) -> None:
    """Nothing is done, and the daemon says what would have been."""
    with serving(dead) as daemon, Agent(daemon.url) as person:
        decisions = person.get("/v1/runs/run/decisions")["decisions"]
    assert [(each["rung"], each["outcome"]) for each in decisions] == [("restart", "would_have")]
    assert max(losses(dead / "train")) == 27


def test_the_phases_of_a_training_are_told(dead: Path) -> None:
    """Steps and saves come in the order in which they were."""
    told = [(each["phase"], each["step"]) for each in _told(dead, "phase")]
    assert told[:5] == [("train", 1), ("checkpoint", 5), ("train", 5), ("checkpoint", 10), ("train", 10)]


def test_a_checkpoint_that_is_not_what_it_was_is_refused(dead: Path, tmp_path: Path, whole: dict[int, float]) -> None:
    """It is said why, and where the script begins instead; the training then runs as the script would have it."""
    folder = tmp_path / "train"
    shutil.copytree(dead / "train", folder)
    pins = folder / "run" / ".sentinel" / "run" / "pins"
    newest = newest_verified(pins)
    assert newest is not None
    with (pins / f"{newest[0]}.ckpt").open("r+b") as file:
        file.seek(2000)
        file.write(b"otherwise")
    code, said = finish(folder, NOBODY, STEPS, KILL, SENTINEL_RESUME=newest[0])
    assert code == 0, said
    assert f"SENTINEL_RESUME={newest[0]} is not resumed from: its file has changed" in said
    assert "begins AT STEP 0" in said
    assert losses(folder) == whole


@pytest.mark.slow
def test_ranks_of_which_one_is_killed_go_on_together(tmp_path: Path) -> None:
    """Under torchrun, with dropout and shuffled data: the losses of both are the uninterrupted run's, to the bit."""
    told = []
    for name in ("whole", "kill"):
        folder = tmp_path / name
        folder.mkdir()
        program = ["-m", "tests.launcher.ranks_trainee", name]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program]
        environment = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "trainer")]),
            "OMP_NUM_THREADS": "1",
            "SENTINEL_MODE": "act",
            "SENTINEL_URL": NOBODY,
        }
        with Launched(folder, torchrun, "--patience", "0.5", "--grace", "1", environment=environment) as process:
            assert process.end(END_WITHIN_S) == 0, process.stderr
        logs = [(folder / f"loss-{rank}.jsonl").read_text().splitlines() for rank in (0, 1)]
        told.append([dict(map(json.loads, lines)) for lines in logs])
    assert "starting the training again from checkpoint" in process.stderr
    assert told[0] == told[1]


def _told(folder: Path, kind: str) -> list[dict[str, Any]]:
    database = open_database(database_url(folder))
    with database.reading() as connection:
        return [json.loads(each.payload) for each in observation_log.of_kinds(connection, RunId("run"), [kind])]
