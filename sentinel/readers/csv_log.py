"""CSV: plain ones, W&B's exports, Lightning's CSVLogger."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from sentinel.domain.errors import InvalidInput
from sentinel.protocol.observations import StepReport
from sentinel.readers.fields import Field, pick_columns
from sentinel.readers.records import Record, reports


def read_csv(path: Path, chosen: Mapping[Field, str]) -> Iterator[StepReport]:
    """Reports of a CSV file with a header; the delimiter may be a comma, a semicolon or a tab.

    Raises:
        InvalidInput: it has no header, no loss, a row of another width, or a cell that is no number.
    """
    with path.open(newline="", encoding="utf-8-sig") as handle:
        header = handle.readline()
        delimiter = max(",;\t", key=header.count)
        names = next(csv.reader([header], delimiter=delimiter), [])
        if not names:
            raise InvalidInput(f"{path}, line 1", "empty: a header with the names of the columns was expected")
        columns = pick_columns(names, chosen, where=f"{path}, line 1")
        yield from reports(_records(path, csv.reader(handle, delimiter=delimiter), names), columns)


def _records(path: Path, rows: Iterator[list[str]], names: list[str]) -> Iterator[Record]:
    for line, cells in enumerate(rows, start=2):
        if not cells:
            continue
        if len(cells) != len(names):
            raise InvalidInput(f"{path}, line {line}", f"{len(cells)} cells where the header has {len(names)}")
        yield f"{path}, line {line}", dict(zip(names, cells, strict=True))
