"""The fold of one run's log: which stage takes which kind of entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sentinel.checkpoints.retention import releasable
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.pipeline import answers, attempts, machines, operators, processes, snapshot, steps
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.parts import Parts
from sentinel.protocol.commands import Command, Notice, RollBack
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.ids import AttemptId, CheckpointId, RunId, SenderId, leads
from sentinel.protocol.launching import is_launcher
from sentinel.protocol.observations import (
    ActionResult,
    AttemptEnded,
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    Heartbeat,
    OperatorRequest,
    PipelineStarted,
    PolicyChanged,
    StepReport,
    Tick,
)
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange, RankReport

VERSION: Final = "3"
"""Rises when the same log would lead to other decisions, or a snapshot to another state."""

Stage = Callable[[Parts, LogEntry, Any, Outcome], None]

STAGES: Final[Mapping[type, Stage]] = {
    AttemptStarted: attempts.started,
    AttemptEnded: attempts.ended,
    Tick: processes.tick,
    Heartbeat: processes.heartbeat,
    PhaseChange: processes.phase,
    LauncherStarted: processes.launcher_started,
    CrashReport: processes.crash,
    StepReport: steps.step,
    RankReport: machines.rank,
    DeviceSample: machines.device,
    CheckpointReport: answers.checkpoint_report,
    CommandResult: answers.command_result,
    ActionResult: answers.action_result,
    OperatorRequest: operators.request,
    PipelineStarted: attempts.listening,
    PolicyChanged: operators.policy_changed,
}
"""What is not here is kept in the log and changes nothing."""


class Pipeline:
    """Deterministic: the same entries in the same order give the same outcomes. Reads no clock and does no I/O.

    Memory is bounded: a few windows of numbers per detector, the newest incidents and checkpoints, 1,024 path points.
    """

    def __init__(self, run: RunId) -> None:
        self._parts = Parts(run)

    @property
    def run(self) -> Run:
        """Where the run stands; changes in place."""
        return self._parts.run

    @property
    def policy_text(self) -> str:
        """The policy in force, as TOML; empty before the first."""
        return self._parts.deciding.state.policy

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that are remembered, newest step first."""
        return self._parts.catalog.checkpoints

    def notices_after(self, sequence: int) -> tuple[Notice, ...]:
        """News for the person at the training's terminal."""
        return self._parts.deciding.notices_after(sequence)

    def orders_for(self, attempt: AttemptId) -> tuple[RollBack, ...]:
        """Rollbacks that the attempt has not answered for; it gets them with every reply until it has."""
        orders = self._parts.deciding.state.orders.values()
        return tuple(order.command for order in orders) if attempt == self.run.attempt else ()

    def knows_request(self, key: str) -> bool:
        """Whether a person's request of this key was taken before."""
        return key in self._parts.state.asked

    def commands_for(self, attempt: AttemptId, sender: SenderId) -> tuple[Command, ...]:
        """Orders for one sender: rollbacks go to the agent of rank 0, what concerns processes to their launcher."""
        if is_launcher(sender):
            return self._parts.launchers.orders_for(attempt)
        return self.orders_for(attempt) if leads(sender) else ()

    def releasable(self) -> tuple[CheckpointId, ...]:
        """Checkpoints whose pins the agent may let go."""
        return releasable(self._parts.catalog.checkpoints)

    def advance(self, entry: LogEntry) -> Outcome:
        """Takes the next entry of the log."""
        outcome = Outcome()
        try:
            self._advance(entry, outcome)
        except Exception:  # noqa: BLE001 - a bug of ours must not stop the run's supervision; counted in a metric
            outcome.raised.append("pipeline")
        return outcome

    def snapshot(self) -> dict[str, Any]:
        """Everything it remembers, as a tree for JSON."""
        return {"version": VERSION, **{name: snapshot.dump(part) for name, part in self._parts.by_name().items()}}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Puts back a snapshot of the same version.

        Raises:
            ValueError: it is of another version, or not a snapshot.
        """
        if tree.get("version") != VERSION:
            raise ValueError(f"the snapshot is of pipeline version {tree.get('version')!r}, this is {VERSION!r}")
        parts = self._parts.by_name()
        if missing := parts.keys() - tree.keys():
            raise ValueError(f"the snapshot lacks {', '.join(sorted(missing))}")
        for name, part in parts.items():
            snapshot.restore(part, tree[name])

    def _advance(self, entry: LogEntry, outcome: Outcome) -> None:
        if entry.attempt and not isinstance(entry.observation, AttemptStarted):
            attempts.hear(self._parts, entry, outcome)
        stage = STAGES.get(type(entry.observation))
        if stage is not None:
            stage(self._parts, entry, entry.observation, outcome)
        if self._parts.deciding.state.waiting:
            operators.reconsider(self._parts, entry, outcome)
