"""Asks the ranks of a training where their threads stand, as their agents have prepared."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sentinel import clock
from sentinel.launcher.processes import catches, state_of, waits_in
from sentinel.protocol.launching import STACKS_SIGNAL, STACKS_SUFFIX
from sentinel.protocol.processes import StackReport

ANSWER_WITHIN_S: Final = 3.0
SETTLED_S: Final = 0.1
"""Written in one go by the interpreter: what has not grown for so long is whole."""
LONGEST: Final = 90_000
"""Characters; the protocol takes 100,000."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """Where one process stands."""

    rank: int
    process: int
    text: str

    def report(self, *, host: str, step: int, reason: str) -> StackReport:
        """What the daemon is told."""
        return StackReport(
            at=clock.now(),
            stacks=self.text,
            rank=self.rank,
            host=host,
            process_id=self.process,
            step=step,
            reason=reason,
        )


def collect(folder: Path, processes: Collection[int]) -> list[Stacks]:
    """The stacks of every rank that is alive and can be asked; a few seconds at most.

    Args:
        folder: the launcher's.
        processes: of the training. Nobody else is sent a signal, nor who would be ended by it.
    """
    asked: list[tuple[int, int, Path, int]] = []
    for rank, process, path in sorted(_prepared(folder)):
        if process in processes and catches(process, STACKS_SIGNAL):
            before = path.stat().st_size
            with suppress(ProcessLookupError):
                os.kill(process, STACKS_SIGNAL)
                asked.append((rank, process, path, before))
    deadline = clock.monotonic() + ANSWER_WITHIN_S
    return [Stacks(rank, process, _read(process, path, before, deadline)) for rank, process, path, before in asked]


def _prepared(folder: Path) -> Iterator[tuple[int, int, Path]]:
    for path in folder.glob(f"*{STACKS_SUFFIX}"):
        rank, _, process = path.name.removesuffix(STACKS_SUFFIX).partition("-")
        if rank.isdigit() and process.isdigit():
            yield int(rank), int(process), path


def _read(process: int, path: Path, before: int, deadline: float) -> str:
    size = before
    while clock.monotonic() < deadline:
        clock.sleep(SETTLED_S)
        now = path.stat().st_size
        if now == size > before:
            break
        size = now
    with path.open("rb") as file:
        file.seek(before)
        text = file.read(LONGEST).decode("utf-8", "replace").replace("\0", "")
    state = f"The kernel says: state {state_of(process)}, waits in {waits_in(process) or 'nothing that it tells'}."
    return f"{text or 'No answer: the process was given no time to write its stacks.'}\n{state}\n"
