"""An accelerator that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors import xid
from sentinel.detectors.base import Detector
from sentinel.domain.findings import Finding, Phase, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.observations import AttemptStarted, CommandResult, StepReport
from sentinel.protocol.processes import RankReport

CALM_SAMPLES: Final = 60
"""Ten minutes: gpud looks as far back for events that repeat."""
DEVICES_KEPT: Final = 16_384

Fault = tuple[Severity, str]


@dataclass(slots=True)
class DeviceHealth:
    """What is known of one device. The conditions last until they are seen to be gone."""

    ecc_uncorrected_total: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    lost: bool = False
    told: Severity | None = None
    """The severity of the episode; None while there is none."""
    onset_step: int = 0
    calm_samples: int = 0


@dataclass(slots=True)
class DeviceFaultState:
    """The newest step, since samples carry none, and the devices by uuid, or by node and index."""

    newest_step: int = 0
    devices: dict[str, DeviceHealth] = field(default_factory=dict)


class DeviceFault(Detector[DeviceFaultState]):
    """An error of the device's own.

    Watches:
        ``xids``, ``ecc_uncorrected_total``, ``remap_pending``, ``remap_failed`` and ``lost`` of each device's samples.

    Fires when:
        the driver told an Xid, the count of uncorrected ECC errors rose, a row remap is pending or has failed, or the
        device does not answer any more. Critical is what needs a reset, a drain or a replacement; a warning what a new
        start of the process mends, and a pending remap, which waits for the next reset. A warning ends after 60 calm
        samples, about ten minutes. Critical ends with the attempt or by a person; what happens after ten calm minutes
        is told as new.

    Stays quiet when:
        NVIDIA says to ignore the Xid, or it only follows another (45); the ECC errors are older than the run.

    Memory:
        seven values for each of up to 16,384 devices.

    Source:
        NVIDIA's catalogue of Xid errors (``xid.py``); uncorrected ECC errors and row remaps as the node health checks
        of GCM and Azure take them, but for a pending remap, which fails no node here.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = DeviceFault()
        >>> sample = DeviceSample(at=0.0, index=0, uuid="GPU-1", node="n1", xids=(79,))
        >>> entry = LogEntry(run="r", sequence=1, received_at=0.0, attempt="a", sender="s", observation=sample)
        >>> for finding in detector.observe(entry):
        ...     print(finding.subject, finding.node, finding.severity, finding.reason)
        GPU-1 n1 critical Xid 79: the GPU has fallen off the bus
    """

    name: ClassVar[str] = "device_fault"

    def __init__(self) -> None:
        self.state = DeviceFaultState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Judges samples of devices; a new attempt is told anew what lasts."""
        observation, state = entry.observation, self.state
        if isinstance(observation, StepReport):
            state.newest_step = observation.step
        elif isinstance(observation, DeviceSample):
            return self._judge(observation)
        elif isinstance(observation, RankReport):
            state.newest_step = max(state.newest_step, observation.step)
        elif isinstance(observation, AttemptStarted):
            counts = {key: device.ecc_uncorrected_total for key, device in state.devices.items()}
            devices = {key: DeviceHealth(ecc_uncorrected_total=count) for key, count in counts.items()}
            self.state = DeviceFaultState(observation.step, devices)
        elif isinstance(observation, CommandResult) and observation.outcome == "succeeded":
            state.newest_step = observation.step
        return ()

    def _judge(self, sample: DeviceSample) -> Sequence[Finding]:
        devices, step = self.state.devices, max(1, self.state.newest_step)
        key = sample.uuid or f"{sample.node} GPU {sample.index}".lstrip()
        if key not in devices and len(devices) >= DEVICES_KEPT:
            return ()
        device = devices.setdefault(key, DeviceHealth())
        faults = list(_faults(sample, device))
        if not faults:
            return self._calm(device, sample, key)
        was_calm, device.calm_samples = device.calm_samples >= CALM_SAMPLES, 0
        severity: Severity = "critical" if any(each == "critical" for each, _ in faults) else "warning"
        reason = "; ".join(reason for _, reason in faults)
        found: list[Finding] = []
        if device.told is not None and was_calm:  # a person may have settled that one
            found.append(self._finding(device, sample, key, phase="ended", severity="info", reason="calm since then"))
            device.told = None
        if device.told is None:
            device.told, device.onset_step = severity, step
            found.append(self._finding(device, sample, key, phase="began", severity=severity, reason=reason))
        elif severity == "critical":
            device.told = severity
            found.append(self._finding(device, sample, key, phase="changed", severity=severity, reason=reason))
        return found

    def _calm(self, device: DeviceHealth, sample: DeviceSample, key: str) -> Sequence[Finding]:
        if device.told is None:
            return ()
        device.calm_samples = min(CALM_SAMPLES, device.calm_samples + 1)
        lasts = device.remap_pending or device.remap_failed or device.lost
        if device.told == "critical" or lasts or device.calm_samples < CALM_SAMPLES:
            return ()
        reason = f"{CALM_SAMPLES} samples without another error"
        ended = self._finding(device, sample, key, phase="ended", severity="info", reason=reason)
        device.told = None
        return (ended,)

    def _finding(
        self, device: DeviceHealth, sample: DeviceSample, key: str, *, phase: Phase, severity: Severity, reason: str
    ) -> Finding:
        step = max(1, self.state.newest_step)
        return Finding(
            detector=self.name,
            symptom="device_fault",
            subject=key,
            node=sample.node,
            phase=phase,
            severity=severity,
            verdict="malignant" if severity == "critical" else "benign" if phase == "ended" else "undecided",
            onset_step=min(device.onset_step, step),  # a rollback may have gone back beyond it
            step=step,
            reason=reason,
        )


def _xids(sample: DeviceSample) -> Iterator[Fault]:
    for number in dict.fromkeys(sample.xids):
        gravity = xid.gravity(number)
        if gravity != "ignored":
            yield gravity, f"Xid {number}: {xid.meaning(number)}"


def _faults(sample: DeviceSample, device: DeviceHealth) -> Iterator[Fault]:
    """What is new in a sample; takes note of it."""
    yield from _xids(sample)
    count, before = sample.ecc_uncorrected_total, device.ecc_uncorrected_total
    if count is not None:
        device.ecc_uncorrected_total = count
        if before is not None and count > before:
            yield "critical", f"{count - before} uncorrected ECC errors more than before, {count} in all"
    if sample.remap_failed is not None:
        if sample.remap_failed and not device.remap_failed:
            yield "critical", "a row of the memory could not be remapped: the device is to be replaced"
        device.remap_failed = sample.remap_failed
    if sample.remap_pending is not None:
        if sample.remap_pending and not device.remap_pending:
            yield "warning", "a row of the memory waits for a reset to be remapped"
        device.remap_pending = sample.remap_pending
    if sample.lost and not device.lost:
        yield "critical", "the device does not answer any more"
    if sample.lost or sample.utilization_ratio is not None:
        device.lost = sample.lost
