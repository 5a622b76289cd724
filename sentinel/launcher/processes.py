"""The training's processes: started in a session of their own, found however they are nested, passed signals, ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sentinel import clock

PR_SET_CHILD_SUBREAPER: Final = 36
"""linux/prctl.h: what a process leaves behind becomes ours, so that it is found and can be ended."""
KILL_WITHIN_S: Final = 50.0
"""As long as NVIDIA's resiliency extension waits for GPU memory to be given back."""
LOOK_EVERY_S: Final = 0.05
PROC: Final = Path("/proc")


class Training:
    """One start of the command.

    Args:
        command: program and arguments.
        environment: all of it.
        stderr: file descriptor that it writes to.
        others: processes below us that are not of the training.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, stderr: int, others: Collection[int]
    ) -> None:
        adopt_orphans()
        self._others = frozenset(others)
        self._child = subprocess.Popen(command, env=dict(environment), stderr=stderr, start_new_session=True)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, negative for a signal, if the command ends in time."""
        with suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout_s)
        return None

    def pass_on(self, number: int) -> None:
        """Sends a signal to the command's process group, as a shell would."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def processes(self) -> set[int]:
        """Every process of the training that is alive."""
        return descendants() - self._others

    def end(self, grace_s: float) -> bool:
        """Asks the processes to end, then ends them; whether all are gone."""
        self.pass_on(signal.SIGTERM)
        self._await_end(grace_s)
        deadline = clock.monotonic() + KILL_WITHIN_S
        while not self._is_over() and clock.monotonic() < deadline:
            for process in self.processes():  # a process that was stopped must be killed too, and children of children
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            self._await_end(1.0)
        return self._is_over()

    def _await_end(self, within_s: float) -> None:
        deadline = clock.monotonic() + within_s
        while not self._is_over() and clock.monotonic() < deadline:
            clock.sleep(LOOK_EVERY_S)
        self._reap()

    def _is_over(self) -> bool:
        """Whether all are gone, and the command's own process with all its threads: the first may go long before."""
        return self._child.poll() is not None and not self.processes()

    def _reap(self) -> None:
        """Buries orphans that were handed to us."""
        for process, (state, parent) in _table().items():
            if parent == os.getpid() and state == "Z" and process not in {*self._others, self._child.pid}:
                with suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)


def adopt_orphans(*, adopts: bool = True) -> None:
    """Makes this process the parent of whatever its descendants leave behind, or does so no more."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def descendants() -> set[int]:
    """Every process below this one that is alive."""
    table = _table()
    alive = {process for process, (state, _) in table.items() if state not in ("Z", "X")}
    return _descendants(os.getpid(), table) & alive


def state_of(process: int) -> str:
    """The kernel's letter for what a process does (R, S, D, T, Z), empty if it is gone."""
    return _stat(process)[0]


def waits_in(process: int) -> str:
    """The kernel's function that a process waits in, if that may be known."""
    try:
        return (PROC / str(process) / "wchan").read_text()
    except OSError:
        return ""


def catches(process: int, number: int) -> bool:
    """Whether a process has something of its own for a signal: another would be ended by it."""
    try:
        status = (PROC / str(process) / "status").read_text()
    except OSError:
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def how_it_ended(code: int) -> str:
    """An exit code in words, negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _stat(process: int) -> tuple[str, int]:
    """The kernel's letter, and the parent; 0 for one that is gone."""
    try:
        fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])


def _table() -> dict[int, tuple[str, int]]:
    return {int(each.name): _stat(int(each.name)) for each in PROC.iterdir() if each.name.isdigit()}


def _descendants(process: int, table: Mapping[int, tuple[str, int]]) -> set[int]:
    found, level = set[int](), {process}
    while level := {each for each, (_, parent) in table.items() if parent in level} - found:
        found |= level
    return found
