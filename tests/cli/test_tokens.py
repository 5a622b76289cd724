from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentinel.cli.main import app
from sentinel.domain.errors import Conflict, InvalidInput, StoreUnavailable


def run(*arguments: str) -> str:
    """What a command prints; its error is raised."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command works on a database of the test's own."""
    monkeypatch.setenv("SENTINEL_DATABASE_URL", f"sqlite:///{tmp_path / 'sentinel.db'}")


def test_a_token_is_made_listed_and_revoked() -> None:
    """It is printed once, alone on its line; the list has names and roles, and never the token."""
    run("database", "upgrade")
    token = run("tokens", "create", "trainers", "--role", "ingest", "--runs", "llm-*").strip()
    assert token.startswith("sentinel_")
    listed = run("tokens", "list", "--json")
    assert token not in listed
    (kept,) = json.loads(listed)
    assert (kept["name"], kept["role"], kept["runs"], kept["revoked_at"]) == ("trainers", "ingest", "llm-*", None)
    assert "revoked" in run("tokens", "revoke", "trainers")
    assert json.loads(run("tokens", "list", "--json"))[0]["revoked_at"] is not None
    assert "trainers" in run("tokens", "list")


def test_what_cannot_be_made_says_why() -> None:
    """A database without a schema, a second token of a name and a name that is none are refused in words."""
    with pytest.raises(StoreUnavailable, match="sentinel database upgrade"):
        run("tokens", "create", "ci", "--role", "viewer")
    run("database", "upgrade")
    run("tokens", "create", "ci", "--role", "viewer")
    with pytest.raises(Conflict, match="choose another name"):
        run("tokens", "create", "ci", "--role", "operator")
    with pytest.raises(InvalidInput, match="letter or digit first"):
        run("tokens", "create", "a b", "--role", "viewer")
