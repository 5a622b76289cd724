from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sentinel.detectors.hang import BLIND_S, SILENCE_LEAST_S, UNKNOWN_S, Hang
from sentinel.domain.findings import Finding
from sentinel.protocol.ids import CommandId, SenderId
from sentinel.protocol.launching import launcher_sender
from sentinel.protocol.observations import (
    AttemptEnded,
    AttemptStarted,
    CommandResult,
    Heartbeat,
    Observation,
    PipelineStarted,
    StepReport,
    Tick,
)
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange
from tests.builders import SENDER, entry


class Run:
    """A run told to the detector by its own clock, in seconds."""

    def __init__(self, *, tells_phases: bool = True) -> None:
        self.detector = Hang()
        self.at = 0.0
        self.step = 0
        self.found: list[Finding] = []
        self.tell(AttemptStarted(at=0.0, mode="act"))
        if tells_phases:
            self.enter("train")

    def tell(self, observation: Observation, sender: SenderId = SENDER) -> list[Finding]:
        """One observation."""
        found = list(self.detector.observe(entry(observation, 1, sender=sender)))
        self.found += found
        return found

    def enter(self, phase: Any) -> None:
        """Another kind of work."""
        self.tell(PhaseChange(at=self.at, phase=phase, step=self.step))

    def steps(self, count: int, every_s: float = 1.0) -> None:
        """Steps; where one takes long, with heartbeats in between."""
        for _ in range(count):
            self.live(every_s)
            self.step += 1
            self.tell(StepReport(at=self.at, step=self.step, loss=2.0))

    def live(self, seconds: float) -> None:
        """Time passes with a heartbeat every 3 s."""
        end = self.at + seconds
        while self.at + 3.0 < end:
            self.at += 3.0
            self.tell(Heartbeat(at=self.at, step=self.step))
        self.at = end

    def silence(self, seconds: float) -> None:
        """The daemon listens and hears nothing; a tick every 5 s."""
        for tick in range(1, int(seconds // 5) + 1):
            self.tell(Tick(at=0.0, silent_s=5.0 * tick))
        self.at += seconds

    @property
    def phases(self) -> list[str]:
        """Of the findings."""
        return [each.phase for each in self.found]


@pytest.fixture
def run() -> Run:
    """Fifty steps of a second each."""
    run = Run()
    run.steps(50)
    return run


def test_a_step_that_does_not_come_is_a_hang_until_it_comes(run: Run) -> None:
    """After a minute without one, by the agent's heartbeats; the step ends it, and the pause is known from then on."""
    run.live(59.0)
    assert run.found == []
    run.live(6.0)
    (began,) = run.found
    assert (began.severity, began.verdict, began.step) == ("critical", "malignant", 50)
    run.steps(1, every_s=30.0)
    assert run.phases == ["began", "ended"]
    run.live(100.0)
    assert run.phases == ["began", "ended"], "it has been through a pause of 95 s and got over it"


@pytest.mark.parametrize(("step_s", "patience_s"), [(0.01, 60), (1, 60), (20, 200), (120, 1200)])
def test_patience_grows_with_the_step(step_s: float, patience_s: float) -> None:
    """Ten times the run's own step, and a minute at least."""
    run = Run()
    run.steps(20, every_s=step_s)
    run.live(patience_s - 4.0)
    assert run.found == []
    run.live(10.0)
    assert run.phases == ["began"]


def test_phases_have_times_of_their_own(run: Run) -> None:
    """An evaluation of an hour, a save of ten minutes, and a loader set up anew: no hang."""
    run.enter("evaluate")
    run.live(3600.0)
    run.enter("checkpoint")
    run.live(600.0)
    run.enter("train")
    run.steps(20)
    run.enter("start_up")
    run.live(590.0)
    run.steps(20)
    for _ in range(3):
        run.enter("evaluate")
        run.live(4000.0)
        run.enter("train")
        run.steps(10)
    run.enter("done")
    run.live(20_000.0)
    assert run.found == []


def test_an_evaluation_that_takes_five_times_as_long_as_ever_is_a_hang(run: Run) -> None:
    """Learned from the run's own; one that it has not been through gets two hours."""
    run.enter("evaluate")
    run.live(300.0)
    run.enter("train")
    run.steps(5)
    run.enter("evaluate")
    run.live(1490.0)
    assert run.found == []
    run.live(20.0)
    assert run.phases == ["began"]
    other = Run(tells_phases=False)
    other.live(UNKNOWN_S - 10.0)
    assert other.found == []
    other.live(20.0)
    assert other.phases == ["began"]


def test_a_restart_starts_as_fast_as_the_run_has_shown(run: Run) -> None:
    """What was learned of steps and starts is kept over attempts."""
    run.tell(AttemptStarted(at=run.at, mode="act", step=50))
    run.live(590.0)
    assert run.found == []
    run.live(20.0)
    assert run.phases == ["began"]


def test_an_agent_that_tells_no_phases_gets_ten_minutes() -> None:
    """It may be in an evaluation that nobody has told of."""
    run = Run(tells_phases=False)
    run.steps(50)
    run.live(590.0)
    assert run.found == []
    run.live(20.0)
    assert run.phases == ["began"]


def test_a_rollback_ends_a_hang_as_a_step_does(run: Run) -> None:
    """A training that goes back lives, however long it took: what was ordered for the hang must become void."""
    run.live(1000.0)
    run.tell(CommandResult(at=run.at, command=CommandId("c"), outcome="succeeded", step=10, segment=1))
    assert run.phases == ["began", "ended"]


def test_silence_is_counted_by_ticks(run: Run) -> None:
    """A frozen process says nothing at all: two minutes of listening, and not before."""
    run.silence(SILENCE_LEAST_S - 5.0)
    assert run.found == []
    run.silence(SILENCE_LEAST_S)
    assert run.phases == ["began"]


def test_a_daemon_that_was_away_does_not_hold_it_against_the_run(run: Run) -> None:
    """Where it has just begun to listen, the agent's longest back-off does not count."""
    run.silence(60.0)
    run.tell(PipelineStarted(at=0.0, version="3"))
    run.silence(BLIND_S + SILENCE_LEAST_S - 5.0)
    assert run.found == []


def test_clocks_that_jump_make_no_hang(run: Run) -> None:
    """An hour forward or back between two heartbeats counts as ten seconds or none."""
    for jump in (3600.0, -3600.0, 7200.0):
        run.at += jump
        run.tell(Heartbeat(at=run.at, step=run.step))
    assert run.found == []


@pytest.mark.parametrize(
    "end",
    [AttemptEnded(at=0.0, outcome="interrupted", step=50), CrashReport(at=0.0, signal="SIGKILL")],
    ids=lambda each: each.kind,
)
def test_what_has_ended_does_not_hang(run: Run, end: Observation) -> None:
    """A preempted, finished or dead attempt is silent by right."""
    run.tell(end)
    run.silence(1000.0)
    run.live(1000.0)
    assert run.found == []


def test_a_launcher_is_no_sign_of_life(run: Run) -> None:
    """Its words neither end a silence nor count as heartbeats."""
    for _ in range(40):
        run.tell(LauncherStarted(at=0.0), launcher_sender("node"))
    run.silence(SILENCE_LEAST_S)
    assert run.phases == ["began"]


def _pauses(every: int, pause_s: float, count: int) -> Iterable[float]:
    return (pause_s if number % every == 0 else 1.0 for number in range(1, count))


def test_a_pause_that_comes_again_and_again_is_the_runs_way() -> None:
    """A save by a callback of the user's own, of which no phase is told: once a false alarm at most, then never."""
    run = Run()
    for interval_s in _pauses(100, 90.0, 1000):
        run.steps(1, every_s=interval_s)
    assert run.phases == ["began", "ended"]
