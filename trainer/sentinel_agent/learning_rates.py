"""Learning rates multiplied in place, in optimizers and in the schedulers that will set them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

_SCALED: Final = ("lr", "initial_lr", "max_lr")


def scale_learning_rates(optimizers: Sequence[Any], schedulers: Iterable[Any], scale: float) -> None:
    """Multiplies every rate by ``scale``; what has no rates is left alone."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for key in _SCALED:
                if key in group:
                    group[key] = group[key] * scale
    waiting = list(schedulers)
    while waiting:
        scheduler = waiting.pop()
        waiting += getattr(scheduler, "_schedulers", [])  # of ChainedScheduler and SequentialLR
        if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [rate * scale for rate in scheduler.base_lrs]
