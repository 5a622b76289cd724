"""Puts the daemon together: the only module that knows every part."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

import uvicorn
from prometheus_client import CollectorRegistry

from sentinel import log
from sentinel.alerts.alertmanager import REPOST_EVERY_S, Alertmanager
from sentinel.alerts.apprise_channel import AppriseChannel
from sentinel.alerts.log_channel import LogChannel
from sentinel.alerts.webhook import Webhook
from sentinel.api.access import Access
from sentinel.api.application import create_app
from sentinel.api.auth import check as check_token
from sentinel.api.services import Services
from sentinel.domain.errors import InvalidInput, SentinelError
from sentinel.domain.executor import Executor, Route
from sentinel.engine.dispatcher import Dispatcher
from sentinel.engine.duty import Duty
from sentinel.engine.expiry import Expiry
from sentinel.engine.heartbeat import EVERY_S as HEARTBEAT_EVERY_S
from sentinel.engine.heartbeat import Heartbeat
from sentinel.engine.repost import Repost
from sentinel.engine.streams import Advanced, Stream
from sentinel.engine.writer import Writer
from sentinel.metrics import Metrics
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.scheduler import Scheduler
from sentinel.settings import Settings, check
from sentinel.store import decision_log
from sentinel.store.lease import RENEW_EVERY_S, Lease
from sentinel.store.session import Database, check_current, lock, migrate, open_database
from sentinel.web.pages import create_router
from sentinel.web.site import Site

logger = logging.getLogger(__name__)

TICK_EVERY_S: Final = 5.0
DISPATCH_EVERY_S: Final = 2.0
REST_EVERY_S: Final = 10.0
RESTS_AFTER_S: Final = 900.0
"""A run that is over and is not heard of for so long leaves the memory; taking it up again costs a few milliseconds."""
EXPIRE_EVERY_S: Final = 600.0
DAY_S: Final = 86400.0
CONNECTIONS_WAITING: Final = 2048
"""Senders that may wait to be let in: a cluster's worth after a restart."""
KEEP_ALIVE_S: Final = 75
"""Longer than an agent's longest back-off, so that a quiet one finds its connection open."""
LAST_REQUESTS_S: Final = 3
"""How long requests under way may take when the daemon ends; a commit takes milliseconds."""


