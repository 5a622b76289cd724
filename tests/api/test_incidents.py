from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from sentinel.protocol.observations import StepReport
from tests.builders import RUN
from tests.daemons import Agent


def broken(url: str, count: int) -> list[str]:
    """So many runs with one open incident each; their incidents, oldest first."""
    found = []
    for number in range(count):
        with Agent(url, f"run-{number}") as agent:
            agent.ready_to_roll_back()
            (command,) = agent.break_down().commands
            found.append(command.incident)
    return found


def ids(answer: dict[str, Any]) -> list[str]:
    """The ids on a page."""
    return [incident["id"] for incident in answer["incidents"]]


def test_pages_hold_every_incident_once(agent: Agent) -> None:
    """Following the cursor from the newest on gives each incident once, and the last page has no cursor."""
    incidents = broken(str(agent.http.base_url), 5)
    pages = [agent.get("/v1/incidents", limit=2)]
    while "next_cursor" in pages[-1]:
        pages.append(agent.get("/v1/incidents", limit=2, cursor=pages[-1]["next_cursor"]))
    assert [len(page["incidents"]) for page in pages] == [2, 2, 1]
    assert [each for page in pages for each in ids(page)] == incidents[::-1]
    assert "next_cursor" not in agent.get("/v1/incidents", limit=5)


def test_a_new_incident_shifts_no_page(agent: Agent) -> None:
    """What begins between two pages is on neither, and nothing is told twice; the cursor says nothing to people."""
    old = broken(str(agent.http.base_url), 3)
    first = agent.get("/v1/incidents", limit=2)
    agent.ready_to_roll_back()
    agent.break_down()
    second = agent.get("/v1/incidents", limit=2, cursor=first["next_cursor"])
    assert ids(first) + ids(second) == old[::-1]
    assert "run" not in first["next_cursor"]


def test_filters_hold_together(agent: Agent) -> None:
    """Severity, symptom, node and time narrow a search each, and a moment is told in ISO 8601 or in seconds."""
    first, second = broken(str(agent.http.base_url), 2)
    moments = [each["detected_at"] for each in agent.get("/v1/incidents")["incidents"]][::-1]
    between = sum(moments) / 2
    later = datetime.fromtimestamp(between, UTC).isoformat()
    assert ids(agent.get("/v1/incidents", severity="critical", symptom="nonfinite")) == [second, first]
    assert ids(agent.get("/v1/incidents", severity="warning")) == ids(agent.get("/v1/incidents", symptom="hang")) == []
    assert ids(agent.get("/v1/incidents", node="node-7")) == []
    assert ids(agent.get("/v1/incidents", to=later)) == [first]
    assert ids(agent.get("/v1/incidents", **{"from": later}, run="run-1", severity="critical")) == [second]
    assert ids(agent.get("/v1/incidents", **{"from": between})) == [second]


def test_incidents_are_found_by_run_and_state(agent: Agent) -> None:
    """One run's, or those in one state; of what there is none the page is empty."""
    first, second = broken(str(agent.http.base_url), 2)
    assert ids(agent.get("/v1/incidents", run="run-0")) == [first]
    assert ids(agent.get("/v1/incidents", state="mitigating")) == [second, first]
    assert ids(agent.get("/v1/incidents", state="resolved")) == []
    assert ids(agent.get("/v1/incidents", run="absent")) == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "bm8="}, "cursor"),
        ({"state": "closed"}, "state"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"severty": "critical"}, "severty"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-11-21T14:00:00"}, "from"),
        ({"run": "a/b"}, "run"),
    ],
)
def test_a_wrong_question_is_refused_by_its_field(agent: Agent, query: dict[str, Any], field: str) -> None:
    """The parameter that is wrong is named."""
    answer = agent.http.get("/v1/incidents", params=query)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_an_incident_tells_its_whole_story(agent: Agent) -> None:
    """One answer has what was found, what was decided and why not otherwise, what was done, and its cost."""
    agent.ready_to_roll_back()
    agent.checkpoint("fresh")
    (command,) = agent.break_down().commands
    agent.roll_back(command.id, 20)
    agent.train(40)
    story = agent.get(f"/v1/incidents/{command.incident}")
    assert (story["run"], story["state"], story["lost_steps"], story["checkpoint"]) == (RUN, "resolved", 61, "good")
    assert [each["change"] for each in story["decisions"]] == ["opened", "rolled back", "recovered"]
    assert [(each["step"], each["why"]) for each in story["decisions"][0]["passed_over"]] == [
        (80, "suspect: taken less than 5 steps before, or after, the onset of a fault at step 81")
    ]
    assert [each["phase"] for each in story["findings"]] == ["began"]
    orders = [each for each in story["actions"] if each["executor"] == "trainer_command"]
    assert [(each["id"], each["state"], each["payload"]["step"]) for each in orders] == [(command.id, "succeeded", 20)]


