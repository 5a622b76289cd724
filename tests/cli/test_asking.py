from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentinel.cli.main import app
from sentinel.domain.errors import Conflict, InvalidInput, NotFound
from tests.builders import RUN
from tests.daemons import Agent, database_url, serving


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """The agent of a run, at a daemon that the command finds."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
        monkeypatch.setenv("SENTINEL_URL", daemon.url)
        yield agent


def run(*arguments: str) -> str:
    """What a command prints; its error is raised."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_a_run_is_held_and_released(agent: Agent) -> None:
    """One run, or all; what stands is said, as JSON too; neither and both are refused."""
    agent.start()
    assert f"Run {RUN} is held by ada." in run("hold", RUN, "--by", "ada", "--reason", "why not")
    assert json.loads(run("hold", "--all", "--by", "bob", "--json"))["is_held"] is True
    assert "(held)" in run("status")
    released = run("release", RUN, "--by", "ada")
    assert f"Run {RUN} is held by bob." in released
    assert "sentinel release --all" in released
    assert "has ended" in run("release", "--all")
    for wrong in (("hold",), ("hold", RUN, "--all")):
        with pytest.raises(InvalidInput, match="--all"):
            run(*wrong)
    with pytest.raises(NotFound, match="absent"):
        run("hold", "absent")


def test_a_rollback_is_asked_for(agent: Agent) -> None:
    """The decision is printed; a refusal is an error in words."""
    agent.ready_to_roll_back()
    assert "step 80 -> 20: ada asks to go back (odd)" in run("rollback", RUN, "--by", "ada", "--reason", "odd")
    with pytest.raises(Conflict, match="a rollback is under way"):
        run("rollback", RUN, "--checkpoint", "good")


def test_an_incident_is_looked_after(agent: Agent) -> None:
    """It is found by its severity, acknowledged, annotated and settled, and shows what was said."""
    agent.ready_to_roll_back()
    incident = agent.break_down().commands[0].incident
    (found,) = json.loads(run("incidents", "list", "--severity", "critical", "--symptom", "nonfinite", "--json"))
    assert found["id"] == incident
    assert "is mitigating; ada looks after it" in run("incidents", "acknowledge", incident, "--by", "ada")
    run("incidents", "annotate", incident, "shard 7", "--by", "ada")
    assert "resolved" in run("incidents", "resolve", incident, "--reason", "known")
    shown = run("incidents", "show", incident)
    assert "ada: annotate: shard 7" in shown
    assert run("incidents", "list", "--symptom", "loss_spike") == "No incidents.\n"
    with pytest.raises(InvalidInput, match="did you mean nonfinite"):
        run("incidents", "list", "--symptom", "non_finite")
    assert json.loads(run("incidents", "show", incident, "--json"))["acknowledged_by"] == "ada"


def test_what_was_held_back_is_told(agent: Agent) -> None:
    """A decision that a limit withheld is shown with its reason; where everything was done, that is said."""
    agent.ready_to_roll_back()
    assert run("decisions", RUN, "--would-have") == "Nothing was held back.\n"
    run("hold", RUN, "--by", "ada")
    agent.break_down()
    shown = run("decisions", RUN, "--would-have")
    assert "rollback (withheld)" in shown
    assert "ada" in shown


def test_another_policy_is_asked_in_words(agent: Agent, tmp_path: Path) -> None:
    """What was decided and what would have been stand below each other; a wrong policy is named with its file."""
    agent.ready_to_roll_back()
    agent.break_down()
    policy = tmp_path / "new.toml"
    asked = ("replay", RUN, "--database-url", database_url(tmp_path), "--policy", str(policy))
    policy.write_text('mode = "observe"\n')
    shown = run(*asked)
    assert "recorded: rollback to step 20 (good), ordered, at step 81" in shown
    assert "replayed: watch, nothing, at step 81" in shown
    policy.write_text('mode = "obsrve"\n')
    with pytest.raises(InvalidInput, match=r"--policy: \S+/new\.toml: mode: "):
        run(*asked)
