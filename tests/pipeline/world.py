"""A made-up training run that does what it is told to, right and wrong, and remembers what is true of it.

Each method of ``World`` is one thing that can happen; Hypothesis chooses which, in what order and with which values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from math import inf, nan
from typing import Any

from hypothesis import strategies as st

from sentinel.checkpoints.catalog import MARGIN_STEPS
from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.commands import Restart, RollBack
from sentinel.protocol.ids import ActionId, CheckpointId, CommandId
from sentinel.protocol.launching import launcher_sender
from sentinel.protocol.observations import (
    DAEMON_KINDS,
    ActionResult,
    AttemptEnded,
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    DeviceSample,
    Heartbeat,
    Observation,
    OperatorRequest,
    PipelineStarted,
    PolicyChanged,
    StepReport,
    Tick,
    UnknownObservation,
)
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange
from tests.builders import DEFAULT_POLICY, DIGEST, RUN, SENDER, around, entry

LAUNCHERS_KINDS = (LauncherStarted, CrashReport)
LOSSES = (nan, inf, -inf, None, 4.0, 2.1, 0.0, 1.7e308, -1.7e308)
POLICIES = (
    DEFAULT_POLICY,
    DEFAULT_POLICY,
    DEFAULT_POLICY,
    DEFAULT_POLICY.replace('mode = "act"', 'mode = "observe"'),
    DEFAULT_POLICY.replace("cooldown_steps = 10", "cooldown_steps = 0").replace("rollbacks = 3", "rollbacks = 30"),
    DEFAULT_POLICY.replace("expires_after_steps = 200", "expires_after_steps = 3"),
    'mode = "act"\n[alerts]\nseverity = "info"\n[[rules]]\nname = "always"\nrung = "rollback"\n',
    'mode = "act"\n[[rules]]\nname = "never"\nrung = "none"\n',
    "",
)
HEALTHY = around(2.0, 997, noise=0.02)


@dataclass
class World:
    """The run, its trainer and its people, told to a pipeline as it goes."""

    pipeline: Pipeline = field(default_factory=lambda: Pipeline(RUN))
    entries: list[LogEntry] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    attempt: int = 1
    segment: int = 0
    step: int = 0
    backlog: bool = False
    late: bool = False
    """Whether the newest step was told as backlog."""
    held: bool = False
    saved: dict[CheckpointId, int] = field(default_factory=dict)
    """Step of each checkpoint on the live branch."""
    verified: set[CheckpointId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tell(PolicyChanged(at=0.0, policy=DEFAULT_POLICY))
        self.tell(AttemptStarted(at=0.0, mode="act", rollback="forward"))

    def tell(self, observation: Observation, *, attempt: int | None = None) -> None:
        """Tells the pipeline and checks what it makes of it."""
        own = isinstance(observation, DAEMON_KINDS)
        name = "" if own else f"attempt-{self.attempt if attempt is None else attempt}"
        sender = launcher_sender("node") if isinstance(observation, LAUNCHERS_KINDS) else SENDER
        number = len(self.entries) + 1
        told = entry(observation, number, attempt=name, sender=sender, backlog=self.backlog and not own)
        before = set(self.pipeline.orders_for(self.pipeline.run.attempt))
        outcome = self.pipeline.advance(told)
        self.entries.append(told)
        self.outcomes.append(outcome)
        _check(outcome)
        orders = self.pipeline.orders_for(self.pipeline.run.attempt)
        assert len({order.incident for order in orders}) == len(orders), "two orders open for one incident"
        suspect_from = {incident.id: incident.suspect_from for incident in outcome.incidents}
        asked = self.pipeline.commands_for(self.pipeline.run.attempt, launcher_sender("node"))
        restarts = [order for order in asked if isinstance(order, Restart)]
        assert len({order.incident for order in restarts}) == len(restarts), "two restarts for one incident"
        assert not (restarts and self.held)
        assert all(order.checkpoint is None or order.digest for order in restarts)
        for order in set(orders) - before:
            self.check_order(order, suspect_from[order.incident])

    def check_order(self, order: RollBack, suspect_from: int) -> None:
        """An order must name a checkpoint that was checked, lies on the live branch and is older than the fault."""
        assert order.checkpoint in self.verified
        assert order.step == self.saved[order.checkpoint] <= suspect_from - MARGIN_STEPS
        assert order.segment == self.segment
        assert not self.held
        assert not self.late

    def train(self, losses: list[float | None], grad_norm: float | None = 1.0) -> None:
        """Some steps with these losses."""
        for loss in losses:
            self.step += 1
            self.late = self.backlog
            at = float(len(self.entries))
            self.tell(StepReport(at=at, step=self.step, segment=self.segment, loss=loss, grad_norm=grad_norm))

    def train_well(self, count: int) -> None:
        """Some healthy steps."""
        self.train([HEALTHY[(self.step + number) % len(HEALTHY)] for number in range(count)])

    def lose_reports(self, count: int) -> None:
        """Some healthy steps of which nobody hears."""
        self.step += count

    def repeat(self, back: int) -> None:
        """An old report of the trainer's is told again."""
        old = [each.observation for each in self.entries[-back:] if isinstance(each.observation, StepReport)]
        if old:
            self.tell(old[0])

    def save(self, state: str) -> None:
        """A checkpoint of this step."""
        checkpoint = CheckpointId(f"c{self.attempt}.{self.segment}.{self.step}")
        self.saved[checkpoint] = self.step
        self.report(checkpoint, self.step, self.segment, state)

    def review(self, index: int, state: str) -> None:
        """News of an older checkpoint of the run, on the live branch or not."""
        reports = [each.observation for each in self.entries if isinstance(each.observation, CheckpointReport)]
        if reports:
            known = reports[index % len(reports)]
            self.report(known.checkpoint, known.step, known.segment, state)

    def report(self, checkpoint: CheckpointId, step: int, segment: int, state: str) -> None:
        """What the trainer says of a checkpoint."""
        if state == "verified":
            self.verified.add(checkpoint)
        elif state in ("bad", "deleted"):
            self.verified.discard(checkpoint)
            self.saved.pop(checkpoint, None)
        self.tell(
            CheckpointReport(
                at=0.0,
                checkpoint=checkpoint,
                step=step,
                segment=segment,
                state=state,
                digest=DIGEST,  # type: ignore[arg-type]
            )
        )

    def answer(self, outcome: str) -> None:
        """The trainer answers its oldest order."""
        orders = self.pipeline.orders_for(self.pipeline.run.attempt)
        if orders and outcome == "succeeded":
            self.go_back(orders[0].step, orders[0].id)
        elif orders:
            self.tell(CommandResult(at=0.0, command=orders[0].id, outcome=outcome, step=self.step))  # type: ignore[arg-type]

    def answer_launcher(self, outcome: str) -> None:
        """The launcher answers what it was asked."""
        sender = launcher_sender("node")
        for order in self.pipeline.commands_for(self.pipeline.run.attempt, sender):
            result = CommandResult(at=0.0, command=order.id, outcome=outcome, step=self.step)  # type: ignore[arg-type]
            told = entry(result, len(self.entries) + 1, attempt=f"attempt-{self.attempt}", sender=sender)
            self.entries.append(told)
            self.outcomes.append(self.pipeline.advance(told))
            _check(self.outcomes[-1])

    def stand_still(self, beats: int) -> None:
        """The agent lives and no step comes."""
        at = float(len(self.entries))
        for beat in range(beats):
            self.tell(Heartbeat(at=at + 10.0 * beat, step=self.step, segment=self.segment))

    def carry_out_unheard(self) -> None:
        """The trainer carries out its order, and its answer is lost."""
        orders = self.pipeline.orders_for(self.pipeline.run.attempt)
        if orders:
            self.segment += 1
            self._stand_at(min(orders[0].step, self.step))
            self.train_well(1)

    def go_back(self, step: int, command: str = "by hand") -> None:
        """The run goes back within its attempt."""
        self.segment += 1
        result = CommandResult(
            at=float(len(self.entries)),
            command=CommandId(command),
            outcome="succeeded",
            step=min(step, self.step),
            segment=self.segment,
            from_step=self.step,
        )
        self._stand_at(result.step)
        self.tell(result)

    def start(self, back: int, *, mode: str, rollback: str) -> None:
        """A new attempt, some steps further back."""
        self.attempt, self.segment = self.attempt + 1, 0
        self._stand_at(max(0, self.step - back))
        self.late = self.backlog
        self.tell(AttemptStarted(at=0.0, mode=mode, rollback=rollback, step=self.step))  # type: ignore[arg-type]

    def straggle(self, observation: Observation) -> None:
        """An attempt of before speaks once more."""
        if self.attempt > 1:
            self.tell(observation, attempt=self.attempt - 1)

    def hold(self, *, held: bool) -> None:
        """A person holds or releases the run."""
        self.held = held
        self.tell(OperatorRequest(at=0.0, request="hold" if held else "release"))

    def ask(self, request: str, index: int) -> None:
        """A person settles or takes on an incident."""
        known = [incident.id for outcome in self.outcomes for incident in outcome.incidents]
        incident = known[index % len(known)] if known else None
        self.tell(OperatorRequest(at=0.0, request=request, incident=incident))  # type: ignore[arg-type]

    def fall_behind(self, *, behind: bool) -> None:
        """From here on the daemon hears of things late, or again in time."""
        self.backlog = behind

    def _stand_at(self, step: int) -> None:
        self.step = step
        self.saved = {name: at for name, at in self.saved.items() if at <= step}


