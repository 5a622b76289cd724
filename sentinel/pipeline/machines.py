"""What ranks and devices tell beside the steps: shown to the detectors while their attempt is the live one."""

from __future__ import annotations

from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.pipeline.seeing import see
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.processes import RankReport


def rank(parts: Parts, entry: LogEntry, report: RankReport, outcome: Outcome) -> None:
    """One rank's mean over some seconds. One of an abandoned branch is never judged."""
    if (entry.attempt, report.segment) == (parts.run.attempt, parts.run.segment):
        see(parts, entry, outcome)


def device(parts: Parts, entry: LogEntry, _sample: DeviceSample, outcome: Outcome) -> None:
    """One reading of an accelerator."""
    if entry.attempt == parts.run.attempt:
        see(parts, entry, outcome)
