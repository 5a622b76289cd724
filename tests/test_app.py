from __future__ import annotations

import os
import signal
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from sentinel.app import Daemon
from sentinel.domain.errors import InvalidInput, StoreUnavailable
from sentinel.settings import Settings
from sentinel.store.session import lock
from tests.builders import RUN
from tests.daemons import Agent, DaemonProcess, database_url, serving
from tests.receiver import Receiver


def test_a_fresh_folder_is_enough(tmp_path: Path) -> None:
    """A daemon makes its database, takes any free port, says where it listens, and answers there."""
    with serving(tmp_path) as daemon:
        assert daemon.url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{daemon.url}/ready").json() == {"ready": True, "reasons": []}
    with pytest.raises(httpx.ConnectError):
        httpx.get(daemon.url)


def test_it_listens_on_ipv6_too(tmp_path: Path) -> None:
    """The loopback address of IPv6 is an address like the other, with its brackets in the URL."""
    with serving(tmp_path, host="::1") as daemon:
        assert daemon.url.startswith("http://[::1]:")
        assert httpx.get(f"{daemon.url}/health").status_code == 200


def test_a_restart_goes_on_where_the_run_stood(tmp_path: Path) -> None:
    """The fault that one daemon found is ordered away by the next one, and known there as open."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
        agent.ready_to_roll_back()
        (command,) = agent.break_down().commands
        before = agent.get(f"/v1/runs/{RUN}")
    with serving(tmp_path) as daemon, Agent(daemon.url) as again:
        after = again.get(f"/v1/runs/{RUN}")
        assert {**after, "sequence": 0} == {**before, "sequence": 0, "blind": True}
        assert 'sentinel_incidents_open{run="run-1",severity="critical"} 1.0' in again.http.get("/metrics").text
        again.counter, again.step = agent.counter, agent.step
        assert again.train(1, loss=2.0).commands == (command,)
        again.roll_back(command.id, 20)
        again.train(40)
        assert again.get(f"/v1/incidents/{command.incident}")["state"] == "resolved"


def test_alerts_reach_a_webhook_without_waiting_for_the_clock(tmp_path: Path) -> None:
    """The beginning and the end of an incident are posted once each, with a link that leads to it."""
    with Receiver() as receiver:
        with serving(tmp_path, webhook_url=receiver.url) as daemon, Agent(daemon.url) as agent:
            agent.ready_to_roll_back()
            (command,) = agent.break_down().commands
            (firing,) = receiver.wait_for(1)
            assert command.incident in httpx.get(firing.body["link"]).text
            agent.roll_back(command.id, 20)
            agent.train(40)
            receiver.wait_for(2)
        assert [each.body["status"] for each in receiver.received] == ["firing", "resolved"]


def test_links_lead_where_people_reach_the_daemon(tmp_path: Path) -> None:
    """Behind a proxy, links in notices begin with the address that was named for people."""
    with serving(tmp_path, public_url="https://sentinel.example/") as daemon, Agent(daemon.url) as agent:
        agent.ready_to_roll_back()
        (notice,) = agent.break_down().notices
        assert notice.link == f"https://sentinel.example/incidents/{notice.incident}"


def test_a_second_daemon_is_refused_its_database(tmp_path: Path) -> None:
    """While one has the file another does not start, leaves its port free, and the first goes on."""
    with serving(tmp_path) as daemon:
        second = Daemon(Settings(port=0, database_url=database_url(tmp_path)))
        with pytest.raises(StoreUnavailable, match="another daemon has the database"):
            second.start()
        with pytest.raises(httpx.ConnectError):
            httpx.get(second.url)
        assert httpx.get(f"{daemon.url}/health").status_code == 200


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """Where somebody listens already the start fails with host and port, before the database is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            InvalidInput, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use; end what"
        ):
            Daemon(Settings(port=port, database_url=database_url(tmp_path))).start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["policy_file", "token_file"])
def test_a_failed_start_leaves_nothing_behind(tmp_path: Path, wrong: str) -> None:
    """After a start that was refused the same folder serves a right one, and no thread of the first is left."""
    threads = threading.active_count()
    daemon = Daemon(Settings(port=0, database_url=database_url(tmp_path), **{wrong: tmp_path / "absent"}))
    with pytest.raises(InvalidInput, match="absent cannot be read"):
        daemon.start()
    assert threading.active_count() == threads
    lock(database_url(tmp_path)).close()
    with serving(tmp_path):
        pass


def test_a_corrupt_database_stops_the_start_and_stays_as_it_is(tmp_path: Path) -> None:
    """The file is named with the remedy, and no byte of it is changed."""
    path = tmp_path / "sentinel.db"
    path.write_bytes(b"SQLite format 3\0" + os.urandom(8192))
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"sentinel\.db is no sound SQLite database .* restore a copy"):
        Daemon(Settings(port=0, database_url=database_url(tmp_path))).start()
    assert path.read_bytes() == before


def test_a_stopped_daemon_can_be_followed_by_another_at_once(tmp_path: Path) -> None:
    """Stopping gives back port, lock, threads and files: the next daemon takes the same ones."""
    threads = threading.active_count()
    with serving(tmp_path) as first, Agent(first.url) as agent:
        agent.start()
        port = int(first.url.rpartition(":")[2])
    assert threading.active_count() == threads
    with serving(tmp_path, port=port) as second:
        assert second.url == first.url


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_and_nothing_accepted_is_lost(tmp_path: Path, number: signal.Signals) -> None:
    """Under a stream of reports a signal ends the process with code 0; all that was answered is in the database."""
    daemon = DaemonProcess(tmp_path)
    accepted = 0
    warm, ended = threading.Event(), threading.Event()

    def report() -> None:
        nonlocal accepted
        with Agent(daemon.url) as agent:
            try:
                while True:
                    accepted += agent.train(3).accepted
                    if accepted > 30:
                        warm.set()
            except (httpx.HTTPError, AssertionError):
                ended.set()

    sender = threading.Thread(target=report)
    sender.start()
    assert warm.wait(timeout=30)
    assert daemon.end(number) == 0, daemon.log
    assert ended.wait(timeout=30)
    sender.join()
    with closing(sqlite3.connect(tmp_path / "sentinel.db")) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM observations WHERE kind = 'step'").fetchone()
    assert kept >= accepted
    assert f"ending: {number.name}" in "".join(daemon.log)


def test_a_killed_daemon_has_lost_nothing_that_it_accepted(tmp_path: Path) -> None:
    """After kill -9 the next daemon opens the same file, and the run stands where the last answer said."""
    daemon = DaemonProcess(tmp_path)
    with Agent(daemon.url) as agent:
        agent.ready_to_roll_back()
    assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path) as second, Agent(second.url) as again:
        assert again.get(f"/v1/runs/{RUN}")["step"] == 80
        again.counter, again.step = agent.counter, agent.step
        assert [command.step for command in again.break_down().commands] == [20]


def test_an_unreachable_webhook_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """With an alert that nobody takes the daemon still ends, and the next one sends it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/hook"
        with serving(tmp_path, webhook_url=url) as daemon, Agent(daemon.url) as agent:
            agent.ready_to_roll_back()
            agent.break_down()
    with closing(sqlite3.connect(tmp_path / "sentinel.db")) as connection:
        (state,) = connection.execute("SELECT state FROM actions WHERE executor = 'alert'").fetchone()
    assert state in ("planned", "claimed")
