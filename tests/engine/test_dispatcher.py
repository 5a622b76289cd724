from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from sentinel import clock
from sentinel.alerts.message import message
from sentinel.alerts.webhook import Webhook
from sentinel.domain.actions import Action
from sentinel.domain.errors import StoreUnavailable
from sentinel.domain.executor import Execution, Route
from sentinel.engine.dispatcher import MOST_TRIES, Dispatcher
from sentinel.engine.writer import Writer
from sentinel.protocol.ids import ActionId, IncidentId
from sentinel.protocol.observations import ActionResult, OperatorRequest
from sentinel.store import action_outbox, alert_claims, decision_log, observation_log
from tests.alerts.alert import alert
from tests.builders import RUN
from tests.daemons import Voice, writing
from tests.receiver import Receiver

pytestmark = pytest.mark.usefixtures("every_store")

PUBLIC_URL = "http://daemon:8321"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A writer with one run in which a critical incident is open: one alert is planned."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        voice.break_down()
        yield writer


class Channel:
    """A channel that does what it is told, and remembers what it was given."""

    def __init__(self, name: str, answer: Callable[[Action], Execution]) -> None:
        self.name = name
        self.actions: list[Action] = []
        self._answer = answer

    def execute(self, action: Action) -> Execution:
        """Notes the action and answers."""
        self.actions.append(action)
        return self._answer(action)


def works(_action: Action) -> Execution:
    """Is sent."""
    return Execution(done=True)


def breaks(_action: Action) -> Execution:
    """Has a bug."""
    raise ZeroDivisionError("a bug")


def settle_incident(writer: Writer) -> None:
    """A person settles the run's open incident, which plans the alert that it is over."""
    (incident,) = writer.write(lambda connection: decision_log.incident_documents(connection, run=RUN)).result()
    request = OperatorRequest(at=clock.now(), request="resolve", incident=incident["id"], by="me")
    writer.tell(RUN, lambda _stream: request).result()


def let_waits_pass(writer: Writer) -> None:
    """Makes every action due."""
    writer.write(lambda connection: connection.execute(text("UPDATE actions SET due_at = 0"))).result()


def results(writer: Writer) -> list[tuple[str, str]]:
    """Outcome and reason of every action result in the run's log."""
    read = writer.write(lambda connection: list(observation_log.read(connection, RUN))).result()
    told = [each.entry.observation for each in read]
    return [(each.outcome, each.reason) for each in told if isinstance(each, ActionResult)]


def test_each_status_of_an_incident_is_sent_once(writer: Writer) -> None:
    """However often the dispatcher looks, people hear once that it fires and once that it is over."""
    channel = Channel("test", works)
    dispatcher = Dispatcher(writer, [Route(channel)])
    for _ in range(3):
        dispatcher.dispatch()
        let_waits_pass(writer)
    settle_incident(writer)
    for _ in range(3):
        dispatcher.dispatch()
        let_waits_pass(writer)
    assert [action.payload["status"] for action in channel.actions] == ["firing", "resolved"]
    assert results(writer) == [("succeeded", ""), ("succeeded", "")]


def test_a_webhook_that_fails_twice_gets_it_at_the_third_try(writer: Writer) -> None:
    """The same alert, with the same key, is sent until the receiver takes it; each try is counted."""
    tried: list[tuple[str, str]] = []
    with Receiver([500, 503]) as receiver, closing(Webhook(receiver.url, PUBLIC_URL)) as webhook:
        dispatcher = Dispatcher(writer, [Route(webhook)], lambda channel, outcome: tried.append((channel, outcome)))
        settled = []
        for _ in range(4):
            settled.append(dispatcher.dispatch())
            let_waits_pass(writer)
    assert settled == [0, 0, 1, 0]
    assert len(receiver.received) == 3
    assert len({each.key for each in receiver.received}) == 1
    assert tried == [("webhook", "failed"), ("webhook", "failed"), ("webhook", "sent")]
    assert results(writer) == [("succeeded", "")]


def test_a_try_waits_its_time(writer: Writer) -> None:
    """What failed is not tried again at once."""
    with Receiver([500]) as receiver, closing(Webhook(receiver.url, PUBLIC_URL)) as webhook:
        dispatcher = Dispatcher(writer, [Route(webhook)])
        dispatcher.dispatch()
        dispatcher.dispatch()
        assert len(receiver.received) == 1


def test_a_refusal_for_good_is_not_repeated(writer: Writer) -> None:
    """A receiver that refuses the alert as such is asked once; the log says why it failed."""
    with Receiver([404]) as receiver, closing(Webhook(receiver.url, PUBLIC_URL)) as webhook:
        dispatcher = Dispatcher(writer, [Route(webhook)])
        for _ in range(2):
            dispatcher.dispatch()
            let_waits_pass(writer)
    assert len(receiver.received) == 1
    assert results(writer) == [("failed", "the webhook answered HTTP 404")]