def _check(outcome: Outcome) -> None:
    assert outcome.raised == []
    decided = [decision.incident for decision in outcome.decisions]
    assert len({decision.id for decision in outcome.decisions}) == len(decided)
    assert decided in ([incident.id for incident in outcome.incidents], [])
    assert decided or all(incident.acknowledged_by for incident in outcome.incidents)
    assert len({action.id for action in outcome.actions}) == len(outcome.actions)


def _op(name: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(name), st.tuples(*arguments), st.fixed_dictionaries(named))


def _observations() -> st.SearchStrategy[Any]:
    return st.sampled_from(
        [
            Heartbeat(at=nan, step=3),
            DeviceSample(at=0.0, index=0, power_watts=nan),
            UnknownObservation(at=0.0, named="comet"),
            PipelineStarted(at=0.0, version="0"),
            ActionResult(at=0.0, action=ActionId("a"), outcome="failed"),
            Tick(at=0.0, silent_s=600.0),
            Tick(at=0.0, silent_s=5.0),
            PhaseChange(at=0.0, phase="evaluate", step=1),
            CommandResult(at=0.0, command=CommandId("stranger"), outcome="failed", step=1),
        ]
    )


def _stragglers() -> st.SearchStrategy[Any]:
    return st.sampled_from(
        [
            StepReport(at=0.0, step=10**6, loss=nan),
            CheckpointReport(at=0.0, checkpoint=CheckpointId("old"), step=1, state="verified", digest=DIGEST),
            CommandResult(at=0.0, command=CommandId("old"), outcome="succeeded", step=1, segment=9),
            AttemptEnded(at=0.0, outcome="finished", step=1),
        ]
    )


