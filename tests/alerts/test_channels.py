from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from sentinel.alerts.log_channel import LogChannel
from sentinel.alerts.webhook import Webhook
from sentinel.domain.actions import Action
from sentinel.domain.executor import Execution
from sentinel.protocol.ids import ActionId, IncidentId
from tests.receiver import Receiver

PUBLIC_URL = "https://sentinel.example"
ALERT = Action(
    id=ActionId("run-1.a81.0"),
    incident=IncidentId("run-1.i81"),
    executor="alert",
    payload={
        "status": "firing",
        "run": "run-1",
        "incident": "run-1.i81",
        "symptom": "nonfinite",
        "severity": "critical",
        "onset_step": 81,
        "step": 81,
        "what": "loss is nan",
        "why_told": "back to step 20",
        "at": 1000.0,
    },
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with Receiver() as receiver:
        yield receiver


def post(url: str) -> Execution:
    """Sends the alert to a webhook."""
    with closing(Webhook(url, PUBLIC_URL)) as webhook:
        return webhook.execute(ALERT)


def test_the_log_has_all_of_an_alert_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """One warning tells what, why and where; the end of an incident is no warning."""
    channel = LogChannel(PUBLIC_URL)
    with caplog.at_level(logging.INFO):
        assert channel.execute(ALERT) == Execution(done=True)
        resolved = {**ALERT.payload, "status": "resolved"}
        channel.execute(Action(id=ALERT.id, incident=ALERT.incident, executor="alert", payload=resolved))
    firing, end = caplog.records
    assert (firing.levelname, end.levelname) == ("WARNING", "INFO")
    assert firing.getMessage() == (
        "[firing] nonfinite in run run-1: loss is nan; back to step 20 (https://sentinel.example/incidents/run-1.i81)"
    )


def test_a_webhook_gets_words_fields_and_keys(receiver: Receiver) -> None:
    """The POST is JSON with title, text, link and fields; its key and dedup_key are those of the alert."""
    assert post(receiver.url) == Execution(done=True)
    (received,) = receiver.received
    assert received.key == received.body["id"] == "run-1.a81.0"
    assert received.body["dedup_key"] == "run-1.i81/firing"
    assert received.body["title"] == "[firing] nonfinite in run run-1"
    assert received.body["link"] == "https://sentinel.example/incidents/run-1.i81"
    assert received.body["fields"]["onset_step"] == 81


@pytest.mark.parametrize(
    ("status", "done", "retryable"),
    [(200, True, True), (204, True, True), (400, False, False), (404, False, False), (410, False, False)]
    + [(status, False, True) for status in (301, 408, 429, 500, 502, 503)],
)
def test_an_answer_says_whether_to_try_again(status: int, done: bool, retryable: bool) -> None:  # noqa: FBT001
    """Success is done; a refusal is final but for too slow and too often; all else may pass."""
    with Receiver([status]) as receiver:
        execution = post(receiver.url)
    assert (execution.done, execution.retryable) == (done, retryable)
    assert done or f"HTTP {status}" in execution.reason


def test_a_receiver_that_is_away_may_come_back() -> None:
    """A refused connection is a failure with its reason, worth another try, and no exception."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        execution = post(f"http://127.0.0.1:{unused.getsockname()[1]}/hook")
    assert (execution.done, execution.retryable) == (False, True)
    assert "does not answer: ConnectError" in execution.reason


def test_numbers_that_json_lacks_are_spelled(receiver: Receiver) -> None:
    """A NaN among the fields arrives as text that any JSON reader takes."""
    action = Action(
        id=ALERT.id, incident=ALERT.incident, executor="alert", payload={**ALERT.payload, "at": float("nan")}
    )
    with closing(Webhook(receiver.url, PUBLIC_URL)) as webhook:
        assert webhook.execute(action).done
    assert json.loads(json.dumps(receiver.received[0].body, allow_nan=False))["fields"]["at"] == "NaN"
