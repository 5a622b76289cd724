from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from sentinel.api.body import LIMIT_BYTES
from sentinel.protocol import codec
from sentinel.protocol.digest import digest
from sentinel.protocol.observations import StepReport
from sentinel.transport.sender import Sender
from tests.builders import RUN, SENDER, STARTED
from tests.daemons import Agent


def batch(**changed: Any) -> dict[str, Any]:
    """A batch with one step report, with some fields changed."""
    step = {"kind": "step", "at": 1.0, "step": 1, "loss": 2.0}
    whole = {"protocol": 1, "run": RUN, "attempt": "a", "sender": "s", "first_counter": 0, "observations": [step]}
    return whole | changed


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem of an answer that must be one of this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail", "remedy"} <= problem.keys()
    return problem


def test_the_post_that_shows_the_nan_comes_back_with_the_rollback(agent: Agent) -> None:
    """The reply to the report with the NaN names the checkpoint, and brings a notice with a link to the incident."""
    agent.ready_to_roll_back()
    reply = agent.break_down()
    (command,) = reply.commands
    assert (command.checkpoint, command.step, command.segment) == ("good", 20, 0)
    (notice,) = reply.notices
    assert notice.link == f"{str(agent.http.base_url).rstrip('/')}/incidents/{command.incident}"
    assert agent.get(f"/v1/incidents/{command.incident}")["state"] == "mitigating"


def test_what_is_sent_twice_is_taken_once(agent: Agent) -> None:
    """The same batch again is answered with its number of duplicates."""
    reports = agent.batch(agent.reports(3))
    assert agent.post(reports).json()["accepted"] == 3
    assert (agent.post(reports).json()["accepted"], agent.post(reports).json()["duplicates"]) == (0, 3)
    assert agent.get(f"/v1/runs/{RUN}")["step"] == 3


def test_nan_comes_back_as_it_went_in(agent: Agent) -> None:
    """A loss that is NaN is spelled the same in the run, its series and the log, and is null nowhere."""
    agent.start()
    agent.tell(StepReport(at=0.0, step=1, loss=math.nan, grad_norm=math.inf))
    assert agent.get(f"/v1/runs/{RUN}")["loss"] == "NaN"
    series = agent.get(f"/v1/runs/{RUN}/series", names="loss,grad_norm")["series"]
    assert (series["loss"][0]["last"], series["grad_norm"][0]["last"]) == ("NaN", "Infinity")


def test_bare_tokens_of_pythons_json_are_read_too(agent: Agent) -> None:
    """``NaN`` without quotes, as Python's json writes it, is taken for what it is."""
    text = json.dumps(batch(observations=[{"kind": "step", "at": 1, "step": 1, "loss": math.nan}]))
    assert "NaN," not in text.replace("NaN}", "")
    assert agent.post(text.encode()).status_code == 200
    assert agent.get(f"/v1/runs/{RUN}")["loss"] == "NaN"


def test_what_is_not_known_is_kept(agent: Agent, tmp_path: Path) -> None:
    """Unknown fields are ignored and unknown kinds judged by nobody; the log has both as they came."""
    step = {"kind": "step", "at": 1.0, "step": 1, "loss": 2.0, "shine": {"new": [1, "NaN"]}}
    weather = {"kind": "weather", "at": 2.0, "rain_mm": 3}
    answer = agent.post(json.dumps(batch(observations=[step, weather], moon="full")).encode())
    assert answer.json()["accepted"] == 2
    with closing(sqlite3.connect(tmp_path / "sentinel.db")) as connection:
        rows = connection.execute("SELECT payload FROM observations WHERE sender = 's' ORDER BY sequence").fetchall()
    assert [json.loads(payload) for (payload,) in rows] == [step, weather]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"run": "no spaces"}, "run"),
        ({"run": None}, "run"),
        ({"first_counter": -1}, "first_counter"),
        ({"observations": {}}, "observations"),
        ({"observations": [{"kind": "step", "at": 1.0, "step": 1, "loss": "high"}]}, "observations[0].loss"),
        ({"observations": [{"kind": "step", "at": 1.0, "step": 1.5}]}, "observations[0].step"),
        ({"observations": [{"kind": "step", "at": 1.0, "step": 1, "extra": {"x": []}}]}, "observations[0].extra.x"),
        ({"observations": [{"kind": "step", "at": 1.0}]}, "observations[0].step"),
        ({"observations": [{"at": 1.0}]}, "observations[0].kind"),
        ({"observations": [7]}, "observations[0]"),
        ({"observations": [{"kind": "tick", "at": 1.0, "silent_s": 99.0}]}, "observations[0].kind"),
    ],
)
def test_a_wrong_field_is_refused_by_its_path(agent: Agent, wrong: dict[str, Any], field: str) -> None:
    """The problem names the field as it stands in the batch, and nothing of the batch is kept."""
    problem = refused(agent.post(json.dumps(batch(**wrong)).encode()), 422)
    assert problem["field"] == field
    assert problem["detail"].startswith(f"{field}: ")
    assert agent.get("/v1/runs") == {"runs": []}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"protocol":' + b"9" * 5000 + b"}"], ids=range(5)
)
def test_what_is_no_json_is_refused(agent: Agent, body: bytes) -> None:
    """Empty, broken, undecodable, endlessly nested and absurd bodies are refused and the daemon lives on."""
    problem = refused(agent.post(body), 400)
    assert "the body is not to be read" in problem["detail"]
    assert agent.tell(*agent.reports(1)).accepted == 1


