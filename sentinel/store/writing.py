"""Insert or replace rows, in either database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, keep: Sequence[str] = ()
) -> None:
    """Inserts ``rows``; one whose primary key exists replaces it, but for the columns in ``keep``."""
    if not rows:
        return
    insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)
    key = [column.name for column in table.primary_key]
    changed = {name: insert.excluded[name] for name in rows[0] if name not in key and name not in keep}
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=changed), list(rows))
