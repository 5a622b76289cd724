"""Twelve synthetic loss curves: two clean ones, ten with one fault each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

STEPS: Final = 6000
FAULT_AT: Final = 4000
NOISE: Final = 0.04

Fault = Callable[[float, int], float]
"""The loss, from the healthy loss and the steps since the fault."""


def _nan_then_triple(loss: float, since: int) -> float:
    return math.nan if since == 0 else 3 * loss if since == 50 else loss


CLEAN: Final = ("clean", "clean, t(3) noise")
FAULTS: Final[dict[str, Fault]] = {
    "1 step, +1.0": lambda loss, since: loss + (since == 0),
    "20 steps, +1.0": lambda loss, since: loss + (since < 20),
    "+2.0, decaying over 200": lambda loss, since: loss + 2 * math.exp(-since / 200),
    "1 step, x3": lambda loss, since: 3 * loss if since == 0 else loss,
    "x3 and stays": lambda loss, _: 3 * loss,
    "level +0.3 stays": lambda loss, _: loss + 0.3,
    "slow divergence, +1.5 over 2,000": lambda loss, since: loss + 1.5 * min(since, 2000) / 2000,
    "one NaN": lambda loss, since: math.nan if since == 0 else loss,
    "NaN, then x3 50 steps later": _nan_then_triple,
    "data repeat, -0.3": lambda loss, _: loss - 0.3,
}
BY: Final = {"slow divergence, +1.5 over 2,000": 600, "data repeat, -0.3": 100}
"""Steps within which a fault must be found; 2,000 where none are given."""
LATER: Final = {"NaN, then x3 50 steps later": 50}
"""Steps from the fault to what is to be found: here the spike after the NaN."""


def curve(case: str, seed: int) -> list[float]:
    """Losses of 6,000 steps: 2.2 + 6 exp(-t/150) + 2.5 (t + 50)^-0.18 + noise of 0.04; the fault is at step 4,000."""
    source = random.Random(seed)
    fault = FAULTS.get(case)
    losses = []
    for step in range(STEPS):
        noise = source.gauss(0.0, NOISE)
        if case == "clean, t(3) noise":
            noise /= math.sqrt(source.gammavariate(1.5, 2.0) / 3.0)
        loss = 2.2 + 6 * math.exp(-step / 150) + 2.5 * (step + 50) ** -0.18 + noise
        losses.append(fault(loss, step - FAULT_AT) if fault is not None and step >= FAULT_AT else loss)
    return losses
