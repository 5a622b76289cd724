"""Reads a node's devices over and over, each in a thread of its own: one whose driver hangs holds up no other.

Whoever asks gets what is known by then, and never waits for a driver. A thread that hangs cannot be ended; it ends with
the process.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sentinel import clock
from sentinel.collectors.nvml import Driver
from sentinel.domain.errors import DriverUnavailable
from sentinel.protocol.hardware import DeviceSample

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
OVERDUE_S: Final = 1.0
"""A reading takes milliseconds; one still under way after this, and after an interval, hangs."""
LISTEN_MS: Final = 2000

Health = Literal["up", "lost", "hangs", "fails", "waiting"]


@dataclass(frozen=True, slots=True)
class Device:
    """What is known of a device."""

    index: int
    health: Health = "waiting"
    sample: DeviceSample | None = None
    """The newest good reading, or the word that it is lost."""
    asked_at: float | None = None
    """Monotonic, while a reading is under way."""
    problem: str = ""
    xids: Counter[int] = field(default_factory=Counter)
    """Errors since the collector began to listen."""


class Loop:
    """Reads all devices of a node.

    Args:
        node: its name.
        interval_s: seconds between two readings of a device.
    """

    def __init__(self, node: str, *, interval_s: float = INTERVAL_S) -> None:
        self._node = node
        self._interval_s = interval_s
        self.overdue_s = max(interval_s, OVERDUE_S)
        """How long a reading may take before it is said to hang."""
        self._devices: dict[int, Device] = {}
        self._problem = ""
        self._opening_at: float | None = None
        self._changed = threading.Condition()
        self._wake: dict[int, threading.Event] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begins to read."""
        self._begin("open", self._open)

    def stop(self) -> None:
        """Ends the readings, without waiting for one under way."""
        self._stopped.set()
        for wake in self._wake.values():
            wake.set()

    @property
    def problem(self) -> str:
        """Why the driver cannot be asked at all; empty if it can."""
        if self._opening_at is not None and clock.monotonic() - self._opening_at > self.overdue_s:
            return f"NVIDIA's driver on {self._node} does not answer: it hangs while it is loaded"
        return self._problem

    @property
    def devices(self) -> list[Device]:
        """As they are known now."""
        with self._changed:
            return [self._judged(each) for each in self._devices.values()]

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until a reading makes ``condition`` true; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    @property
    def is_complete(self) -> bool:
        """Whether each device has been read, or it is known why none can be."""
        return bool(self._problem) or (bool(self._devices) and all(each.sample for each in self._devices.values()))

    def _judged(self, device: Device) -> Device:
        if device.asked_at is None or clock.monotonic() - device.asked_at <= self.overdue_s:
            return device
        return replace(device, health="hangs", problem=f"a reading has not come back for {self.overdue_s:.0f} s")

    def _begin(self, name: str, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=f"sentinel-{name}", daemon=True).start()

    def _open(self) -> None:
        driver = self._driver()
        while driver is None and not self._stopped.wait(self._interval_s):
            driver = self._driver()
        if driver is None:
            return
        with self._changed:
            self._devices = {index: Device(index) for index in range(len(driver))}
            self._wake = {index: threading.Event() for index in self._devices}
            self._problem = ""
            self._changed.notify_all()
        for index in self._devices:
            self._begin(f"device-{index}", lambda index=index: self._follow(driver, index))  # type: ignore[misc]
        self._begin("xid", lambda: self._listen(driver))

    def _driver(self) -> Driver | None:
        self._opening_at = clock.monotonic()
        try:
            return Driver(self._node)
        except DriverUnavailable as problem:
            if str(problem) != self._problem:
                logger.warning("%s", problem)
            with self._changed:
                self._problem = str(problem)
                self._changed.notify_all()
            return None
        finally:
            self._opening_at = None

    def _follow(self, driver: Driver, index: int) -> None:
        wake = self._wake[index]
        while not self._stopped.is_set():
            self._change(index, asked_at=clock.monotonic())
            last = self._devices[index].sample
            try:
                sample = driver.read(index, last)
            except DriverUnavailable as problem:
                self._change(index, asked_at=None, health="fails", problem=str(problem))
            else:
                health, problem_text = ("lost", "the device does not answer any more") if sample.lost else ("up", "")
                self._change(index, asked_at=None, sample=sample, health=health, problem=problem_text)
            wake.wait(self._interval_s)
            wake.clear()

    def _listen(self, driver: Driver) -> None:
        try:
            events = driver.events()
        except DriverUnavailable as problem:
            logger.warning("%s", problem)
            return
        while not self._stopped.is_set():
            try:
                told = events.wait(LISTEN_MS)
            except Exception as error:  # noqa: BLE001 - NVML's errors are made at run time; a lost device ends the wait
                logger.warning("waiting for Xid errors on %s: %s", self._node, error)
                self._stopped.wait(self._interval_s)
                continue
            if told is not None:
                index, xid = told
                logger.warning("Xid %d on device %d of %s", xid, index, self._node)
                self._change(index, xids=self._devices[index].xids + Counter([xid]))
                self._wake[index].set()

    def _change(self, index: int, **values: object) -> None:
        with self._changed:
            device: Device = replace(self._devices[index], **values)  # type: ignore[arg-type]
            if device.health != self._devices[index].health and device.problem:
                logger.warning("device %d of %s: %s", index, self._node, device.problem)
            self._devices[index] = device
            self._changed.notify_all()
