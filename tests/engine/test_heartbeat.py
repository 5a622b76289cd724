from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from sentinel.domain.errors import SentinelError, StoreUnavailable
from sentinel.engine.dispatcher import Dispatcher
from sentinel.engine.heartbeat import DISPATCHED_WITHIN_S, Heartbeat
from sentinel.engine.writer import Writer
from tests.daemons import serving, writing
from tests.ports import free_port
from tests.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Whoever is to call people when it hears nothing."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A writer that works."""
    with writing(tmp_path) as writer:
        yield writer


def test_a_daemon_that_works_is_heard(writer: Writer, receiver: Receiver) -> None:
    """Each beat is one GET; the database is written before."""
    with closing(Heartbeat(receiver.url, writer, Dispatcher(writer, []))) as heartbeat:
        heartbeat.beat()
        heartbeat.beat()
    assert len(receiver.received) == 2


def test_a_daemon_that_writes_no_more_is_silent(tmp_path: Path, receiver: Receiver) -> None:
    """A writer that takes nothing any more is not told as life."""
    (tmp_path / "other").mkdir()
    with writing(tmp_path / "other") as ended:
        dispatcher = Dispatcher(ended, [])
    with closing(Heartbeat(receiver.url, ended, dispatcher)) as heartbeat, pytest.raises(StoreUnavailable):
        heartbeat.beat()
    assert receiver.received == []


@pytest.mark.parametrize("refused", ["INSERT", "UPDATE"])
def test_a_database_that_keeps_nothing_is_silence(writer: Writer, receiver: Receiver, refused: str) -> None:
    """A commit that changes nothing would succeed on a full disk: each beat is written."""
    with closing(Heartbeat(receiver.url, writer, Dispatcher(writer, []))) as heartbeat:
        heartbeat.beat() if refused == "UPDATE" else None
        refuse = f"CREATE TRIGGER refuse BEFORE {refused} ON heartbeats BEGIN SELECT RAISE(ABORT, 'full'); END"
        writer.write(lambda connection: connection.execute(text(refuse))).result()
        before = len(receiver.received)
        with pytest.raises(StoreUnavailable, match="full"):
            heartbeat.beat()
        assert len(receiver.received) == before


def test_alerts_that_nobody_sends_are_silence(writer: Writer, receiver: Receiver) -> None:
    """A dispatcher that has not come round for five minutes is not told as life; one look makes it so again."""
    dispatcher = Dispatcher(writer, [])
    dispatcher.looked_at -= DISPATCHED_WITHIN_S + 1.0
    with closing(Heartbeat(receiver.url, writer, dispatcher)) as heartbeat:
        with pytest.raises(SentinelError, match="no alert was looked for since 301 s"):
            heartbeat.beat()
        assert receiver.received == []
        dispatcher.dispatch()
        heartbeat.beat()
    assert len(receiver.received) == 1


def test_nobody_who_hears_is_said_without_the_address(writer: Writer) -> None:
    """A refusal and an absence are errors of the job, and the secret in the path is not told."""
    with Receiver([500]) as receiver:
        for url, why in ((receiver.url, "HTTP 500"), (f"http://127.0.0.1:{free_port()}/secret", "ConnectError")):
            heartbeat = Heartbeat(url, writer, Dispatcher(writer, []))
            with closing(heartbeat), pytest.raises(SentinelError, match=f"nobody hears the heartbeat: {why}$"):
                heartbeat.beat()


def test_the_daemon_beats(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SENTINEL_HEARTBEAT_URL set a running daemon is heard again and again."""
    monkeypatch.setattr("sentinel.app.HEARTBEAT_EVERY_S", 0.05)
    with serving(tmp_path, heartbeat_url=receiver.url):
        receiver.wait_for(3)
