"""Starts the daemon and the trainer as processes of their own, and ends them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import httpx

from sentinel import clock
from sentinel.domain.errors import SentinelError

READY_WITHIN_S: Final = 30.0
END_WITHIN_S: Final = 10.0


def free_port() -> int:
    """A port on the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A child whose output goes to a file; ended with SIGTERM, then SIGKILL, when the block ends.

    Args:
        name: for messages.
        command: program and arguments.
        log: the file for its output.
        environment: added to this process's own.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("w") as output:
            self._child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **environment}
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def end(self) -> None:
        """Ends it, gently at first."""
        if self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def check(self) -> None:
        """Raises what the process said if it has failed.

        Raises:
            SentinelError: it ended with an error.
        """
        code = self.exit_code
        if code:
            tail = "\n".join(self.log.read_text().splitlines()[-15:])
            raise SentinelError(f"the {self.name} ended with exit code {code}; the end of {self.log}:\n{tail}")


def daemon(folder: Path, port: int) -> Process:
    """`sentinel serve` on an SQLite file in ``folder``."""
    environment = {
        "SENTINEL_DATABASE_URL": f"sqlite:///{folder / 'sentinel.db'}",
        "SENTINEL_PORT": str(port),
        "SENTINEL_HOST": "127.0.0.1",
    }
    return Process("daemon", [sys.executable, "-m", "sentinel.cli.main", "serve"], folder / "daemon.log", environment)


def trainer(folder: Path, name: str, url: str, options: Sequence[str]) -> Process:
    """The reference trainer under `sentinel run`, with a folder of its own."""
    root = folder / name
    root.mkdir()
    launcher = [sys.executable, "-m", "sentinel.cli.main", "run", "--mode", "act", "--url", url, "--run", name, "--"]
    command = [sys.executable, "-m", "sentinel_reference.train", "--root", str(root), "--run", name, "--url", url]
    return Process(f"trainer {name}", [*launcher, *command, *options], root / "trainer.log", {})


def wait_ready(process: Process, url: str, wait: float = 0.1) -> None:
    """Waits until the daemon answers.

    Raises:
        SentinelError: it ended, or did not answer in time.
    """
    deadline = clock.monotonic() + READY_WITHIN_S
    while clock.monotonic() < deadline:
        process.check()
        try:
            if httpx.get(f"{url}/ready", timeout=1.0, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            clock.sleep(wait)
    raise SentinelError(f"the daemon did not answer at {url} within {READY_WITHIN_S:.0f} s; its log is {process.log}")
