"""A daemon for the tests of its endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.app import Daemon
from tests.daemons import Agent, serving


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
