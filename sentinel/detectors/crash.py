"""A training process that died."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import ClassVar

from sentinel.detectors.base import Detector
from sentinel.detectors.process_finding import process_finding
from sentinel.domain.findings import Finding, Phase
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport
from sentinel.protocol.processes import CrashReport


@dataclass(slots=True)
class CrashState:
    """How far the run had come, and whether it has died since."""

    step: int = 0
    dead: bool = False


class Crash(Detector[CrashState]):
    """A training process that ended otherwise than it should have.

    Watches:
        what a launcher says of the processes that it started.

    Fires when:
        one of them has died. It ends when the same attempt makes a step all the same.

    Stays quiet when:
        the attempt has ended in an orderly way or by a signal that was passed on: that is no word of a crash.

    Memory:
        a step and a flag.

    Source:
        The exit status that the operating system keeps of each process.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = Crash()
        >>> for step in range(1, 4):
        ...     report = StepReport(at=0.0, step=step) if step < 3 else CrashReport(at=0.0, signal="SIGKILL")
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.severity, finding.reason)
        2 critical the training was ended by SIGKILL
    """

    name: ClassVar[str] = "crash"

    def __init__(self) -> None:
        self.state = CrashState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Takes crash reports; a new attempt or a step ends what was told."""
        observation, state = entry.observation, self.state
        if isinstance(observation, CrashReport):
            phase: Phase = "changed" if state.dead else "began"
            state.dead = True
            return (self._finding(phase, _what(observation)),)
        if isinstance(observation, AttemptStarted) or (
            isinstance(observation, CommandResult) and observation.outcome == "succeeded"
        ):
            self.state = CrashState(step=observation.step)
        elif isinstance(observation, StepReport):
            was_dead, state.dead, state.step = state.dead, False, observation.step
            if was_dead:
                return (self._finding("ended", "the attempt goes on"),)
        return ()

    def _finding(self, phase: Phase, reason: str) -> Finding:
        return process_finding(self.name, phase, step=self.state.step, reason=reason)


def _what(report: CrashReport) -> str:
    who = "the training" if report.rank is None else f"rank {report.rank}"
    where = f" on {report.host}" if report.host else ""
    if report.signal:  # whoever sent it, what happened to be written last has nothing to do with it
        return f"{who}{where} was ended by {report.signal}"
    lines = (line.strip() for line in reversed(report.stderr_tail.splitlines()))
    said = next((line for line in lines if line and not line.startswith("sentinel: ")), "")
    how = f"ended with exit code {report.exit_code}"
    return f"{who}{where} {how}" + (f"; its last line: {shorten(said, 200, placeholder=' ...')}" if said else "")
