"""What the training's agent has left in the launcher's folder and among its pins."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sentinel.protocol.ids import AttemptId, CheckpointId, RunId, is_name
from sentinel.protocol.launching import ATTEMPT_FILE, ENDED_FILE, PROGRESS_FILE, STACKS_SUFFIX, UNWATCHED

ORDERLY: Final = ("finished", "interrupted")


@dataclass(frozen=True, slots=True)
class Announced:
    """An attempt that has begun."""

    run: RunId
    attempt: AttemptId
    pins: Path
    process: int
    """Rank 0's."""


def announced(folder: Path) -> Announced | None:
    """The attempt that rank 0's agent has announced, if one has."""
    try:
        told = json.loads((folder / ATTEMPT_FILE).read_text(encoding="utf-8"))
        run, attempt, pins = str(told["run"]), str(told["attempt"]), Path(told["pins"])
        process = int(told["process_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_sound = is_name(run) and is_name(attempt)
    return Announced(RunId(run), AttemptId(attempt), pins, process) if is_sound else None


def reached(folder: Path) -> int:
    """The newest step of the attempt; 0 before its first."""
    with suppress(OSError, ValueError):
        return int((folder / PROGRESS_FILE).read_bytes())
    return 0


def ended(folder: Path) -> str:
    """How the attempt ended, in the agent's own word; empty if it never said."""
    with suppress(OSError):
        return (folder / ENDED_FILE).read_text(encoding="utf-8").strip()
    return ""


def may_live(folder: Path, hung_after_step: int) -> str:
    """Why a training that is thought to hang after a step may do well; empty where nothing says so."""
    step, how = reached(folder), ended(folder)
    if how in (*ORDERLY, UNWATCHED):
        return f"the training is {how}, what runs now is not known"
    if step != hung_after_step:
        return f"the training has gone {'on' if step > hung_after_step else 'back'} to step {step}"
    return ""


def forget(folder: Path) -> None:
    """Makes room for the next attempt."""
    for path in (
        *(folder / name for name in (ATTEMPT_FILE, PROGRESS_FILE, ENDED_FILE)),
        *folder.glob(f"*{STACKS_SUFFIX}"),
    ):
        path.unlink(missing_ok=True)


def newest_verified(pins: Path) -> tuple[CheckpointId, int] | None:
    """The newest checkpoint that the agent's manifest calls verified and whose file is there, with its step."""
    try:
        rows = json.loads((pins / "manifest.json").read_text(encoding="utf-8"))["checkpoints"]
        good = [
            (int(row["step"]), CheckpointId(str(row["id"])))
            for row in rows
            if row["state"] == "verified" and Path(row["elsewhere"] or pins / f"{row['id']}.ckpt").is_file()
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not good:
        return None
    step, checkpoint = max(good)
    return checkpoint, step
