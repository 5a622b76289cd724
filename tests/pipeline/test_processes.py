from __future__ import annotations

import math
from typing import Any

import pytest

from sentinel.domain.incidents import Incident
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.commands import DumpStacks, Restart
from sentinel.protocol.ids import ActionId, AttemptId, SenderId
from sentinel.protocol.launching import launcher_sender
from sentinel.protocol.observations import (
    DAEMON_KINDS,
    ActionResult,
    AttemptEnded,
    AttemptStarted,
    CommandResult,
    Heartbeat,
    Observation,
    OperatorRequest,
    PipelineStarted,
    PolicyChanged,
    StepReport,
    Tick,
)
from sentinel.protocol.processes import CrashReport, LauncherStarted, PhaseChange
from tests.builders import ATTEMPT, DEFAULT_POLICY, RUN, SENDER, Story, entry

LAUNCHER = launcher_sender("node 1")
NEXT = "attempt-2"
KILLED = CrashReport(at=0.0, signal="SIGKILL", restarts_left=3, stderr_tail="one\nthe last word\n")


class Launched(Story):
    """A run under a launcher, whose clock is the number of its step."""

    def say(self, observation: Observation, sender: SenderId = LAUNCHER, *, attempt: str = ATTEMPT) -> Outcome:
        """The launcher speaks; or somebody else, in the attempt."""
        own = isinstance(observation, DAEMON_KINDS)
        number = len(self.entries) + 1
        told = entry(observation, number, attempt="" if own else attempt, sender=sender, backlog=self.backlog)
        outcome = self.pipeline.advance(told)
        assert outcome.raised == []
        self.entries.append(told)
        self.outcomes.append(outcome)
        return outcome

    def orders(self, attempt: str = ATTEMPT) -> list[Any]:
        """What the launcher is asked to do."""
        return list(self.pipeline.commands_for(AttemptId(attempt), LAUNCHER))

    def beats(self, count: int, *, attempt: str = ATTEMPT) -> Outcome:
        """The agent lives and makes no step; a beat every 3 s."""
        outcome = Outcome()
        at = float(len(self.entries))
        for _ in range(count):
            at += 3.0
            outcome = self.say(Heartbeat(at=at, step=self.step), SENDER, attempt=attempt)
        return outcome

    def start_again(self, step: int) -> Outcome:
        """The next attempt begins."""
        self.step, self.segment = step, 0
        return self.say(AttemptStarted(at=0.0, mode="act", step=step, rollback="forward"), SENDER, attempt=NEXT)

    def next_steps(self, count: int) -> None:
        """Steps of the next attempt."""
        for _ in range(count):
            self.step += 1
            self.say(StepReport(at=0.0, step=self.step, loss=2.0, grad_norm=1.0), SENDER, attempt=NEXT)

    @property
    def process_incident(self) -> Incident:
        """The newest row of the incident of the processes."""
        rows = [each for outcome in self.outcomes for each in outcome.incidents if each.is_of_process]
        return rows[-1]


def _launched(*, acts: bool = True, policy: str = DEFAULT_POLICY) -> Launched:
    story = Launched(policy=policy)
    story.say(LauncherStarted(at=0.0, can_restart=acts, restarts_left=3 if acts else 0))
    story.tell(PhaseChange(at=0.0, phase="train", step=0))
    story.steps(60)
    story.checkpoint("c60")
    story.steps(60)
    story.checkpoint("c120")
    story.steps(3)
    return story


@pytest.fixture
def story() -> Launched:
    """A healthy run at step 123 whose newest verified checkpoint is of step 120, and a launcher that acts."""
    return _launched()


def test_a_crash_is_answered_with_a_restart_from_the_newest_verified_checkpoint(story: Launched) -> None:
    """The launcher alone gets the order, and the incident says how the process ended."""
    story.say(KILLED)
    assert story.told == [("opened", "restart", "ordered")]
    (order,) = story.orders()
    assert (type(order), order.checkpoint, order.step, order.attempt) == (Restart, "c120", 120, ATTEMPT)
    assert story.pipeline.commands_for(AttemptId(ATTEMPT), SENDER) == ()
    assert story.process_incident.reason == "the training was ended by SIGKILL"
    assert story.alerts == ["firing"]


