"""A training that lives, or should, and makes no step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sentinel.detectors.base import Detector
from sentinel.detectors.process_finding import process_finding
from sentinel.detectors.rolling import RollingWindow
from sentinel.domain.findings import Finding, Phase
from sentinel.domain.log_entry import LogEntry
from sentinel.protocol.launching import is_launcher
from sentinel.protocol.observations import (
    AttemptEnded,
    AttemptStarted,
    CommandResult,
    Heartbeat,
    PipelineStarted,
    StepReport,
    Tick,
)
from sentinel.protocol.processes import CrashReport, PhaseChange

STEP_LEAST_S: Final = 60.0
"""The soft timeout of in-process restart in NVIDIA's resiliency extension (NVRx, inprocess/wrap.py)."""
STEP_RATIO: Final = 10.0
"""Of the median step: EROICA calls 5 times the average a blockage, and a hang is acted on."""
PAUSE_RATIO: Final = 2.0
"""Of the longest pause between two steps that ended by itself: what this run did once it may do again."""
PHASE_LEAST_S: Final = 600.0
"""DLRover's default for a hang, and HyperPod's documentation for a checkpoint."""
PHASE_RATIO: Final = 5.0
"""Of the longest time that the run has needed for the same phase: the safety factor of NVRx's learned timeouts."""
UNKNOWN_S: Final = 7200.0
"""For a phase that the run has not been through: DLRover's ceiling for first and evaluation steps is 120 min."""
SILENCE_LEAST_S: Final = 120.0
"""Of silence, which a broken link gives too: four times the agent's longest back-off."""
BLIND_S: Final = 30.0
"""The agent's longest back-off: a daemon that has just begun to listen may not have been found again before."""
BEAT_AT_MOST_S: Final = 10.0
"""What one heartbeat can count: they come every 3 s, so a clock that jumps makes no hang."""
TICK_AT_MOST_S: Final = 30.0
"""Likewise one tick: the daemon notes a silence as often at least, as long as it listens."""
INTERVALS: Final = 64
FEWEST_INTERVALS: Final = 8


@dataclass(slots=True)
class HangState:
    """What the run is at, for how long, and how long it has needed for the like before.

    Times of one's own (``intervals``, ``longest_s``) are kept over attempts: they are the run's.
    """

    phase: str = "done"
    tells_phases: bool = False
    step: int = 0
    entered_at: float = math.nan
    """The sender's clock when the phase began, or in training at the newest step."""
    beat_at: float = math.nan
    """The sender's clock at the newest sign of life."""
    idle_s: float = 0.0
    """Time with heartbeats and no progress."""
    silent_s: float = 0.0
    """Time without a word, while the daemon listened."""
    tick_s: float = 0.0
    """What the tick before said."""
    blind: bool = False
    hung: bool = False
    intervals: RollingWindow = field(default_factory=lambda: RollingWindow(INTERVALS))
    longest_s: dict[str, float] = field(default_factory=dict)


