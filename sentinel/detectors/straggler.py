"""A rank that the others wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.rolling import MAD_TO_SIGMA, median
from sentinel.domain.findings import Finding, Phase
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.observations import AttemptStarted, CommandResult
from sentinel.protocol.processes import RankReport

SLOW_RATIO: Final = 4 / 3
"""A score of 0.75, below which NVIDIA's resiliency extension calls a rank a straggler."""
SPREADS: Final = 5.0
"""Robust deviations above the others' median, as EROICA asks for."""
FEWEST_FOR_SPREAD: Final = 5
STEP_RATIO: Final = 0.05
"""Of the step: what costs less is not worth a machine. A GPU's rank tells its forward pass, a third of the step."""
ROUNDS: Final = 3
"""Running, of about 10 s each; ByteRobust takes five."""
RANKS_KEPT: Final = 16_384


@dataclass(slots=True)
class Heard:
    """One rank's report in the round under way."""

    step: int
    first_step: int
    own_s: float
    data_wait_s: float
    step_s: float
    host: str
    device: str


@dataclass(slots=True)
class Slowness:
    """A rank that was slow lately."""

    onset_step: int
    rounds: int = 0
    calm_rounds: int = 0
    subject: str = ""
    """As it was told; empty until then."""
    host: str = ""


@dataclass(slots=True)
class StragglerState:
    """The round under way, and the ranks that were slow in those before."""

    newest_step: int = 0
    heard: dict[int, Heard] = field(default_factory=dict)
    slow: dict[int, Slowness] = field(default_factory=dict)


class Straggler(Detector[StragglerState]):
    """One rank's own work takes longer than the others'.

    Watches:
        ``work_s`` and ``data_wait_s`` of each rank's reports: the step itself takes the same time on all ranks, since
        they wait for each other. A round is one report of every rank that has one.

    Fires when:
        in three rounds running a rank needs 4/3 of what the middle rank needs, and the difference is a twentieth of
        the step and, among five ranks or more, 5 robust deviations. The finding names rank, device and host. It ends
        after three rounds without.

    Stays quiet when:
        there is one rank; half of the ranks are as slow; ranks report no work of their own. Among two ranks the faster
        one is the measure.

    Memory:
        a report for each rank, up to 16,384 of them.

    Source:
        NVIDIA's resiliency extension for the ratio, EROICA for the spread, ByteRobust for asking again.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = Straggler()
        >>> for number in range(12):
        ...     step, work_s = 10 * (number // 2 + 1), 0.2 if number % 2 else 0.1
        ...     report = RankReport(at=0.0, rank=number % 2, step=step, steps=10, step_s=0.5, work_s=work_s)
        ...     entry = LogEntry(run="r", sequence=number, received_at=0.0, attempt="a", sender="s", observation=report)
        ...     for finding in detector.observe(entry):
        ...         print(finding.step, finding.subject, finding.onset_step)
        40 rank 1 1
    """

    name: ClassVar[str] = "straggler"

    def __init__(self) -> None:
        self.state = StragglerState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges a round when its first rank reports again; begins anew with a new attempt."""
        report, state = entry.observation, self.state
        if isinstance(report, RankReport):
            found: Sequence[Finding] = ()
            state.newest_step = max(state.newest_step, report.step)
            if report.rank in state.heard:
                found = self._judge()
                state.heard = {}
            heard = _heard(report)
            if heard is not None and len(state.heard) < RANKS_KEPT:
                state.heard[report.rank] = heard
            return found
        if isinstance(report, AttemptStarted):
            self.state = StragglerState()
        elif isinstance(report, CommandResult) and report.outcome == "succeeded":
            state.heard, state.newest_step = {}, report.step
        return ()

    def _judge(self) -> Sequence[Finding]:
        state, heard = self.state, self.state.heard
        found: list[Finding] = []
        ordered = sorted(each.own_s for each in heard.values())
        usual = ordered[(len(ordered) - 1) // 2]
        spread = 0.0
        if len(ordered) >= FEWEST_FOR_SPREAD:
            spread = MAD_TO_SIGMA * median(sorted(abs(each - usual) for each in ordered))
        for rank, each in heard.items():
            excess_s = each.own_s - usual
            slow = each.own_s >= SLOW_RATIO * usual and excess_s > SPREADS * spread
            if len(heard) > 1 and slow and excess_s >= STEP_RATIO * each.step_s:
                found += self._slow(rank, each, usual)
            elif rank in state.slow:
                found += self._calm(rank)
        return found

    def _slow(self, rank: int, heard: Heard, usual: float) -> Sequence[Finding]:
        slowness = self.state.slow.setdefault(rank, Slowness(heard.first_step))
        slowness.rounds += 1
        slowness.calm_rounds = 0
        if slowness.subject or slowness.rounds < ROUNDS:
            return ()
        slowness.subject = f"rank {rank}" + (f", {heard.device}" if heard.device else "")
        slowness.host = heard.host
        what = "waiting for data, " if heard.data_wait_s > heard.own_s / 2 else ""
        where = f" on {heard.host}" if heard.host else ""
        reason = (
            f"{slowness.subject}{where} needs {heard.own_s:.3g} s a step before the others can go on "
            f"({what}since step {slowness.onset_step}), the others {usual:.3g} s"
        )
        return (self._finding(slowness, "began", reason, {"own_s": heard.own_s, "usual_s": usual}),)

    def _calm(self, rank: int) -> Sequence[Finding]:
        slowness = self.state.slow[rank]
        slowness.rounds = 0
        slowness.calm_rounds += 1
        if slowness.subject and slowness.calm_rounds < ROUNDS:
            return ()
        del self.state.slow[rank]
        return (self._finding(slowness, "ended", "as fast as the others again", {}),) if slowness.subject else ()

    def _finding(self, slowness: Slowness, phase: Phase, reason: str, evidence: Mapping[str, float]) -> Finding:
        step = max(1, self.state.newest_step)
        return Finding(
            detector=self.name,
            symptom="straggler",
            subject=slowness.subject,
            node=slowness.host,
            phase=phase,
            severity="warning" if phase == "began" else "info",
            verdict="undecided" if phase == "began" else "benign",
            onset_step=min(slowness.onset_step, step),  # a rollback may have gone back beyond it
            step=step,
            reason=reason,
            evidence=evidence,
        )


def _heard(report: RankReport) -> Heard | None:
    """What counts of a report; None where the rank cannot tell its own work."""
    data_wait_s, step_s = report.data_wait_s or 0.0, report.step_s or 0.0
    if report.work_s is None or not all(0 <= each < math.inf for each in (report.work_s, data_wait_s, step_s)):
        return None
    return Heard(
        step=report.step,
        first_step=max(1, report.step - report.steps + 1),
        own_s=report.work_s + data_wait_s,
        data_wait_s=data_wait_s,
        step_s=step_s,
        host=report.host,
        device=report.device_uuid,
    )