def test_the_evidence_is_the_steps_around_it(agent: Agent) -> None:
    """From 64 steps before the onset on, both branches, the NaN spelled out; far steps are left out."""
    agent.start()
    agent.train(100)
    agent.checkpoint("good")
    agent.train(60)
    (command,) = agent.break_down().commands
    agent.roll_back(command.id, 100)
    agent.train(200)
    story = agent.get(f"/v1/incidents/{command.incident}")
    assert (story["onset_step"], story["end_step"]) == (161, 110)
    before, after = ([each for each in story["evidence"] if each.get("segment", 0) == segment] for segment in (0, 1))
    assert [each["step"] for each in before] == list(range(46, 162))
    assert [each["step"] for each in after] == list(range(101, 194))
    assert (before[-1]["loss"], before[-1]["grad_norm"]) == ("NaN", "NaN")
    assert after[0]["sequence"] > before[-1]["sequence"]


def test_the_evidence_of_an_incident_without_end_is_bounded(agent: Agent) -> None:
    """An incident that nobody settles shows its beginning and not every step since."""
    agent.start("observe")
    agent.train(100)
    agent.break_down()
    for _ in range(6):
        agent.tell(*agent.reports(500, loss=math.nan, grad_norm=math.nan))
    (incident,) = agent.get("/v1/incidents")["incidents"]
    steps = [each["step"] for each in agent.get(f"/v1/incidents/{incident['id']}")["evidence"]]
    assert (steps[0], len(steps) < 2200, steps[-1] < 3101) == (37, True, True)


def test_somebody_takes_an_incident_on_and_settles_it(agent: Agent) -> None:
    """Acknowledged it names who; resolved it is over, once: the second time is a conflict."""
    (incident,) = broken(str(agent.http.base_url), 1)
    taken = agent.http.post(f"/v1/incidents/{incident}/acknowledge", json={"by": "ann"})
    assert (taken.json()["acknowledged_by"], taken.json()["state"]) == ("ann", "mitigating")
    settled = agent.http.post(f"/v1/incidents/{incident}/resolve", json={"by": "ann", "reason": "bad shard"})
    assert (settled.json()["state"], settled.json()["resolution"]) == ("resolved", "settled by ann: bad shard")
    for verb in ("acknowledge", "resolve"):
        again = agent.http.post(f"/v1/incidents/{incident}/{verb}", json={"by": "bob"})
        assert (again.status_code, again.json()["title"]) == (409, "Conflict")
        assert "resolved already: settled by ann" in again.json()["detail"]


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/v1/incidents/absent"),
        ("GET", "/v1/decisions/absent"),
        ("POST", "/v1/incidents/absent/acknowledge"),
        ("POST", "/v1/incidents/absent/resolve"),
    ],
)
def test_what_nobody_knows_is_not_found(agent: Agent, verb: str, path: str) -> None:
    """Unknown incidents and decisions are 404 with their id."""
    answer = agent.http.request(verb, path, json={})
    assert answer.status_code == 404
    assert "'absent'" in answer.json()["detail"]


def test_numbers_in_evidence_may_be_missing(agent: Agent) -> None:
    """A step without a gradient norm is a point without one."""
    agent.start()
    agent.tell(*(StepReport(at=0.0, step=step, loss=2.0 if step < 50 else math.nan) for step in range(1, 52)))
    (incident,) = agent.get("/v1/incidents")["incidents"]
    evidence = agent.get(f"/v1/incidents/{incident['id']}")["evidence"]
    assert (evidence[0]["loss"], "grad_norm" in evidence[0]) == (2.0, False)
