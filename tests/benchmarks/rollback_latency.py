"""From the POST that shows a non-finite loss to the reply with the rollback, over many runs of one daemon."""

from __future__ import annotations

import math
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.benchmarks.rows import Row, percentile
from tests.daemons import Agent, DaemonProcess


def measure(*, runs: int) -> Iterator[Row]:
    """One row."""
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = DaemonProcess(Path(folder))
        for number in range(runs):
            with Agent(daemon.url, f"run-{number}") as agent:
                agent.ready_to_roll_back()
                (report,) = agent.reports(1, loss=math.nan, grad_norm=math.nan)
                began = time.perf_counter()
                reply = agent.tell(report)
                taken.append((time.perf_counter() - began) * 1e3)
                assert [command.step for command in reply.commands] == [20]
        daemon.end(signal.SIGTERM)
    middle_ms, p99_ms = median(taken), percentile(taken, 0.99)
    yield Row(
        "rollback",
        "POST with the NaN to the reply with the order",
        f"median {middle_ms:.1f} ms, p99 {p99_ms:.1f} ms, worst {max(taken):.1f} ms ({runs} runs)",
        {"median_ms": middle_ms, "p99_ms": p99_ms, "worst_ms": max(taken), "runs": runs},
    )
