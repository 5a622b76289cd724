"""A Lightning script that nobody wrote for Sentinel, with the one added line, against a real daemon."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from sentinel.engine.replay import replay
from sentinel.protocol.ids import RunId
from sentinel.store.session import open_database
from tests.daemons import Agent, database_url, serving
from tests.trainer.sentinel_agent.own_script import run_script
from tests.trainer.sentinel_agent.small_training import same

NAN_AT_STEP_150 = (149, 149, "nan")
CHECKPOINT_STEP = 96
"""An epoch has 32 steps, Lightning saves after each, and 50 clean ones must follow."""


def test_in_observe_mode_it_only_tells(tmp_path: Path) -> None:
    """Observing changes nothing, and the terminal and the API say what would have been done."""
    alone = run_script(tmp_path / "alone", added="", fault=NAN_AT_STEP_150)
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        environ = {"SENTINEL_URL": daemon.url, "SENTINEL_RUN": "digits"}
        watched = run_script(tmp_path / "watched", environ, fault=NAN_AT_STEP_150)
        decisions = person.get("/v1/runs/digits/decisions")["decisions"]
    assert (alone.returncode, watched.returncode) == (0, 0), watched.stderr
    assert watched.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]
    models = [torch.load(tmp_path / name / "model.pt") for name in ("alone", "watched")]
    torch.testing.assert_close(*models, rtol=0, atol=0, equal_nan=True)
    would_have = [each for each in decisions if each["outcome"] == "would_have"]
    assert [(each["rung"], each["target_step"]) for each in would_have] == [("rollback", CHECKPOINT_STEP)]
    assert "would have: rollback" in watched.stderr


def test_in_act_mode_the_run_is_saved(tmp_path: Path) -> None:
    """The rollback undoes the fault, the run ends by itself with a model that works, and the log replays."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        environ = {"SENTINEL_URL": daemon.url, "SENTINEL_RUN": "digits", "SENTINEL_MODE": "act"}
        done = run_script(tmp_path / "run", environ, fault=NAN_AT_STEP_150)
        run = person.get("/v1/runs/digits")
        incidents = person.get("/v1/incidents")["incidents"]
    assert done.returncode == 0, done.stderr
    assert [(each["symptom"], each["state"], each["rollbacks"]) for each in incidents] == [("nonfinite", "resolved", 1)]
    assert run["phase"] == "finished"
    assert all(weight.isfinite().all() for weight in torch.load(tmp_path / "run" / "model.pt").values())
    assert re.search(rf"rolled back from step \d+ to step {CHECKPOINT_STEP} in \d+ ms", done.stderr)
    assert replay(open_database(database_url(tmp_path)), RunId("digits")).difference is None


def test_a_healthy_run_is_left_alone(tmp_path: Path) -> None:
    """Without a fault nothing is found, and in act mode too the weights are those of the script alone."""
    run_script(tmp_path / "alone", added="")
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        run_script(tmp_path / "run", {"SENTINEL_URL": daemon.url, "SENTINEL_MODE": "act"})
        assert person.get("/v1/incidents")["incidents"] == []
        assert [each["phase"] for each in person.get("/v1/runs")["runs"]] == ["finished"]
    assert same(*(torch.load(tmp_path / name / "model.pt") for name in ("alone", "run")))
