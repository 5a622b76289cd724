"""Every symptom that can be found, and what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Concern = Literal["optimization", "performance", "device", "process"]
"""What the model learns; how fast; the accelerator it learns on; the processes that it learns in."""

CONCERNS: Final[Mapping[str, Concern]] = {
    "nonfinite": "optimization",
    "loss_spike": "optimization",
    "divergence": "optimization",
    "loss_drop": "optimization",
    "dead_training": "optimization",
    "gradient_norm_burst": "optimization",
    "gradient_norm_vanished": "optimization",
    "throughput_drop": "performance",
    "data_stall": "performance",
    "straggler": "performance",
    "device_throttle": "device",
    "power_cap": "device",
    "device_fault": "device",
    "crash": "process",
    "hang": "process",
}
"""A policy may name these and no others."""


def concern(symptom: str) -> Concern:
    """What a symptom is about; one that is not known here, as of an older version, is about the optimization."""
    return CONCERNS.get(symptom, "optimization")


def doubts_checkpoints(symptom: str) -> bool:
    """Whether what was saved since its onset may carry the fault, so that a rollback may cure it.

    A slow step computes what a fast one would have, and a device that fails stops the training, so neither does.
    """
    return concern(symptom) == "optimization"
