"""The example of a loop without a framework, as its owner runs it, against a real daemon and against none."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import torch

from sentinel.engine.replay import replay
from sentinel.protocol.ids import RunId
from sentinel.store.session import open_database
from tests.daemons import Agent, database_url, serving
from tests.scripts import run_example
from tests.trainer.sentinel_agent.small_training import same

ABSENT = {"SENTINEL_URL": "http://127.0.0.1:9", "SENTINEL_RUN": "plain"}
WITHOUT = {
    "from sentinel_agent import Agent\n": "",
    "with Agent(model, optimizer, also=[schedule], checkpoint_every=50) as sentinel:": "if True:",
    "sentinel.batches(loader)": "loader",
    "            sentinel.step(loss=loss, grad_norm=norm)\n": "",
}
NAN_AT_STEP_175 = {
    "(model(inputs), wanted)\n": "(model(inputs), wanted) * (float('nan') if next(at) == 175 else 1.0)\n"
}
COUNTED = {"torch.manual_seed(0)": "at = iter(range(1, 10**6))\ntorch.manual_seed(0)"}
BROKEN = NAN_AT_STEP_175 | COUNTED


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    """What the script has saved at its end."""
    return torch.load(folder / "model.pt")  # type: ignore[no-any-return]


def test_observed_loop_is_what_it_is_alone(tmp_path: Path) -> None:
    """The daemon has an incident that began at the step of the NaN, and the weights are those of the loop alone."""
    alone = run_example("plain_loop.py", tmp_path / "alone", WITHOUT | BROKEN)
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        environ = {"SENTINEL_URL": daemon.url, "SENTINEL_RUN": "plain"}
        watched = run_example("plain_loop.py", tmp_path / "watched", BROKEN, environ)
        (incident,) = person.get("/v1/incidents")["incidents"]
        decisions = person.get("/v1/runs/plain/decisions")["decisions"]
        run = person.get("/v1/runs/plain")
    assert (alone.returncode, watched.returncode) == (0, 0), watched.stderr
    assert (incident["symptom"], incident["onset_step"]) == ("nonfinite", 175)
    assert ("would_have", "rollback", 100) in [
        (each["outcome"], each["rung"], each["target_step"]) for each in decisions
    ]
    assert run["phase"] == "finished"
    torch.testing.assert_close(
        model_of(tmp_path / "alone"), model_of(tmp_path / "watched"), rtol=0, atol=0, equal_nan=True
    )


def test_loop_that_may_be_set_back_recovers(tmp_path: Path) -> None:
    """In act mode the NaN costs some steps: the loop ends by itself with finite weights, and the log replays."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        environ = {"SENTINEL_URL": daemon.url, "SENTINEL_RUN": "plain", "SENTINEL_MODE": "act"}
        done = run_example("plain_loop.py", tmp_path / "run", BROKEN, environ)
        (incident,) = person.get("/v1/incidents")["incidents"]
    assert done.returncode == 0, done.stderr
    assert (incident["onset_step"], incident["state"], incident["rollbacks"]) == (175, "resolved", 1)
    assert all(weight.isfinite().all() for weight in model_of(tmp_path / "run").values())
    assert "to step 100 in " in done.stderr
    assert replay(open_database(database_url(tmp_path)), RunId("plain")).difference is None


def test_loop_without_a_daemon_is_identical_and_on_time(tmp_path: Path) -> None:
    """Nobody listens: the healthy loop ends with the same weights, a few seconds later at most, in act mode too."""
    began = perf_counter()
    alone = run_example("plain_loop.py", tmp_path / "alone", WITHOUT)
    alone_s = perf_counter() - began
    watched = run_example("plain_loop.py", tmp_path / "watched", {}, ABSENT | {"SENTINEL_MODE": "act"})
    assert (alone.returncode, watched.returncode) == (0, 0), watched.stderr
    assert perf_counter() - began < 2 * alone_s + 10.0
    assert same(model_of(tmp_path / "alone"), model_of(tmp_path / "watched"))
