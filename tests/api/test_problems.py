from __future__ import annotations

import logging
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.builders import RUN
from tests.daemons import Agent, serving


def test_a_bug_is_told_without_its_inside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stored document that cannot be read is 500: no trace for the caller, all of it in the daemon's log."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
        agent.start()
        with closing(sqlite3.connect(tmp_path / "sentinel.db")) as other, other:
            other.execute("UPDATE runs SET document = 'ruined'")
        answer = agent.http.get(f"/v1/runs/{RUN}")
        assert httpx.get(f"{daemon.url}/health").status_code == 200
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["detail"] == "the daemon failed on this request"
    assert "Traceback" not in answer.text
    assert "ruined" not in answer.text
    assert "not JSON" in caplog.text


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/observations", 405), ("DELETE", "/v1/runs", 405)],
)
def test_what_is_not_there_is_a_problem_too(agent: Agent, verb: str, path: str, status: int) -> None:
    """Unknown paths and verbs are answered like every error, with where to look; 405 says what is allowed."""
    answer = agent.http.request(verb, path)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.json()["detail"].startswith(f"{verb} {path}: ")
    assert "/openapi.json" in answer.json()["remedy"]
    assert status == 404 or answer.headers["allow"]


def test_a_sender_that_hangs_up_is_no_error_of_ours(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """A body that ends before its time leaves no trace in the log, and the next sender is served."""
    url = agent.http.base_url
    with caplog.at_level(logging.WARNING), socket.create_connection((url.host, url.port)) as connection:
        head = ["POST /v1/observations HTTP/1.1", "Host: x", "Content-Type: application/json", "Content-Length: 100"]
        connection.sendall("\r\n".join([*head, "", "{"]).encode())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1024):
            pass
    assert agent.tell(*agent.reports(1)).accepted == 1
    assert caplog.text == ""
