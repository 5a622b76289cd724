"""Steps that take longer than this run's steps used to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.rolling import median
from sentinel.domain.findings import Finding, Phase
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport

BLOCK_ROWS: Final = 16
FIRST_ROWS: Final = 16
"""Compilation, autotuning and starting workers make the first steps slow; NVIDIA's resiliency extension exempts 5."""
WARM_UP_BLOCKS: Final = 4
USUAL_BLOCKS: Final = 32
LOWER: Final = BLOCK_ROWS // 4
UPPER: Final = BLOCK_ROWS * 9 // 10
SLOW_RATIO: Final = 1.2
"""Greyhound verifies changes above 10 %, Unicron calls 1.1 times degraded; twice that, since nobody profiles here."""
BACK_RATIO: Final = 1.1
OTHER_WORK_RATIO: Final = 1.1
LASTING_BLOCKS: Final = 2
LASTING_S: Final = 60.0
"""A minute of slow steps is the least that a person would want to know of; Minder asks for four."""
LONGEST_S: Final = 1e6
"""No step takes eleven days: such a value is garbage."""


@dataclass(slots=True)
class ThroughputDropState:
    """The block of steps under way, what blocks looked like, and the slow ones at the end."""

    rows_to_skip: int = FIRST_ROWS
    first_step: int = 0
    times: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    usual_times: list[float] = field(default_factory=list)
    usual_uppers: list[float] = field(default_factory=list)
    usual_work: list[float] = field(default_factory=list)
    slow_blocks: int = 0
    slow_s: float = 0.0
    onset_step: int = 0
    told: bool = False


class ThroughputDrop(Detector[ThroughputDropState]):
    """A lasting loss of speed against the run's own.

    Watches:
        ``step_s`` of each step report, in blocks of 16; tokens or samples, to know that a step does what it did.

    Fires when:
        in two blocks running, and for a minute of steps, three quarters of the steps are slower than nine tenths
        usually are, and the median is 1.2 times the usual one. It ends when the median is within 1.1 times.

    Stays quiet when:
        single steps are slow, as with a checkpoint or an evaluation; the attempt is in its first 80 steps; the steps
        have become larger (tokens or samples by a tenth), for then a new usual is learned; they slow down by less than
        a tenth in 500 steps.

    Memory:
        16 durations and amounts of work, three numbers for each of 32 blocks.

    Source:
        Quantiles of blocks need no assumption about the noise. The ratio and duration as the constants say.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = ThroughputDrop()
        >>> for step in range(1, 161):
        ...     report = StepReport(at=0.0, step=step, step_s=3.0 if step > 100 else 2.0)
        ...     entry = LogEntry(run="r", sequence=step, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.severity, finding.onset_step)
        128 warning 97
    """

    name: ClassVar[str] = "throughput_drop"

    def __init__(self) -> None:
        self.state = ThroughputDropState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges full blocks of step reports; begins anew with a new attempt, with a new block after a rollback."""
        report, state = entry.observation, self.state
        if isinstance(report, StepReport):
            step_s = report.step_s
            if step_s is None or not 0 < step_s < LONGEST_S:
                return ()
            if state.rows_to_skip:
                state.rows_to_skip -= 1
                return ()
            if not state.times:
                state.first_step = report.step
            state.times.append(step_s)
            state.work.append(report.tokens or report.samples or 0)
            return self._judge(report.step) if len(state.times) == BLOCK_ROWS else ()
        if isinstance(report, AttemptStarted):
            self.state = ThroughputDropState()
        elif isinstance(report, CommandResult) and report.outcome == "succeeded":
            state.times, state.work = [], []
        return ()

    def _judge(self, step: int) -> Sequence[Finding]:
        state = self.state
        times, work, lasted_s = sorted(state.times), median(sorted(state.work)), math.fsum(state.times)
        state.times, state.work = [], []
        middle, upper = median(times), times[UPPER]
        if len(state.usual_times) < WARM_UP_BLOCKS:
            return self._learn(middle, upper, work)
        usual, usual_work = median(sorted(state.usual_times)), median(sorted(state.usual_work))
        if not usual_work / OTHER_WORK_RATIO <= work <= usual_work * OTHER_WORK_RATIO:
            state.usual_times, state.usual_uppers, state.usual_work = [], [], []
            self._learn(middle, upper, work)
            return self._end(step, "a step is another amount of work now")
        if middle >= SLOW_RATIO * usual and times[LOWER] > median(sorted(state.usual_uppers)):
            return self._slow(step, middle, usual, lasted_s)
        if state.told and middle > BACK_RATIO * usual:
            return ()
        self._learn(middle, upper, work)
        return self._end(step, f"a step takes {middle:.3g} s again")

    def _learn(self, middle: float, upper: float, work: float) -> Sequence[Finding]:
        state = self.state
        for kept, value in ((state.usual_times, middle), (state.usual_uppers, upper), (state.usual_work, work)):
            kept.append(value)
            del kept[:-USUAL_BLOCKS]
        return ()

    def _slow(self, step: int, middle: float, usual: float, lasted_s: float) -> Sequence[Finding]:
        state = self.state
        if state.slow_blocks == 0:
            state.onset_step = state.first_step
        state.slow_blocks += 1
        state.slow_s += lasted_s
        if state.told or state.slow_blocks < LASTING_BLOCKS or state.slow_s < LASTING_S:
            return ()
        state.told = True
        times = middle / usual
        reason = f"since step {state.onset_step} a step takes {middle:.3g} s, {times:.2f} times the usual {usual:.3g} s"
        return (self._finding(step, "began", reason, times),)

    def _end(self, step: int, reason: str) -> Sequence[Finding]:
        state = self.state
        told, state.told = state.told, False
        ended = (self._finding(step, "ended", reason, 1.0),) if told else ()
        state.slow_blocks, state.slow_s = 0, 0.0
        return ended

    def _finding(self, step: int, phase: Phase, reason: str, ratio: float) -> Finding:
        return Finding(
            detector=self.name,
            symptom="throughput_drop",
            phase=phase,
            severity="warning" if phase == "began" else "info",
            verdict="undecided" if phase == "began" else "benign",
            onset_step=min(self.state.onset_step, step),  # a rollback may have gone back beyond it
            step=step,
            reason=reason,
            evidence={"ratio": ratio},
        )
