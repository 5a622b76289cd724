"""Real daemons for tests: in this process or in one of their own, with an agent's side to talk to them."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from sentinel import clock
from sentinel.app import Daemon
from sentinel.engine.witness import Witness
from sentinel.engine.writer import Writer
from sentinel.protocol import codec
from sentinel.protocol.commands import Reply
from sentinel.protocol.ids import AttemptId, CheckpointId, CommandId, RunId
from sentinel.protocol.observations import (
    AttemptStarted,
    CheckpointReport,
    CommandResult,
    Mode,
    Observation,
    ObservationBatch,
    StepReport,
)
from sentinel.protocol.version import PROTOCOL_VERSION
from sentinel.settings import Settings
from sentinel.store.session import migrate, open_database
from tests import postgres
from tests.builders import ATTEMPT, DEFAULT_POLICY, DIGEST, RUN, SENDER

PROGRAM = """
import json, sys
from sentinel.app import run
from sentinel.settings import load
run(load(**json.loads(sys.argv[1])))
"""


def database_url(folder: Path) -> str:
    """An SQLite file in ``folder``; where a test asked for ``every_store``, also a database that stands for it."""
    if postgres.USE.server is not None:
        return postgres.USE.server.database_of(folder)
    return f"sqlite:///{folder / 'sentinel.db'}"


def make_schema(folder: Path) -> None:
    """Brings the database to this release's schema, as is done by hand on a PostgreSQL before the first daemon."""
    database = open_database(database_url(folder))
    migrate(database)
    database.close()


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Daemon]:
    """A daemon in this process, on a free port, with its database in ``folder``."""
    daemon = Daemon(Settings(**{"port": 0, "database_url": database_url(folder)} | options))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


class DaemonProcess:
    """A daemon in a process of its own, to be ended by signals."""

    def __init__(self, folder: Path, **options: Any) -> None:
        given = {"port": 0, "database_url": database_url(folder)} | options
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SENTINEL_")}
        command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.log: list[str] = []
        self.url = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            listening = re.search(r"listening on (\S+);", line)
            if listening:
                self.url = listening[1]
                break
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self, number: int) -> int:
        """Sends a signal and returns the exit code, once the process has ended."""
        self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.log.extend(stream)


@contextmanager
def writing(folder: Path, *, policy: str = DEFAULT_POLICY, witnesses: Sequence[Witness] = ()) -> Iterator[Writer]:
    """A writer over a database in ``folder``, without a daemon around it."""
    database = open_database(database_url(folder))
    migrate(database)
    writer = Writer(database, policy, witnesses)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()
        database.close()


class Speaker(ABC):
    """An agent's side of one run, told step by step; every batch is numbered as the real sender does."""

    def __init__(self, run: str = RUN, *, attempt: str = ATTEMPT) -> None:
        self.run, self.attempt = RunId(run), AttemptId(attempt)
        self.counter = self.step = self.segment = 0
        self._random = random.Random(7)

    @abstractmethod
    def send(self, batch: ObservationBatch) -> Reply:
        """Delivers a batch and returns the reply."""

    def batch(self, observations: Sequence[Observation], *, backlog: bool = False) -> ObservationBatch:
        """The next batch."""
        return ObservationBatch(
            protocol=PROTOCOL_VERSION,
            run=self.run,
            attempt=self.attempt,
            sender=SENDER,
            first_counter=self.counter,
            observations=tuple(observations),
            backlog=backlog,
        )

    def tell(self, *observations: Observation, backlog: bool = False) -> Reply:
        """Sends observations and returns the daemon's reply."""
        reply = self.send(self.batch(observations, backlog=backlog))
        self.counter += len(observations)
        return reply

    def start(self, mode: Mode = "act") -> Reply:
        """Tells the attempt's start."""
        return self.tell(AttemptStarted(at=0.0, mode=mode, rollback="forward", rollback_reason="told so"))

    def reports(self, count: int, *, loss: float | None = None, grad_norm: float = 1.0) -> list[StepReport]:
        """The next steps, healthy ones around 2.0 unless a loss is given."""
        reports = []
        for _ in range(count):
            self.step += 1
            value = 2.0 + self._random.gauss(0.0, 0.02) if loss is None else loss
            reports.append(
                StepReport(at=float(self.step), step=self.step, segment=self.segment, loss=value, grad_norm=grad_norm)
            )
        return reports

    def train(self, count: int, *, loss: float | None = None, grad_norm: float = 1.0) -> Reply:
        """Tells the next steps in one batch."""
        return self.tell(*self.reports(count, loss=loss, grad_norm=grad_norm))

    def break_down(self) -> Reply:
        """Tells a step whose loss and gradient norm are NaN."""
        return self.train(1, loss=math.nan, grad_norm=math.nan)

    def checkpoint(self, name: str) -> Reply:
        """Tells a verified checkpoint of the current step."""
        return self.tell(
            CheckpointReport(
                at=0.0,
                checkpoint=CheckpointId(name),
                step=self.step,
                segment=self.segment,
                state="verified",
                digest=DIGEST,
            )
        )

    def ready_to_roll_back(self) -> None:
        """Trains until the checkpoint ``good`` at step 20 is known to be good."""
        self.start()
        self.train(20)
        self.checkpoint("good")
        self.train(60)

    def roll_back(self, command: str, to_step: int) -> Reply:
        """Tells that a rollback was carried out."""
        from_step, self.step = self.step, to_step
        self.segment += 1
        return self.tell(
            CommandResult(
                at=float(from_step),
                command=CommandId(command),
                outcome="succeeded",
                step=to_step,
                segment=self.segment,
                from_step=from_step,
            )
        )


class Agent(Speaker):
    """Speaks HTTP with a daemon."""

    def __init__(self, url: str, run: str = RUN, *, attempt: str = ATTEMPT, token: str | None = None) -> None:
        super().__init__(run, attempt=attempt)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def post(self, body: ObservationBatch | bytes) -> httpx.Response:
        """Sends a batch, or bytes as they are."""
        content = codec.dumps(body).encode() if isinstance(body, ObservationBatch) else body
        return self.http.post("/v1/observations", content=content, headers={"Content-Type": "application/json"})

    def send(self, batch: ObservationBatch) -> Reply:
        """Posts a batch that is to be taken."""
        answer = self.post(batch)
        assert answer.status_code == 200, answer.text
        return codec.decode_reply(codec.parse(answer.content))

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at ``path``."""
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Voice(Speaker):
    """Speaks to a writer directly."""

    def __init__(self, writer: Writer, run: str = RUN, *, attempt: str = ATTEMPT) -> None:
        super().__init__(run, attempt=attempt)
        self._writer = writer

    def send(self, batch: ObservationBatch) -> Reply:
        """Hands a batch to the writer and waits until it is durable."""
        payloads = [codec.dumps(each) for each in batch.observations]
        return self._writer.ingest(batch, payloads, received_at=clock.now()).result(timeout=30)