def test_the_incident_is_over_when_the_step_of_the_crash_is_passed(story: Launched) -> None:
    """A new attempt is no proof, the step at which the last one died is no proof, the one after it is."""
    story.say(KILLED)
    (order,) = story.orders()
    answered = story.say(CommandResult(at=0.0, command=order.id, outcome="succeeded", step=123))
    assert [(each.action, each.event) for each in answered.action_changes] == [(order.id, "succeed")]
    story.start_again(120)
    story.next_steps(3)
    incident = story.process_incident
    assert (incident.state, incident.restarts, incident.lost_steps) == ("mitigating", 1, 3)
    story.next_steps(1)
    assert (story.process_incident.state, story.process_incident.end_step) == ("resolved", 124)
    assert [each[0] for each in story.told] == ["opened", "started again", "recovered"]
    assert story.alerts == ["firing", "resolved"]


def test_a_crash_casts_no_doubt_on_checkpoints(story: Launched) -> None:
    """What was saved a step before a process died is as good as it was."""
    outcome = story.say(KILLED)
    assert outcome.checkpoints == []


@pytest.mark.parametrize("outcome", ["finished", "interrupted"])
def test_after_an_orderly_end_a_dead_process_is_no_incident(story: Launched, outcome: Any) -> None:
    """A preempted or finished training whose process then ends in whatever way has not crashed."""
    story.tell(AttemptEnded(at=0.0, outcome=outcome, step=123))
    story.say(KILLED)
    assert (story.decisions, story.orders()) == ([], [])


def test_an_exception_is_a_crash(story: Launched) -> None:
    """An attempt that says that it failed, and whose process then ends, is started again."""
    story.tell(AttemptEnded(at=0.0, outcome="failed", step=123, reason="RuntimeError"))
    story.say(CrashReport(at=0.0, exit_code=1, restarts_left=3))
    assert story.told == [("opened", "restart", "ordered")]


@pytest.mark.parametrize(
    ("acts", "policy", "who"),
    [
        (False, DEFAULT_POLICY, "the launcher only observes"),
        (True, DEFAULT_POLICY.replace('mode = "act"', 'mode = "observe"'), "the policy only observes"),
    ],
)
def test_in_observe_mode_it_is_said_what_would_have_been_done(*, acts: bool, policy: str, who: str) -> None:
    """Nothing is ordered, and the decision names who only observes and the checkpoint."""
    story = _launched(acts=acts, policy=policy)
    story.say(KILLED)
    assert story.told == [("opened", "restart", "would_have")]
    assert who in story.decisions[0].reason
    assert "step 120" in story.decisions[0].reason
    assert story.orders() == []


def test_without_a_launcher_a_person_is_asked() -> None:
    """Who sees a hang and can end nothing says how that would have been possible."""
    story = Launched()
    story.tell(PhaseChange(at=0.0, phase="train", step=0))
    story.steps(30)
    story.beats(21)
    assert story.told == [("opened", "escalate", "ordered")]
    assert "sentinel run" in story.decisions[0].reason


def test_the_budget_of_the_launcher_and_of_the_policy_end_with_a_person(story: Launched) -> None:
    """A launcher without a restart left, and a policy that allows none, are not asked for one."""
    story.say(CrashReport(at=0.0, exit_code=1, restarts_left=0))
    none_left = _launched(policy=DEFAULT_POLICY.replace("\nrestarts = 3", "\nrestarts = 0"))
    none_left.say(KILLED)
    for each in (story, none_left):
        assert each.told == [("opened", "escalate", "ordered")]
        assert each.orders() == []
    assert "no restart left" in story.decisions[0].reason
    assert "budget" in none_left.decisions[0].reason


def test_a_hold_withholds_and_a_release_restarts(story: Launched) -> None:
    """While a person holds the run nothing is started; an order that was under way is void."""
    story.say(KILLED)
    story.tell(OperatorRequest(at=0.0, request="hold", by="ada"))
    assert (story.orders(), story.told[-1]) == ([], ("action failed", "restart", "withheld"))
    for _ in range(3):  # a hold is no failure of the order
        story.tell(OperatorRequest(at=0.0, request="release"))
        assert [type(each) for each in story.orders()] == [Restart]
        story.tell(OperatorRequest(at=0.0, request="hold", by="ada"))
    story.tell(OperatorRequest(at=0.0, request="release"))
    assert [type(each) for each in story.orders()] == [Restart]


