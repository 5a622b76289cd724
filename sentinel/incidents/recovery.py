"""Whether a run that was set back has returned to its path, and what the detour cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from sentinel.detectors.rolling import MAD_TO_SIGMA, RollingWindow

PATH_STEPS: Final = 1024
"""Steps of the path that are remembered."""
BEFORE_STEPS: Final = 64
"""Steps before the checkpoint that say where the loss was."""
AFTER_STEPS: Final = 10
"""Steps after it that must be there again, by their median."""
TOLERANCE: Final = 4.0
"""Robust deviations of one step: healthy runs reached 4.5, a median of ten stays within a third of that."""
SMALLEST_TOLERANCE_RATIO: Final = 0.01
COURSE_STEPS: Final = 32
"""Fewer steps before the checkpoint do not say how fast the loss was falling."""
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
    is_below: bool = False
    """The loss is lower than learning explains: the model may be seeing data again."""


@dataclass(slots=True)
class RecoveryState:
    """The path behind the run and, after a rollback, what is waited for."""

    path: list[PathPoint] = field(default_factory=list)
    waiting: bool = False
    target_step: int = 0
    highest: float = math.inf
    """The loss below which the run is back."""
    lowest: float = -math.inf
    """The loss below which it is further than it can be."""
    after: list[float] = field(default_factory=list)


class Recovery:
    """A fold of judged steps and rollbacks."""

    def __init__(self) -> None:
        self.state = RecoveryState()

    def start(self) -> None:
        """A new attempt: nothing is waited for, and its clock is its own."""
        self.state = RecoveryState()

    def rolled_back(self, to_step: int, at: float, *, lr_scale: float = 1.0) -> float:
        """The run stands at ``to_step`` again; returns the seconds since it stood there first (0.0 if not known).

        With a lower learning rate the loss falls by itself, and none is too low.
        """
        state = self.state
        again = [point.loss for point in state.path if to_step < point.step <= to_step + AFTER_STEPS]
        reached = next((point.at for point in state.path if point.step == to_step), None)
        state.path = [point for point in state.path if point.step <= to_step]
        before = RollingWindow(BEFORE_STEPS)
        for point in state.path[-BEFORE_STEPS:]:
            if math.isfinite(point.loss):
                before.push(point.loss)
        tolerance = max(TOLERANCE * before.spread, SMALLEST_TOLERANCE_RATIO * abs(before.median))
        state.highest = before.median + tolerance if len(before) else math.inf
        state.lowest = _lowest(before.values, again) if lr_scale == 1.0 else -math.inf
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
            if now < state.lowest:
                state.waiting = False
                reason = (
                    f"median loss {now:.4g} over {AFTER_STEPS} steps is below the path (at least {state.lowest:.4g}): "
                    "is the run seeing data again?"
                )
                return RecoveryOutcome(False, reason, is_below=True)
            if now <= state.highest:
                state.waiting = False
                return RecoveryOutcome(True, f"back on its path: median loss {now:.4g} over {AFTER_STEPS} steps")
        if step - state.target_step >= DEADLINE_STEPS:
            state.waiting = False
            reason = f"{DEADLINE_STEPS} steps on, the loss is not back on its path (at most {state.highest:.4g})"
            return RecoveryOutcome(False, reason)
        return None


def _lowest(before: Sequence[float], again: Sequence[float]) -> float:
    """How low the loss can be ``AFTER_STEPS`` after the checkpoint: its course goes on, or it repeats what it was.

    The course is the line through the medians of the older and the newer half of the steps before.
    """
    if len(before) < COURSE_STEPS:
        return -math.inf
    half = len(before) // 2
    older, newer = (median(part) for part in (before[:half], before[-half:]))
    slope = min(0.0, (newer - older) / (len(before) - half))
    expected = newer + slope * (half / 2 + AFTER_STEPS)
    line = [newer + slope * (place - (len(before) - half / 2)) for place in range(len(before))]
    spread = MAD_TO_SIGMA * median(abs(loss - course) for loss, course in zip(before, line, strict=True))
    repeated = median(again) if len(again) == AFTER_STEPS and all(map(math.isfinite, again)) else math.inf
    return min(expected, repeated) - max(TOLERANCE * spread, SMALLEST_TOLERANCE_RATIO * abs(expected))
