"""Whether a run that was set back has returned to its path, and what the detour cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from sentinel.detectors.rolling import RollingWindow

PATH_STEPS: Final = 1024
"""Steps of the path that are remembered."""
BEFORE_STEPS: Final = 64
"""Steps before the checkpoint that say where the loss was."""
AFTER_STEPS: Final = 10
"""Steps after it that must be there again, by their median."""
TOLERANCE: Final = 4.0
"""Robust deviations of one step: healthy runs reached 4.5, a median of ten stays within a third of that."""
SMALLEST_TOLERANCE_RATIO: Final = 0.01
DEADLINE_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class PathPoint:
    """One step of the run."""

    step: int
    at: float
    loss: float


@dataclass(frozen=True, slots=True)
class RecoveryOutcome:
    """What became of the wait for a return."""

    recovered: bool
    reason: str


@dataclass(slots=True)
class RecoveryState:
    """The path behind the run and, after a rollback, what is waited for."""

    path: list[PathPoint] = field(default_factory=list)
    waiting: bool = False
    target_step: int = 0
    highest: float = math.inf
    """The loss below which the run is back."""
    after: list[float] = field(default_factory=list)


class Recovery:
    """A fold of judged steps and rollbacks."""

    def __init__(self) -> None:
        self.state = RecoveryState()

    def start(self) -> None:
        """A new attempt: nothing is waited for, and its clock is its own."""
        self.state = RecoveryState()

    def rolled_back(self, to_step: int, at: float) -> float:
        """The run stands at ``to_step`` again; returns the seconds since it stood there first (0.0 if not known)."""
        state = self.state
        reached = next((point.at for point in state.path if point.step == to_step), None)
        state.path = [point for point in state.path if point.step <= to_step]
        before = RollingWindow(BEFORE_STEPS)
        for point in state.path[-BEFORE_STEPS:]:
            if math.isfinite(point.loss):
                before.push(point.loss)
        tolerance = max(TOLERANCE * before.spread, SMALLEST_TOLERANCE_RATIO * abs(before.median))
        state.highest = before.median + tolerance if len(before) else math.inf
        state.waiting, state.target_step, state.after = True, to_step, []
        return 0.0 if reached is None else max(0.0, at - reached)

    def step(self, step: int, at: float, loss: float | None) -> RecoveryOutcome | None:
        """Takes a judged step; ends the wait for a return when it is there or its deadline has passed."""
        state = self.state
        value = math.nan if loss is None else loss
        state.path.append(PathPoint(step, at, value))
        if len(state.path) > PATH_STEPS:
            del state.path[: PATH_STEPS // 4]
        if not state.waiting:
            return None
        state.after = [*state.after, value][-AFTER_STEPS:]
        if len(state.after) == AFTER_STEPS and all(map(math.isfinite, state.after)):
            now = median(state.after)
            if now <= state.highest:
                state.waiting = False
                return RecoveryOutcome(True, f"back on its path: median loss {now:.4g} over {AFTER_STEPS} steps")
        if step - state.target_step >= DEADLINE_STEPS:
            state.waiting = False
            reason = f"{DEADLINE_STEPS} steps on, the loss is not back on its path (at most {state.highest:.4g})"
            return RecoveryOutcome(False, reason)
        return None
