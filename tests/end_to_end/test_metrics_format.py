"""The metrics page as Prometheus's own tool reads it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.daemons import Agent, serving


@pytest.mark.real
def test_promtool_finds_nothing_to_object(tmp_path: Path, require_program: Callable[[str], str]) -> None:
    """After an incident every metric has been written once, and promtool reads the page without a complaint."""
    promtool = require_program("promtool")
    with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
        agent.ready_to_roll_back()
        agent.break_down()
        page = httpx.get(f"{daemon.url}/metrics", trust_env=False).text
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
