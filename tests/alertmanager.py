"""A real Alertmanager of the tests' own (Debian's package prometheus-alertmanager)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from sentinel import clock
from tests.ports import free_port

READY_WITHIN_S = 30.0
CONFIGURATION = """
route:
  receiver: hook
  group_by: [incident]
  group_wait: 10ms
  group_interval: 100ms
receivers:
  - name: hook
    webhook_configs:
      - url: {url}
        send_resolved: true
"""


class RealAlertmanager:
    """Speaks to one."""

    def __init__(self, url: str) -> None:
        self.url = url

    def alerts(self) -> list[dict[str, Any]]:
        """Those that fire."""
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/api/v2/alerts", trust_env=False).json()
        return found


@contextmanager
def alertmanager(program: str, folder: Path, hook: str) -> Iterator[RealAlertmanager]:
    """An Alertmanager that tells ``hook`` of every alert."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(CONFIGURATION.format(url=hook))
    port = free_port()
    command = [program, "--config.file=alertmanager.yml", "--storage.path=data", "--cluster.listen-address="]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], cwd=folder, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = clock.monotonic() + READY_WITHIN_S
        ready = False
        while not ready:
            assert clock.monotonic() < deadline, (folder / "log").read_text()
            assert process.poll() is None, (folder / "log").read_text()
            with suppress(httpx.HTTPError):
                ready = httpx.get(f"{url}/-/ready", trust_env=False).is_success
            clock.sleep(0.02)
        yield RealAlertmanager(url)
    finally:
        process.kill()
        process.wait()
