"""Devices for tests: NVIDIA's own binding, over a library that does what a scenario says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stand_in.c")
HEALTHY: Mapping[str, object] = {
    "name": "NVIDIA H100 80GB HBM3",
    "utilization": 87,
    "memory_used": 60 << 30,
    "memory_total": 80 << 30,
    "power": 412500,
    "temperature": 61,
    "clock": 1980,
    "throttle": 0,
    "ecc": 0,
    "remap_pending": 0,
    "remap_failed": 0,
}
"""A device in NVML's own units: percent, bytes, milliwatts, degrees, megahertz."""


class Scenario:
    """Some devices whose values a test may change at any time, also while another process reads them.

    Args:
        folder: where the library and the scenario are put.
        compiler: the path of a C compiler.
        devices: how many there are, all healthy.
        is_old: whether the driver lacks what newer ones have.
    """

    def __init__(self, folder: Path, compiler: str, *, devices: int = 1, is_old: bool = False) -> None:
        self._file = folder / "scenario"
        self._events = 0
        self._lines: dict[str, object] = {"devices": devices}
        for index in range(devices):
            values = HEALTHY | {"uuid": f"GPU-{index}"}
            self._lines |= {f"{index}.{name}": value for name, value in values.items()}
        self.set()
        options = ["-DOLD_DRIVER"] if is_old else []
        library = folder / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", library, SOURCE], check=True)
        paths = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environ = {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "NVML_SCENARIO": str(self._file)}
        """What a process that is to find these devices needs."""

    def set(self, values: Mapping[str, object] | None = None) -> None:
        """Changes values, such as ``0.power``: a number or text, ``error N``, ``hang``; None is not supported."""
        self._lines |= values or {}
        text = "".join(f"{key} {value}\n" for key, value in self._lines.items() if value is not None)
        partial = self._file.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self._file)

    def xid(self, device: int, number: int) -> None:
        """The driver tells of an error."""
        self._events += 1
        self.set({f"event.{self._events}": f"{device} {number}"})
