"""A node's devices for Prometheus: one table of all metrics, and their values as they are known at a scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sentinel.collectors.loop import Device, Loop
from sentinel.metrics import Metric
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.nvml import THROTTLE_REASONS

_DEVICE: Final = ("device", "uuid")
TABLE: Final = (
    Metric("sentinel_collector_up", "gauge", "1 while the driver answers about every device."),
    Metric("sentinel_device_info", "gauge", "1; names the device.", (*_DEVICE, "name", "node")),
    Metric("sentinel_device_up", "gauge", "0 while the device is lost, or its driver hangs or fails.", _DEVICE),
    Metric("sentinel_device_last_read_timestamp_seconds", "gauge", "When it was last read well.", _DEVICE),
    Metric("sentinel_device_utilization_ratio", "gauge", "Time in which a kernel ran, lately.", _DEVICE),
    Metric("sentinel_device_memory_used_bytes", "gauge", "Memory in use.", _DEVICE),
    Metric("sentinel_device_memory_size_bytes", "gauge", "Memory that it has.", _DEVICE),
    Metric("sentinel_device_power_watts", "gauge", "Power that it draws.", _DEVICE),
    Metric("sentinel_device_temperature_celsius", "gauge", "Temperature of the chip.", _DEVICE),
    Metric("sentinel_device_sm_clock_hertz", "gauge", "Clock of the multiprocessors.", _DEVICE),
    Metric("sentinel_device_throttled", "gauge", "1 while the clocks are held down for it.", (*_DEVICE, "reason")),
    Metric("sentinel_device_ecc_uncorrected_errors_total", "counter", "Since the driver was loaded.", _DEVICE),
    Metric("sentinel_device_row_remap_pending", "gauge", "1 while a memory row waits for a reset.", _DEVICE),
    Metric("sentinel_device_row_remap_failed", "gauge", "1 when a memory row could not be remapped.", _DEVICE),
    Metric("sentinel_device_xid_errors_total", "counter", "Since the collector was started.", (*_DEVICE, "xid")),
)
_FIELDS: Final = {
    "sentinel_device_utilization_ratio": "utilization_ratio",
    "sentinel_device_memory_used_bytes": "memory_used_bytes",
    "sentinel_device_memory_size_bytes": "memory_total_bytes",
    "sentinel_device_power_watts": "power_watts",
    "sentinel_device_temperature_celsius": "temperature_celsius",
    "sentinel_device_sm_clock_hertz": "sm_clock_hz",
    "sentinel_device_ecc_uncorrected_errors_total": "ecc_uncorrected_total",
    "sentinel_device_row_remap_pending": "remap_pending",
    "sentinel_device_row_remap_failed": "remap_failed",
}
Series = tuple[str, tuple[str, ...], float]


class NodeMetrics(Collector):
    """What the loop knows; asks no driver.

    Args:
        loop: which reads the devices.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def describe(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """The metrics without values."""
        return list(_families().values())

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """The metrics as they are now. Of a device that does not answer no old reading is shown."""
        families, devices = _families(), self._loop.devices
        is_up = bool(devices) and all(each.health in ("up", "lost") for each in devices)
        families["sentinel_collector_up"].add_metric((), float(is_up))
        for device in devices:
            for name, labels, value in _series(device):
                families[name].add_metric(labels, value)
        return [family for family in families.values() if family.samples]


def _families() -> dict[str, GaugeMetricFamily | CounterMetricFamily]:
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    return {each.name: kinds[each.kind](each.name, each.help, labels=each.labels) for each in TABLE}


def _series(device: Device) -> Iterator[Series]:
    sample = device.sample
    labels = (str(device.index), "" if sample is None else sample.uuid)
    yield "sentinel_device_up", labels, float(device.health == "up")
    for xid, count in device.xids.items():
        yield "sentinel_device_xid_errors_total", (*labels, str(xid)), count
    if sample is None:
        return
    yield "sentinel_device_info", (*labels, sample.name, sample.node), 1.0
    if not sample.lost:
        yield "sentinel_device_last_read_timestamp_seconds", labels, sample.at
    if device.health == "up":
        yield from _readings(sample, labels)


def _readings(sample: DeviceSample, labels: tuple[str, ...]) -> Iterator[Series]:
    for name, field in _FIELDS.items():
        value = getattr(sample, field)
        if value is not None:
            yield name, labels, float(value)
    for reason in THROTTLE_REASONS.values():
        yield "sentinel_device_throttled", (*labels, reason), float(reason in sample.throttle)
