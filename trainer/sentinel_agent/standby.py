"""What the launcher that started this process is told, in files of its folder; nothing where there is none.

Nothing here stops a training: a folder that is gone is not written to.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from sentinel.protocol.ids import AttemptId, RunId
from sentinel.protocol.launching import (
    ATTEMPT_FILE,
    ENDED_FILE,
    FOLDER_VARIABLE,
    PROGRESS_FILE,
    STACKS_SIGNAL,
    STACKS_SUFFIX,
    UNWATCHED,
)
from sentinel_agent.identity import replace_text

STEP_DIGITS: Final = 20
_files: Final[dict[int, int]] = {}
"""Where each process's stacks go, by process id; open as long as the process lives."""


def register_stacks(rank: int, environ: Mapping[str, str] = os.environ) -> None:
    """Lets the launcher ask this process where its threads stand, at any moment and whoever holds the interpreter.

    A program that has a use of its own for the signal keeps it; then nothing can be asked.
    """
    folder, process = environ.get(FOLDER_VARIABLE), os.getpid()
    if not folder or process in _files or signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(folder) / f"{rank}-{process}{STACKS_SUFFIX}"
        _files[process] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(STACKS_SIGNAL, file=_files[process], all_threads=True, chain=False)


class Standby:
    """Tells the launcher which attempt this is and how far it has come; for rank 0's agent."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        folder = environ.get(FOLDER_VARIABLE)
        self._folder = Path(folder) if folder else None
        self._progress: int | None = None
        self._step = -1

    def announce(self, run: RunId, attempt: AttemptId, *, pins: Path, step: int) -> None:
        """The attempt begins."""
        if self._folder is None:
            return
        told = {"run": run, "attempt": attempt, "pins": str(pins), "step": step, "process_id": os.getpid()}
        with suppress(OSError):
            (self._folder / ENDED_FILE).unlink(missing_ok=True)  # of a training before this one in the same process
            self._progress = os.open(self._folder / PROGRESS_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
            self.reached(step)
            replace_text(self._folder / ATTEMPT_FILE, json.dumps(told) + "\n")

    def reached(self, step: int) -> None:
        """The newest step; for the agent's thread."""
        if self._progress is not None and step != self._step:
            self._step = step
            with suppress(OSError):
                os.pwrite(self._progress, f"{step:0{STEP_DIGITS}d}".encode(), 0)

    def ended(self, outcome: str) -> None:
        """The attempt is over, in an orderly way or by an error that the training itself saw."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / ENDED_FILE).write_text(outcome, encoding="utf-8")

    def unwatched(self) -> None:
        """The agent has turned itself off: that no step is told any more says nothing of the training."""
        self.ended(UNWATCHED)
