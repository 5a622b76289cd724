"""A real Prometheus for tests."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from sentinel import clock

ANSWER_WITHIN_S = 30.0


class Prometheus:
    """Its HTTP interface; nothing here waits by the clock, only for answers."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=ANSWER_WITHIN_S, trust_env=False)

    def close(self) -> None:
        """Ends its connections."""
        self._http.close()

    def ask(self, path: str, **query: Any) -> Any:
        """The data at ``path``; a query that it refuses fails the test with its reason."""
        answer = self._http.get(f"/api/v1/{path}", params=query).json()
        assert answer["status"] == "success", (query, answer.get("error"))
        return answer["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression, now."""
        return self.ask("query", query=expr)["result"]

    def until(self, expr: str, meanwhile: Callable[[], object]) -> list[dict[str, Any]]:
        """The series of an expression, once it has one; what it waits for goes on meanwhile."""
        deadline = clock.monotonic() + ANSWER_WITHIN_S
        while not (found := self.query(expr)):
            assert clock.monotonic() < deadline, f"{expr} has no value; the targets: {self.ask('targets')}"
            meanwhile()
        return found


@contextmanager
def running(program: str, folder: Path, config: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Prometheus with its data in ``folder``, on a free port, until the end."""
    (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(config)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    process = subprocess.Popen(
        [*command, f"--web.listen-address={address}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    log: list[str] = []
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    try:
        for line in process.stderr:
            log.append(line)
            if "ready to receive web requests" in line:
                break
        assert process.poll() is None, "".join(log)
        reader.start()
        with closing(Prometheus(f"http://{address}")) as prometheus:
            yield prometheus
    finally:
        process.terminate()
        process.wait()
        reader.join()
        process.stderr.close()
