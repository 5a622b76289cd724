"""What a newcomer sees first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.demo.schedule import FAULTS


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_demo_finds_every_fault_and_recovers(tmp_path: Path) -> None:
    """Daemon and trainer as processes of their own: each fault is found, acted on, and recovered from."""
    summary = tmp_path / "summary.json"
    command = [sys.executable, "-m", "sentinel.cli.main", "demo", "--json", str(summary)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(summary.read_text())
    assert verdict["problems"] == []
    assert [each["fault"] for each in verdict["faults"]] == [fault.kind for fault in FAULTS]
    acts = [(each["fault"], each["decision"].split(" step ")[0]) for each in verdict["faults"]]
    assert all(act == ("restart from" if fault in ("kill", "hang") else "rollback to") for fault, act in acts)
    assert any("bad" in why for each in verdict["faults"] for why in each["passed_over"])
