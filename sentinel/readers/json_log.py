"""JSON: the `trainer_state.json` of Hugging Face's Trainer, and one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentinel.domain.errors import InvalidInput
from sentinel.protocol.observations import StepReport
from sentinel.readers.fields import Field, pick_columns
from sentinel.readers.records import Record, reports


def read_trainer_state(path: Path, chosen: Mapping[Field, str]) -> Iterator[StepReport]:
    """Reports of a Trainer's ``log_history``; evaluations and the closing summary have no ``loss`` and are left out.

    The Trainer writes the running average where the loss of a step was NaN, so a finite loss here proves nothing.

    Raises:
        InvalidInput: it is not JSON, has no ``log_history``, or no loss.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}, column {error.colno}", f"not JSON: {error.msg}") from None
    history = tree.get("log_history") if isinstance(tree, dict) else None
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise InvalidInput(str(path), "a list of objects named 'log_history' was expected, as the Trainer writes it")
    records = [(f"{path}, log_history[{index}]", record) for index, record in enumerate(history)]
    yield from reports(records, pick_columns(_names(records), chosen, where=f"{path}, log_history"))


def read_json_lines(path: Path, chosen: Mapping[Field, str]) -> Iterator[StepReport]:
    """Reports of a file with a JSON object on each line; objects inside objects are named ``outer/inner``.

    Raises:
        InvalidInput: a line is no JSON object, or no line has a loss.
    """
    records = list(_lines(path))
    yield from reports(records, pick_columns(_names(records), chosen, where=str(path)))


def _lines(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig") as handle:
        for line, text in enumerate(handle, start=1):
            if not text.strip():
                continue
            where = f"{path}, line {line}"
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                raise InvalidInput(f"{where}, column {error.colno}", f"not JSON: {error.msg}") from None
            if not isinstance(value, dict):
                raise InvalidInput(where, "a JSON object was expected")
            yield where, dict(_flat(value))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def _names(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(name for _, cells in records for name in cells))
