"""What is told of accelerators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """A compact reading of one accelerator, every 10 s and at once on a fault; high-rate series are Prometheus's."""

    kind: ClassVar[str] = "device"
    at: float
    index: int
    uuid: str = ""
    name: str = ""
    node: str = ""
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hz: float | None = None
    throttle: tuple[str, ...] = ()
    """Reasons for which the clocks are held down, as NVML names them in lower case, such as ``hw_thermal_slowdown``."""
    ecc_uncorrected_total: int | None = None
    """Since the driver was loaded."""
    remap_pending: bool | None = None
    """A row of the memory waits for a reset to be replaced."""
    remap_failed: bool | None = None
    xids: tuple[int, ...] = ()
    """Xid errors seen since the sample before."""
    lost: bool = False
    """It answered before and does not any more."""
