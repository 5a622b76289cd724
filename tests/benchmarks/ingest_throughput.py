"""How many step reports a second one daemon takes durably, by size of batch; healthy runs, each with its own sender.

Usage: python tests/benchmarks/ingest_throughput.py [SENDERS] [SECONDS]
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.daemons import Agent, DaemonProcess

SIZES = (1, 20, 1000)


def send(url: str, run: str, size: int, seconds: float) -> tuple[int, list[float]]:
    """Sends batches one after the other; returns how many reports were taken, and each batch's seconds."""
    taken = []
    with Agent(url, run) as agent:
        agent.start()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            batch = agent.batch(agent.reports(size))
            began = time.perf_counter()
            assert agent.post(batch).status_code == 200
            taken.append(time.perf_counter() - began)
            agent.counter += size
    return size * len(taken), sorted(taken)


def main(senders: int, seconds: float) -> None:
    """Prints a line for each size of batch."""
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(senders) as threads:
            daemon = DaemonProcess(Path(folder))
            sent = [threads.submit(send, daemon.url, f"run-{n}", size, seconds) for n in range(senders)]
            reports = sum(each.result()[0] for each in sent)
            times = sorted(time for each in sent for time in each.result()[1])
            daemon.end(signal.SIGTERM)
        p99 = times[int(0.99 * (len(times) - 1))]
        print(
            f"{senders} senders, batches of {size}: {reports / seconds:,.0f} reports/s, "
            f"median {times[len(times) // 2] * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms a batch"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1, float(sys.argv[2]) if len(sys.argv) > 2 else 5.0)
