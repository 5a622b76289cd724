"""What every detector of the roster owes the pipeline."""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.detectors.base import Detector
from sentinel.detectors.roster import ROSTER
from sentinel.domain.findings import Finding
from sentinel.domain.symptoms import CONCERNS, concern
from sentinel.pipeline import snapshot
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.hardware import DeviceSample
from sentinel.protocol.observations import Observation, StepReport
from sentinel.protocol.processes import RankReport
from tests.builders import ONE_OF_EACH, ROLLED_BACK, STARTED, around, entry, findings_of, steps_of

NAN = math.nan
EXTREMES = (NAN, math.inf, -math.inf, None, 0.0, -0.0, 5e-324, 2.0, 1e9, -1e9, 1.7e308, -1.7e308)
STORMY_LOSSES = (
    *around(2.0, 150),
    *[5.0, 4.0, 3.0, 2.5],  # a spike that returns
    *around(2.0, 60, seed=1),
    *[NAN, math.inf, NAN],
    *around(2.0, 40, seed=2),
    *around(4.0, 300, seed=3),  # a spike that stays, until it is the level
    *around(4.0, 43, seed=4),
)
STORM: list[Observation] = [
    StepReport(at=0.0, step=step, loss=loss, grad_norm=NAN if step % 97 == 0 else 1.0)
    for step, loss in enumerate(STORMY_LOSSES, start=1)
]
GUESSING: list[Observation] = [
    StepReport(at=0.0, step=step, loss=loss, grad_norm=1.0)
    for step, loss in enumerate([*around(10.8, 530), *around(5.0, 80)], start=1)
]
BURSTING: list[Observation] = [
    StepReport(at=0.0, step=step, loss=2.0, grad_norm=norm)
    for step, norm in enumerate([*around(1.0, 150), 90.0, *around(1.0, 60), *[0.0] * 12, *around(1.0, 390)], start=1)
]
DROPPING: list[Observation] = steps_of([*around(3.0, 200), *around(2.0, 200, seed=1), *around(1.0, 200, seed=2)])
SLOWING: list[Observation] = [
    StepReport(at=0.0, step=step, step_s=step_s, data_wait_s=step_s / 10 if step_s < 5 else 0.8 * step_s, tokens=4096)
    for step, step_s in enumerate([*around(4.0, 128), *around(9.0, 80), *around(4.0, 80, seed=1)], start=1)
]
LAGGING: list[Observation] = [
    RankReport(at=0.0, rank=rank, step=step, steps=10, step_s=0.6, work_s=0.3 if rank == 2 and 60 < step < 160 else 0.2)
    for step in range(10, 260, 10)
    for rank in range(4)
]
HEATING: list[Observation] = [
    told
    for step in range(1, 60)
    for told in (
        StepReport(at=0.0, step=step, loss=2.0),
        DeviceSample(
            at=0.0,
            index=0,
            uuid="GPU-1",
            sm_clock_hz=1.2e9 if 20 < step < 40 else 1.9e9,
            throttle=("hw_thermal_slowdown",) if 20 < step < 40 else ("sw_power_cap",) if step < 8 else (),
        ),
    )
]
FAILING: list[Observation] = [
    told
    for step in range(1, 300)
    for told in (
        StepReport(at=0.0, step=step, loss=2.0),
        DeviceSample(
            at=0.0, index=0, uuid="GPU-1", utilization_ratio=1.0, xids={50: (31,), 150: (94, 48)}.get(step, ())
        ),
        DeviceSample(at=0.0, index=1, node="n1", ecc_uncorrected_total=step // 200, lost=step == 280),
    )
]
STORMS = {
    "dead_training": GUESSING,
    "gradient_norm": BURSTING,
    "loss_drop": DROPPING,
    "throughput_drop": SLOWING,
    "data_stall": SLOWING,
    "straggler": LAGGING,
    "device_throttle": HEATING,
    "device_fault": FAILING,
}
"""Of detectors that the storm does not stir."""
DetectorClass = type[Detector[Any]]

pytestmark = pytest.mark.parametrize("owner", ROSTER, ids=lambda owner: owner.name)


def _storm(owner: DetectorClass) -> list[Observation]:
    return STORMS.get(owner.name, STORM)


def _size(detector: Detector[Any]) -> int:
    return len(dumps(snapshot.dump(detector)))


def _student_t3(source: random.Random) -> float:
    return source.gauss(0.0, 1.0) / math.sqrt(source.gammavariate(1.5, 2.0) / 3.0)


def _healthy(kind: str, seed: int, count: int = 5000) -> list[StepReport]:
    source = random.Random(seed)
    draw: dict[str, Callable[[int], float]] = {
        "gaussian": lambda _: source.gauss(2.0, 0.02),
        "heavy tails": lambda _: 2.0 + 0.02 * _student_t3(source),
        "descent": lambda step: 3.0 + 8.0 * math.exp(-max(0, step - 100) / 400) + source.gauss(0.0, 0.05),
        "constant": lambda _: 2.0,
    }
    warm_up = 500 if kind == "descent" else 1
    return [
        StepReport(
            at=0.0,
            step=step,
            loss=(value := draw[kind](step)),
            grad_norm=1.0,
            lr=3e-4 * min(1.0, step / warm_up),
            step_s=value,
            data_wait_s=value / 10,
        )
        for step in range(1, count + 1)
    ]


def _extreme(step: int, one: Any, other: Any) -> list[Observation]:
    """One of each kind that detectors know, with these values in it."""
    return [
        StepReport(at=NAN, step=step, loss=one, grad_norm=other, step_s=one, data_wait_s=other, tokens=step),
        RankReport(at=NAN, rank=step % 3, step=step, steps=step, step_s=one, work_s=other, data_wait_s=one),
        DeviceSample(
            at=NAN,
            index=step,
            utilization_ratio=one,
            sm_clock_hz=other,
            temperature_celsius=one,
            throttle=("hw_slowdown",) if step % 2 else (),
            ecc_uncorrected_total=step,
            xids=(step,),
        ),
    ]


def test_the_storm_stirs_it(owner: DetectorClass) -> None:
    """The stream that the other tests use makes the detector find something, so that they test something."""
    assert {found.phase for found in findings_of(owner(), _storm(owner))} >= {"began", "ended"}


def test_same_entries_give_same_findings(owner: DetectorClass) -> None:
    """Two detectors that are told the same find the same and remember the same."""
    first, second = owner(), owner()
    assert findings_of(first, _storm(owner)) == findings_of(second, _storm(owner))
    assert dumps(snapshot.dump(first)) == dumps(snapshot.dump(second))


@pytest.mark.parametrize("cut", range(0, len(STORM), 23))
def test_goes_on_from_a_snapshot_as_if_nothing_had_been(owner: DetectorClass, cut: int) -> None:
    """Restored from the text of its state at any point, a detector finds later what it would have found."""
    before, after = owner(), owner()
    early = findings_of(before, _storm(owner)[:cut])
    snapshot.restore(after, parse(dumps(snapshot.dump(before))))
    assert early + findings_of(after, _storm(owner)[cut:]) == findings_of(owner(), _storm(owner))


@pytest.mark.parametrize("other", ONE_OF_EACH, ids=lambda each: each.kind)
def test_ignores_kinds_it_does_not_know(owner: DetectorClass, other: Observation) -> None:
    """A kind whose class the detector's module never names leaves no trace in findings or memory."""
    detector = owner()
    findings_of(detector, STORM[:155])
    before = dumps(snapshot.dump(detector))
    found = detector.observe(entry(other, 156))
    if type(other).__name__ not in vars(sys.modules[owner.__module__]):
        assert not found
        assert dumps(snapshot.dump(detector)) == before


@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(EXTREMES) | st.floats(),
            st.sampled_from(EXTREMES) | st.floats(),
            st.integers(1, 40),
            st.sampled_from([0, 1, 2**63 - 1]),
            st.sampled_from([None, None, None, ROLLED_BACK, STARTED]),
        ),
        max_size=12,
    )
)
def test_never_raises_on_values(owner: DetectorClass, parts: list[tuple[Any, ...]]) -> None:
    """Whatever the numbers are, NaN, infinite, huge, absent or repeated, the detector answers with findings."""
    detector = owner()
    findings_of(detector, steps_of(around(2.0, 40)))
    for loss, grad_norm, count, stride, between in parts:
        reports = [each for number in range(count) for each in _extreme(stride * number, loss, grad_norm)]
        found = findings_of(detector, reports if between is None else [*reports, between])
        assert all(isinstance(each, Finding) for each in found)
    dumps(snapshot.dump(detector))


