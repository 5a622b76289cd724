"""What the pages of a long run weigh, and how long the daemon takes to make them.

Usage: python -m tests.benchmarks.page_cost [STEPS]
"""

from __future__ import annotations

import math
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx

from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.pipeline.rollups import Rollups
from sentinel.protocol import codec
from sentinel.protocol.observations import StepReport
from sentinel.store import decision_log, observation_log
from sentinel.store.observation_log import StoredEntry
from sentinel.store.session import Connection
from tests.builders import ATTEMPT, RUN, SENDER
from tests.daemons import serving, writing

CHUNK = 50_000
TRIES = 11


def report(step: int) -> StepReport:
    """A step of a long run: a slow descent with ripples, and a NaN every hundred thousand steps."""
    loss = 2.0 + 8.0 / math.sqrt(step) + 0.05 * math.sin(step * 1.7)
    broken = step % 100_000 == 0
    norm = 1.0 + 0.3 * math.sin(step * 0.9)
    return StepReport(
        at=float(step), step=step, loss=math.nan if broken else loss, grad_norm=norm, lr=1e-4, step_s=0.5 + 0.01 * norm
    )


def build(folder: Path, steps: int) -> None:
    """Writes a run of so many steps into a database in ``folder``, as the writer does, without judging it."""
    rollups = Rollups()

    def put(connection: Connection, start: int) -> None:
        entries, closed = [], []
        for step in range(start, min(start + CHUNK, steps + 1)):
            told = report(step)
            entry = LogEntry(
                run=RUN, sequence=step, received_at=float(step), attempt=ATTEMPT, sender=SENDER, observation=told
            )
            entries.append(StoredEntry(entry, codec.dumps(told)))
            closed += [(entry, each) for each in rollups.take(told, step, ATTEMPT)]
        decision_log.put_rollups(connection, closed)
        observation_log.append(connection, entries)
        summary = Run(attempt=ATTEMPT, attempts=1, step=steps, max_steps=steps, phase="finished", loss=2.0)
        decision_log.put_run(connection, RUN, summary, sequence=steps, at=float(steps))

    with writing(folder) as writer:
        for start in range(1, steps + 1, CHUNK):
            writer.write(partial(put, start=start)).result()


def main(steps: int) -> None:
    """Prints a line for each page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder, steps)
        with serving(folder) as daemon, httpx.Client(base_url=daemon.url) as client:
            for path in ("/", f"/runs/{RUN}", f"/runs/{RUN}?last=10000", f"/runs/{RUN}?last=200"):
                times = []
                for _ in range(TRIES):
                    began = perf_counter()
                    answer = client.get(path)
                    times.append(perf_counter() - began)
                    assert answer.status_code == 200, answer.text
                sent = int(answer.headers["content-length"])
                print(
                    f"{path}: {sent / 1024:.1f} KiB sent, {len(answer.content) / 1024:.0f} KiB whole, "
                    f"median {median(times) * 1e3:.0f} ms, slowest {max(times) * 1e3:.0f} ms"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
