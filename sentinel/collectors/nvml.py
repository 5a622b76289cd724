"""NVIDIA's driver on this node. Any call here may hang for ever when the driver is sick."""

from __future__ import annotations

from typing import Any

from sentinel import clock
from sentinel.domain.errors import DriverUnavailable
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.nvml import XidEvents, is_lost, read_device


class Driver:
    """The driver and its devices.

    Args:
        node: this machine's name.

    Raises:
        DriverUnavailable: there is no driver, no device, or no binding to ask it with.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        try:
            import pynvml  # noqa: PLC0415 - optional, and loading the driver may hang
        except ImportError:
            remedy = "pip install 'training-sentinel[nvml]'"
            raise DriverUnavailable(f"the module pynvml is missing on {node}: {remedy}") from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError as error:
            remedy = "install it, or run this on a node with a GPU; `nvidia-smi` must list the devices"
            raise DriverUnavailable(f"NVIDIA's driver on {node} says: {error}; {remedy}") from None
        if not self._handles:
            raise DriverUnavailable(f"NVIDIA's driver on {node} has no device: `nvidia-smi` must list one")

    def __len__(self) -> int:
        return len(self._handles)

    def read(self, index: int, last: DeviceSample | None) -> DeviceSample:
        """A reading of one device; one that is lost is told as lost, by the name that it had.

        Raises:
            DriverUnavailable: it cannot be read.
        """
        known = DeviceSample(at=clock.now(), index=index, node=self._node)
        try:
            return read_device(self._nvml, self._handles[index], known)
        except self._nvml.NVMLError as error:
            if not is_lost(self._nvml, error):
                raise DriverUnavailable(f"device {index} on {self._node} cannot be read: {error}") from None
        name, uuid = ("", "") if last is None else (last.name, last.uuid)
        return DeviceSample(at=known.at, index=index, uuid=uuid, name=name, node=self._node, lost=True)

    def events(self) -> XidEvents:
        """The errors that the driver will tell of.

        Raises:
            DriverUnavailable: it tells of none.
        """
        try:
            return XidEvents(self._nvml, self._handles)
        except self._nvml.NVMLError as error:
            raise DriverUnavailable(f"NVIDIA's driver on {self._node} tells of no Xid errors: {error}") from None
