"""From the POST that shows a non-finite loss to the reply with the rollback, over many runs of one daemon.

Usage: python tests/benchmarks/rollback_latency.py [RUNS]
"""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.daemons import Agent, DaemonProcess


def main(runs: int) -> None:
    """Prints the latencies in milliseconds."""
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
    taken.sort()
    p99 = taken[math.ceil(0.99 * len(taken)) - 1]
    print(f"{runs} runs: median {median(taken):.1f} ms, p99 {p99:.1f} ms, worst {taken[-1]:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
