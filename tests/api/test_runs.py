from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sentinel.protocol.observations import AttemptEnded
from tests.builders import DIGEST, RUN
from tests.daemons import Agent


def test_runs_are_listed_with_their_open_incidents(agent: Agent) -> None:
    """Each run is there once with where it stands; the one heard of last comes first."""
    with Agent(str(agent.http.base_url), "other") as other:
        other.start("observe")
    agent.ready_to_roll_back()
    agent.break_down()
    first, second = agent.get("/v1/runs")["runs"]
    assert (first["run"], first["step"], first["phase"], first["mode"]) == (RUN, 81, "training", "act")
    assert (first["open_incidents"], first["loss"]) == (1, "NaN")
    assert (second["run"], second["open_incidents"], second["mode"]) == ("other", 0, "observe")
    assert agent.get(f"/v1/runs/{RUN}").keys() == first.keys()


@pytest.mark.parametrize("page", ["", "/attempts", "/decisions", "/findings", "/checkpoints", "/series"])
def test_a_run_that_nobody_knows_is_not_found(agent: Agent, page: str) -> None:
    """Every page of an unknown run is 404 with its name."""
    answer = agent.http.get(f"/v1/runs/absent{page}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no run 'absent'")


def test_attempts_have_beginning_and_end(agent: Agent) -> None:
    """An attempt is shown with what was told at its start and at its end, and a running one without an end."""
    agent.start()
    agent.tell(AttemptEnded(at=2.0, outcome="interrupted", step=0, reason="preempted"))
    with Agent(str(agent.http.base_url), attempt="attempt-2") as second:
        second.start("observe")
    first, running = agent.get(f"/v1/runs/{RUN}/attempts")["attempts"]
    assert (first["attempt"], first["started"]["mode"], first["ended"]["reason"]) == ("attempt-1", "act", "preempted")
    assert first["started_at"] <= first["ended_at"]
    assert (running["attempt"], running["started"]["mode"], "ended" in running) == ("attempt-2", "observe", False)


def test_decisions_and_findings_go_on_where_a_reader_stopped(agent: Agent) -> None:
    """``after`` names the last sequence seen; what comes back is later, and nothing is left out."""
    agent.ready_to_roll_back()
    (command,) = agent.break_down().commands
    decisions = agent.get(f"/v1/runs/{RUN}/decisions")["decisions"]
    assert [(each["change"], each["rung"], each["outcome"]) for each in decisions] == [
        ("opened", "rollback", "ordered")
    ]
    agent.roll_back(command.id, 20)
    later = agent.get(f"/v1/runs/{RUN}/decisions", after=decisions[-1]["sequence"])["decisions"]
    assert [each["change"] for each in later] == ["rolled back"]
    assert agent.get(f"/v1/decisions/{decisions[0]['id']}") == decisions[0]
    (finding,) = agent.get(f"/v1/runs/{RUN}/findings")["findings"]
    assert (finding["symptom"], finding["verdict"], finding["onset_step"]) == ("nonfinite", "malignant", 81)
    assert agent.get(f"/v1/runs/{RUN}/findings", after=finding["sequence"]) == {"findings": []}


def test_checkpoints_say_what_is_known_of_them(agent: Agent) -> None:
    """The newest step comes first, each with its state and the reason for it."""
    agent.ready_to_roll_back()
    agent.checkpoint("fresh")
    fresh, good = agent.get(f"/v1/runs/{RUN}/checkpoints")["checkpoints"]
    assert (fresh["id"], fresh["state"]) == ("fresh", "verified")
    assert (good["id"], good["step"], good["state"], good["digest"]) == ("good", 20, "known_good", DIGEST)
    assert good["reason"] == "50 clean steps followed"


