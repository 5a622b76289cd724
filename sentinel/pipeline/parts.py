"""The stateful parts of one run's pipeline, which its stages share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sentinel.checkpoints.catalog import Catalog
from sentinel.detectors.base import Detector
from sentinel.detectors.roster import ROSTER
from sentinel.domain.runs import Run
from sentinel.incidents.lifecycle import Incidents
from sentinel.incidents.recovery import Recovery
from sentinel.pipeline.deciding import Deciding
from sentinel.pipeline.launchers import Launchers
from sentinel.pipeline.rollups import Rollups
from sentinel.pipeline.snapshot import Stateful
from sentinel.protocol.ids import AttemptId, RunId


@dataclass(slots=True)
class RunState:
    """Where the run stands, and the newest attempts, so that a straggler's report is not taken for a new attempt."""

    run: Run = field(default_factory=Run)
    attempts: list[AttemptId] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Keys of the newest requests of people: told again they are known."""


class Parts:
    """Everything that remembers."""

    def __init__(self, run: RunId) -> None:
        self.state = RunState()
        self.detectors: list[Detector[Any]] = [detector() for detector in ROSTER]
        self.incidents = Incidents(run)
        self.catalog = Catalog()
        self.recovery = Recovery()
        self.rollups = Rollups()
        self.launchers = Launchers()
        self.deciding = Deciding(self.incidents, self.catalog, self.launchers)

    @property
    def run(self) -> Run:
        """Where the run stands."""
        return self.state.run

    def by_name(self) -> dict[str, Stateful]:
        """All of them, under the names that a snapshot uses."""
        parts: dict[str, Stateful] = {
            "run": self,
            "incidents": self.incidents,
            "catalog": self.catalog,
            "recovery": self.recovery,
            "rollups": self.rollups,
            "launchers": self.launchers,
            "deciding": self.deciding,
        }
        return parts | {f"detector.{detector.name}": detector for detector in self.detectors}
