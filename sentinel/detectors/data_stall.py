"""A training that waits for its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.domain.findings import Finding, Phase
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

BLOCK_ROWS: Final = 16
"""Several rounds of a loader whose workers deliver in turns: a burst and the wait after it count together."""
FIRST_ROWS: Final = 16
"""Workers start and fill their queues."""
STALLED_RATIO: Final = 0.5
"""Half of the step: the training would be at least twice as fast with its data at hand."""
CALM_RATIO: Final = 0.25
LASTING_BLOCKS: Final = 2
LASTING_S: Final = 60.0
"""As for a drop of the throughput: shorter, and nobody wants to know."""


@dataclass(slots=True)
class DataStallState:
    """The block under way, and the stalled ones at the end."""

    rows_to_skip: int = FIRST_ROWS
    rows: int = 0
    first_step: int = 0
    waited_s: float = 0.0
    lasted_s: float = 0.0
    stalled_blocks: int = 0
    stalled_s: float = 0.0
    onset_step: int = 0
    told: bool = False


class DataStall(Detector[DataStallState]):
    """The wait for data takes over the step.

    Watches:
        ``data_wait_s`` and ``step_s`` of each step report, summed over blocks of 16.

    Fires when:
        in two blocks running, and for a minute of steps, half of the time is spent waiting for the loader. It ends
        when a block waits less than a quarter.

    Stays quiet when:
        the attempt is in its first 16 steps; one step waits long, as at the start of an epoch; the loader keeps up.
        On a GPU both are times of the host, which runs ahead: a wait that the device never notices may be counted.

    Memory:
        nine numbers.

    Source:
        The ratio is what the words say: more waiting than working. Blocks and duration as for ``throughput_drop``.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = DataStall()
        >>> for step in range(1, 161):
        ...     report = StepReport(at=0.0, step=step, step_s=3.0, data_wait_s=2.0 if step > 100 else 0.1)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.severity, finding.onset_step)
        128 warning 97
    """

    name: ClassVar[str] = "data_stall"

    def __init__(self) -> None:
        self.state = DataStallState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges full blocks of step reports; begins anew with a new attempt, with a new block after a rollback."""
        report, state = entry.observation, self.state
        if isinstance(report, StepReport):
            wait_s, step_s = report.data_wait_s, report.step_s
            if wait_s is None or step_s is None or not 0 <= wait_s <= step_s < math.inf:
                return ()
            if state.rows_to_skip:
                state.rows_to_skip -= 1
                return ()
            if state.rows == 0:
                state.first_step = report.step
            state.rows += 1
            state.waited_s += wait_s
            state.lasted_s += step_s
            return self._judge(report.step) if state.rows == BLOCK_ROWS else ()
        if isinstance(report, AttemptStarted):
            self.state = DataStallState()
        elif isinstance(report, CommandResult) and report.outcome == "succeeded":
            state.rows, state.waited_s, state.lasted_s = 0, 0.0, 0.0
        return ()

    def _judge(self, step: int) -> Sequence[Finding]:
        state = self.state
        waited_s, lasted_s = state.waited_s, state.lasted_s
        state.rows, state.waited_s, state.lasted_s = 0, 0.0, 0.0
        ratio = waited_s / lasted_s if 0 < lasted_s < math.inf else 0.0
        if ratio < (CALM_RATIO if state.told else STALLED_RATIO):
            told, state.told, state.stalled_blocks, state.stalled_s = state.told, False, 0, 0.0
            reason = f"{ratio:.0%} of the time is spent waiting for data now"
            return (self._finding(step, "ended", reason, ratio),) if told else ()
        if state.stalled_blocks == 0:
            state.onset_step = state.first_step
        state.stalled_blocks += 1
        state.stalled_s += lasted_s
        if state.told or state.stalled_blocks < LASTING_BLOCKS or state.stalled_s < LASTING_S:
            return ()
        state.told = True
        reason = f"since step {state.onset_step} the training waits for data: {ratio:.0%} of its time"
        return (self._finding(step, "began", reason, ratio),)

    def _finding(self, step: int, phase: Phase, reason: str, ratio: float) -> Finding:
        return Finding(
            detector=self.name,
            symptom="data_stall",
            phase=phase,
            severity="warning" if phase == "began" else "info",
            verdict="undecided" if phase == "began" else "benign",
            onset_step=min(self.state.onset_step, step),  # a rollback may have gone back beyond it
            step=step,
            reason=reason,
            evidence={"data_wait_ratio": ratio},
        )
