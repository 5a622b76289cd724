"""What the fields of a ``DeviceSample`` are in NVML, NVIDIA's management library.

The agent and the collector read devices alike and may not import each other; each brings the binding (the module pynvml
of the package nvidia-ml-py) as an argument, so that nothing is imported here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sentinel.protocol.hardware import DeviceSample

THROTTLE_REASONS: Final[Mapping[int, str]] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h), which was ...ClocksThrottleReasons before driver 535."""


def throttle_names(bits: int) -> tuple[str, ...]:
    """The reasons that a mask holds; a bit without a name is left out."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def read_device(nvml: Any, handle: Any, sample: DeviceSample) -> DeviceSample:
    """One reading, which takes some milliseconds or, with a sick driver, for ever.

    Args:
        nvml: the binding, after ``nvmlInit``.
        handle: the device's.
        sample: what is known of the device beforehand: when, which, and where it is.

    Returns:
        ``sample`` with the readings; what device, driver or binding cannot tell is None.

    Raises:
        nvml.NVMLError: the device is lost, or nothing at all could be read.
    """
    problems: list[Exception] = []

    def read(name: str, *arguments: object) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except AttributeError:  # an older binding
            return None
        except nvml.NVMLError as problem:
            if is_lost(nvml, problem):
                raise
            problems.append(problem)
            return None

    utilization, memory = read("nvmlDeviceGetUtilizationRates"), read("nvmlDeviceGetMemoryInfo")
    milliwatts = read("nvmlDeviceGetPowerUsage")
    temperature = read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
    megahertz = read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
    bits = read("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:
        bits = read("nvmlDeviceGetCurrentClocksThrottleReasons")
    errors = read("nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    rows = read("nvmlDeviceGetRemappedRows")
    if all(each is None for each in (utilization, memory, milliwatts, temperature, megahertz, bits)) and problems:
        raise problems[0]
    return replace(
        sample,
        uuid=read("nvmlDeviceGetUUID") or "",
        name=read("nvmlDeviceGetName") or "",
        utilization_ratio=None if utilization is None else utilization.gpu / 100.0,
        memory_used_bytes=None if memory is None else memory.used,
        memory_total_bytes=None if memory is None else memory.total,
        power_watts=None if milliwatts is None else milliwatts / 1000.0,
        temperature_celsius=None if temperature is None else float(temperature),
        sm_clock_hz=None if megahertz is None else megahertz * 1e6,
        throttle=throttle_names(bits or 0),
        ecc_uncorrected_total=errors,
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failed=None if rows is None else bool(rows[3]),
    )


def is_lost(nvml: Any, problem: Exception) -> bool:
    """Whether an error says that the device has fallen off the bus, or answers nothing before it is reset."""
    return isinstance(problem, nvml.NVMLError) and problem.value in (
        nvml.NVML_ERROR_GPU_IS_LOST,
        nvml.NVML_ERROR_RESET_REQUIRED,
    )


class XidEvents:
    """Waits for the driver's Xid errors.

    Args:
        nvml: the binding, after ``nvmlInit``.
        handles: of the devices to listen to.

    Raises:
        nvml.NVMLError: this driver tells of no errors of any of them.
    """

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._places = {_address(handle): place for place, handle in enumerate(handles)}
        self._set = nvml.nvmlEventSetCreate()
        problem: Exception | None = None
        listening = 0
        for handle in handles:
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._set)
            except nvml.NVMLError as error:
                problem = error
            else:
                listening += 1
        if problem is not None and not listening:
            raise problem

    def wait(self, timeout_ms: int) -> tuple[int, int] | None:
        """The next error as (place among the handles, Xid); None if there was none in time.

        Raises:
            nvml.NVMLError: the driver cannot wait, as when a device is lost.
        """
        try:
            told = self._nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except self._nvml.NVMLError_Timeout:
            return None
        place = self._places.get(_address(told.device))
        return None if place is None else (place, int(told.eventData))


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