def test_where_every_checkpoint_is_in_doubt_nothing_begins_anew() -> None:
    """The script might begin at its first step and lose what a person can still save: a person is asked."""
    story = Launched(policy=DEFAULT_POLICY.replace('symptoms = ["nonfinite"]', 'symptoms = ["hang"]'))
    story.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=3))
    story.steps(60)
    story.checkpoint("c60")
    story.steps(3)
    story.steps(1, loss=math.nan, grad_norm=math.nan)
    story.say(KILLED)
    assert story.orders() == []
    assert story.told[-1] == ("opened", "escalate", "ordered")
    assert story.decisions[-1].reason.startswith("every checkpoint is in doubt, the newest of step 60")


def test_a_crash_that_is_told_late_is_answered_when_the_launcher_speaks_again(story: Launched) -> None:
    """History gets no order; the launcher that still stands by gets it with its next word, and not before."""
    story.backlog = True
    story.say(KILLED)
    story.backlog = False
    story.tell(ActionResult(at=0.0, action=ActionId("the alert"), outcome="succeeded"))
    assert story.told == [("opened", "restart", "withheld")]
    story.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=3))
    assert story.told[-1] == ("reconsidered", "restart", "ordered")


def test_a_crash_on_the_way_back_is_decided_anew(story: Launched) -> None:
    """The process that dies before it has passed the step is restarted again, as the same incident."""
    story.say(KILLED)
    story.start_again(120)
    story.say(KILLED, attempt=NEXT)
    assert story.told[-1] == ("recurred", "restart", "ordered")
    assert len(story.orders(NEXT)) == 1
    story.say(CrashReport(at=0.0, exit_code=1, restarts_left=1), attempt=NEXT)
    assert len(story.orders(NEXT)) == 1, "an order under way is not given twice"


def test_a_crash_before_anything_was_trained_is_an_incident_too() -> None:
    """A launcher speaks of an attempt that never began; there is no checkpoint, so the script begins by itself."""
    story = Launched()
    story.pipeline = Pipeline(RUN)
    story.tell(PolicyChanged(at=0.0, policy=DEFAULT_POLICY))
    for told in (LauncherStarted(at=0.0, can_restart=True, restarts_left=3), KILLED):
        story.say(told, attempt="launch-1")
    assert story.told == [("opened", "restart", "ordered")]
    (order,) = story.orders("launch-1")
    assert (order.checkpoint, order.attempt) == (None, "launch-1")


def test_another_rank_says_nothing_of_the_first_ones_life(story: Launched) -> None:
    """Its agent's last word, by a clock of its own, neither ends a silence nor makes a hang."""
    for tick in range(1, 24):
        story.tell(Tick(at=0.0, silent_s=5.0 * tick))
        story.say(Heartbeat(at=1e9 + 100.0 * tick, step=123), SenderId("rank-1"))
    story.tell(Tick(at=0.0, silent_s=120.0))
    assert story.told == [("opened", "restart", "withheld")]


def test_a_hang_is_dumped_first_and_then_restarted(story: Launched) -> None:
    """The stacks are asked for at once, the restart waits for them, and a step in between makes both void."""
    story.beats(21)
    assert story.told == [("opened", "restart", "withheld")]
    (dump,) = story.orders()
    assert type(dump) is DumpStacks
    story.say(CommandResult(at=0.0, command=dump.id, outcome="succeeded", step=123))
    assert story.told[-1] == ("reconsidered", "restart", "ordered")
    (order,) = story.orders()
    assert type(order) is Restart
    story.steps(1)
    assert (story.told[-1][0], story.process_incident.state, story.orders()) == ("passed", "resolved", [])


def test_in_observe_mode_a_hang_is_dumped_too() -> None:
    """To look is harmless: the stacks are evidence, and the restart is what would have been done."""
    story = _launched(acts=False)
    story.beats(21)
    (dump,) = story.orders()
    story.say(CommandResult(at=0.0, command=dump.id, outcome="succeeded", step=123))
    assert story.told[-1] == ("reconsidered", "restart", "would_have")
    assert story.orders() == []


def test_silence_is_acted_on_only_when_the_launcher_was_heard_and_the_silence_went_on(story: Launched) -> None:
    """A cut link looks like a hang: who comes back with it must be able to speak before anything is ended."""
    for tick in range(1, 25):
        story.tell(Tick(at=0.0, silent_s=5.0 * tick))
    assert story.told == [("opened", "restart", "withheld")]
    (dump,) = story.orders()
    story.say(CommandResult(at=0.0, command=dump.id, outcome="succeeded", step=123))
    story.tell(Tick(at=0.0, silent_s=150.0))
    assert story.orders() == []
    story.tell(Tick(at=0.0, silent_s=180.0))
    assert [type(each) for each in story.orders()] == [Restart]


