"""Two daemons over one PostgreSQL: one writes, the other takes over when the first is killed, stopped or ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from sentinel import clock
from sentinel.domain.errors import StoreUnavailable
from sentinel.engine.replay import replay
from sentinel.protocol import codec
from sentinel.protocol.commands import Reply
from sentinel.protocol.observations import ObservationBatch, StepReport
from sentinel.store import observation_log
from sentinel.store.session import open_database
from tests.builders import RUN
from tests.daemons import DaemonProcess, Speaker, Voice, database_url, make_schema, writing
from tests.postgres import PostgresServer

pytestmark = [
    pytest.mark.usefixtures("every_store"),
    pytest.mark.parametrize("every_store", ["postgresql"], indirect=True),
]
WITHIN_S = 10.0


class Persistent(Speaker):
    """Goes from daemon to daemon until one takes the batch."""

    def __init__(self, *daemons: DaemonProcess) -> None:
        super().__init__()
        self.http = httpx.Client(timeout=2.0)
        self.urls = [each.url for each in daemons]
        self.took_s = 0.0

    def send(self, batch: ObservationBatch) -> Reply:
        """Posts until it is taken; the daemon that took it is asked first from then on."""
        began = clock.monotonic()
        while True:
            try:
                answer = self.http.post(
                    f"{self.urls[0]}/v1/observations",
                    content=codec.dumps(batch),
                    headers={"Content-Type": "application/json"},
                )
            except httpx.TransportError:
                answer = httpx.Response(503)
            self.took_s = clock.monotonic() - began
            if answer.status_code == 200:
                return codec.decode_reply(codec.parse(answer.content))
            assert answer.status_code == 503
            assert self.took_s < 30.0
            self.urls.append(self.urls.pop(0))
            clock.sleep(0.05)


@contextmanager
def two_daemons(folder: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """The one that is on duty, and the one that stands by."""
    make_schema(folder)
    with ExitStack() as ends:
        first = DaemonProcess(folder)
        ends.callback(first.end, signal.SIGKILL)
        second = DaemonProcess(folder)
        ends.callback(second.end, signal.SIGKILL)
        yield first, second


def check_log(folder: Path, steps: int) -> None:
    """Every step is in the log once and in order, no sequence is missing, and the decisions follow from the log."""
    database = open_database(database_url(folder))
    with database.reading() as connection:
        entries = [each.entry for each in observation_log.read(connection, RUN)]
    assert [each.sequence for each in entries] == list(range(1, len(entries) + 1))
    told = [each.observation.step for each in entries if isinstance(each.observation, StepReport)]
    assert told == list(range(1, steps + 1))
    assert replay(database, RUN).difference is None
    database.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_the_standby_takes_over_and_nothing_is_lost_or_doubled(tmp_path: Path, number: signal.Signals) -> None:
    """Within 10 s the standby answers, each step is in the log once, an order keeps its id, who wakes later ends."""
    with two_daemons(tmp_path) as (first, second), ExitStack() as ends:
        speaker = Persistent(first, second)
        ends.callback(speaker.http.close)
        waiting = httpx.get(f"{second.url}/ready")
        assert (waiting.status_code, waiting.json()["ready"]) == (503, False)
        assert "stands by" in waiting.json()["reasons"][0]
        refused = httpx.post(f"{second.url}/v1/observations", json={"observations": []})
        assert refused.status_code == 422
        speaker.ready_to_roll_back()
        (order,) = speaker.break_down().commands
        first.process.send_signal(number)
        if number == signal.SIGTERM:
            first.process.wait(timeout=30)  # it answers until its end
        assert speaker.train(1, loss=float("nan")).commands == (order,)
        print(f"taken over after {number.name} in {speaker.took_s:.1f} s")
        assert speaker.took_s < (2.0 + WITHIN_S if number == signal.SIGSTOP else WITHIN_S)  # 2 s: the client's patience
        assert speaker.urls[0] == second.url
        assert httpx.get(f"{second.url}/ready").json() == {"ready": True, "reasons": []}
        if number == signal.SIGSTOP:
            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(timeout=30) == 1
            assert any("another daemon has taken over" in line for line in first.log)
        assert speaker.train(10, loss=float("nan")).commands == (order,)
        check_log(tmp_path, speaker.step)


def test_a_daemon_outlives_its_database_server(tmp_path: Path, postgres: PostgresServer) -> None:
    """While PostgreSQL is dead observations are refused; when it is back they are taken, by the same daemon, once."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        batch = voice.batch(voice.reports(50))
        postgres.kill()
        with pytest.raises(StoreUnavailable):
            voice.send(batch)
        postgres.start()
        assert voice.send(batch).accepted == 50
    check_log(tmp_path, voice.step)
