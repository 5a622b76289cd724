"""Which reader a file needs, by its first bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from sentinel.domain.errors import InvalidInput
from sentinel.protocol.observations import StepReport
from sentinel.readers.csv_log import read_csv
from sentinel.readers.fields import Field
from sentinel.readers.json_log import read_json_lines, read_trainer_state
from sentinel.readers.tensorboard_log import read_tensorboard

Reader = Callable[[Path, Mapping[Field, str]], Iterator[StepReport]]

READERS: Final[Mapping[str, Reader]] = {
    "csv": read_csv,
    "trainer_state": read_trainer_state,
    "json_lines": read_json_lines,
    "tensorboard": read_tensorboard,
}
_FIRST_BYTES: Final = 65536


def read_log(path: Path, chosen: Mapping[Field, str] | None = None) -> list[StepReport]:
    """All reports of a log in a format that is found out.

    Args:
        path: the file.
        chosen: columns by field, where the usual names do not fit.

    Raises:
        InvalidInput: it cannot be read; names the file, the line and the column.
    """
    try:
        return list(READERS[format_of(path)](path, chosen or {}))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}, byte {error.start}", "neither UTF-8 text nor a TensorBoard event file") from None
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}") from None


def format_of(path: Path) -> str:
    """The key in ``READERS``. An event file is known by its name, as TensorBoard knows it; the rest by content."""
    if "tfevents" in path.name:
        return "tensorboard"
    with path.open("rb") as handle:
        start = handle.read(_FIRST_BYTES).decode("utf-8-sig", errors="replace").lstrip()
    if not start.startswith(("{", "[")):
        return "csv"
    try:
        first = json.loads(start.partition("\n")[0])
    except json.JSONDecodeError:
        return "trainer_state"
    return "trainer_state" if isinstance(first, dict) and "log_history" in first else "json_lines"
