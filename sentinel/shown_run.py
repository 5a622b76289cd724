"""What Prometheus is told of one run."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.findings import SEVERITIES, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import SenderId, leads
from sentinel.protocol.observations import AttemptStarted, CommandResult, Heartbeat, StepReport
from sentinel.protocol.processes import RankReport

CHECKPOINTS: Final = {"saved": ("reported", "verified", "known_good"), "known_good": ("known_good",)}
"""Which states of a checkpoint count; a suspect one is nothing to go back to."""
NODES_SHOWN: Final = 4096
"""Of one run: a rank that makes up names must not fill the scraper's disk."""
Sample = tuple[str, tuple[str, ...], float]
"""A metric's name, the values of its labels after the run, and its value."""
Said = tuple[str, tuple[str, ...], float | None]
"""The same of a value that may be unknown."""


@dataclass(slots=True)
class ShownRun:
    """A fold of what the log tells of one run."""

    heard_at: float
    standing: Run = field(default_factory=Run)
    """Kept up to date by the pipeline."""
    checkpoints: Sequence[Checkpoint] = ()
    """Newest step first."""
    findings: Tally[Severity] = field(default_factory=Tally)
    rollbacks: int = 0
    segment: int = 0
    reached: int = 0
    """The newest step that was told, in the order of the log."""
    lost_steps: int = 0
    dropped: int = 0
    agent_errors: int = 0
    accounts: dict[SenderId, tuple[int, int]] = field(default_factory=dict)
    """What each sender of the attempt said last that it had dropped, and caught; such as had nothing to say apart."""
    nodes: set[str] = field(default_factory=set)
    report: StepReport | None = None

    def take(self, entry: LogEntry, outcome: Outcome) -> None:
        """Counts one entry."""
        for finding in outcome.findings:
            self.findings[finding.severity] += finding.phase != "ended"
        is_answer = isinstance(entry.observation, CommandResult) and leads(entry.sender)  # launchers do other things
        self.rollbacks += is_answer and _is_done(outcome)
        if entry.attempt != self.standing.attempt:
            return
        match entry.observation:
            case StepReport(segment=segment) as report if segment >= self.segment:
                if segment > self.segment:
                    self._go(segment, report.step - 1)  # nobody told of the rollback
                self.report, self.reached = report, max(self.reached, report.step)
            case AttemptStarted(step=step, host=host):
                self.accounts.clear()
                self.nodes = {host} - {""}
                self._go(0, step)
            case RankReport(host=host) if host and len(self.nodes) < NODES_SHOWN:
                self.nodes.add(host)
            case CommandResult(segment=segment, step=step) if segment > self.segment:
                self._go(segment, step)
            case Heartbeat() as beat:
                self._account(entry.sender, beat)

    def samples(self) -> Iterator[Sample]:
        """All that is known now."""
        for name, labels, value in (*_standing(self.standing), *_tallies(self), *_newest(self)):
            if value is not None:
                yield name, labels, value

    def _go(self, segment: int, step: int) -> None:
        self.lost_steps += max(0, self.reached - step)
        self.segment, self.reached = segment, step

    def _account(self, sender: SenderId, beat: Heartbeat) -> None:
        if beat.dropped_total or beat.guarded_errors_total:
            dropped, errors = self.accounts.get(sender, (0, 0))
            self.dropped += max(0, beat.dropped_total - dropped)
            self.agent_errors += max(0, beat.guarded_errors_total - errors)
            self.accounts[sender] = (beat.dropped_total, beat.guarded_errors_total)


def _is_done(outcome: Outcome) -> bool:
    return any(change.event == "succeed" for change in outcome.action_changes)


def _standing(run: Run) -> Iterator[Said]:
    yield "sentinel_run_phase", (run.phase,), 1
    yield "sentinel_run_mode", (run.mode,), 1
    yield "sentinel_run_held", (), bool(run.held_by)
    yield "sentinel_run_step", (), run.step
    yield "sentinel_run_max_steps", (), run.max_steps
    yield "sentinel_run_segment", (), run.segment


def _tallies(shown: ShownRun) -> Iterator[Said]:
    for severity in SEVERITIES:  # all three from the start: a counter that begins with its first event never rises
        yield "sentinel_run_findings_total", (severity,), shown.findings[severity]
    yield "sentinel_rollbacks_total", (), shown.rollbacks
    yield "sentinel_run_lost_steps_total", (), shown.lost_steps
    yield "sentinel_run_dropped_observations_total", (), shown.dropped
    yield "sentinel_run_agent_errors_total", (), shown.agent_errors


def _newest(shown: ShownRun) -> Iterator[Said]:
    for node in shown.nodes:
        yield "sentinel_run_node", (node,), 1
    for label, states in CHECKPOINTS.items():
        steps = (each.step for each in shown.checkpoints if each.state in states)
        yield "sentinel_run_checkpoint_step", (label,), next(steps, None)
    report = shown.report
    if report is None:
        return
    yield "sentinel_run_loss", (), report.loss
    yield "sentinel_run_grad_norm", (), report.grad_norm
    yield "sentinel_run_learning_rate", (), report.lr
    yield "sentinel_run_step_seconds", (), report.step_s
    yield "sentinel_run_data_wait_seconds", (), report.data_wait_s
    if report.tokens is not None and report.step_s:
        yield "sentinel_run_tokens_per_second", (), report.tokens / report.step_s
