from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from email import message_from_bytes
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from sentinel.alerts import apprise_channel
from sentinel.alerts.apprise_channel import AppriseChannel
from tests.alerts.alert import PUBLIC_URL, alert
from tests.ports import free_port


class Sink:
    """Takes e-mail, unless it is told to wait."""

    def __init__(self) -> None:
        self.letters: list[Any] = []
        self.open = threading.Event()
        self.open.set()

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Keeps a letter."""
        await asyncio.to_thread(self.open.wait, 30.0)
        self.letters.append(envelope)
        return "250 taken"


@pytest.fixture
def sink() -> Sink:
    """A mailbox."""
    return Sink()


@pytest.fixture
def url(sink: Sink) -> Iterator[str]:
    """An address of Apprise's that leads there."""
    controller = Controller(sink, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield f"mailto://127.0.0.1:{controller.port}/ops@example.org?from=sentinel@example.org"
    controller.stop()


def test_an_alert_comes_by_e_mail(sink: Sink, url: str) -> None:
    """Through Apprise a letter has the title, the words and the link."""
    assert AppriseChannel("mail", url, PUBLIC_URL).execute(alert()).done
    (envelope,) = sink.letters
    assert envelope.rcpt_tos == ["ops@example.org"]
    letter = message_from_bytes(envelope.content)
    assert letter["Subject"] == "[firing] nonfinite in run run-1"
    (text, _html) = letter.get_payload()
    words = text.get_payload(decode=True).decode()
    assert "loss is nan" in words
    assert "https://sentinel.example/incidents/run-1.i81" in words


def test_a_server_that_is_away_may_come_back(caplog: pytest.LogCaptureFixture) -> None:
    """Apprise swallows the error and says false: the channel says why, without the password in the address."""
    address = f"mailto://sentinel:hunter2@127.0.0.1:{free_port()}/ops@example.org?from=sentinel@example.org"
    with caplog.at_level(logging.DEBUG):
        execution = AppriseChannel("mail", address, PUBLIC_URL).execute(alert())
    assert (execution.done, execution.retryable) == (False, True)
    assert "onnection" in execution.reason
    assert "hunter2" not in execution.reason + caplog.text


def test_a_service_that_hangs_is_not_waited_for(sink: Sink, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The try ends with the channel's own timeout; until it has come back no second one is begun."""
    monkeypatch.setattr(apprise_channel, "TIMEOUT_S", 0.2)
    channel = AppriseChannel("mail", url, PUBLIC_URL)
    sink.open.clear()
    first, second = channel.execute(alert()), channel.execute(alert())
    assert (first.done, first.retryable, "no answer within" in first.reason) == (False, True, True)
    assert "has not come back" in second.reason
    sink.open.set()
    assert channel._thread is not None
    channel._thread.join()
    monkeypatch.undo()
    assert channel.execute(alert()).done
    assert len(sink.letters) == 2