def test_a_series_is_as_fine_as_was_asked_for(agent: Agent) -> None:
    """At most so many buckets come back, the spike is in one, and a range of few steps is told step for step."""
    agent.start()
    agent.train(300)
    agent.train(1, loss=50.0)
    agent.train(300)
    coarse = agent.get(f"/v1/runs/{RUN}/series", points=10)["series"]["loss"]
    assert len(coarse) <= 10
    assert [bucket["first_step"] for bucket in coarse if bucket["maximum"] == 50.0] == [
        bucket["first_step"] for bucket in coarse if bucket["first_step"] <= 301 <= bucket["last_step"]
    ]
    fine = agent.get(f"/v1/runs/{RUN}/series", first_step=300, last_step=302)["series"]["loss"]
    assert [(bucket["first_step"], bucket["count"]) for bucket in fine] == [(300, 1), (301, 1), (302, 1)]
    assert fine[1]["last"] == 50.0


def test_the_branches_of_a_rollback_are_told_apart(agent: Agent) -> None:
    """The steps of both segments come back, with the NaN of the first spelled out."""
    agent.ready_to_roll_back()
    (command,) = agent.break_down().commands
    agent.roll_back(command.id, 20)
    agent.train(5)
    loss = agent.get(f"/v1/runs/{RUN}/series")["series"]["loss"]
    assert [(bucket["segment"], bucket["first_step"]) for bucket in loss] == [
        *((0, step) for step in range(1, 82)),
        *((1, step) for step in range(21, 26)),
    ]
    nan = loss[80]
    assert (nan["last"], nan["nonfinite"]) == ("NaN", 1)
    assert not {"minimum", "mean", "maximum"} & nan.keys()


@pytest.mark.parametrize(
    ("query", "field", "problem"),
    [
        ({"names": "los"}, "names", "did you mean 'loss'?"),
        ({"names": "loss,"}, "names", "there is no series ''"),
        ({"names": ",".join(f"extra.{n}" for n in range(33))}, "names", "at most 32"),
        ({"points": 0}, "points", "greater than or equal to 1"),
        ({"points": "many"}, "points", "valid integer"),
        ({"first_step": -1}, "first_step", "greater than or equal to 0"),
        ({"last_step": 2**63}, "last_step", "less than or equal to"),
    ],
)
def test_a_wrong_question_is_refused_by_its_field(
    agent: Agent, query: dict[str, Any], field: str, problem: str
) -> None:
    """The parameter that is wrong is named, with what it may be."""
    agent.start()
    answer = agent.http.get(f"/v1/runs/{RUN}/series", params=query)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert problem in answer.json()["detail"]


def test_a_hold_stops_the_hand_and_not_the_eye(agent: Agent) -> None:
    """While a run is held a fault is recorded and nothing ordered; released, the decision is taken anew."""
    agent.ready_to_roll_back()
    held = agent.http.post(f"/v1/runs/{RUN}/hold", json={"by": "ann", "reason": "experiment"}).json()
    assert (held["held_by"], held["hold_reason"]) == ("ann", "experiment")
    assert agent.break_down().commands == ()
    (decision,) = agent.get(f"/v1/runs/{RUN}/decisions")["decisions"]
    assert (decision["outcome"], decision["reason"]) == ("withheld", "held by ann: experiment")
    assert agent.http.post(f"/v1/runs/{RUN}/release", json={"by": "ann"}).json()["held_by"] == ""
    assert [command.step for command in agent.train(1, loss=math.nan, grad_norm=math.nan).commands] == [20]


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_a_wish_is_judged_like_any_observation(agent: Agent, verb: str) -> None:
    """An unknown run is 404 and stays unknown; a wrong field is 422 with its name; no body is 400."""
    agent.start()
    assert agent.http.post(f"/v1/runs/absent/{verb}", json={}).status_code == 404
    assert [run["run"] for run in agent.get("/v1/runs")["runs"]] == [RUN]
    for wrong in (7, None, "\ud800", "\0"):
        body = json.dumps({"by": wrong})
        answer = agent.http.post(f"/v1/runs/{RUN}/{verb}", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["field"]) == (422, "by")
    assert agent.http.post(f"/v1/runs/{RUN}/{verb}", json=[]).status_code == 422
    answer = agent.http.post(f"/v1/runs/{RUN}/{verb}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert agent.train(1).accepted == 1
