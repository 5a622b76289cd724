from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.client import Client
from sentinel.domain.errors import Forbidden, InvalidInput, NotAuthorized, NotFound, SentinelError
from sentinel.store import tokens
from sentinel.store.session import open_database
from tests.daemons import Agent, database_url, serving
from tests.ports import free_port


def test_a_list_is_read_to_its_end(tmp_path: Path) -> None:
    """All pages come as one list, in their order."""
    with serving(tmp_path) as daemon:
        for number in range(3):
            with Agent(daemon.url, f"run-{number}") as agent:
                agent.ready_to_roll_back()
                agent.break_down()
        with Client(daemon.url) as client:
            incidents = client.pages("/v1/incidents", "incidents", limit=2)
    assert [each["run"] for each in incidents] == ["run-2", "run-1", "run-0"]


def test_each_refusal_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token, a token of another role, a run that nobody knows and a daemon that is away are told apart, in words."""
    with serving(tmp_path) as daemon:
        database = open_database(database_url(tmp_path))
        with database.transaction() as connection:
            (tmp_path / "viewer").write_text(tokens.create(connection, "page", "viewer", runs="*", at=0.0))
        database.close()
        with Client(daemon.url) as client, pytest.raises(NotAuthorized, match="wants a token"):
            client.get("/v1/runs")
        monkeypatch.setenv("SENTINEL_TOKEN_FILE", str(tmp_path / "viewer"))
        with Client(daemon.url) as client:
            assert client.get("/v1/runs") == {"runs": []}
            with pytest.raises(Forbidden, match="takes the role operator"):
                client.post("/v1/hold")
            with pytest.raises(NotFound, match="absent"):
                client.get("/v1/runs/absent")
    with Client(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(SentinelError, match="sentinel serve"):
        client.get("/v1/runs")


def test_what_was_named_wrongly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without its scheme, and a token's file that is not there, are refused by name."""
    with pytest.raises(InvalidInput, match=r"--url: '127.0.0.1:8321' is not an address: expected http://HOST:PORT"):
        Client("127.0.0.1:8321")
    monkeypatch.setenv("SENTINEL_TOKEN_FILE", "/absent/token")
    with pytest.raises(InvalidInput, match="SENTINEL_TOKEN_FILE: /absent/token cannot be read: No such file"):
        Client("http://127.0.0.1:8321")