def test_a_launcher_that_never_says_where_the_threads_stand_is_gone(story: Launched) -> None:
    """Nothing is ordered from it any more: it would come when the link is back, to a run that trains."""
    story.beats(21)
    story.beats(10)
    assert story.orders() == []
    assert story.told[-1] == ("reconsidered", "escalate", "ordered")
    assert "no launcher" in story.decisions[-1].reason


def test_a_daemon_that_has_just_begun_to_listen_finds_no_hang(story: Launched) -> None:
    """The silence of senders that have not found it again is not held against them."""
    story.tell(PipelineStarted(at=0.0, version="3"))
    for tick in range(1, 8):
        story.tell(Tick(at=0.0, silent_s=5.0 * tick))
    assert story.decisions == []


def test_a_restart_survives_a_snapshot(story: Launched) -> None:
    """A daemon that is restarted between the order and its answer gives the same order again."""
    story.say(KILLED)
    other = Pipeline(RUN)
    other.restore(parse(dumps(story.pipeline.snapshot())))
    assert other.commands_for(AttemptId(ATTEMPT), LAUNCHER) == story.pipeline.commands_for(AttemptId(ATTEMPT), LAUNCHER)


def test_what_has_died_need_not_say_where_it_stood(story: Launched) -> None:
    """A process that dies while its stacks are awaited, or soon after, is started again: nothing else will be heard."""
    story.beats(21)
    (dump,) = story.orders()
    died = story.say(KILLED)
    assert [(each.action, each.event) for each in died.action_changes] == [(dump.id, "expire")]
    assert [type(each) for each in story.orders()] == [Restart]
    cut_off = _launched()
    for tick in range(1, 25):
        cut_off.tell(Tick(at=0.0, silent_s=5.0 * tick))
    (dump,) = cut_off.orders()
    cut_off.say(CommandResult(at=0.0, command=dump.id, outcome="succeeded", step=123))
    cut_off.say(KILLED)
    assert [type(each) for each in cut_off.orders()] == [Restart]


def test_another_nodes_launcher_does_not_stand_in_for_the_trainings_own(story: Launched) -> None:
    """It has no rank 0 and so an attempt of its own making: orders go on to the one that has."""
    story.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=3), attempt="l-made-up")
    assert (story.say(KILLED, attempt="l-made-up").decisions, story.orders("l-made-up")) == ([], [])
    story.beats(21)
    assert [type(each) for each in story.orders()] == [DumpStacks]


def test_a_launcher_may_speak_before_its_attempt_begins(story: Launched) -> None:
    """Two threads tell of the same start: whoever is heard first, the next crash is answered."""
    story.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=2), attempt=NEXT)
    story.start_again(120)
    story.say(KILLED, attempt=NEXT)
    assert [type(each) for each in story.orders(NEXT)] == [Restart]


def test_old_news_of_a_crash_does_not_dismiss_the_launcher_of_the_next_attempt(story: Launched) -> None:
    """What lay on disk is delivered behind the launcher's word for the attempt that it has started since."""
    story.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=2), attempt=NEXT)
    story.backlog = True
    story.say(KILLED)
    story.backlog = False
    story.start_again(120)
    story.say(PhaseChange(at=0.0, phase="train", step=120), SENDER, attempt=NEXT)
    story.next_steps(20)
    story.beats(21, attempt=NEXT)
    assert [type(each) for each in story.orders(NEXT)] == [DumpStacks]


def test_a_launcher_that_leaves_is_ordered_nothing_more(story: Launched) -> None:
    """A hold withholds the restart, the launcher ends: at the release a person is asked, not one that is gone."""
    story.tell(OperatorRequest(at=0.0, request="hold", by="ada"))
    story.say(KILLED)
    story.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=0))
    story.tell(OperatorRequest(at=0.0, request="release"))
    assert (story.told[-1], story.orders()) == (("reconsidered", "escalate", "ordered"), [])
    ordered = _launched()
    ordered.say(KILLED)
    ordered.say(LauncherStarted(at=0.0, can_restart=True, restarts_left=0))
    assert (ordered.told[-1], ordered.orders()) == (("action failed", "escalate", "ordered"), [])
