"""An accelerator whose clocks are held down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from sentinel.detectors.base import Detector
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport
from sentinel.protocol.processes import RankReport

SLOWDOWNS: Final = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""Heat or a failing supply. The other reasons are settings, idleness and the power limit."""
POWER_CAP: Final = "sw_power_cap"
SAMPLES: Final = 10
HELD: Final = 6
"""Of the newest 10 samples: gpud's threshold for slowdowns is 0.6 of ten samples too, a minute apart."""
CLOCK_RATIO: Final = 0.95
"""Of the highest clock that was seen without a slowdown."""
DEVICES_KEPT: Final = 16_384

Mark = Literal["free", "capped", "slowed"]
_SYMPTOMS: Final[dict[Mark, tuple[str, Severity]]] = {
    "capped": ("power_cap", "info"),
    "slowed": ("device_throttle", "warning"),
}


@dataclass(slots=True)
class Throttling:
    """The newest samples of one device, and what was told of it: onset steps by mark."""

    marks: list[Mark] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    highest_clock_hz: float = 0.0
    told: dict[Mark, int] = field(default_factory=dict)


@dataclass(slots=True)
class DeviceThrottleState:
    """The newest step, since samples carry none, and the devices by uuid, or by node and index."""

    newest_step: int = 0
    devices: dict[str, Throttling] = field(default_factory=dict)


class DeviceThrottle(Detector[DeviceThrottleState]):
    """Clocks held down for a while.

    Watches:
        ``throttle`` and ``sm_clock_hz`` of each device's samples.

    Fires when:
        6 of the newest 10 samples, about 100 s, have a slowdown by heat or a failing supply and, where the clock is
        known, less than 95 % of the highest clock seen without one. The power limit alone (``power_cap``) is a note. It
        ends when 10 samples are free of it.

    Stays quiet when:
        the device is idle, its clocks were set by somebody, or the slowdown is short.

    Memory:
        10 marks and steps for each of up to 16,384 devices.

    Source:
        gpud for the share of samples; which bits matter as in Azure's node health checks, which warn of all but idle,
        none and the power limit.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = DeviceThrottle()
        >>> for number in range(1, 9):
        ...     sample = DeviceSample(at=0.0, index=0, uuid="GPU-1", throttle=("hw_thermal_slowdown",), power_watts=400)
        ...     entry = LogEntry(run="r", sequence=number, received_at=0.0, attempt="a", sender="s", observation=sample)
        ...     for finding in detector.observe(entry):
        ...         print(number, finding.subject, finding.severity)
        6 GPU-1 warning
    """

    name: ClassVar[str] = "device_throttle"

    def __init__(self) -> None:
        self.state = DeviceThrottleState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges samples of devices; a new attempt begins with other ones, or with theirs anew."""
        observation, state = entry.observation, self.state
        if isinstance(observation, StepReport):
            state.newest_step = observation.step
        elif isinstance(observation, DeviceSample):
            return self._judge(observation)
        elif isinstance(observation, RankReport):
            state.newest_step = max(state.newest_step, observation.step)
        elif isinstance(observation, AttemptStarted):
            self.state = DeviceThrottleState(newest_step=observation.step)
        elif isinstance(observation, CommandResult) and observation.outcome == "succeeded":
            state.newest_step = observation.step
        return ()

    def _judge(self, sample: DeviceSample) -> Sequence[Finding]:
        devices = self.state.devices
        key = sample.uuid or f"{sample.node} GPU {sample.index}".lstrip()
        if not _has_readings(sample) or (key not in devices and len(devices) >= DEVICES_KEPT):
            return ()
        device = devices.setdefault(key, Throttling())
        mark = _mark(sample, device)
        if mark != "slowed" and sample.sm_clock_hz is not None:
            device.highest_clock_hz = max(device.highest_clock_hz, sample.sm_clock_hz)
        device.marks = [*device.marks, mark][-SAMPLES:]
        device.steps = [*device.steps, max(1, self.state.newest_step)][-SAMPLES:]
        found: list[Finding] = []
        for each in _SYMPTOMS:
            count = device.marks.count(each)
            if each not in device.told and count >= HELD:
                device.told[each] = device.steps[device.marks.index(each)]
                found.append(self._finding(device, each, sample, phase="began", reason=_reason(sample, device, count)))
            elif each in device.told and count == 0:
                found.append(self._finding(device, each, sample, phase="ended", reason=f"{SAMPLES} samples without"))
                del device.told[each]
        return found

    def _finding(self, device: Throttling, mark: Mark, sample: DeviceSample, *, phase: Phase, reason: str) -> Finding:
        symptom, severity = _SYMPTOMS[mark]
        step = max(1, self.state.newest_step)
        clock = {} if sample.sm_clock_hz is None else {"sm_clock_hz": sample.sm_clock_hz}
        heat = {} if sample.temperature_celsius is None else {"temperature_celsius": sample.temperature_celsius}
        return Finding(
            detector=self.name,
            symptom=symptom,
            subject=sample.uuid or f"{sample.node} GPU {sample.index}".lstrip(),
            node=sample.node,
            phase=phase,
            severity=severity if phase == "began" else "info",
            verdict="undecided" if phase == "began" else "benign",
            onset_step=min(device.told[mark], step),  # a rollback may have gone back beyond it
            step=step,
            reason=reason,
            evidence=clock | heat,
        )


def _has_readings(sample: DeviceSample) -> bool:
    """A sample of a fault may tell the fault alone; its empty ``throttle`` says nothing then."""
    known = (sample.utilization_ratio, sample.sm_clock_hz, sample.power_watts, sample.temperature_celsius)
    return bool(sample.throttle) or any(value is not None for value in known)


def _mark(sample: DeviceSample, device: Throttling) -> Mark:
    clock_hz = sample.sm_clock_hz
    if SLOWDOWNS.intersection(sample.throttle):
        is_low = clock_hz is None or not device.highest_clock_hz or clock_hz < CLOCK_RATIO * device.highest_clock_hz
        return "slowed" if is_low else "free"
    return "capped" if POWER_CAP in sample.throttle else "free"


def _reason(sample: DeviceSample, device: Throttling, count: int) -> str:
    reason = f"{', '.join(sample.throttle)} in {count} of {len(device.marks)} samples"
    if sample.sm_clock_hz is not None:
        reason += f"; the clock is at {sample.sm_clock_hz / 1e6:.0f} MHz"
        if device.highest_clock_hz:
            reason += f" of {device.highest_clock_hz / 1e6:.0f} MHz"
    if sample.temperature_celsius is not None:
        reason += f", {sample.temperature_celsius:.0f} °C"
    return reason