class Daemon:
    """Everything that runs, from ``start`` to ``stop``; a start that fails leaves nothing behind.

    Args:
        settings: what it is told.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._parts = ExitStack()
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()  # an Event could not be set in a signal handler
        self.url = ""
        """Where it listens, once it is started."""

    def start(self) -> None:
        """Begins to listen.

        Raises:
            SentinelError: a setting, the policy or the database is wrong, or the port is taken.
        """
        for warning in check(self._settings):
            logger.warning(warning)
        with ExitStack() as parts:
            listener = parts.enter_context(_listen(self._settings.host, self._settings.port))
            self.url = _address(self._settings.host, listener)
            database, lease = _open(self._settings.database_url, parts)
            services = self._begin(database, lease, parts)
            self._serve(services, listener, parts)
            self._parts = parts.pop_all()
        logger.info("listening on %s; the log is in %r", self.url, database.engine.url)

    def stop(self) -> None:
        """Takes no more requests, answers those under way, and ends. What was accepted is durable before."""
        self._parts.close()

    def end(self, why: str) -> None:
        """Lets ``wait`` return; may be called in a signal handler."""
        self._ended.put(why)

    def wait(self) -> str:
        """Returns, when the daemon is to end, why."""
        return self._ended.get()

    def _begin(self, database: Database, lease: Lease | None, parts: ExitStack) -> Services:
        """Starts what works without being asked; where another daemon is on duty, when that one is gone."""
        settings = self._settings
        public_url = settings.public_url or self.url
        metrics = Metrics(CollectorRegistry())
        scheduler = Scheduler(metrics.job_failed)
        watch = _Watch(metrics, scheduler)
        writer = Writer(
            database, settings.policy(), [watch], took=metrics.commit_seconds.observe, lease=lease, lost=self.end
        )
        metrics.writer_waiting.set_function(lambda: writer.waiting)
        metrics.runs_in_memory.set_function(lambda: writer.resident)
        metrics.on_duty.set_function(lambda: not writer.refusal)
        dispatcher = _alerting(settings, public_url, writer=writer, metrics=metrics, scheduler=scheduler, parts=parts)
        repost = Repost(database, dispatcher.routes)
        if repost.is_needed:
            scheduler.every(REPOST_EVERY_S, "repost", repost.repost)
        expiry = Expiry(database, writer, keep_s=settings.keep_days * DAY_S, removed=metrics.expired)
        scheduler.every(TICK_EVERY_S, "ticks", lambda: writer.tick(silent_s=TICK_EVERY_S).result())
        scheduler.every(REST_EVERY_S, "rest", lambda: writer.rest(silent_s=RESTS_AFTER_S).result())
        scheduler.every(EXPIRE_EVERY_S, "expiry", expiry.expire)
        work = ExitStack()

        def begin() -> None:
            writer.start()
            work.callback(writer.stop)
            _take_up(database, writer, metrics)
            scheduler.start()
            work.callback(scheduler.stop)
            work.callback(dispatcher.stop)
            work.callback(expiry.stop)

        if lease is None:
            parts.push(work)
            begin()
        else:
            duty = Duty(database, lease, begin, self.end)
            scheduler.every(RENEW_EVERY_S, "lease", lambda: writer.write(lambda _connection: None).result())
            parts.callback(duty.release)
            parts.push(work)
            parts.callback(duty.stop)
            duty.start()
        return Services(
            database=database,
            writer=writer,
            metrics=metrics,
            access=Access(database, settings.token()),
            public_url=public_url,
        )

    def _serve(self, services: Services, listener: socket.socket, parts: ExitStack) -> None:
        app = create_app(services)
        site = Site(database=services.database, public_url=services.public_url, admit=partial(check_token, services))
        app.include_router(create_router(site))
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=LAST_REQUESTS_S,
        )
        server = uvicorn.Server(config)

        def serve() -> None:
            try:
                server.run(sockets=[listener])
            finally:
                self.end("the server has ended")

        thread = threading.Thread(target=serve, name="sentinel-http", daemon=True)
        thread.start()
        parts.callback(thread.join)
        parts.callback(setattr, server, "should_exit", True)


class _Watch:
    """Shows each commit to the metrics, and wakes the dispatcher when it holds an alert."""

    def __init__(self, metrics: Metrics, scheduler: Scheduler) -> None:
        self._metrics = metrics
        self._scheduler = scheduler

    def committed(self, stream: Stream, advanced: Sequence[Advanced]) -> None:
        """Entries of one run are durable."""
        pairs = [(each.stored.entry, each.outcome) for each in advanced]
        self._metrics.committed(stream.run, stream.pipeline.run, pairs, stream.pipeline.checkpoints)
        if any(action.executor == "alert" for _, outcome in pairs for action in outcome.actions):
            self._scheduler.soon("dispatch")


def run(settings: Settings) -> None:
    """Runs the daemon in this process until SIGTERM or Ctrl-C; a second one ends it at once.

    Raises:
        SentinelError: as ``Daemon.start``, or the daemon could not go on.
    """
    log.set_up(settings.log_level, settings.log_format)
    daemon = Daemon(settings)

    asked: Final = (signal.SIGTERM, signal.SIGINT)

    def asked_to_end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        daemon.end(signal.Signals(number).name)

    for number in asked:
        signal.signal(number, asked_to_end)
    daemon.start()
    why = daemon.wait()
    logger.info("ending: %s", why)
    daemon.stop()
    if why not in [each.name for each in asked]:
        raise SentinelError(why)  # whoever supervises the process starts it again


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS_WAITING)
    except OSError as error:
        why = str(error.strerror).partition(" (while ")[0]  # Python repeats the address
        raise InvalidInput(
            "SENTINEL_PORT",
            f"cannot listen on {host}, port {port}: {why}; end what listens there, or choose another",
        ) from None
    # Accepted connections inherit it. Without it an answer's body waits 40 ms for the acknowledgement of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _address(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _open(url: str, parts: ExitStack) -> tuple[Database, Lease | None]:
    database = open_database(url)
    held = lock(url)
    if held is not None:
        parts.callback(held.close)
    parts.callback(database.close)
    if held is not None:
        migrate(database)
        return database, None
    check_current(database)
    return database, Lease(f"{socket.gethostname()}, process {os.getpid()}")


def _alerting(
    settings: Settings, public_url: str, *, writer: Writer, metrics: Metrics, scheduler: Scheduler, parts: ExitStack
) -> Dispatcher:
    """What tells people, and tells somebody outside that it can."""
    routes = _routes(settings, public_url, parts)
    for route in routes:
        metrics.know_channel(route.channel.name)
    dispatcher = Dispatcher(writer, routes, metrics.alert_tried)
    scheduler.every(DISPATCH_EVERY_S, "dispatch", dispatcher.dispatch)
    if settings.heartbeat_url is not None:
        heartbeat = parts.enter_context(closing(Heartbeat(settings.heartbeat_url, writer, dispatcher)))
        scheduler.every(HEARTBEAT_EVERY_S, "heartbeat", heartbeat.beat)
    return dispatcher


def _routes(settings: Settings, public_url: str, parts: ExitStack) -> list[Route]:
    routes = [Route(LogChannel(public_url))]
    if settings.webhook_url is not None:
        routes.append(Route(parts.enter_context(closing(Webhook(settings.webhook_url, public_url)))))
    for table in settings.channels():
        channel: Executor
        if table.alertmanager is not None:
            channel = parts.enter_context(closing(Alertmanager(table.name, table.alertmanager, public_url)))
        else:
            channel = AppriseChannel(table.name, str(table.url), public_url)
        routes.append(Route(channel, table.severity, table.runs))
    return routes


def _take_up(database: Database, writer: Writer, metrics: Metrics) -> None:
    """Goes on where the daemon before this one ended: knows the open incidents, listens for the runs that trained."""
    with database.reading() as connection:
        for run, incidents in decision_log.open_incidents(connection).items():
            for incident in incidents:
                metrics.know_open(IncidentId(incident["id"]), run, incident["severity"])
        training = [each["run"] for each in decision_log.run_documents(connection) if each["phase"] == "training"]
    for name in training:
        writer.tell(RunId(name), lambda _stream: None)
