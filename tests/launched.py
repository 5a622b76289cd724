"""Launchers as processes of their own, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sentinel import clock

NOBODY: Final = "http://127.0.0.1:9"
"""Where no daemon answers."""
WITHIN_S: Final = 30.0


class Launched:
    """A launcher in a process of its own; it does not outlive the block.

    Args:
        folder: where the command runs.
        command: program and arguments.
        options: the launcher's.
        environment: added to this process's, without what that says to Sentinel.
    """

    def __init__(
        self, folder: Path, command: Sequence[str], *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SENTINEL_")}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sentinel.launcher", *options, "--", *command],
            cwd=folder,
            env=own | dict(environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stdout = self.stderr = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def end(self, within_s: float = WITHIN_S) -> int:
        """The exit code, once it has ended."""
        self.stdout, self.stderr = self.process.communicate(timeout=within_s)
        return self.process.returncode

    def wait_for(self, name: str) -> str:
        """The text of a file that the training writes, once it is there and whole."""
        path = self.folder / name
        wait(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text().strip()


def wait(condition: Callable[[], bool]) -> None:
    """Returns when something is so."""
    deadline = clock.monotonic() + WITHIN_S
    while not condition():
        assert clock.monotonic() < deadline
        clock.sleep(0.02)


def is_alive(process: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def says(name: str) -> str:
    """Python that writes its process id to a file."""
    return f"import os; open('{name}.part', 'w').write(f'{{os.getpid()}}\\n'); os.rename('{name}.part', '{name}')"