def test_a_daemon_that_died_before_the_answer_sends_it_again(tmp_path: Path) -> None:
    """An alert that was claimed and not answered for is sent by the next daemon, under the same key."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        voice.break_down()
        claimed = writer.write(lambda c: alert_claims.claim_due(c, at=clock.now())).result()
    with (
        writing(tmp_path) as writer,
        Receiver() as receiver,
        closing(Webhook(receiver.url, PUBLIC_URL)) as webhook,
    ):
        dispatcher = Dispatcher(writer, [Route(webhook)])
        assert dispatcher.dispatch() == 0
        let_waits_pass(writer)
        assert dispatcher.dispatch() == 1
        assert [each.key for each in receiver.received] == [claim.id for claim in claimed]


def test_one_channel_with_a_bug_does_not_silence_the_others(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    """The channel that works has the alert at once and not again; the other is tried so often and no more."""
    broken, working = Channel("broken", breaks), Channel("working", works)
    tried: list[tuple[str, str]] = []
    dispatcher = Dispatcher(
        writer, [Route(broken), Route(working)], lambda channel, outcome: tried.append((channel, outcome))
    )
    for _ in range(MOST_TRIES + 2):
        dispatcher.dispatch()
        let_waits_pass(writer)
    assert (len(broken.actions), len(working.actions)) == (MOST_TRIES, 1)
    assert tried.count(("broken", "failed")) == MOST_TRIES
    assert results(writer) == [("failed", "the channel raised an error: see the daemon's log")]
    assert "channel broken failed on alert" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("route", "is_told"),
    [
        ({"severity": "critical"}, True),
        ({"runs": "run-*"}, True),
        ({"severity": "warning", "runs": "other-*"}, False),
    ],
)
def test_a_channel_gets_the_alerts_of_its_runs_and_severity(
    writer: Writer, route: dict[str, Any], *, is_told: bool
) -> None:
    """Others are settled without it."""
    channel = Channel("test", works)
    assert Dispatcher(writer, [Route(channel, **route)]).dispatch() == 1
    assert len(channel.actions) == is_told
    assert results(writer) == [("succeeded", "")]


@pytest.mark.parametrize(("told", "is_taken"), [("warning", False), ("critical", True)])
def test_the_end_goes_to_whoever_was_told_of_the_beginning(told: str, *, is_taken: bool) -> None:
    """A channel for critical alerts hears the end of one that was critical when it was told, whatever it is now."""
    payload = {"severity": "warning", "told_severity": told, "run": RUN}
    action = Action(id=ActionId("a"), incident=IncidentId("i"), executor="alert", payload=payload)
    assert Route(Channel("test", works), severity="critical").takes(action) is is_taken


def test_one_cause_is_one_message(writer: Writer) -> None:
    """Hangs of many runs are sent as one POST, each channel's own runs alone, and each action gets its result."""
    for number in range(30):
        action = alert(f"llm-{number % 3}", symptom="hang", shared_cause="firing critical", node=f"n{number}")
        action = replace(action, id=ActionId(f"a{number}"))
        writer.write(lambda c, action=action: action_outbox.plan(c, RUN, [action], at=0.0)).result()
    everything, some = Channel("everything", works), Channel("some", works)
    dispatcher = Dispatcher(writer, [Route(everything), Route(some, runs="llm-2")])
    assert dispatcher.dispatch() == 31
    told = [message(each, PUBLIC_URL) for each in everything.actions]
    assert [each.title for each in told] == [
        "[firing] hang in 3 runs on 30 nodes",
        "[firing] nonfinite in run run-1",
    ]
    assert len(told[0].text.splitlines()) == 21
    (mine,) = some.actions
    assert message(mine, PUBLIC_URL).title == "[firing] hang in 1 run on 10 nodes"
    assert mine.id == everything.actions[0].id
    settled = writer.write(lambda c: [each["state"] for each in action_outbox.of_incident(c, mine.incident)]).result()
    assert settled == ["succeeded"] * 10


def test_a_dispatcher_that_is_stopped_sends_no_more(writer: Writer) -> None:
    """At the end of the daemon what is planned stays planned for the next one."""
    channel = Channel("test", works)
    dispatcher = Dispatcher(writer, [Route(channel)])
    dispatcher.stop()
    assert dispatcher.dispatch() == 0
    assert channel.actions == []
    let_waits_pass(writer)
    assert Dispatcher(writer, [Route(channel)]).dispatch() == 1


@pytest.mark.parametrize("every_store", ["sqlite"], indirect=True)
def test_without_a_database_nothing_is_sent(writer: Writer) -> None:
    """An outbox that cannot be written is said to be so, and no alert goes out that could not be noted."""
    channel = Channel("test", works)
    dispatcher = Dispatcher(writer, [Route(channel)])
    refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON actions BEGIN SELECT RAISE(ABORT, 'no more'); END"
    writer.write(lambda connection: connection.execute(text(refuse))).result()
    with pytest.raises(StoreUnavailable, match="no more"):
        dispatcher.dispatch()
    assert channel.actions == []