class Hang(Detector[HangState]):
    """A training that makes no step.

    Watches:
        steps, changes of phase, the agent's heartbeats (it lives while the training's thread stands still), and ticks
        (the daemon listened and heard nothing).

    Fires when:
        in training no step has come for 10 times the median step, twice the longest pause so far, and 60 s (10 min for
        an agent that tells no phases); in start-up, evaluation and at a checkpoint when they last 5 times as long as
        ever before, and 10 min (2 h for one that is new). Silence alone counts from 2 min. It ends with a step.

    Stays quiet when:
        the attempt has ended; the daemon has just begun to listen; a clock jumps.

    Memory:
        64 step times twice, four durations.

    Source:
        NVRx (learned timeouts, safety factor 5; soft timeout 60 s), EROICA, Unicron, DLRover; see the constants.

    Example:
        >>> from sentinel.domain.log_entry import LogEntry
        >>> detector = Hang()
        >>> told = [PhaseChange(at=0.0, phase="train", step=0)]
        >>> told += [StepReport(at=float(step), step=step) for step in range(1, 21)]
        >>> told += [Heartbeat(at=20.0 + 3.0 * beat, step=20) for beat in range(1, 40)]
        >>> for number, each in enumerate([AttemptStarted(at=0.0, mode="act"), *told]):
        ...     entry = LogEntry(
        ...         run="r", sequence=number, received_at=0.0, attempt="a", sender="rank-0", observation=each
        ...     )
        ...     for finding in detector.observe(entry):
        ...         print(each.at, finding.step, finding.severity)
        80.0 20 critical
    """

    name: ClassVar[str] = "hang"

    def __init__(self) -> None:
        self.state = HangState()

    def observe(self, entry: LogEntry) -> Sequence[Finding]:
        """Takes signs of life and of progress."""
        observation, state = entry.observation, self.state
        if isinstance(observation, Tick):
            return self._listened(observation.silent_s)
        if isinstance(observation, PipelineStarted):
            state.blind, state.silent_s, state.tick_s = True, 0.0, 0.0
            return ()
        if isinstance(observation, AttemptEnded | CrashReport):
            state.phase, state.hung = "done", False
            return ()
        if is_launcher(entry.sender):
            return ()
        if isinstance(observation, AttemptStarted):
            self._begin(observation)
        elif isinstance(observation, CommandResult) and observation.outcome == "succeeded":
            state.step = observation.step
            return self._moved(observation.at, f"the training has gone back to step {observation.step}")
        elif isinstance(observation, PhaseChange):
            return self._turn(observation)
        elif isinstance(observation, StepReport):
            return self._stepped(observation)
        elif isinstance(observation, Heartbeat):
            return self._beat(observation)
        return ()

    def _begin(self, start: AttemptStarted) -> None:
        state = self.state
        state.phase, state.tells_phases, state.hung, state.step = "start_up", False, False, start.step
        self._progress(start.at)

    def _turn(self, change: PhaseChange) -> Sequence[Finding]:
        state = self.state
        if state.phase == "done" and change.phase != "done" and not state.tells_phases:
            return ()  # of an attempt whose start is not known
        state.tells_phases = True
        if state.phase not in ("train", "done"):
            self._learn(state.phase, change.at - state.entered_at)
        state.phase = change.phase
        return self._moved(change.at, "the training goes on")

    def _stepped(self, report: StepReport) -> Sequence[Finding]:
        state = self.state
        if state.phase == "train":
            interval = report.at - state.entered_at
            if math.isfinite(interval) and interval >= 0:
                state.intervals.push(interval)
                self._learn("train", interval)
        elif state.phase == "start_up":
            self._learn("start_up", report.at - state.entered_at)
        if state.phase != "done":
            state.phase = "train"
        state.step = max(1, report.step)
        return self._moved(report.at, f"step {report.step} has come")

    def _moved(self, at: float, reason: str) -> Sequence[Finding]:
        was_hung, self.state.hung = self.state.hung, False
        self._progress(at)
        return (self._finding("ended", reason),) if was_hung else ()

    def _progress(self, at: float) -> None:
        state = self.state
        state.entered_at = state.beat_at = float(at)  # as a snapshot gives it back
        state.idle_s = state.silent_s = state.tick_s = 0.0
        state.blind = False

    def _beat(self, beat: Heartbeat) -> Sequence[Finding]:
        state = self.state
        since = beat.at - state.beat_at
        state.beat_at, state.blind, state.silent_s = float(beat.at), False, 0.0
        if state.tick_s == 0.0 and since > 0:  # after a silence it is not known what was
            state.idle_s += min(since, BEAT_AT_MOST_S)
        state.tick_s = 0.0
        return self._judge("the agent lives and no step comes", state.idle_s, least_s=0.0)

    def _listened(self, silent_s: float) -> Sequence[Finding]:
        state = self.state
        new_s = silent_s - state.tick_s if silent_s > state.tick_s else silent_s
        state.tick_s = silent_s
        if state.blind:
            state.blind = silent_s < BLIND_S
        else:
            state.silent_s += min(max(0.0, new_s), TICK_AT_MOST_S)
        return self._judge(
            "the daemon listens and hears nothing", state.idle_s + state.silent_s, least_s=SILENCE_LEAST_S
        )

    def _judge(self, what: str, still_s: float, *, least_s: float) -> Sequence[Finding]:
        state = self.state
        limit_s = max(self._limit_s(), least_s)
        if state.hung or state.phase == "done" or not still_s >= limit_s or (least_s and state.silent_s < least_s):
            return ()
        state.hung = True
        at = {"start_up": "while starting", "train": "in training"}.get(state.phase, f"in phase {state.phase}")
        reason = f"{what} {at} after step {state.step}, for {still_s:.0f} s where {limit_s:.0f} s were expected at most"
        return (self._finding("began", reason),)

    def _limit_s(self) -> float:
        state = self.state
        if state.phase == "train":
            least_s = STEP_LEAST_S if state.tells_phases and len(state.intervals) >= FEWEST_INTERVALS else PHASE_LEAST_S
            longest_s = state.longest_s.get("train", 0.0)
            return max(least_s, STEP_RATIO * state.intervals.median, PAUSE_RATIO * longest_s)
        known_s = state.longest_s.get(state.phase)
        return UNKNOWN_S if known_s is None else max(PHASE_LEAST_S, PHASE_RATIO * known_s)

    def _learn(self, phase: str, duration_s: float) -> None:
        if math.isfinite(duration_s) and duration_s >= 0:
            self.state.longest_s[phase] = max(duration_s, self.state.longest_s.get(phase, 0.0))

    def _finding(self, phase: Phase, reason: str) -> Finding:
        return process_finding(self.name, phase, step=self.state.step, reason=reason)
