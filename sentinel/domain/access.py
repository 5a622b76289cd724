"""Who may do what over HTTP: three roles, each with its rights.

A token that lies in a training image can report and nothing else: whoever finds it there reads nothing and commands no
run. So ``viewer`` does not hold what ``ingest`` does; only ``operator`` holds all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

Role = Literal["ingest", "viewer", "operator"]
Right = Literal["report", "read", "command"]

RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    "ingest": frozenset({"report"}),
    "viewer": frozenset({"read"}),
    "operator": frozenset({"report", "read", "command"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever sends a request."""

    name: str = ""
    """Of the token; empty where everyone is let in."""
    role: Role = "operator"
    runs: str = "*"
    """Pattern of the runs that may be reported on, such as ``team-a-*``."""

    def may(self, right: Right) -> bool:
        """Whether the role holds the right."""
        return right in RIGHTS[self.role]

    def may_report(self, run: str) -> bool:
        """Whether the run is one that this caller may report on."""
        return fnmatchcase(run, self.runs)
