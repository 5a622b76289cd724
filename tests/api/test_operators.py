from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from sentinel.engine.replay import replay
from sentinel.protocol.ids import RunId
from sentinel.store.session import open_database
from tests.builders import RUN
from tests.daemons import Agent, database_url, serving


def ask(agent: Agent, path: str, key: str | None = None, **wish: Any) -> httpx.Response:
    """A person's request."""
    return agent.http.post(path, json=wish, headers={} if key is None else {"Idempotency-Key": key})


def test_a_rollback_by_hand_goes_out_with_the_next_reply(agent: Agent) -> None:
    """The answer is the decision; the agent gets the command; told again under its key nothing is done again."""
    agent.ready_to_roll_back()
    answer = ask(agent, f"/v1/runs/{RUN}/rollback", "k1", by="ada", reason="odd samples")
    assert (answer.status_code, answer.json()["outcome"], answer.json()["checkpoint"]) == (200, "ordered", "good")
    (command,) = agent.train(1).commands
    assert command.id == answer.json()["action"]
    agent.roll_back(command.id, 20)
    again = ask(agent, f"/v1/runs/{RUN}/rollback", "k1", by="ada", reason="odd samples")
    assert again.json() == answer.json()
    assert agent.train(1).commands == ()
    (incident,) = agent.get("/v1/incidents")["incidents"]
    assert (incident["symptom"], incident["lost_steps"]) == ("operator_request", 61)


def test_a_key_names_one_kind_of_request(agent: Agent) -> None:
    """A release under the key of a hold is a request of its own, and so is a rollback."""
    agent.ready_to_roll_back()
    for verb, held_by in (("hold", "ada"), ("release", ""), ("rollback", "")):
        assert ask(agent, f"/v1/runs/{RUN}/{verb}", "k", by="ada").status_code == 200
        assert agent.get(f"/v1/runs/{RUN}")["held_by"] == held_by


def test_a_rollback_that_cannot_be_is_refused_in_words(agent: Agent) -> None:
    """An agent that only observes is never commanded: 409 says so, and the refusal is a decision."""
    agent.start("observe")
    agent.train(20)
    agent.checkpoint("good")
    agent.train(60)
    answer = ask(agent, f"/v1/runs/{RUN}/rollback", by="ada")
    assert answer.status_code == 409
    assert "ada asks to go back; the agent only observes" in answer.json()["detail"]
    (decision,) = agent.get(f"/v1/runs/{RUN}/decisions")["decisions"]
    assert decision["outcome"] == "withheld"
    assert decision["id"] in answer.json()["detail"]
    assert ask(agent, "/v1/runs/absent/rollback").status_code == 404


def test_a_note_stands_with_its_incident(agent: Agent) -> None:
    """Notes, acknowledgement and settling are told in order, each once, also of an incident that is over."""
    agent.ready_to_roll_back()
    incident = agent.break_down().commands[0].incident
    path = f"/v1/incidents/{incident}"
    ask(agent, f"{path}/acknowledge", by="ada")
    for _ in range(2):
        assert ask(agent, f"{path}/annotate", "n1", by="ada", reason="shard 7 again").status_code == 200
    ask(agent, f"{path}/resolve", by="ada", reason="shard removed")
    ask(agent, f"{path}/annotate", by="bob", reason="ticket 12")
    assert [(each["request"], each["by"], each.get("reason")) for each in agent.get(path)["requests"]] == [
        ("acknowledge", "ada", None),
        ("annotate", "ada", "shard 7 again"),
        ("resolve", "ada", "shard removed"),
        ("annotate", "bob", "ticket 12"),
    ]
    assert ask(agent, f"{path}/annotate", by="ada").json()["field"] == "reason"


@pytest.mark.parametrize(
    ("wish", "field"),
    [({"chekpoint": "good"}, "chekpoint"), ({"checkpoint": "a/b"}, "checkpoint"), ({"reason": "x" * 2001}, "reason")],
)
def test_a_wish_with_a_slip_is_not_guessed_at(agent: Agent, wish: dict[str, Any], field: str) -> None:
    """A field that is misspelled would send the run elsewhere: it is refused by its name, and nothing is told."""
    agent.ready_to_roll_back()
    answer = ask(agent, f"/v1/runs/{RUN}/rollback", **wish)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert agent.train(1).commands == ()


def test_a_hold_of_all_covers_runs_that_begin_later(agent: Agent, tmp_path: Path) -> None:
    """A run that is known and one that begins later are not acted on until the hold of all ends; logs replay."""
    assert agent.get("/v1/hold")["is_held"] is False
    agent.ready_to_roll_back()
    for _ in range(2):
        assert ask(agent, "/v1/hold", by="ada", reason="maintenance").json()["is_held"] is True
    with Agent(str(agent.http.base_url), "later") as later:
        later.ready_to_roll_back()
        for each in (agent, later):
            assert each.break_down().commands == ()
            (decision,) = each.get(f"/v1/runs/{each.run}/decisions")["decisions"]
            assert decision["reason"] == "all runs are held by ada: maintenance"
            assert each.get(f"/v1/runs/{each.run}")["all_held_by"] == "ada"
        ask(agent, "/v1/release", by="bob")
        for each in (agent, later):
            assert [command.step for command in each.train(1).commands] == [20]
    database = open_database(database_url(tmp_path))
    for run in (RUN, RunId("later")):
        assert replay(database, run).difference is None
    database.close()


def test_a_hold_of_all_outlives_the_daemon(tmp_path: Path) -> None:
    """The next daemon knows it, tells each run once, and ends it for a run that was away meanwhile."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
        agent.start()
        ask(agent, "/v1/hold", by="ada")
    with serving(tmp_path) as daemon, Agent(daemon.url, "new") as new:
        new.start()
        assert [each["all_held_by"] for each in new.get("/v1/runs")["runs"]] == ["ada", "ada"]
        assert new.get(f"/v1/runs/{RUN}")["sequence"] == 5
        ask(new, "/v1/release", by="ada")
        assert [each["all_held_by"] for each in new.get("/v1/runs")["runs"]] == ["", ""]
