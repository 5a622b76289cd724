from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import Plan, torture


@pytest.mark.usefixtures("every_store")
def test_healthy_runs_are_left_alone(tmp_path: Path) -> None:
    """Daemon and trainers killed at random, traffic cut, repeated, garbled: all is told once, and nothing is done."""
    report = torture(Plan(runs=20, steps=200), tmp_path)
    print(report)
    assert report.lives > 2
    assert all(report.mishaps[each] for each in ("cut", "repeat", "garble", "delay"))
    assert (report.actions, report.rollbacks) == ({}, 0)
