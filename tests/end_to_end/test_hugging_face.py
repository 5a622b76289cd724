"""The example with the Hugging Face Trainer, as its owner runs it, against a real daemon and against none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from time import perf_counter

import pytest
import torch

from sentinel.protocol.observations import AttemptEnded, AttemptStarted, CheckpointReport, StepReport
from tests.daemons import Agent, serving
from tests.fakes import FakeDaemon
from tests.scripts import run_example
from tests.trainer.sentinel_agent.small_training import same

WITHOUT = {
    "from sentinel_agent.transformers import SentinelCallback\n": "",
    ", callbacks=[SentinelCallback()])": ")",
}
CLASS = """
class Broken(GPT2LMHeadModel):
    batches = 0

    def forward(self, input_ids=None, labels=None, **kwargs):
        self.batches += self.training
        output = super().forward(input_ids, labels=labels, **kwargs)
        if self.batches == 151:
            output.loss = output.loss * float("nan")
        return output

set_seed(0)
"""
NAN_AT_STEP_76 = {"set_seed(0)\n": CLASS, "model = GPT2LMHeadModel(": "model = Broken("}
"""Of its two micro-batches the first one's loss is NaN."""
HUGGING_FACE = {"HF_HUB_OFFLINE": "1", "SENTINEL_RUN": "hf"}


def test_nan_that_the_trainers_log_hides_is_seen(tmp_path: Path) -> None:
    """The Trainer logs finite losses to the end; the daemon has an incident at the NaN's step; no weight differs."""
    alone = run_example("hugging_face.py", tmp_path / "alone", WITHOUT | NAN_AT_STEP_76, HUGGING_FACE)
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        environ = HUGGING_FACE | {"SENTINEL_URL": daemon.url}
        watched = run_example("hugging_face.py", tmp_path / "watched", NAN_AT_STEP_76, environ)
        (incident,) = person.get("/v1/incidents")["incidents"]
        checkpoints = person.get("/v1/runs/hf/checkpoints")["checkpoints"]
        run = person.get("/v1/runs/hf")
    assert (alone.returncode, watched.returncode) == (0, 0), watched.stderr
    assert (incident["symptom"], incident["onset_step"]) == ("nonfinite", 76)
    assert [(each["step"], each["state"]) for each in checkpoints] == [(120, "bad"), (80, "bad"), (40, "verified")]
    assert run["phase"] == "finished"
    state = json.loads((tmp_path / "watched/out/checkpoint-120/trainer_state.json").read_text())
    logged = [each["loss"] for each in state["log_history"] if "loss" in each]
    assert len(logged) == 12
    assert all(map(math.isfinite, logged))
    models = [torch.load(tmp_path / name / "model.pt") for name in ("alone", "watched")]
    torch.testing.assert_close(*models, rtol=0, atol=0, equal_nan=True)


def test_training_without_a_daemon_is_identical_and_on_time(tmp_path: Path) -> None:
    """Nobody listens: the healthy training ends with the same weights, a few seconds later at most."""
    began = perf_counter()
    alone = run_example("hugging_face.py", tmp_path / "alone", WITHOUT, HUGGING_FACE)
    alone_s = perf_counter() - began
    environ = HUGGING_FACE | {"SENTINEL_URL": "http://127.0.0.1:9"}
    watched = run_example("hugging_face.py", tmp_path / "watched", {}, environ)
    assert (alone.returncode, watched.returncode) == (0, 0), watched.stderr
    assert perf_counter() - began < 2 * alone_s + 10.0
    assert same(*(torch.load(tmp_path / name / "model.pt") for name in ("alone", "watched")))


def test_two_processes_are_told_by_the_first(tmp_path: Path) -> None:
    """Under DDP one process speaks for both, with its own loss at the scale of the Trainer's log, and nothing hangs."""
    changes = {"max_steps=120": "max_steps=6", "logging_steps=10": "logging_steps=1", "save_steps=40": "save_steps=3"}
    environ = HUGGING_FACE | {"ACCELERATE_USE_CPU": "true"}
    with FakeDaemon() as daemon:
        environ["SENTINEL_URL"] = daemon.url
        done = run_example("hugging_face.py", tmp_path, changes, environ, processes=2)
        told = daemon.told(StepReport)
        (start,) = daemon.told(AttemptStarted)
        saved = [(each.step, each.state) for each in daemon.told(CheckpointReport)]
    assert done.returncode == 0, done.stderr
    state = json.loads((tmp_path / "out/checkpoint-6/trainer_state.json").read_text())
    logged = [each for each in state["log_history"] if "loss" in each]
    assert start.world_size == 2
    assert [each.step for each in told] == [1, 2, 3, 4, 5, 6]
    assert [each.loss for each in told] == pytest.approx([each["loss"] for each in logged], rel=0.05)
    assert [each.grad_norm for each in told] == pytest.approx([each["grad_norm"] for each in logged], rel=1e-5)
    assert saved == [(3, "reported"), (6, "reported")]


def test_exception_that_ends_the_program_ends_the_attempt(tmp_path: Path) -> None:
    """The Trainer tells no callback of an exception; the daemon hears of it all the same when the program ends."""
    raising = CLASS.replace("output = super()", "assert self.batches < 9, 'bad batch'\n        output = super()")
    changes = NAN_AT_STEP_76 | {"set_seed(0)\n": raising}
    with FakeDaemon() as daemon:
        done = run_example("hugging_face.py", tmp_path, changes, HUGGING_FACE | {"SENTINEL_URL": daemon.url})
        (end,) = daemon.told(AttemptEnded)
    assert done.returncode == 1
    assert (end.outcome, end.step, end.reason) == ("failed", 4, "AssertionError: bad batch")
