from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sentinel.protocol.hardware import DeviceSample
from sentinel_agent.gpu import GpuReader
from tests.nvml import HEALTHY, Scenario

PROGRAM = """
import sys, threading
from dataclasses import asdict
import json
import torch
from sentinel_agent.gpu import GpuReader

reader = GpuReader(torch.device("cpu"), lambda sample: print(json.dumps(asdict(sample)), flush=True), interval_s=0.01)
reader.start()
if sys.argv[1] == "wait":
    assert reader.first_answer.wait(20)
print(json.dumps(reader.problem), flush=True)
sys.stdin.read()
reader.stop()
"""


class Watched:
    """A reader in a process of its own, which finds the scenario's devices."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def problem(self) -> str | None:
        """What the reader said when it was first asked."""
        while isinstance(told := self._next(), dict):
            pass
        return told

    def sample(self, condition: Callable[[DeviceSample], bool]) -> DeviceSample:
        """The next sample for which the condition holds."""
        while True:
            told = self._next()
            if isinstance(told, dict) and condition(sample := _sample(told)):
                return sample

    def end(self) -> int:
        """Asks the process to end; returns its exit code."""
        self.process.communicate(timeout=20)
        return self.process.returncode

    def _next(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the reader's process has ended"
        return json.loads(line)


@contextmanager
def watching(environ: Mapping[str, str], *, wait: bool = True) -> Iterator[Watched]:
    """Starts a reader under an environment."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, "wait" if wait else "go"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | environ, **pipes) as process:
        try:
            yield Watched(process)
        finally:
            process.kill()


def _sample(told: dict[str, Any]) -> DeviceSample:
    return DeviceSample(**told | {"throttle": tuple(told["throttle"]), "xids": tuple(told["xids"])})


@pytest.fixture
def scenario(tmp_path: Path, require_program: Callable[[str], str]) -> Scenario:
    """One healthy device."""
    return Scenario(tmp_path, require_program("cc"))


def test_every_field_is_read(scenario: Scenario) -> None:
    """Each reading arrives in base units, and follows the device over time."""
    with watching(scenario.environ) as reader:
        first = reader.sample(lambda _: True)
        assert reader.problem() is None
        assert first.at > 1e9
        assert replace(first, at=0.0) == DeviceSample(
            at=0.0,
            index=0,
            uuid="GPU-0",
            name="NVIDIA H100 80GB HBM3",
            node=os.uname().nodename,
            utilization_ratio=0.87,
            memory_used_bytes=60 << 30,
            memory_total_bytes=80 << 30,
            power_watts=412.5,
            temperature_celsius=61.0,
            sm_clock_hz=1.98e9,
            ecc_uncorrected_total=0,
            remap_pending=False,
            remap_failed=False,
        )
        scenario.set({"0.throttle": "0x48", "0.clock": 1200, "0.ecc": 3, "0.remap_pending": 1, "0.remap_failed": 1})
        hot = reader.sample(lambda sample: sample.remap_failed is True)
        assert hot.throttle == ("hw_slowdown", "hw_thermal_slowdown")
        assert (hot.sm_clock_hz, hot.ecc_uncorrected_total, hot.remap_pending) == (1.2e9, 3, True)


FIELDS = {
    "uuid": "uuid",
    "name": "name",
    "utilization": "utilization_ratio",
    "memory_used": "memory_used_bytes",
    "power": "power_watts",
    "temperature": "temperature_celsius",
    "clock": "sm_clock_hz",
    "ecc": "ecc_uncorrected_total",
    "remap_pending": "remap_pending",
}