@pytest.mark.parametrize("stream", ["storm", "rise", "nan"])
def test_memory_is_bounded(owner: DetectorClass, stream: str) -> None:
    """After 5,000 steps of the worst kind the state is as large as after 2,000."""
    losses = {"storm": STORMY_LOSSES, "rise": tuple(1.01**step for step in range(5000)), "nan": (NAN,)}[stream]
    detector = owner()
    sizes = []
    for step in range(1, 5001):
        grad_norm = NAN if stream == "nan" else 1.0
        detector.observe(
            entry(StepReport(at=0.0, step=step, loss=losses[step % len(losses)], grad_norm=grad_norm), step)
        )
        if step in (2000, 5000):
            sizes.append(_size(detector))
    assert sizes[1] < 1.1 * sizes[0] + 1000


@pytest.mark.parametrize("kind", ["gaussian", "descent", "constant"])
@pytest.mark.parametrize("seed", range(3))
def test_is_silent_on_a_healthy_run(owner: DetectorClass, kind: str, seed: int) -> None:
    """5,000 steps of a healthy run, early descent and learning-rate warm-up included, give no finding."""
    assert findings_of(owner(), _healthy(kind, seed)) == []


def test_heavy_tails_give_a_few_passing_warnings(owner: DetectorClass) -> None:
    """Noise with t(3) tails gives at most 20 warnings in 10,000 steps, and never one that calls for an action."""
    found = findings_of(owner(), _healthy("heavy tails", seed=0, count=20_000))
    assert len([each for each in found if each.phase == "began"]) <= 40
    assert not [each for each in found if each.severity == "critical" or each.verdict == "malignant"]


