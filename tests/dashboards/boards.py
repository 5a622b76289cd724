"""The dashboards as Grafana reads them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dashboards.generate import FOLDER
from sentinel.collectors import exposition
from sentinel.metrics import TABLE

BOARDS: dict[str, dict[str, Any]] = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
NAME = re.compile(r"\bsentinel_[a-z_]+")
NODE = os.uname().nodename
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}
SERIES = {
    metric.name + suffix: metric.labels
    for metric in (*TABLE, *exposition.TABLE)
    for suffix in SUFFIXES.get(metric.kind, ("",))
}
"""Every series that the daemon and the collectors show, and its labels."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    panel: str
    expr: str

    def about(self, run: str) -> str:
        """The query for one run, as Grafana would send it."""
        values = {"$run": run, "$node": f"({NODE})", "$__rate_interval": "1m"}
        expr = self.expr
        for name, value in values.items():
            expr = expr.replace(name, value)
        assert "$" not in expr, f"{self.panel} uses a variable that is not known: {expr}"
        return expr


def queries(board: dict[str, Any]) -> Iterator[Query]:
    """Of all panels; a row has none."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield Query(f"{board['title']}, {panel['title']}", target["expr"])
