"""A Lightning script that nobody wrote for Sentinel, with the one added line, against a real daemon."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.engine.replay import replay
from sentinel.protocol.ids import RunId
from sentinel.store.session import open_database
from tests.daemons import Agent, database_url, serving

SCRIPT = Path(__file__).with_name("shapes.py")
POISONED_AT = 270
WITH_FAULT = f"""
import runpy, sys, torch
from torch.nn.modules.module import register_module_forward_hook

calls = 0

def poison(module, inputs, output):
    global calls
    if isinstance(module, torch.nn.Sequential):
        calls += 1
        if calls == {POISONED_AT}:
            return output * float("nan")

register_module_forward_hook(poison)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def _run(folder: Path, *, mode: str | None, url: str = "", fault: bool = True) -> tuple[list[float], str]:
    """Runs the script in ``folder``; returns its losses and what was printed."""
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SENTINEL_")}
    if mode is not None:
        environment |= {"SENTINEL_MODE": mode, "SENTINEL_URL": url, "SENTINEL_RUN": "shapes"}
    command = [sys.executable, "-c", WITH_FAULT, str(SCRIPT)] if fault else [sys.executable, str(SCRIPT)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "losses.json").read_text()), done.stdout + done.stderr


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the script with the fault and without the added line."""
    losses, _ = _run(tmp_path_factory.mktemp("alone") / "run", mode=None)
    return losses


def test_in_observe_mode_it_only_tells(tmp_path: Path, alone: list[float]) -> None:
    """Observing changes no loss, and the terminal and the API say what would have been done."""
    with serving(tmp_path) as daemon:
        losses, printed = _run(tmp_path / "run", mode="observe", url=daemon.url)
        with Agent(daemon.url) as person:
            decisions = person.get("/v1/runs/shapes/decisions")["decisions"]
    assert [each.hex() for each in losses] == [each.hex() for each in alone]
    assert sum(math.isnan(loss) for loss in losses) == len(losses) - POISONED_AT + 1
    would_have = [each for each in decisions if each["outcome"] == "would_have"]
    assert [(each["rung"], each["target_step"]) for each in would_have] == [("rollback", 200)]
    assert "would have: rollback" in printed


def test_in_act_mode_the_run_is_saved(tmp_path: Path, alone: list[float]) -> None:
    """The rollback undoes the fault: all before it is unchanged, and the run ends by itself with a finite loss."""
    with serving(tmp_path) as daemon:
        losses, printed = _run(tmp_path / "run", mode="act", url=daemon.url)
        with Agent(daemon.url) as person:
            run = person.get("/v1/runs/shapes")
            incidents = person.get("/v1/incidents")["incidents"]
    assert [each.hex() for each in losses[: POISONED_AT - 1]] == [each.hex() for each in alone[: POISONED_AT - 1]]
    assert [each["state"] for each in incidents] == ["resolved"]
    assert incidents[0]["rollbacks"] == 1
    assert math.isfinite(losses[-1])
    assert len(losses) == len(alone)
    assert run["phase"] == "finished"
    assert re.search(r"rolled back from step \d+ to step 200 in \d+ ms", printed)
    assert replay(open_database(database_url(tmp_path)), RunId("shapes")).difference is None


def test_a_healthy_run_is_left_alone(tmp_path: Path) -> None:
    """Without a fault nothing is found, and in act mode too every loss is that of the script alone."""
    expected, _ = _run(tmp_path / "alone", mode=None, fault=False)
    with serving(tmp_path) as daemon:
        losses, _ = _run(tmp_path / "run", mode="act", url=daemon.url, fault=False)
        with Agent(daemon.url) as person:
            assert person.get("/v1/incidents")["incidents"] == []
    assert losses == expected
