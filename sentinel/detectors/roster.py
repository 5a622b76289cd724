"""All detectors, in the order in which they see an entry."""

from __future__ import annotations

from typing import Any

from sentinel.detectors.base import Detector
from sentinel.detectors.data_stall import DataStall
from sentinel.detectors.dead_training import DeadTraining
from sentinel.detectors.device_fault import DeviceFault
from sentinel.detectors.device_throttle import DeviceThrottle
from sentinel.detectors.divergence import Divergence
from sentinel.detectors.gradient_norm import GradientNorm
from sentinel.detectors.loss_drop import LossDrop
from sentinel.detectors.loss_spike import LossSpike
from sentinel.detectors.nonfinite import Nonfinite
from sentinel.detectors.straggler import Straggler
from sentinel.detectors.throughput_drop import ThroughputDrop

ROSTER: tuple[type[Detector[Any]], ...] = (
    Nonfinite,
    LossSpike,
    Divergence,
    LossDrop,
    GradientNorm,
    DeadTraining,
    DeviceFault,
    DeviceThrottle,
    DataStall,
    Straggler,
    ThroughputDrop,
)
