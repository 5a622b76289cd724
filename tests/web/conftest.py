"""A daemon for the tests of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.app import Daemon
from tests.daemons import Agent, serving

TOKEN = "a-token-of-thirty-two-characters"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon on a free port with an empty database."""
    with serving(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def agent(daemon: Daemon) -> Iterator[Agent]:
    """The agent of one run."""
    with Agent(daemon.url) as agent:
        yield agent


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that wants a token."""
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    with serving(tmp_path, token_file=path) as daemon:
        yield daemon