def test_what_a_device_cannot_tell_is_none(scenario: Scenario) -> None:
    """A call that is not supported or fails leaves its field unknown, never zero, and the others as they are."""
    with watching(scenario.environ) as reader:
        whole = reader.sample(lambda _: True)
        assert all(getattr(whole, field) not in (None, "") for field in FIELDS.values())
        for name, field in FIELDS.items():
            for value in (None, "error 999"):
                scenario.set({f"0.{name}": value})
                reader.sample(lambda sample, field=field: getattr(sample, field) in (None, ""))  # type: ignore[misc]
            scenario.set({f"0.{name}": HEALTHY.get(name, "GPU-0")})
            again = reader.sample(lambda sample, field=field: getattr(sample, field) not in (None, ""))  # type: ignore[misc]
            assert replace(again, at=whole.at) == whole


def test_an_old_driver_is_read(tmp_path: Path, require_program: Callable[[str], str]) -> None:
    """What a driver has under an older name is found, and what it lacks is unknown."""
    scenario = Scenario(tmp_path, require_program("cc"), is_old=True)
    scenario.set({"0.throttle": 8})
    with watching(scenario.environ) as reader:
        sample = reader.sample(lambda _: True)
        assert (sample.throttle, sample.name, sample.remap_pending) == (("hw_slowdown",), "", None)
        assert sample.power_watts == 412.5


def test_an_xid_is_told_at_once_and_once(scenario: Scenario) -> None:
    """Each error comes as a sample of its own with the device's name, between readings."""
    with watching(scenario.environ) as reader:
        reader.sample(lambda _: True)
        scenario.xid(0, 31)
        scenario.xid(0, 79)
        told = [reader.sample(lambda sample: bool(sample.xids)) for _ in range(2)]
        assert [each.xids for each in told] == [(31,), (79,)]
        assert (told[0].uuid, told[0].name, told[0].utilization_ratio) == ("GPU-0", "NVIDIA H100 80GB HBM3", None)


def test_an_xid_is_told_though_a_reading_hangs(scenario: Scenario) -> None:
    """A call that does not return holds up neither the news of the error that causes it nor the process's end."""
    with watching(scenario.environ) as reader:
        reader.sample(lambda _: True)
        scenario.set({"0.power": "hang"})
        scenario.xid(0, 119)
        assert reader.sample(lambda sample: bool(sample.xids)).xids == (119,)
        assert reader.end() == 0


def test_a_device_that_vanishes_is_told(scenario: Scenario) -> None:
    """One that answered and is lost is told as lost, and read again when it is back."""
    with watching(scenario.environ) as reader:
        reader.sample(lambda _: True)
        scenario.set({"0.all": "error 15", "event.wait": "error 15"})
        lost = reader.sample(lambda sample: sample.lost)
        assert (lost.uuid, lost.utilization_ratio) == ("GPU-0", None)
        scenario.set({"0.all": None})
        assert reader.sample(lambda sample: not sample.lost).utilization_ratio == 0.87


def test_readings_outlast_an_error(scenario: Scenario) -> None:
    """A driver that answers nothing for a while is asked again."""
    with watching(scenario.environ) as reader:
        reader.sample(lambda _: True)
        scenario.set({"0.all": "error 999", "0.power": 1000})
        scenario.set({"0.all": None})
        assert reader.sample(lambda sample: sample.power_watts == 1.0).lost is False


@pytest.mark.parametrize("hangs", ["init", "0.utilization"])
def test_a_driver_that_never_answers_holds_nobody_up(scenario: Scenario, hangs: str) -> None:
    """Where loading the driver or the first call hangs, it is said that there is no answer, and the process ends."""
    scenario.set({hangs: "hang"})
    with watching(scenario.environ, wait=False) as reader:
        assert reader.problem() == "the driver has not answered yet"
        assert reader.end() == 0


def test_no_driver_is_said(tmp_path: Path) -> None:
    """Without the library there are no samples and a reason in words."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    with watching({"LD_LIBRARY_PATH": str(tmp_path)}) as reader:
        assert "NVIDIA driver says" in str(reader.problem())


def test_no_binding_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the reason names what to install."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reader = GpuReader(torch.device("cpu"), print)
    reader.start()
    assert reader.first_answer.wait(10)
    assert reader.problem == "the module pynvml is missing: pip install nvidia-ml-py"
