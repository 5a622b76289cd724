"""From the step that shows a NaN to the end of the first step after the rollback, in the reference trainer."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import StepReport
from sentinel.store import observation_log
from sentinel.store.session import open_database
from tests.benchmarks.rows import Row, middle
from tests.builders import DEFAULT_POLICY
from tests.daemons import DaemonProcess, database_url

EVERY: Final = 80
"""Batches between two faults: a checkpoint must have had 50 clean steps to be gone back to."""
ON_THE_WAY: Final = 35
"""Of these the steps that are not given up again, at most."""


def measure(*, rollbacks: int) -> Iterator[Row]:
    """One training that is broken so many times; both ends are the trainer's own times of its steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = folder / "policy.toml"
        policy.write_text(DEFAULT_POLICY.replace("rollbacks = 3", "rollbacks = 1000"))
        daemon = DaemonProcess(folder, policy_file=str(policy))
        command = [sys.executable, "-m", "sentinel_reference.train", "--root", str(folder / "run"), "--run", "run"]
        command += ["--quiet", "--url", daemon.url, "--mode", "act", "--checkpoint-every", "10", "--threads", "1"]
        for number in range(1, rollbacks + 1):
            command += ["--fault", f"nan@{number * EVERY}"]
        command += ["--max-steps", str(EVERY + ON_THE_WAY * rollbacks)]
        trained = subprocess.run(command, check=False, capture_output=True, text=True)
        daemon.end(signal.SIGTERM)
        assert trained.returncode == 0, trained.stderr
        took = list(_recoveries(folder))
    times = middle(took)
    yield Row(
        "recovery",
        "step with the NaN to the first new step after the rollback, laptop preset",
        f"median {times.median:.2f} s, {min(took):.2f} to {max(took):.2f} s ({len(took)} rollbacks)",
        {"median_s": times.median, "least_s": min(took), "most_s": max(took), "rollbacks": len(took)},
    )


def _recoveries(folder: Path) -> Iterator[float]:
    database = open_database(database_url(folder))
    with database.reading() as connection:
        entries = observation_log.read(connection, RunId("run"))
        reports = [each.entry.observation for each in entries if isinstance(each.entry.observation, StepReport)]
    database.close()
    broken: dict[int, float] = {}
    for report in reports:
        if report.loss is not None and not math.isfinite(report.loss):
            broken.setdefault(report.segment, report.at)
        if report.segment - 1 in broken:
            yield report.at - broken.pop(report.segment - 1)
