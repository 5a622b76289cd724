from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sentinel.collectors.exposition import TABLE
from tests.nvml import Scenario

COMMAND = (sys.executable, "-m", "sentinel.cli.main", "collect")
DEVICE = (("device", "0"), ("uuid", "GPU-0"))
Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def once(environ: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs ``sentinel collect --once``."""
    command = [*COMMAND, "--once", *options]
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False, timeout=60)


class Service:
    """A collector that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.url = next(found[0] for line in process.stderr if (found := re.search(r"http://\S+", line)))

    def page(self) -> str:
        """The text of /metrics."""
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def samples(self) -> Samples:
        """Everything on it of ours."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.page())
            for sample in family.samples
            if sample.name.startswith("sentinel_")
        }

    def until(self, condition: Callable[[Samples], bool]) -> Samples:
        """The samples once the condition holds."""
        pause = threading.Event()
        for _ in range(1000):
            if condition(samples := self.samples()):
                return samples
            pause.wait(0.02)
        raise AssertionError("what was waited for did not happen")


@contextmanager
def serving(environ: Mapping[str, str]) -> Iterator[Service]:
    """Runs ``sentinel collect`` on a free port."""
    command = [*COMMAND, "--port", "0", "--interval-s", "0.1"]
    with subprocess.Popen(command, env=os.environ | environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Service(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


@pytest.fixture
def scenario(tmp_path: Path, require_program: Callable[[str], str]) -> Scenario:
    """Two healthy devices."""
    return Scenario(tmp_path, require_program("cc"), devices=2)


@pytest.fixture
def no_driver(tmp_path: Path) -> Mapping[str, str]:
    """A machine whose library is none."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    return {"LD_LIBRARY_PATH": str(tmp_path)}


def test_every_reading_is_a_metric(scenario: Scenario) -> None:
    """The page has all metrics of the table, in base units, and follows the device."""
    with serving(scenario.environ) as service:
        scenario.set({"0.throttle": "0x20", "0.ecc": 2})
        scenario.xid(0, 31)
        samples = service.until(lambda found: any("xid" in name for name, _ in found))
        samples = service.until(lambda found: found.get(("sentinel_device_ecc_uncorrected_errors_total", DEVICE)) == 2)
        assert {name for name, _ in samples} == {metric.name for metric in TABLE}
        values = {name: value for (name, labels), value in samples.items() if labels == DEVICE}
        assert values.pop("sentinel_device_last_read_timestamp_seconds") > 1e9
        assert values == {
            "sentinel_device_up": 1.0,
            "sentinel_device_utilization_ratio": 0.87,
            "sentinel_device_memory_used_bytes": float(60 << 30),
            "sentinel_device_memory_size_bytes": float(80 << 30),
            "sentinel_device_power_watts": 412.5,
            "sentinel_device_temperature_celsius": 61.0,
            "sentinel_device_sm_clock_hertz": 1.98e9,
            "sentinel_device_ecc_uncorrected_errors_total": 2.0,
            "sentinel_device_row_remap_pending": 0.0,
            "sentinel_device_row_remap_failed": 0.0,
        }
        assert samples["sentinel_device_throttled", (DEVICE[0], ("reason", "sw_thermal_slowdown"), DEVICE[1])] == 1.0
        assert samples["sentinel_device_throttled", (DEVICE[0], ("reason", "sw_power_cap"), DEVICE[1])] == 0.0
        assert samples["sentinel_device_xid_errors_total", (*DEVICE, ("xid", "31"))] == 1.0
        assert samples["sentinel_collector_up", ()] == 1.0


def test_promtool_finds_nothing_to_object(scenario: Scenario, require_program: Callable[[str], str]) -> None:
    """Prometheus's own checker reads the page without a complaint."""
    promtool = require_program("promtool")
    with serving(scenario.environ) as service:
        service.until(lambda found: found.get(("sentinel_collector_up", ())) == 1.0)
        page = service.page()
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_device_that_hangs_holds_up_nothing(scenario: Scenario) -> None:
    """While a call to one device does not return, the page answers, says so, and shows the other device anew."""
    with serving(scenario.environ) as service:
        service.until(lambda found: found.get(("sentinel_collector_up", ())) == 1.0)
        scenario.set({"0.temperature": "hang", "1.power": 99000})
        samples = service.until(lambda found: found["sentinel_device_up", DEVICE] == 0.0)
        other = (("device", "1"), ("uuid", "GPU-1"))
        assert samples["sentinel_device_up", other] == 1.0
        assert samples["sentinel_device_power_watts", other] == 99.0
        assert ("sentinel_device_power_watts", DEVICE) not in samples
        assert samples["sentinel_collector_up", ()] == 0.0
        scenario.set({"0.temperature": 40})
        service.until(lambda found: found.get(("sentinel_device_temperature_celsius", DEVICE)) == 40.0)
        scenario.set({"0.temperature": "hang"})
        service.until(lambda found: found["sentinel_device_up", DEVICE] == 0.0)


def test_a_lost_and_a_failing_device_are_down(scenario: Scenario) -> None:
    """The collector is well when a device is lost, and is not when the driver fails to answer."""
    with serving(scenario.environ) as service:
        service.until(lambda found: found.get(("sentinel_collector_up", ())) == 1.0)
        scenario.set({"0.all": "error 15", "event.wait": "error 15"})
        samples = service.until(lambda found: found["sentinel_device_up", DEVICE] == 0.0)
        assert samples["sentinel_collector_up", ()] == 1.0
        scenario.set({"0.all": "error 999"})
        service.until(lambda found: found["sentinel_collector_up", ()] == 0.0)


def test_without_a_driver_the_page_says_so(no_driver: Mapping[str, str]) -> None:
    """A service on a node without a GPU stays, and its one metric is zero."""
    with serving(no_driver) as service:
        assert service.samples() == {("sentinel_collector_up", ()): 0.0}


def test_once_prints_every_device(scenario: Scenario) -> None:
    """People get a table, programs the samples."""
    table = once(scenario.environ)
    assert table.returncode == 0
    assert "412 W" in table.stdout
    told = once(scenario.environ, "--json")
    devices: list[dict[str, Any]] = json.loads(told.stdout)
    assert [(each["index"], each["health"], each["uuid"]) for each in devices] == [
        (0, "up", "GPU-0"),
        (1, "up", "GPU-1"),
    ]
    assert devices[0]["power_watts"] == 412.5


def test_once_fails_where_a_device_does_not_answer(scenario: Scenario) -> None:
    """A device that hangs or is lost is said and gives exit code 1; the other is told all the same."""
    scenario.set({"0.power": "hang"})
    told = once(scenario.environ, "--json", "--interval-s", "1")
    assert [(each["health"], each.get("power_watts")) for each in json.loads(told.stdout)] == [
        ("hangs", None),
        ("up", 412.5),
    ]
    assert told.returncode == 1


@pytest.mark.parametrize("init", ["hang", "error 9"])
def test_once_says_why_there_is_no_driver(scenario: Scenario, init: str) -> None:
    """A driver that is not loaded, or hangs while it is, is one line and exit code 1."""
    scenario.set({"init": init})
    told = once(scenario.environ, "--interval-s", "1")
    assert told.returncode == 1
    assert told.stderr.startswith("sentinel: NVIDIA's driver on ")


def test_once_says_that_there_is_no_library(no_driver: Mapping[str, str]) -> None:
    """The remedy is in the line."""
    told = once(no_driver)
    assert told.returncode == 1
    assert "`nvidia-smi` must list the devices" in told.stderr


def test_a_taken_port_is_told(scenario: Scenario) -> None:
    """The address and the remedy are in the line."""
    with serving(scenario.environ) as service:
        port = service.url.rpartition(":")[2].partition("/")[0]
        taken = subprocess.run(
            [*COMMAND, "--port", port], env=os.environ | scenario.environ, capture_output=True, text=True, check=False
        )
    assert taken.returncode == 1
    assert f"port {port}: Address already in use" in taken.stderr