_STATES = st.sampled_from(["reported", "verified", "verified", "verified", "bad", "deleted"])
_ANSWERS = st.sampled_from(["succeeded", "succeeded", "succeeded", "failed", "refused", "expired"])
_FAULTS = st.sampled_from([[nan], [nan] * 12, [4.0] * 12, [4.0] * 3, [2.15] * 100])
_LAUNCHERS = st.builds(LauncherStarted, at=st.just(0.0), can_restart=st.booleans(), restarts_left=st.integers(0, 3))
_CRASHES = st.builds(CrashReport, at=st.just(0.0), signal=st.just("SIGKILL"), restarts_left=st.integers(0, 3))
_AGAIN = _op("start", st.integers(0, 30), mode=st.just("act"), rollback=st.just("forward"))
_ENDS = st.sampled_from(["finished", "failed", "interrupted"])
_ODDITIES = st.one_of(
    _op("train", st.lists(st.sampled_from(LOSSES), min_size=1, max_size=12), st.sampled_from([1.0, nan, None])),
    _op("lose_reports", st.integers(1, 40)),
    _op("repeat", st.integers(1, 60)),
    _op("review", st.integers(0, 50), _STATES),
    _op("go_back", st.integers(0, 300)),
    _op(
        "start",
        st.integers(0, 100),
        mode=st.sampled_from(["act", "act", "act", "observe", "off"]),
        rollback=st.sampled_from(["forward", "forward", "forward", "none"]),
    ),
    _op("straggle", _stragglers()),
    _op("hold", held=st.booleans()),
    _op("stand_still", st.integers(1, 80)),
    _op("answer_launcher", _ANSWERS),
    _op("ask", st.sampled_from(["resolve", "acknowledge"]), st.integers(0, 50)),
    _op("fall_behind", behind=st.booleans()),
    _op("tell", st.sampled_from(POLICIES).map(lambda policy: PolicyChanged(at=0.0, policy=policy))),
    _op("tell", _ENDS.map(lambda outcome: AttemptEnded(at=0.0, outcome=outcome, step=1))),
    _op("tell", _observations()),
)
_CHAPTERS = st.one_of(
    st.tuples(_op("train_well", st.integers(20, 70)), _op("save", _STATES), _op("train_well", st.integers(10, 70))),
    st.tuples(_op("train", _FAULTS), _op("answer", _ANSWERS), _op("train_well", st.integers(1, 30))),
    st.tuples(_op("train", _FAULTS), _ODDITIES, _op("answer", _ANSWERS)),
    st.tuples(_op("tell", _LAUNCHERS), _op("tell", _CRASHES), _op("answer_launcher", _ANSWERS), _AGAIN),
    st.tuples(_op("tell", _LAUNCHERS), _op("stand_still", st.integers(50, 90)), _op("answer_launcher", _ANSWERS)),
    st.tuples(_op("train", _FAULTS), _op("carry_out_unheard"), _op("train_well", st.integers(1, 30))),
    st.tuples(_ODDITIES),
)
HAPPENINGS: st.SearchStrategy[list[Any]] = st.lists(_CHAPTERS, max_size=20).map(lambda chapters: [*chain(*chapters)])
