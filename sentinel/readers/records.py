"""Records of a log, whatever its format, to step reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sentinel.domain.errors import InvalidInput
from sentinel.protocol.observations import StepReport
from sentinel.readers.fields import Field, number

Record = tuple[str, Mapping[str, Any]]
"""Where it stands, such as ``log.csv, line 7``, and its cells by column."""


def reports(records: Iterable[Record], columns: Mapping[Field, str]) -> Iterator[StepReport]:
    """One report for each step that a log has values of, in its order.

    Loggers that write each value when they have it leave several records of one step behind: neighbours of one step
    become one report. A log without a step column is counted from 1. ``at`` is the number of the report.

    Args:
        records: of the log.
        columns: the column of each field that the log has.

    Raises:
        InvalidInput: a cell is no number, or a step is no whole number of 0 or more.
    """
    pending: StepReport | None = None
    for where, cells in records:
        values = {field: _cell(cells, column, where) for field, column in columns.items()}
        step = values.pop("step", None)
        if all(values.get(name) is None for name in ("loss", "grad_norm")):
            continue
        count = 0 if pending is None else int(pending.at)
        number_of_step = count + 1 if "step" not in columns else _step(step, where, columns["step"])
        told = StepReport(at=float(count + 1), step=number_of_step, **values)  # type: ignore[arg-type]
        if pending is not None and "step" in columns and pending.step == told.step:
            later = {name: value for name, value in values.items() if value is not None}
            pending = replace(pending, **later)  # type: ignore[arg-type]
            continue
        if pending is not None:
            yield pending
        pending = told
    if pending is not None:
        yield pending


def _cell(cells: Mapping[str, Any], column: str, where: str) -> float | None:
    return number(cells.get(column), where=f"{where}, column {column!r}")


def _step(value: float | None, where: str, column: str) -> int:
    if value is None or not math.isfinite(value) or value < 0 or value != int(value):
        raise InvalidInput(f"{where}, column {column!r}", f"a step is a whole number of 0 or more, not {value}")
    return int(value)
