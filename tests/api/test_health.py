from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.daemons import Agent


def test_a_daemon_that_works_is_alive_and_ready(agent: Agent) -> None:
    """Health and readiness are 200 without reasons, and say which protocol is spoken."""
    assert agent.get("/health") == {"status": "ok", "protocol": 1}
    assert agent.get("/ready") == {"ready": True, "reasons": []}


def test_a_schema_that_is_not_this_releases_is_not_ready(agent: Agent, tmp_path: Path) -> None:
    """A database that another release has changed makes the daemon say so, while it still lives."""
    with closing(sqlite3.connect(tmp_path / "sentinel.db")) as other, other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
    answer = agent.http.get("/ready")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "schema '9999'" in answer.json()["reasons"][0]
    assert agent.http.get("/health").status_code == 200


def test_metrics_are_what_prometheus_reads(agent: Agent) -> None:
    """The page is of the text format's type and holds what was counted a moment ago."""
    agent.ready_to_roll_back()
    agent.break_down()
    answer = agent.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    lines = answer.text.splitlines()
    assert 'sentinel_observations_total{kind="step"} 81.0' in lines
    assert 'sentinel_incidents_open{run="run-1",severity="critical"} 1.0' in lines
    assert "sentinel_ingest_seconds_count 5.0" in lines
    openmetrics = agent.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


def test_metrics_count_transactions(agent: Agent) -> None:
    """Every commit of the writer is in the histogram, and nothing waits when nobody asks."""
    agent.start()
    text = agent.http.get("/metrics").text
    assert "sentinel_commit_seconds_count 1.0" in text
    assert "sentinel_writer_waiting 0.0" in text
