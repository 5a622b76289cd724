from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from sentinel.app import Daemon
from tests.daemons import Agent, serving

TOKEN = "a-token-of-thirty-two-characters"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that wants a token."""
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    with serving(folder, token_file=path) as daemon:
        yield daemon


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_need_no_token(guarded: Daemon, path: str) -> None:
    """Whether the daemon lives and works may be asked by everyone."""
    assert httpx.get(guarded.url + path).status_code == 200


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/v1/runs"),
        ("GET", "/v1/incidents"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("POST", "/v1/observations"),
        ("POST", "/v1/runs/run-1/hold"),
    ],
)
@pytest.mark.parametrize("header", [None, "Bearer", "Bearer another", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"])
def test_all_else_is_refused_without_it(guarded: Daemon, verb: str, path: str, header: str | None) -> None:
    """No token, another one or another scheme is 401 with the remedy, before the body is looked at."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": header} if header else {})
    answer = httpx.request(verb, guarded.url + path, headers=headers, content=b"{" if verb == "POST" else None)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer TOKEN" in answer.json()["remedy"]
    assert TOKEN not in answer.text


def test_with_the_token_everything_is_open(guarded: Daemon) -> None:
    """Who shows the token is served, however the scheme is written."""
    with Agent(guarded.url, token=TOKEN) as agent:
        agent.start()
        assert len(agent.get("/v1/runs")["runs"]) == 1
        assert agent.http.get("/metrics").status_code == 200
    assert httpx.get(f"{guarded.url}/v1/runs", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
