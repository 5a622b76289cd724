from __future__ import annotations

import gzip
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from sentinel.app import Daemon
from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import AttemptEnded, AttemptStarted, CheckpointReport
from sentinel.protocol.processes import CrashReport, StackReport
from sentinel.web import assets, reading
from tests.benchmarks import page_cost
from tests.builders import DIGEST
from tests.daemons import Agent, serving

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'{{ 7*7 }}\u202e"


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element."""
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Notes text."""
        self.text += f" {data}"


def page(url: str) -> Page:
    """The page at an address."""
    answer = httpx.get(url)
    assert answer.status_code == 200, answer.text
    return Page(answer.text)


def incident_of(agent: Agent) -> str:
    """The id of the run's newest incident."""
    return str(agent.get("/v1/incidents", run=agent.run)["incidents"][0]["id"])


def test_an_empty_daemon_tells_how_to_connect_the_first_run(daemon: Daemon) -> None:
    """Without runs the page shows the very line for a script, with this daemon's address in it."""
    text = page(daemon.url).text
    assert f'SentinelCallback(url="{daemon.url}")' in text
    assert "No run has reported yet" in text


def test_the_runs_page_tells_where_each_run_stands(daemon: Daemon, agent: Agent) -> None:
    """Phase, step of the last one, loss, the age of the last word, open incidents and the hold are there."""
    agent.tell(AttemptStarted(at=0.0, mode="observe", max_steps=4000, rollback="forward", rollback_reason="told so"))
    agent.train(1500, loss=2.5)
    agent.break_down()
    agent.http.post(f"/v1/runs/{agent.run}/hold", json={"by": "ada", "reason": "looking"})
    text = page(daemon.url).text
    for fact in ("training", "1,501 of 4,000", "NaN", "s ago", "Loss or gradient is not a number", "held by ada"):
        assert fact in text


def test_the_page_of_a_run_tells_its_whole_story_without_a_script(daemon: Daemon, agent: Agent) -> None:
    """Incident, decision with what was passed over, checkpoints with their states and the next target are text."""
    agent.ready_to_roll_back()
    agent.checkpoint("late")
    order = agent.break_down().commands[0]
    agent.roll_back(order.id, 20)
    agent.train(40)
    text = page(f"{daemon.url}/runs/{agent.run}").text
    assert "Sentinel rolled back once, giving up 61 steps" in text
    assert "roll back to step 20 (ordered)" in text
    assert "not step 80: " in text
    assert re.search(r"A rollback would now take step 20\b", text)
    assert "known good" in text
    assert "suspect" in text
    assert "Rolled back 1 time" in text


def test_the_page_of_an_incident_explains_it(daemon: Daemon, agent: Agent) -> None:
    """One sentence, the reason, the decision, the trainer's own account, the replay and what to do now."""
    agent.ready_to_roll_back()
    order = agent.break_down().commands[0]
    identity = incident_of(agent)
    assert "What to do now. Wait: the order is given" in page(f"{daemon.url}/incidents/{identity}").text
    agent.http.post(f"/v1/incidents/{identity}/acknowledge", json={"by": "ada", "reason": "on my way"})
    agent.roll_back(order.id, 20)
    agent.train(40)
    text = page(f"{daemon.url}/incidents/{identity}").text
    assert "From step 81 on the loss or the gradients were NaN or infinite; Sentinel rolled back once" in text
    assert "the optimizer has stepped on it" in text
    assert "The trainer: succeeded, from step 81 to step 20" in text
    assert "Looked after by ada" in text
    assert "ada looks after it: on my way" in text
    assert f"sentinel replay {agent.run}" in text


def test_an_observed_run_is_told_what_would_have_been_done(daemon: Daemon, agent: Agent) -> None:
    """In observe mode the next step names the rollback that was not made, and how to allow it."""
    agent.start(mode="observe")
    agent.train(20)
    agent.checkpoint("good")
    agent.train(60)
    agent.break_down()
    text = page(f"{daemon.url}/incidents/{incident_of(agent)}").text
    assert "would have chosen to roll back to step 20" in text
    assert 'SentinelCallback(mode="act")' in text


def test_the_last_words_of_processes_are_shown_with_the_incident(daemon: Daemon, agent: Agent) -> None:
    """What a process wrote before it died, and where threads stood, is text of the incident's page."""
    agent.start()
    agent.train(80)
    agent.break_down()
    agent.tell(
        CrashReport(at=0.0, rank=3, signal="SIGKILL", stderr_tail="CUDA error: an illegal <address>"),
        StackReport(at=0.0, rank=1, stacks="File train.py, line 7"),
    )
    text = page(f"{daemon.url}/incidents/{incident_of(agent)}").text
    assert "rank 3 ended by SIGKILL" in text
    assert "CUDA error: an illegal <address>" in text
    assert "where the threads of rank 1 stood" in text


