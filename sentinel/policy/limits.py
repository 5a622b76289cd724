"""What can refuse an action that a rule wants; asked in order, the first refusal stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sentinel.checkpoints.selection import Selection
from sentinel.domain.runs import Run
from sentinel.policy.rules import Policy

FAILED_ORDERS: Final = 3
"""So many broken checkpoints or refusals running are no accident: a person is asked."""

RefusalKind = Literal[
    "hold",
    "backlog",
    "attempt_over",
    "no_rollback",
    "failures",
    "cooldown",
    "budget",
    "no_checkpoint",
    "under_way",
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
    """Rollbacks for this incident that were ordered and not carried out."""
    worked_steps: int
    """Steps worked so far, those given up included: unlike the step number it never goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an action is not taken, and whether the question is asked again when that has changed."""

    kind: RefusalKind
    reason: str

    @property
    def passes(self) -> bool:
        """Whether this can change without a new finding."""
        return self.kind in ("hold", "backlog", "cooldown", "no_checkpoint")


def refusal(situation: Situation, *, asked_by_person: bool = False) -> Refusal | None:
    """The first limit that refuses a rollback; None if none does.

    A person who asks for one knows more than a cooldown, a budget or the policy's mode; neither a hold nor the agent's
    own mode gives way.
    """
    for limit in _LIMITS_OF_PEOPLE if asked_by_person else _LIMITS:
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
    limits = situation.policy.limits
    spent = sum(situation.worked_steps - step <= limits.within_steps for step in situation.rollback_steps)
    if spent < limits.rollbacks:
        return None
    return Refusal(kind="budget", reason=f"{spent} rollbacks within {limits.within_steps} steps: the budget is spent")


def _no_checkpoint(situation: Situation) -> Refusal | None:
    if situation.selection.target is not None:
        return None
    return Refusal(kind="no_checkpoint", reason=situation.selection.reason)


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
