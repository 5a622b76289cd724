from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import pytest

from sentinel.protocol import codec
from sentinel.protocol.commands import Notice, Reply, RollBack
from sentinel.protocol.digest import digest
from sentinel.protocol.ids import AttemptId, CheckpointId, CommandId, IncidentId, RunId, SenderId
from sentinel.protocol.observations import Heartbeat, ObservationBatch
from sentinel.transport.sender import (
    BACKLOG_AFTER_S,
    BATCH_LIMIT,
    FIRST_BACK_OFF_S,
    LONGEST_BACK_OFF_S,
    PENDING_LIMIT,
    REPLY_LIMIT_BYTES,
    Sender,
)
from sentinel.transport.spool import Spool

Answer = Callable[[BaseHTTPRequestHandler], None]
ROLL_BACK = RollBack(
    id=CommandId("k"),
    incident=IncidentId("i"),
    checkpoint=CheckpointId("c"),
    digest="sha256:0",
    step=50,
    segment=0,
    expires_step=300,
)


def _answer(status: int, body: bytes, *, headers: dict[str, str] | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def _hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def _then_hang_up(answer: Answer) -> Answer:
    """Answers as if the connection stayed, then closes it, as a server does with an idle one."""

    def both(handler: BaseHTTPRequestHandler) -> None:
        answer(handler)
        handler.close_connection = True

    return both


ACCEPTED = _answer(200, codec.dumps(Reply(accepted=1)).encode())


@dataclass
class Daemon:
    """A real HTTP server that answers as told, and otherwise accepts everything."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    batches: list[ObservationBatch] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    connections: int = 0
    gate: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon on a port of its own; whoever waits for its gate is let go at the end."""
    told = Daemon()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            told.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.requests.append((self.path, dict(self.headers)))
            told.batches.append(codec.decode_batch(codec.parse(body)))
            (told.answers.pop(0) if told.answers else ACCEPTED)(self)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        told.gate.set()
        server.shutdown()
        thread.join()


@dataclass
class Clock:
    """Monotonic seconds that pass when told."""

    now: float = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


class Dial(Protocol):
    """The type of ``dial``."""

    def __call__(self, url: str, *, token: str | None = None, timeout_s: float = 5.0) -> Sender:
        """Makes a sender to a daemon's address."""


@pytest.fixture
def dial(clock: Clock) -> Iterator[Dial]:
    """Makes senders by the clock and closes them at the end."""
    made: list[Sender] = []

    def dial(url: str, *, token: str | None = None, timeout_s: float = 5.0) -> Sender:
        names = {"run": RunId("r"), "attempt": AttemptId("a"), "sender": SenderId("s")}
        made.append(Sender(url, **names, token=token, timeout_s=timeout_s, clock=clock))  # type: ignore[arg-type]
        return made[-1]

    yield dial
    for sender in made:
        sender.close()


def _offer(sender: Sender, count: int = 1) -> None:
    for step in range(count):
        sender.offer(Heartbeat(at=0.0, step=step))


def _closed_port_url() -> str:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return f"http://127.0.0.1:{server.server_port}"


def test_delivers_in_numbered_batches(daemon: Daemon, dial: Dial) -> None:
    """What is offered arrives once, in order, in batches whose first number continues the one before."""
    sender = dial(daemon.url)
    _offer(sender, BATCH_LIMIT + 3)
    assert sender.exchange() == sender.exchange() == Reply(accepted=1)
    assert [(batch.first_counter, len(batch.observations)) for batch in daemon.batches] == [(0, 500), (500, 3)]
    assert [each.step for batch in daemon.batches for each in batch.observations] == list(range(503))  # type: ignore[union-attr]
    assert (sender.pending, sender.delivered_total, sender.dropped_total, sender.problem) == (0, 503, 0, None)


def test_says_who_speaks_and_asks_nothing_when_nothing_waits(daemon: Daemon, dial: Dial) -> None:
    """The batch names protocol, run, attempt and sender; an empty one is not sent."""
    sender = dial(f"{daemon.url}/behind/a/proxy/", token="secret")
    assert sender.exchange() is None
    _offer(sender)
    sender.exchange()
    (batch,), ((path, headers),) = daemon.batches, daemon.requests
    assert (batch.protocol, batch.run, batch.attempt, batch.sender) == (1, "r", "a", "s")
    assert path == "/behind/a/proxy/v1/observations"
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", "Bearer secret")


def test_returns_commands_and_remembers_notices(daemon: Daemon, dial: Dial) -> None:
    """The reply brings the commands, and the next batch says which notice was the newest seen."""
    notices = tuple(Notice(sequence=number, incident=IncidentId("i"), text="t") for number in (4, 5))
    reply = Reply(accepted=1, commands=(ROLL_BACK,), notices=notices)
    daemon.answers.append(_answer(200, codec.dumps(reply).encode()))
    sender = dial(daemon.url)
    for _ in range(3):
        _offer(sender)
        assert sender.exchange() in (reply, Reply(accepted=1))
    assert [batch.notices_after for batch in daemon.batches] == [0, 5, 5]


def test_keeps_its_connection(daemon: Daemon, dial: Dial) -> None:
    """Exchanges share one connection as long as both sides keep it."""
    sender = dial(daemon.url)
    for _ in range(3):
        _offer(sender)
        sender.exchange()
    sender.close()
    assert daemon.connections == 1


@pytest.mark.parametrize("announced", [True, False])
def test_a_closed_connection_is_opened_again(daemon: Daemon, dial: Dial, *, announced: bool) -> None:
    """A server that closes the connection, announced or when idle, costs neither an exchange nor a back-off."""
    polite = _answer(200, codec.dumps(Reply(accepted=1)).encode(), headers={"Connection": "close"})
    daemon.answers.append(polite if announced else _then_hang_up(ACCEPTED))
    sender = dial(daemon.url)
    for _ in range(2):
        _offer(sender)
        assert sender.exchange() == Reply(accepted=1)
    assert (daemon.connections, sender.problem) == (2, None)


FAILURES: dict[str, tuple[Answer, str]] = {
    "hangs up": (_hang_up, "RemoteDisconnected"),
    "a web page": (_answer(200, b"<html>hello</html>"), "not a daemon's"),
    "another reply": (_answer(200, b'{"accepted":"many"}'), "not a daemon's"),
    "no text": (_answer(200, b"\xff\xfe\xfd"), "not a daemon's"),
    "cut off": (
        _answer(200, b'{"accepted":1', headers={"Content-Length": "99", "Connection": "close"}),
        "not a daemon's",
    ),
    "no end": (_then_hang_up(_answer(200, b"x" * (REPLY_LIMIT_BYTES + 1))), "not a daemon's"),
    "500": (_answer(500, b"oops"), "HTTP 500: oops"),
    "503": (_answer(503, b""), "HTTP 503"),
    "401": (_answer(401, b"who are you"), "HTTP 401: who are you"),
    "403": (_answer(403, b""), "HTTP 403"),
    "400 of a proxy": (_answer(400, b"bad request", headers={"Content-Type": "text/html"}), "HTTP 400: bad request"),
    "changed": (
        _answer(200, codec.dumps(Reply(accepted=7)).encode(), headers={"Content-Digest": digest(b"another")}),
        "the answer was changed on its way",
    ),
    "301": (_answer(301, b"", headers={"Location": "http://127.0.0.1:1/"}), "HTTP 301"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_failed_is_sent_again_with_the_same_numbers(
    daemon: Daemon, clock: Clock, dial: Dial, failure: str
) -> None:
    """Whatever a daemon does wrong, nothing is lost: the same observations go out again under the same numbers."""
    answer, problem = FAILURES[failure]
    daemon.answers.append(answer)
    sender = dial(daemon.url)
    _offer(sender, 2)
    assert sender.exchange() is None
    assert problem in (sender.problem or "")
    _offer(sender)
    clock.now += LONGEST_BACK_OFF_S
    assert sender.exchange() == Reply(accepted=1)
    assert [(batch.first_counter, len(batch.observations)) for batch in daemon.batches] == [(0, 2), (0, 3)]
    assert (sender.pending, sender.dropped_total, sender.problem) == (0, 0, None)


def test_an_absent_daemon_is_a_problem_and_no_error(dial: Dial) -> None:
    """Nobody listens: the exchange returns nothing, says why, and keeps what it has."""
    sender = dial(_closed_port_url())
    _offer(sender)
    assert sender.exchange() is None
    assert "ConnectionRefusedError" in (sender.problem or "")
    assert (sender.pending, sender.dropped_total) == (1, 0)


def test_a_slow_daemon_is_given_up_after_the_time_out(daemon: Daemon, dial: Dial) -> None:
    """A daemon that does not answer is waited for as long as told and not longer."""
    daemon.answers.append(lambda _: daemon.gate.wait(10.0) and None)
    sender = dial(daemon.url, timeout_s=0.1)
    _offer(sender)
    assert sender.exchange() is None
    assert "TimeoutError" in (sender.problem or "")
    assert sender.pending == 1


@pytest.mark.parametrize(
    ("url", "token"),
    [(f"http://{'a' * 64}.invalid:1", None), ("http://127.0.0.1:1", "two\nlines"), ("http://127.0.0.1:1", "\u20ac")],
)
def test_an_impossible_host_or_token_is_a_problem_and_no_error(dial: Dial, url: str, token: str | None) -> None:
    """What can never be sent is told as a problem: the training is not harmed by a mistyped address."""
    sender = dial(url, token=token)
    _offer(sender)
    assert sender.exchange() is None
    assert sender.problem


def test_an_https_url_to_a_plain_server_is_a_problem(daemon: Daemon, dial: Dial) -> None:
    """A failed TLS handshake is a failed exchange like any other."""
    daemon.answers.append(_hang_up)
    sender = dial(daemon.url.replace("http://", "https://"))
    _offer(sender)
    assert sender.exchange() is None
    assert "SSL" in (sender.problem or "")


def _strict(daemon: Daemon, *, wrong: set[int], most: int = BATCH_LIMIT) -> Answer:
    """Refuses batches of more than ``most``, and the first observation of a step that is wrong."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        steps = [getattr(each, "step", -1) for each in daemon.batches[-1].observations]
        found = next((place for place, step in enumerate(steps) if step in wrong), None)
        if len(steps) > most:
            _answer(413, b"too large")(handler)
        elif found is not None:
            body = codec.dumps({"field": f"observations[{found}].step", "detail": "wrong"}).encode()
            _answer(422, body, headers={"Content-Type": "application/problem+json"})(handler)
        else:
            taken.extend(steps)
            ACCEPTED(handler)

    taken: list[int] = []
    answer.taken = taken  # type: ignore[attr-defined]
    return answer


@pytest.fixture(params=["memory", "disk"])
def storing(request: pytest.FixtureRequest, daemon: Daemon, clock: Clock, tmp_path: Path) -> Iterator[Sender]:
    """A sender that has nowhere to keep things, and one that has."""
    names = {"attempt": AttemptId("a"), "sender": SenderId("s")}
    spool = Spool(tmp_path, clock=clock, **names) if request.param == "disk" else None
    sender = Sender(daemon.url, run=RunId("r"), spool=spool, clock=clock, **names)
    yield sender
    sender.close()


@pytest.mark.parametrize(("wrong", "most"), [({0}, 500), ({3, 250, 499}, 500), (set(), 40), ({7, 8}, 40), ({5}, 0)])
def test_only_what_is_at_fault_is_dropped(
    daemon: Daemon, clock: Clock, storing: Sender, *, wrong: set[int], most: int
) -> None:
    """A batch that is too large is halved, what is wrong is left out alone, and all others arrive in order."""
    strict = _strict(daemon, wrong=wrong, most=most)
    daemon.answers += [strict] * 2000
    sender = storing
    for step in range(20 if most == 0 else BATCH_LIMIT):
        sender.offer(Heartbeat(at=0.0, step=step))
    sender.problem = "away"
    sender.keep()
    count = sender.pending
    while sender.pending:
        before = sender.pending
        sender.exchange()
        assert sender.problem is None or not sender.due, "it must not hammer"
        clock.now += FIRST_BACK_OFF_S * 2.0
        assert sender.due
        assert sender.pending <= before
    expected = [] if most == 0 else [step for step in range(count) if step not in wrong]
    assert strict.taken == expected  # type: ignore[attr-defined]
    assert sender.dropped_total == count - len(expected)
    assert len(daemon.requests) < 100


@pytest.mark.parametrize("status", [400, 409, 422])
def test_what_is_refused_for_good_is_dropped_and_counted(daemon: Daemon, clock: Clock, dial: Dial, status: int) -> None:
    """A batch that would be refused again does not stand in the way of the next."""
    problem = {"Content-Type": "application/problem+json"}
    daemon.answers.append(_answer(status, b"observations[0].loss: expected a number", headers=problem))
    sender = dial(daemon.url)
    _offer(sender, 2)
    assert sender.exchange() is None
    assert (sender.pending, sender.dropped_total) == (0, 2)
    assert sender.problem == f"HTTP {status}: observations[0].loss: expected a number"
    _offer(sender)
    clock.now += LONGEST_BACK_OFF_S
    sender.exchange()
    assert daemon.batches[-1].first_counter == 2


def test_memory_is_bounded_and_the_oldest_goes_first(daemon: Daemon, dial: Dial) -> None:
    """Beyond the limit the oldest are dropped and counted, and the next batch begins after the gap."""
    sender = dial(daemon.url)
    _offer(sender, PENDING_LIMIT + 7)
    assert (sender.pending, sender.dropped_total) == (PENDING_LIMIT, 7)
    sender.exchange()
    assert daemon.batches[0].first_counter == 7


def test_backs_off_longer_with_each_failure(clock: Clock, dial: Dial) -> None:
    """The wait doubles with each failure up to its limit, spread over the upper half so that senders do not march."""
    sender = dial(_closed_port_url())
    _offer(sender)
    for failures in range(1, 12):
        assert sender.due
        sender.exchange()
        longest = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0**failures)
        clock.now += 0.499 * longest
        assert not sender.due
        clock.now += 0.502 * longest


def test_asks_nothing_before_the_back_off_is_over(daemon: Daemon, clock: Clock, dial: Dial) -> None:
    """While it backs off an exchange sends nothing; a success ends the backing off."""
    daemon.answers += [_answer(500, b""), _answer(500, b"")]
    sender = dial(daemon.url)
    _offer(sender)
    for _ in range(5):
        sender.exchange()
    assert len(daemon.batches) == 1
    clock.now += 1.0
    sender.exchange()
    clock.now += 1.0
    assert sender.exchange() is not None
    _offer(sender)
    assert sender.exchange() is not None
    assert len(daemon.batches) == 4


@pytest.mark.parametrize(
    ("waited_s", "backlog"), [(0.0, False), (BACKLOG_AFTER_S, False), (BACKLOG_AFTER_S + 1.0, True)]
)
def test_what_waited_long_is_a_backlog(
    daemon: Daemon, clock: Clock, dial: Dial, *, waited_s: float, backlog: bool
) -> None:
    """A batch whose newest observation waited for more than ten seconds says so."""
    sender = dial(daemon.url)
    _offer(sender, 2)
    clock.now += waited_s
    sender.exchange()
    assert daemon.batches[0].backlog is backlog


def test_history_and_news_never_share_a_batch(daemon: Daemon, clock: Clock, dial: Dial) -> None:
    """What waited long goes out first, as history of its own: a fault in it must not look like one of now."""
    sender = dial(daemon.url)
    _offer(sender, 2)
    clock.now += 60.0
    _offer(sender)
    sender.exchange()
    sender.exchange()
    told = [(batch.first_counter, len(batch.observations), batch.backlog) for batch in daemon.batches]
    assert told == [(0, 2, True), (2, 1, False)]


@pytest.mark.parametrize("url", ["", "localhost:8321", "ftp://localhost", "http://", "127.0.0.1", "http://h:port"])
def test_what_is_no_address_is_refused_at_once(url: str, dial: Dial) -> None:
    """An address that cannot be one is an error when the sender is made, not later."""
    with pytest.raises(ValueError, match=r"."):
        dial(url)
