"""Utilization, memory, power and temperature of this rank's GPU, from the driver (NVML).

The module pynvml comes with the package nvidia-ml-py (extra ``nvml``). A call into a sick driver may never return, so
a thread of its own makes them; it is started before the training and ends with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import time
from typing import Any, Final

import torch

from sentinel.protocol.hardware import DeviceSample

INTERVAL_S: Final = 10.0


class GpuReader:
    """Reads one device at an interval.

    Args:
        device: the training's device.
        tell: takes each sample; called by the reader's thread.
        interval_s: seconds between samples.
    """

    def __init__(
        self, device: torch.device, tell: Callable[[DeviceSample], object], *, interval_s: float = INTERVAL_S
    ) -> None:
        self.problem: str | None = "the driver has not answered yet"
        """Why there are no readings; None once there are."""
        self.first_answer = threading.Event()
        """Set once it is known whether there are readings."""
        self._index = device.index or 0
        self._torch_uuid = _torch_uuid(device)
        self._tell = tell
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sentinel-gpu", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the readings, without waiting for one under way."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            import pynvml  # noqa: PLC0415 - optional, and loading the driver may hang

            pynvml.nvmlInit()
            handle = _handle(pynvml, self._torch_uuid, self._index)
            self._tell(_sample(pynvml, handle, self._index))
            self.problem = None
            self.first_answer.set()
            while not self._stopped.wait(self._interval_s):
                self._tell(_sample(pynvml, handle, self._index))
        except ImportError:
            self.problem = "the module pynvml is missing: pip install nvidia-ml-py"
        except Exception as error:  # noqa: BLE001 - NVML's errors are made at run time; readings end, training goes on
            self.problem = f"the NVIDIA driver says: {error}"
        self.first_answer.set()


def _torch_uuid(device: torch.device) -> str | None:
    """The device's own id: CUDA_VISIBLE_DEVICES renumbers what torch sees, not what the driver sees."""
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def _handle(nvml: Any, uuid: str | None, index: int) -> Any:
    if uuid is not None:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    return nvml.nvmlDeviceGetHandleByIndex(index)


def _sample(nvml: Any, handle: Any, index: int) -> DeviceSample:
    """One reading; what the device or an older driver does not support is None."""

    def read(name: str, *arguments: object) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return None

    utilization, memory = read("nvmlDeviceGetUtilizationRates"), read("nvmlDeviceGetMemoryInfo")
    milliwatts = read("nvmlDeviceGetPowerUsage")
    temperature = read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
    return DeviceSample(
        at=time(),
        index=index,
        uuid=read("nvmlDeviceGetUUID") or "",
        name=read("nvmlDeviceGetName") or "",
        utilization_ratio=None if utilization is None else utilization.gpu / 100.0,
        memory_used_bytes=None if memory is None else memory.used,
        memory_total_bytes=None if memory is None else memory.total,
        power_watts=None if milliwatts is None else milliwatts / 1000.0,
        temperature_celsius=None if temperature is None else float(temperature),
    )
