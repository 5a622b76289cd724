"""Who stands by the processes of the run, what was asked of them, and how often they have started it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sentinel.domain.actions import Action, ActionChange, ActionEvent
from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.codec import to_tree
from sentinel.protocol.commands import DumpStacks, Restart
from sentinel.protocol.ids import ActionId, AttemptId, CommandId, IncidentId
from sentinel.protocol.processes import CrashReport, LauncherStarted

RESTARTS_KEPT: Final = 64
SIGNS_AWAITED: Final = 10
"""Heartbeats or ticks, 30 s at least, in which a launcher must have said where the threads stand."""
TICKS_AWAITED: Final = 2
"""After it has: a training that was cut off has found the daemon again by then, and it is seen that it goes on."""


@dataclass(slots=True)
class Standing:
    """What a launcher says of itself."""

    attempt: AttemptId = AttemptId("")
    can_restart: bool = False
    restarts_left: int = 0


@dataclass(slots=True)
class LaunchersState:
    """The launcher of the newest attempt that has one, and what it has not answered."""

    standing: Standing = field(default_factory=Standing)
    coming: Standing = field(default_factory=Standing)
    """Of an attempt that has not begun yet, and may never: another node's launcher has to make one up."""
    restarts: dict[CommandId, Restart] = field(default_factory=dict)
    dumps: dict[CommandId, DumpStacks] = field(default_factory=dict)
    signs_due: int = 0
    ticks_due: int = 0
    restart_steps: list[int] = field(default_factory=list)
    """At which each restart was made, counted in steps worked, oldest first."""


class Launchers:
    """A fold of launchers' words and of what is ordered from them."""

    def __init__(self) -> None:
        self.state = LaunchersState()

    def stand_by(self, attempt: AttemptId, word: LauncherStarted, *, has_begun: bool) -> None:
        """A launcher speaks for an attempt; for one that has not begun, until it does so in vain."""
        standing = Standing(attempt, word.can_restart, word.restarts_left)
        if has_begun:
            self.state.standing = standing
        else:
            self.state.coming = standing

    def begins(self, attempt: AttemptId) -> None:
        """An attempt begins: its launcher may have been heard before it."""
        if self.state.coming.attempt == attempt:
            self.state.standing, self.state.coming = self.state.coming, Standing()

    def saw_crash(self, attempt: AttemptId, report: CrashReport, outcome: Outcome, *, is_history: bool) -> None:
        """A launcher has seen a process of an attempt die: where its threads stood is no question any more."""
        standing = self.state.standing
        if attempt == standing.attempt or not is_history:
            standing.attempt, standing.restarts_left = attempt, report.restarts_left
        for command in list(self.state.dumps):
            self.settle(command, "expire", "the process is gone", outcome)
        self.state.ticks_due = 0

    def why_no_restart(self, attempt: AttemptId) -> str:
        """Why nobody can start the attempt's training again; empty if somebody can."""
        standing = self.state.standing
        if not self.has_launcher(attempt):
            return "no launcher stands by: start the training with `sentinel run`"
        return "" if standing.restarts_left or not standing.can_restart else "the launcher has no restart left"

    def has_launcher(self, attempt: AttemptId) -> bool:
        """Whether a launcher stands by the attempt, in whichever mode."""
        return bool(self.state.standing.attempt) and attempt in ("", self.state.standing.attempt)

    def orders_for(self, attempt: AttemptId) -> tuple[DumpStacks | Restart, ...]:
        """What the launcher of an attempt has not answered for; it gets it with every reply until it has."""
        state = self.state
        return (*state.dumps.values(), *state.restarts.values()) if attempt == state.standing.attempt else ()

    def ask_for_stacks(self, command: DumpStacks, *, heard: bool) -> Action:
        """Asks where the threads stand; ``heard``: the training itself speaks, so that its link is whole."""
        state = self.state
        state.dumps[command.id] = command
        state.signs_due, state.ticks_due = SIGNS_AWAITED, 0 if heard else TICKS_AWAITED
        return _action(command)

    def order(self, command: Restart) -> Action:
        """Orders a restart."""
        self.state.restarts[command.id] = command
        return _action(command)

    @property
    def awaits_stacks(self) -> bool:
        """Whether it is too early to end processes: where they stand is not known yet, or whether they are cut off."""
        return bool(self.state.dumps) or self.state.ticks_due > 0

    def sign(self, outcome: Outcome, *, heard: bool) -> None:
        """Time has passed, with a word of the training or in silence. A launcher that never answers is gone."""
        state = self.state
        if state.dumps:
            state.signs_due -= 1
            if state.signs_due <= 0:
                for command in list(state.dumps):
                    self.settle(command, "expire", "the launcher did not answer", outcome)
                state.standing.attempt = AttemptId("")
        elif state.ticks_due:
            state.ticks_due = 0 if heard else state.ticks_due - 1

    def settle(
        self, command: CommandId, event: ActionEvent, reason: str, outcome: Outcome
    ) -> DumpStacks | Restart | None:
        """An order was answered or is void; returns it if it was known."""
        order = self.state.restarts.pop(command, None) or self.state.dumps.pop(command, None)
        if order is not None:
            outcome.action_changes.append(ActionChange(ActionId(command), event, reason))
        return order

    def withdraw(self, reason: str, outcome: Outcome, *, incident: IncidentId | None = None) -> None:
        """Makes orders void: those of an incident that is settled, or all."""
        orders: list[DumpStacks | Restart] = [*self.state.restarts.values(), *self.state.dumps.values()]
        for order in orders:
            if incident in (None, order.incident):
                self.settle(order.id, "expire", reason, outcome)

    def started_again(self, worked_steps: int, outcome: Outcome) -> None:
        """The processes were started again, or an attempt has begun: if that was ordered, this is it."""
        state = self.state
        if state.restarts:
            state.restart_steps = [*state.restart_steps, worked_steps][-RESTARTS_KEPT:]
        for command in list(state.restarts):
            self.settle(command, "succeed", "", outcome)
        self.withdraw("a new attempt began", outcome)
        state.ticks_due = 0


def _action(command: DumpStacks | Restart) -> Action:
    return Action(
        id=ActionId(command.id), incident=command.incident, executor="launcher_command", payload=to_tree(command)
    )