def test_an_episode_begins_changes_and_ends_in_this_order(owner: DetectorClass) -> None:
    """Of one symptom and subject each began is followed by changes and at most one end, before the next began."""
    phases: dict[tuple[str, str], str] = {}
    for found in findings_of(owner(), [*_storm(owner), ROLLED_BACK, *_storm(owner)]):
        phases.setdefault((found.symptom, found.subject), "")
        phases[found.symptom, found.subject] += found.phase[0]
    assert phases
    for letters in phases.values():
        assert re.fullmatch(r"(bc*e)*(bc*)?(bc*e)*(bc*)?", letters)


@pytest.mark.parametrize("break_", [ROLLED_BACK, STARTED], ids=["rollback", "new attempt"])
@pytest.mark.parametrize("cut", range(1, len(STORM), 23))
def test_forgets_the_episode_when_the_run_is_set_back(owner: DetectorClass, cut: int, break_: Observation) -> None:
    """After a rollback or a new start nothing is said of what went before: healthy steps stay without a finding.

    What is not about the optimization outlasts a rollback.
    """
    if break_ is ROLLED_BACK and concern(owner.name) != "optimization":
        return
    detector = owner()
    findings_of(detector, _storm(owner)[:cut])
    after: list[Observation] = [break_, *steps_of(around(2.0, 40, seed=9))]
    assert findings_of(detector, after) == []


def test_says_where_it_began_and_why(owner: DetectorClass) -> None:
    """A finding names its detector, a reason for people, and an onset that is not after the step it was seen at."""
    for found in findings_of(owner(), _storm(owner)):
        assert found.detector == owner.name
        assert found.reason
        assert 1 <= found.onset_step <= found.step


def test_its_symptoms_are_known(owner: DetectorClass) -> None:
    """What it finds stands in the table of symptoms: else no policy could name it."""
    assert {found.symptom for found in findings_of(owner(), _storm(owner))} <= set(CONCERNS)


def test_docstring_has_the_heads(owner: DetectorClass) -> None:
    """The class documents what it watches, when it fires and stays quiet, what it keeps, its source and an example."""
    heads = re.findall(r"^    (\w[\w ]*):$", owner.__doc__ or "", flags=re.MULTILINE)
    assert heads == ["Watches", "Fires when", "Stays quiet when", "Memory", "Source", "Example"]