def test_json_that_is_no_batch_is_refused(agent: Agent) -> None:
    """A list where an object is expected is a wrong body, not a broken one."""
    assert refused(agent.post(b"[]"), 422)["field"] == "body"


def test_another_protocol_is_a_conflict(agent: Agent) -> None:
    """A sender of another protocol version is told both versions and what to install."""
    problem = refused(agent.post(json.dumps(batch(protocol=2)).encode()), 409)
    assert "version 2 and this daemon version 1: install the same release" in problem["detail"]


def test_a_body_beyond_the_limit_is_refused(agent: Agent) -> None:
    """16 MiB are read and judged; one byte more is refused with the limit and the remedy."""
    largest = codec.dumps(agent.batch(agent.reports(1))).encode().ljust(LIMIT_BYTES)
    assert agent.post(largest).status_code == 200
    assert f"larger than {LIMIT_BYTES} bytes" in refused(agent.post(largest + b" "), 413)["detail"]


def test_a_body_that_is_not_declared_as_json_is_refused(agent: Agent) -> None:
    """A plain-text POST, as any page in a browser may send one, is not taken."""
    answer = agent.http.post("/v1/observations", content=json.dumps(batch()), headers={"Content-Type": "text/plain"})
    assert "Content-Type: application/json" in refused(answer, 415)["detail"]


def test_a_database_that_cannot_be_written_is_said_to_be_so(agent: Agent, tmp_path: Path) -> None:
    """A failed commit is 503 with a time to come back; after it the same batch is taken whole and once."""
    agent.ready_to_roll_back()
    with closing(sqlite3.connect(tmp_path / "sentinel.db", isolation_level=None)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON observations BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        reports = agent.batch(agent.reports(5))
        for _ in range(2):
            answer = agent.post(reports)
            assert "cannot be written: disk full" in refused(answer, 503)["detail"]
            assert int(answer.headers["retry-after"]) > 0
        other.execute("DROP TRIGGER full")
    assert agent.post(reports).json()["accepted"] == 5
    buckets = agent.get(f"/v1/runs/{RUN}/series")["series"]["loss"]
    assert [bucket["first_step"] for bucket in buckets] == list(range(1, 86))


def test_a_body_that_was_changed_on_its_way_is_not_taken(agent: Agent) -> None:
    """A digit that flipped is still JSON: where the digest does not fit nothing is kept, and it may be sent again."""
    body = codec.dumps(agent.batch(agent.reports(1, loss=2.0))).encode()
    changed = body.replace(b'"loss":2.0', b'"loss":9.0')
    headers = {"Content-Type": "application/json", "Content-Digest": digest(body)}
    assert agent.http.post("/v1/observations", content=changed, headers=headers).status_code == 503
    answer = agent.http.post("/v1/observations", content=body, headers=headers)
    assert (answer.status_code, answer.json()["duplicates"]) == (200, 0)
    assert answer.headers["Content-Digest"] == digest(answer.content)


def test_a_sender_loses_only_what_the_daemon_refuses(agent: Agent) -> None:
    """One report that is none leaves a batch of the real sender alone; the rest is in the log."""
    now = [0.0]
    names = {"run": agent.run, "attempt": agent.attempt, "sender": SENDER}
    sender = Sender(str(agent.http.base_url).rstrip("/"), clock=lambda: now[0], **names)  # type: ignore[arg-type]
    sender.offer(STARTED)
    for step in (1, 2, -3, 4, 5):
        sender.offer(StepReport(at=0.0, step=step, loss=2.0))
    while sender.pending:
        sender.exchange()
        now[0] += 1.0
    sender.close()
    assert (sender.delivered_total, sender.dropped_total) == (5, 1)
    assert agent.get(f"/v1/runs/{agent.run}")["step"] == 5
