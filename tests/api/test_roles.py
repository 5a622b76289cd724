from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from sentinel import clock
from sentinel.api.access import Access
from sentinel.app import Daemon
from sentinel.domain.access import Caller, Role
from sentinel.domain.errors import Conflict, NotAuthorized, NotFound, StoreUnavailable
from sentinel.store import tokens
from sentinel.store.session import Database, migrate, open_database
from tests.daemons import Agent, database_url, serving

OWN = "the-operators-token-from-a-file"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with a token file."""
    path = tmp_path / "token"
    path.write_text(OWN)
    path.chmod(0o600)
    with serving(tmp_path, token_file=path) as daemon:
        yield daemon


@pytest.fixture
def make(tmp_path: Path, daemon: Daemon) -> Iterator[Callable[..., str]]:
    """Makes a token of a role, in the database of the daemon."""
    assert daemon.url
    database = open_database(database_url(tmp_path))

    def made(role: Role, runs: str = "*") -> str:
        with database.transaction() as connection:
            return tokens.create(connection, f"{role}-1", role, runs=runs, at=0.0)

    yield made
    database.close()


CALLS = {
    "report": ("POST", "/v1/observations"),
    "read": ("GET", "/v1/incidents"),
    "measure": ("GET", "/metrics"),
    "describe": ("GET", "/openapi.json"),
    "command": ("POST", "/v1/runs/run-1/hold"),
}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("ingest", {"report"}), ("viewer", {"read", "measure", "describe"}), ("operator", set(CALLS))],
)
def test_a_role_may_do_its_own_and_no_more(
    daemon: Daemon, make: Callable[..., str], role: Role, allowed: set[str]
) -> None:
    """A token of a training image reports and nothing else; a viewer's reads; else it is 403 with the role it takes."""
    headers = {"Authorization": f"Bearer {make(role)}", "Content-Type": "application/json"}
    answers = {
        name: httpx.request(verb, daemon.url + path, headers=headers, content=b"{}" if verb == "POST" else None)
        for name, (verb, path) in CALLS.items()
    }
    assert {name for name, answer in answers.items() if answer.status_code not in (401, 403)} == allowed
    for name in CALLS.keys() - allowed:
        problem = answers[name].json()
        assert (problem["status"], answers[name].headers["content-type"]) == (403, "application/problem+json")
        assert f"is of the role {role}: this takes the role" in problem["detail"]
        assert "sentinel tokens create" in problem["remedy"]


def test_the_token_file_stays_the_operators(daemon: Daemon, make: Callable[..., str]) -> None:
    """Whatever tokens were made, the one of SENTINEL_TOKEN_FILE does everything."""
    make("viewer")
    with Agent(daemon.url, token=OWN) as agent:
        agent.start()
        assert agent.http.post("/v1/runs/run-1/hold", json={}).status_code == 200


def test_an_ingest_token_reports_on_its_runs_only(daemon: Daemon, make: Callable[..., str]) -> None:
    """A token for one team's runs cannot speak for another's, nor hear what is ordered there."""
    token = make("ingest", "team-a-*")
    with Agent(daemon.url, "team-a-7", token=token) as own, Agent(daemon.url, "team-b-1", token=token) as other:
        own.start()
        refused = other.post(other.batch(other.reports(1)))
    assert refused.status_code == 403
    assert "for runs 'team-a-*'" in refused.json()["detail"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database without a daemon."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    yield database
    database.close()


def access(database: Database, own: str | None = None) -> Access:
    """What a daemon knows that has just read the tokens."""
    known = Access(database, own)
    known.read()
    return known


@pytest.mark.usefixtures("every_store")
def test_from_the_first_token_on_everyone_must_show_one(database: Database) -> None:
    """Without any token all are let in; with one they are not, also when the only one is revoked."""
    assert access(database).caller("") == Caller()
    with database.transaction() as connection:
        token = tokens.create(connection, "ci", "ingest", runs="*", at=clock.now())
    assert access(database).caller(f"Bearer {token}") == Caller(name="ci", role="ingest")
    with pytest.raises(NotAuthorized, match="carries none"):
        access(database).caller("")
    with database.transaction() as connection:
        tokens.revoke(connection, "ci", at=1.0)
        tokens.revoke(connection, "ci", at=2.0)
    for shown in ("", f"Bearer {token}"):
        with pytest.raises(NotAuthorized):
            access(database).caller(shown)
    with database.reading() as connection:
        assert [each.revoked_at for each in tokens.stored(connection)] == [1.0]


@pytest.mark.usefixtures("every_store")
def test_a_token_is_kept_hashed_under_a_name_of_its_own(database: Database) -> None:
    """The database never holds the token; a name is given once; what is not there cannot be revoked."""
    with database.transaction() as connection:
        token = tokens.create(connection, "ci", "viewer", runs="*", at=0.0)
        (kept,) = tokens.stored(connection)
    assert token not in repr(kept)
    assert len(token) >= len("sentinel_") + 43  # 256 bits in base64
    with database.transaction() as connection, pytest.raises(Conflict, match="'ci'"):
        tokens.create(connection, "ci", "viewer", runs="*", at=0.0)
    with database.transaction() as connection, pytest.raises(NotFound, match="sentinel tokens list"):
        tokens.revoke(connection, "absent", at=0.0)


def test_tokens_that_are_known_outlive_the_database(database: Database) -> None:
    """A daemon whose database is away still knows its callers; one that never read it lets nobody in."""
    with database.transaction() as connection:
        token = tokens.create(connection, "ci", "viewer", runs="*", at=0.0)
    known, ignorant = access(database), Access(database, None)
    with database.transaction() as connection:
        connection.execute(text("DROP TABLE tokens"))
    known.read()
    assert known.caller(f"Bearer {token}").name == "ci"
    with pytest.raises(StoreUnavailable):
        ignorant.read()
    assert ignorant.is_stale


def test_a_revoked_token_is_taken_for_seconds_at_most(database: Database) -> None:
    """What is known of the tokens is read again when it is two seconds old."""
    known = Access(database, None)
    assert known.is_stale
    known.read()
    assert not known.is_stale
    known._read_at -= 2.0
    assert known.is_stale
