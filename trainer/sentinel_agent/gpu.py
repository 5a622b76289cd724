"""Readings and errors of this rank's GPU, from the driver (NVML).

The module pynvml comes with the package nvidia-ml-py (extra ``nvml``). A call into a sick driver may never return, so
threads of their own make them: one reads at an interval, one waits for Xid errors, which it tells at once, by itself.
Both are started before the training and end with the process; nobody waits for them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import time
from typing import Any, Final

import torch

from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.nvml import XidEvents, is_lost, read_device

INTERVAL_S: Final = 10.0
LISTEN_MS: Final = 2000
"""How long one wait for an error takes; the next begins at once."""


class GpuReader:
    """Reads one device at an interval, and at once when the driver tells of an error.

    Args:
        device: the training's device.
        tell: takes each sample; called by the reader's threads.
        interval_s: seconds between samples.
    """

    def __init__(
        self, device: torch.device, tell: Callable[[DeviceSample], object], *, interval_s: float = INTERVAL_S
    ) -> None:
        self.problem: str | None = "the driver has not answered yet"
        """Why there are no readings; None once there are."""
        self.first_answer = threading.Event()
        """Set once it is known whether there are readings."""
        self.uuid = device_uuid(device)
        self._index = device.index or 0
        self._tell = tell
        self._interval_s = interval_s
        self._last: DeviceSample | None = None
        self._opened: tuple[Any, Any] | None = None
        self._stopped = False
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, name="sentinel-gpu", daemon=True),
            threading.Thread(target=self._listen, name="sentinel-xid", daemon=True),
        ]

    def start(self) -> None:
        """Begins to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the readings, without waiting for one under way."""
        self._stopped = True
        self._wake.set()

    def _read(self) -> None:
        try:
            import pynvml  # noqa: PLC0415 - optional, and loading the driver may hang

            pynvml.nvmlInit()
            handle = _handle(pynvml, self.uuid, self._index)
            self._sample(pynvml, handle)
            self._opened = (pynvml, handle)
        except ImportError:
            self.problem = "the module pynvml is missing: pip install nvidia-ml-py"
        except Exception as error:  # noqa: BLE001 - NVML's errors are made at run time; readings end, training goes on
            self.problem = f"the NVIDIA driver says: {error}"
        self.first_answer.set()
        while self._opened is not None and not self._stopped:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if not self._stopped:
                self._sample(*self._opened)

    def _sample(self, nvml: Any, handle: Any) -> None:
        known = DeviceSample(at=time(), index=self._index, node=os.uname().nodename)
        try:
            sample = read_device(nvml, handle, known)
        except Exception as error:  # noqa: BLE001 - as above; the next reading may be better
            self.problem = f"the NVIDIA driver says: {error}"
            if self._last is not None and is_lost(nvml, error):
                self._tell(self._fault(lost=True))
            return
        self.problem, self._last = None, sample
        self._tell(sample)

    def _listen(self) -> None:
        self.first_answer.wait()
        if self._opened is None:
            return
        nvml, handle = self._opened
        try:
            events = XidEvents(nvml, [handle])
            while not self._stopped:
                if (told := events.wait(LISTEN_MS)) is not None:
                    self._tell(self._fault(xids=(told[1],)))  # not left to the reader, whose call may hang by now
                    self._wake.set()
        except Exception:  # noqa: BLE001 - this driver tells of no errors, or does not any more: the readings go on
            self._wake.set()

    def _fault(self, *, xids: tuple[int, ...] = (), lost: bool = False) -> DeviceSample:
        """A sample that tells the fault and which device it is, and nothing that would have to be read."""
        last = self._last
        return DeviceSample(
            at=time(),
            index=self._index,
            uuid=self.uuid if last is None else last.uuid,
            name="" if last is None else last.name,
            node=os.uname().nodename,
            xids=xids,
            lost=lost,
        )


def device_uuid(device: torch.device) -> str:
    """The device's own id: CUDA_VISIBLE_DEVICES renumbers what torch sees, not the driver. Empty if unknown."""
    if device.type != "cuda":
        return ""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return "" if uuid is None else f"GPU-{uuid}"


def _handle(nvml: Any, uuid: str, index: int) -> Any:
    return nvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else nvml.nvmlDeviceGetHandleByIndex(index)
