"""What can refuse an action that a rule wants; asked in order, the first refusal stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sentinel.checkpoints.selection import Selection
from sentinel.domain.decisions import Rung
from sentinel.domain.runs import Run
from sentinel.policy.rules import Policy

FAILED_ORDERS: Final = 3
"""So many broken checkpoints or refusals running are no accident: a person is asked."""

RefusalKind = Literal[
    "hold",
    "backlog",
    "attempt_over",
    "no_rollback",
    "no_launcher",
    "failures",
    "cooldown",
    "budget",
    "no_checkpoint",
    "only_suspects",
    "under_way",
    "stacks",
    "observe",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that limits look at."""

    run: Run
    policy: Policy
    selection: Selection
    backlog: bool
    """The entry is history, or the live edge is not known."""
    rollback_steps: Sequence[int]
    """Step at which each past rollback of the run was made, counted in steps worked, oldest first."""
    failed_orders: int
    """Orders for this incident that were ordered and not carried out."""
    worked_steps: int
    """Steps worked so far, those given up included: unlike the step number it never goes back."""
    restart_steps: Sequence[int] = ()
    """Like ``rollback_steps``, of restarts."""
    no_restart: str = ""
    """Why nobody can start the processes again; empty if somebody can."""
    launcher_acts: bool = True
    """Whether the launcher's own mode allows it."""
    awaits_stacks: bool = False
    """Whether it is still being found out where the processes stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an action is not taken, and whether the question is asked again when that has changed."""

    kind: RefusalKind
    reason: str

    @property
    def passes(self) -> bool:
        """Whether this can change without a new finding."""
        return self.kind in ("hold", "backlog", "cooldown", "no_checkpoint", "stacks")


def refusal(situation: Situation, rung: Rung = "rollback", *, asked_by_person: bool = False) -> Refusal | None:
    """The first limit that refuses an action; None if none does.

    A person who asks for a rollback knows more than a cooldown, a budget or the policy's mode; neither a hold nor the
    agent's own mode gives way.
    """
    limits = _RESTART_LIMITS if rung == "restart" else _LIMITS_OF_PEOPLE if asked_by_person else _LIMITS
    for limit in limits:
        refused = limit(situation)
        if refused is not None:
            return refused
    return None


def _hold(situation: Situation) -> Refusal | None:
    hold = situation.run.hold
    return Refusal(kind="hold", reason=hold) if hold else None


def _backlog(situation: Situation) -> Refusal | None:
    if not situation.backlog:
        return None
    if situation.run.blind:
        return Refusal(kind="backlog", reason="the daemon has just begun to listen, where the run is now is not known")
    return Refusal(kind="backlog", reason="this report waited for the daemon: the run has gone on since")


def _attempt_over(situation: Situation) -> Refusal | None:
    phase = situation.run.phase
    if phase in ("training", "silent"):
        return None
    return Refusal(kind="attempt_over", reason=f"the run is not training (it is {phase})")


def _no_rollback(situation: Situation) -> Refusal | None:
    if situation.run.rollback != "none":
        return None
    return Refusal(kind="no_rollback", reason=f"the agent cannot roll this run back: {situation.run.rollback_reason}")


def _failures(situation: Situation) -> Refusal | None:
    if situation.failed_orders < FAILED_ORDERS:
        return None
    return Refusal(kind="failures", reason=f"{situation.failed_orders} orders for this incident failed")


def _cooldown(situation: Situation) -> Refusal | None:
    limit = situation.policy.limits.cooldown_steps
    if not situation.rollback_steps:
        return None
    since = situation.worked_steps - situation.rollback_steps[-1]
    if since >= limit:
        return None
    return Refusal(kind="cooldown", reason=f"the last rollback was {since} steps ago, the cooldown is {limit}")


def _budget(situation: Situation) -> Refusal | None:
    return _spent(situation, situation.rollback_steps, situation.policy.limits.rollbacks, "rollbacks")


def _restart_budget(situation: Situation) -> Refusal | None:
    return _spent(situation, situation.restart_steps, situation.policy.limits.restarts, "restarts")


def _spent(situation: Situation, steps: Sequence[int], allowed: int, what: str) -> Refusal | None:
    within = situation.policy.limits.within_steps
    spent = sum(situation.worked_steps - step <= within for step in steps)
    if spent < allowed:
        return None
    return Refusal(kind="budget", reason=f"{spent} {what} within {within} steps: the budget is spent")


def _run_over(situation: Situation) -> Refusal | None:
    phase = situation.run.phase
    if phase not in ("finished", "interrupted"):
        return None
    return Refusal(kind="attempt_over", reason=f"the training has ended (it is {phase})")


def _no_launcher(situation: Situation) -> Refusal | None:
    return Refusal(kind="no_launcher", reason=situation.no_restart) if situation.no_restart else None


def _stacks(situation: Situation) -> Refusal | None:
    if not situation.awaits_stacks:
        return None
    return Refusal(kind="stacks", reason="first the launcher says where every thread stands")


def _restart_observe(situation: Situation) -> Refusal | None:
    if situation.launcher_acts and situation.policy.mode == "act":
        return None
    who = "the policy" if situation.launcher_acts else "the launcher"
    return Refusal(kind="observe", reason=f"{who} only observes")


def _no_checkpoint(situation: Situation) -> Refusal | None:
    if situation.selection.target is not None:
        return None
    return Refusal(kind="no_checkpoint", reason=situation.selection.reason)


def _only_suspects(situation: Situation) -> Refusal | None:
    """Without a checkpoint the script begins by itself, perhaps at its first step: not where there is one to lose."""
    suspects = [each for each in situation.selection.passed_over if each.why.startswith("suspect")]
    if situation.selection.target is not None or not suspects:
        return None
    return Refusal(kind="only_suspects", reason=f"every checkpoint is in doubt, the newest of step {suspects[0].step}")


def _observe(situation: Situation) -> Refusal | None:
    if situation.policy.mode == "act":
        return _agent_observes(situation)
    return _agent_observes(situation) or Refusal(kind="observe", reason="the policy only observes")


def _agent_observes(situation: Situation) -> Refusal | None:
    return None if situation.run.mode == "act" else Refusal(kind="observe", reason="the agent only observes")


_LIMITS: Sequence[Callable[[Situation], Refusal | None]] = (
    _hold,
    _backlog,
    _attempt_over,
    _no_rollback,
    _failures,
    _cooldown,
    _budget,
    _no_checkpoint,
    _observe,  # last, so that "would have" says what would really have been done
)
_LIMITS_OF_PEOPLE: Sequence[Callable[[Situation], Refusal | None]] = (
    _hold,
    _backlog,
    _attempt_over,
    _no_rollback,
    _agent_observes,
    _no_checkpoint,
)
_RESTART_LIMITS: Sequence[Callable[[Situation], Refusal | None]] = (
    _hold,
    _backlog,
    _run_over,
    _no_launcher,
    _failures,
    _only_suspects,
    _restart_budget,  # and no cooldown: it is counted in steps, and the dead make none
    _stacks,
    _restart_observe,
)
