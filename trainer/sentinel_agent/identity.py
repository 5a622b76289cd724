"""Which run and which attempt this is. A resumed run keeps its name, in ``run.json`` beside its checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from sentinel.protocol.ids import AttemptId, CheckpointId, RunId, is_name

_MOODS: Final = ("brave", "bright", "brisk", "calm", "clear", "deft", "eager", "fair", "keen", "merry", "mild", "swift")
_BIRDS: Final = ("crane", "dipper", "dove", "egret", "finch", "heron", "ibis", "kite", "lark", "robin", "swan", "wren")


def new_attempt() -> AttemptId:
    """An id that no other attempt has."""
    return AttemptId(f"a-{os.urandom(4).hex()}")


def new_checkpoint(step: int, segment: int, attempt: str = "") -> CheckpointId:
    """An id that tells people the step and that no checkpoint of another attempt has; without one, a random id."""
    return CheckpointId(f"{step}-{segment}-{attempt.removeprefix('a-') or os.urandom(4).hex()}")


def kept_run(folder: Path) -> RunId | None:
    """The name in ``run.json``, if there is one."""
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return RunId(run) if isinstance(run, str) and is_name(run) else None


def new_run() -> RunId:
    """A made-up name, short enough to say."""
    mood, bird, *rest = os.urandom(4)
    return RunId(f"{_MOODS[mood % len(_MOODS)]}-{_BIRDS[bird % len(_BIRDS)]}-{bytes(rest).hex()}")


def keep_run(folder: Path, run: RunId) -> None:
    """Writes the name where a resume finds it.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "run.json", json.dumps({"run": run}) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Puts a file in place whole: a reader sees the old text or the new.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
