"""TensorBoard event files, through the reader of the tensorboard package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from sentinel.domain.errors import InvalidInput
from sentinel.protocol.observations import StepReport
from sentinel.readers.fields import Field, pick_columns
from sentinel.readers.records import Record, reports


def read_tensorboard(path: Path, chosen: Mapping[Field, str]) -> Iterator[StepReport]:
    """Reports of the scalars in one event file.

    Raises:
        InvalidInput: the tensorboard package is not installed, or the file has no loss.
    """
    try:
        loader = import_module("tensorboard.backend.event_processing.event_file_loader")
    except ImportError:
        raise InvalidInput(
            str(path), "TensorBoard's package reads this: pip install 'training-sentinel[tensorboard]'"
        ) from None
    records = list(_records(path, loader.EventFileLoader(str(path)).Load()))
    names = dict.fromkeys(name for _, cells in records for name in cells if name != "step")
    yield from reports(records, pick_columns(["step", *names], chosen, where=str(path)))


def _records(path: Path, events: Iterator[Any]) -> Iterator[Record]:
    """The loader turns the old ``simple_value`` into a tensor of one float; other tensors are not scalars."""
    for event in events:
        for value in event.summary.value:
            if value.HasField("tensor") and len(value.tensor.float_val) == 1:
                where = f"{path}, step {event.step}, tag {value.tag!r}"
                yield where, {"step": event.step, value.tag: value.tensor.float_val[0]}