def test_hostile_text_stays_text(daemon: Daemon, agent: Agent) -> None:
    """Reasons, names and notes from outside bring no element and no script into any page, and are shown as they are."""
    agent.tell(AttemptStarted(at=0.0, mode="act", host=HOSTILE, job_id=HOSTILE, rollback_reason=HOSTILE, max_steps=9))
    agent.train(20)
    agent.tell(
        CheckpointReport(
            at=0.0, checkpoint=CheckpointId("c"), step=20, state="bad", name=HOSTILE, reason=HOSTILE, digest=DIGEST
        )
    )
    agent.train(60)
    agent.break_down()
    identity = incident_of(agent)
    agent.tell(CrashReport(at=0.0, signal=HOSTILE, host=HOSTILE, stderr_tail=HOSTILE))
    agent.http.post(f"/v1/incidents/{identity}/acknowledge", json={"by": HOSTILE, "reason": HOSTILE})
    agent.http.post(f"/v1/runs/{agent.run}/hold", json={"by": HOSTILE, "reason": HOSTILE})
    agent.tell(AttemptEnded(at=0.0, outcome="failed", step=81, reason=HOSTILE))
    for path in ("/", f"/runs/{agent.run}", f"/incidents/{identity}"):
        found = page(daemon.url + path)
        assert "alert(1)" in found.text
        assert "{{ 7*7 }}" in found.text
        for tag, attributes in found.elements:
            assert not any(name.startswith("on") for name in attributes)
            if tag == "script":
                assert attributes.get("id") == "curves" or str(attributes["src"]).startswith("/static/")
        assert all(each.get("src", "/static/").startswith("/static/") for tag, each in found.elements if tag == "img")


@pytest.mark.parametrize("path", ["/", "/runs/none", "/incidents/none", "/login", "/runs/run-1?last=-1"])
def test_every_answer_forbids_what_is_not_of_this_daemon(daemon: Daemon, path: str) -> None:
    """Errors too carry a policy under which a browser runs and loads nothing from elsewhere, and nothing inline."""
    answer = httpx.get(daemon.url + path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(
        r'<style|style="|<script(?! (type="application/json"|defer src|type="module" src))', answer.text
    )


@pytest.mark.parametrize(("path", "status"), [("/runs/none", 404), ("/incidents/none", 404), ("/runs/r?last=x", 422)])
def test_what_is_not_there_is_a_page_that_says_so(daemon: Daemon, path: str, status: int) -> None:
    """A wrong address is an HTML page with the way back, while the API's errors stay JSON."""
    answer = httpx.get(daemon.url + path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert 'href="/"' in answer.text
    assert httpx.get(daemon.url + "/v1/runs/none").headers["content-type"] == "application/problem+json"


def test_an_unchanged_page_is_not_sent_again(agent: Agent) -> None:
    """Who shows the tag of the page gets 304 until the run has told more."""
    agent.start()
    agent.train(20)
    for path in ("/", f"/runs/{agent.run}"):
        tag = agent.http.get(path).headers["etag"]
        assert agent.http.get(path, headers={"If-None-Match": tag}).status_code == 304
    agent.train(1)
    assert agent.http.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_files_are_kept_for_a_year_and_change_their_address(daemon: Daemon) -> None:
    """Style, script and chart library come compressed, immutable, and only under the digest of their content."""
    references = re.findall(r'/static/([0-9a-f]+)/([\w.]+)"', httpx.get(daemon.url + "/runs/none").text)
    digest, name = references[-1]
    answer = httpx.get(f"{daemon.url}/static/{digest}/{name}")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert httpx.get(f"{daemon.url}/static/{digest}/uplot.js").text.count("uPlot") > 0
    plain = httpx.get(f"{daemon.url}/static/{digest}/{name}", headers={"Accept-Encoding": "identity"})
    assert plain.content == answer.content
    assert httpx.get(f"{daemon.url}/static/{'0' * 12}/{name}").status_code == 404
    assert httpx.get(f"{daemon.url}/static/{digest}/..%2Fpages.py").status_code == 404


def test_without_the_chart_library_every_number_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package that carries the library is missing the page says so, and shows the curves as tables."""
    monkeypatch.setattr(assets, "CHART_PACKAGE", "a-package-that-nobody-has")
    with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
        agent.start()
        agent.train(20, loss=2.125)
        found = page(f"{daemon.url}/runs/{agent.run}")
    assert "pip install uplot-python" in found.text
    assert "2.125" in found.text
    assert ("details", {"open": None}) in found.elements
    assert not any("uplot" in str(each.get("src")) for _, each in found.elements)


def test_a_long_run_is_a_small_page(tmp_path: Path) -> None:
    """The page of 40,000 steps weighs under 32 KiB as it is sent, and holds the lowest and the highest of them."""
    page_cost.build(tmp_path, 40_000)
    with serving(tmp_path) as daemon, httpx.stream("GET", f"{daemon.url}/runs/run-1") as answer:
        sent = b"".join(answer.iter_raw())
    assert len(sent) < 32 << 10
    text = Page(gzip.decompress(sent).decode()).text
    assert "40,000" in text
    assert f"to {page_cost.report(1).loss:.4g}" in text


def test_hundreds_of_runs_are_one_page(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more runs than a page shows, the newest are there and the rest is counted."""
    monkeypatch.setattr(reading, "RUNS_SHOWN", 5)
    for number in range(8):
        with Agent(daemon.url, f"run-{number}") as agent:
            agent.start()
    found = page(daemon.url)
    assert "3 more runs" in found.text
    shown = [each["href"] for tag, each in found.elements if tag == "a" and str(each.get("href")).startswith("/runs/")]
    assert shown == [f"/runs/run-{number}" for number in (7, 6, 5, 4, 3)]
