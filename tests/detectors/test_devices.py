"""Behaviour of the detectors of devices: clocks held down, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sentinel.detectors import xid
from sentinel.detectors.device_fault import CALM_SAMPLES, DEVICES_KEPT, DeviceFault
from sentinel.detectors.device_throttle import DeviceThrottle
from sentinel.domain.findings import Finding
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.observations import Observation, StepReport
from tests.builders import ROLLED_BACK, STARTED, findings_of

HOT = {"throttle": ("hw_slowdown", "hw_thermal_slowdown"), "sm_clock_hz": 1.2e9}
COOL = {"throttle": (), "sm_clock_hz": 1.9e9}


def _sample(**given: Any) -> DeviceSample:
    return DeviceSample(**{"at": 0.0, "index": 0, "uuid": "GPU-1", "node": "n1", "utilization_ratio": 0.9} | given)


def _samples(*readings: tuple[int, dict[str, Any]]) -> list[Observation]:
    """So many samples of each reading, with a step before each."""
    told: list[Observation] = []
    for reading in [given for count, given in readings for _ in range(count)]:
        told += [StepReport(at=0.0, step=len(told) // 2 + 1), _sample(**reading)]
    return told


def _told(found: Sequence[Finding]) -> list[tuple[str, str, str]]:
    return [(each.symptom, each.phase, each.severity) for each in found]


def test_heat_that_lasts_is_told_until_it_is_gone() -> None:
    """Six hot samples are a warning about the device and its node, with clock and heat; ten cool ones end it."""
    found = findings_of(DeviceThrottle(), _samples((20, COOL), (10, HOT | {"temperature_celsius": 91.0}), (10, COOL)))
    assert _told(found) == [("device_throttle", "began", "warning"), ("device_throttle", "ended", "info")]
    assert (found[0].subject, found[0].node, found[0].onset_step, found[0].step) == ("GPU-1", "n1", 21, 26)
    assert "1200 MHz of 1900 MHz, 91 °C" in found[0].reason


@pytest.mark.parametrize(
    "readings",
    [
        pytest.param([(20, COOL), (5, HOT), (20, COOL)], id="short"),
        pytest.param([(20, COOL), (30, HOT | {"sm_clock_hz": 1.88e9})], id="without an effect"),
        pytest.param([(30, {"throttle": ("gpu_idle",)})], id="idle"),
        pytest.param([(30, {"throttle": ("applications_clocks_setting",)})], id="set by somebody"),
        pytest.param([(5, HOT), (90, {"utilization_ratio": None, "xids": (31,)})], id="samples of faults alone"),
    ],
)
def test_what_does_not_slow_for_long_stays_unsaid(readings: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """A short slowdown, one without lower clocks, and reasons that are no trouble give no finding."""
    assert findings_of(DeviceThrottle(), _samples(*readings)) == []


def test_an_unknown_clock_does_not_hide_heat() -> None:
    """Where the clock is not read the reason alone counts."""
    found = findings_of(DeviceThrottle(), _samples((30, {"throttle": ("hw_power_brake_slowdown",)})))
    assert _told(found) == [("device_throttle", "began", "warning")]


def test_the_power_limit_is_a_note() -> None:
    """A device at its power limit does what it was bought for."""
    assert _told(findings_of(DeviceThrottle(), _samples((30, {"throttle": ("sw_power_cap",)})))) == [
        ("power_cap", "began", "info")
    ]


@pytest.mark.parametrize(
    ("before", "fault", "severity", "words"),
    [
        ({}, {"xids": (79,)}, "critical", "Xid 79: the GPU has fallen off the bus"),
        ({}, {"xids": (31,)}, "warning", "Xid 31: MMU fault"),
        ({}, {"xids": (45, 13, 48)}, "critical", "Xid 13: graphics engine exception; Xid 48: double-bit ECC error"),
        ({}, {"xids": (999,)}, "warning", "Xid 999: see NVIDIA's catalogue"),
        ({"ecc_uncorrected_total": 3}, {"ecc_uncorrected_total": 5}, "critical", "2 uncorrected ECC errors more"),
        ({"remap_pending": False}, {"remap_pending": True}, "warning", "waits for a reset"),
        ({}, {"remap_failed": True}, "critical", "could not be remapped"),
        ({}, {"lost": True, "utilization_ratio": None}, "critical", "does not answer any more"),
    ],
)
def test_a_fault_is_told_once(before: dict[str, Any], fault: dict[str, Any], severity: str, words: str) -> None:
    """Each kind of fault is one finding about device and node, however long it is seen."""
    (found,) = findings_of(DeviceFault(), _samples((5, before), (1, fault), (9, fault | {"xids": ()})))
    assert (found.phase, found.severity, found.subject, found.node, found.step) == ("began", severity, "GPU-1", "n1", 6)
    assert words in found.reason


@pytest.mark.parametrize("quiet", [{"xids": (45,)}, {"ecc_uncorrected_total": 7}, {"remap_pending": False}, {}])
def test_what_is_no_fault_stays_unsaid(quiet: dict[str, Any]) -> None:
    """Xids that only follow others, and errors from before the run, are none."""
    assert findings_of(DeviceFault(), _samples((100, quiet))) == []


def test_a_warning_passes_and_a_critical_fault_does_not() -> None:
    """Ten calm minutes end a warning; what needs a new device stays, and what comes after a calm is told as new."""
    calm = (CALM_SAMPLES, {})
    assert _told(findings_of(DeviceFault(), _samples((1, {"xids": (31,)}), calm)))[1][1:] == ("ended", "info")
    found = findings_of(DeviceFault(), _samples((1, {"xids": (31,)}), (1, {"xids": (95,)}), calm, (1, {"xids": (95,)})))
    assert [(each.phase, each.severity) for each in found] == [
        ("began", "warning"),
        ("changed", "critical"),
        ("ended", "info"),
        ("began", "critical"),
    ]


def test_devices_are_told_apart_without_a_uuid() -> None:
    """A device that has no uuid is known by its node and index."""
    samples = [DeviceSample(at=0.0, index=index, node="n2", xids=(79,)) for index in (0, 1)]
    assert [each.subject for each in findings_of(DeviceFault(), samples)] == ["n2 GPU 0", "n2 GPU 1"]


def test_a_new_attempt_hears_of_what_lasts_and_of_nothing_older() -> None:
    """A pending remap is told to the next attempt too; the count of ECC errors goes on from where it was."""
    pending = _sample(remap_pending=True, ecc_uncorrected_total=2)
    detector = DeviceFault()
    assert len(findings_of(detector, [pending, ROLLED_BACK, pending])) == 1
    found = findings_of(detector, [STARTED, pending])
    assert [each.reason for each in found] == ["a row of the memory waits for a reset to be remapped"]
    assert findings_of(detector, [STARTED, _sample(ecc_uncorrected_total=3)])[0].severity == "critical"


def test_every_xid_has_one_gravity() -> None:
    """No Xid stands in two of the lists."""
    lists = [set(xid.CRITICAL), set(xid.WARNING), set(xid.IGNORED)]
    assert sum(map(len, lists)) == len(set.union(*lists))
    assert [xid.gravity(number) for number in (79, 13, 45, 500)] == ["critical", "warning", "ignored", "warning"]


@pytest.mark.parametrize("detector", [DeviceFault(), DeviceThrottle()], ids=lambda each: each.name)
def test_devices_are_kept_up_to_a_number(detector: DeviceFault | DeviceThrottle) -> None:
    """Uuids made up without end do not fill the memory, and the devices that were there first stay watched."""
    findings_of(detector, [_sample(uuid=f"GPU-{number}") for number in range(DEVICES_KEPT + 10)])
    assert len(detector.state.devices) == DEVICES_KEPT
    assert "GPU-0" in detector.state.devices
