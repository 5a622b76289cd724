from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from sentinel.protocol.observations import CheckpointReport, CommandResult, StepReport
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.own_script import run_script
from tests.trainer.sentinel_agent.small_training import Orders, same


def lines_of(stderr: str) -> list[str]:
    """What the agent has printed."""
    return [line for line in stderr.splitlines() if line.startswith("sentinel: ")]


def files_of(folder: Path) -> set[str]:
    """What the run has left, but for what is the agent's; TensorBoard's files are named after time and process."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path).partition("tfevents")[0] for path in paths if path.parts[0] != ".sentinel"}


def test_observed_script_is_what_it_is_alone(tmp_path: Path) -> None:
    """With the one added line the script ends with the same weights, result and files, also when its data is broken."""
    fault = (70, 75, "30")
    alone = run_script(tmp_path / "alone", added="", fault=fault)
    with FakeDaemon(Orders(at_step=70, to_step=32)) as daemon:
        watched = run_script(tmp_path / "watched", {"SENTINEL_URL": daemon.url}, fault=fault)
        assert [each.outcome for each in daemon.told(CommandResult)] == ["refused"]
        losses = {each.step: each.loss for each in daemon.told(StepReport)}
        assert {each.step for each in daemon.told(CheckpointReport) if each.state == "verified"} >= {32, 64, 96, 128}
    assert (alone.returncode, watched.returncode) == (0, 0), watched.stderr
    assert watched.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]
    assert files_of(tmp_path / "watched") == files_of(tmp_path / "alone")
    assert same(*(torch.load(tmp_path / name / "model.pt") for name in ("alone", "watched")))
    assert losses[71] > 3 * losses[70]
    assert len(lines_of(watched.stderr)) == 6


def test_script_that_may_be_set_back_recovers(tmp_path: Path) -> None:
    """In act mode the same broken data costs some steps: the script ends with a model that works."""
    orders = Orders(at_step=71, to_step=32, change=lambda command: replace(command, expires_step=1000))
    with FakeDaemon(orders) as daemon:
        environ = {"SENTINEL_URL": daemon.url, "SENTINEL_MODE": "act"}
        done = run_script(tmp_path, environ, fault=(70, 71, "nan"))
        (result,) = daemon.told(CommandResult)
        steps = daemon.told(StepReport)
    assert done.returncode == 0, done.stderr
    assert (result.outcome, result.step, result.segment) == ("succeeded", 32, 1)
    assert sum(each.segment == 0 for each in steps) + sum(each.segment == 1 for each in steps) == 192
    assert all(weight.isfinite().all() for weight in torch.load(tmp_path / "model.pt").values())
    assert float(done.stdout.split("accuracy ")[1]) > 0.5
    rolled_back = [line for line in lines_of(done.stderr) if "rolled back" in line]
    assert rolled_back[0].startswith(f"sentinel: rolled back from step {result.from_step} to step 32 in ")
    assert len(lines_of(done.stderr)) == 7
