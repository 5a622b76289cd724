"""A daemon, its heir, somebody who gets its alerts, and a run: what the tests of the daemon's death play on."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sentinel import clock
from tests import postgres
from tests.daemons import database_url, make_schema
from tests.faults.inspection import Inspection
from tests.faults.mortal import Fate, Mortal
from tests.faults.network import Network, Weather
from tests.faults.trainee import Trainee
from tests.receiver import Receiver

CALM: Final = Weather(delay=0.0, cut=0.0, repeat=0.0, garble=0.0)


class Stage:
    """On SQLite the daemon lives again after its death; on PostgreSQL one that stood by takes over.

    The network leads to whoever is on duty.

    Args:
        folder: the test's.
        ends: closes everything.
    """

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        make_schema(folder)
        self.receiver = ends.enter_context(Receiver())
        self.daemon, self._standby = (
            Mortal(database_url=database_url(folder), webhook_url=self.receiver.url) for _ in range(2)
        )
        for each in (self.daemon, self._standby):
            ends.callback(each.kill)
        self.network = ends.enter_context(Network(self.daemon.port, CALM))
        self.inspection = Inspection(folder)
        ends.callback(self.inspection.close)
        self._folder = folder
        self._ends = ends
        self.trainee: Trainee

    def begin(self, fate: Fate, heirs: Fate | None = None) -> None:
        """Trains until the checkpoint of step 20 is known to be good; ``heirs`` is who takes over."""
        self.daemon.live(fate)
        self._heirs = heirs or Fate()
        self.trainee = Trainee(self.network.url, "run", self._folder)
        self._ends.callback(self.trainee.sender.close)
        self.trainee.train(20)
        self.trainee.save()
        self.trainee.train(60)
        self.trainee.deliver()
        if postgres.USE.server is not None:  # not before: it would be on duty, were it quicker
            self._standby.live(self._heirs)

    def succeed(self, fate: Fate) -> None:
        """The daemon is dead by its fate: the next one goes on."""
        self.daemon.wait_for_death()
        fate.armed.clear()
        if postgres.USE.server is None:
            self.daemon.live(self._heirs)
        else:
            self.network.port = self._standby.port

    def break_down(self) -> None:
        """Steps that are NaN until the run is set back."""
        self.until(lambda: bool(self.trainee.rolled_back), lambda: self.trainee.train(1, loss=math.nan))

    def until(self, condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
        """Goes on until a condition holds."""
        deadline = clock.monotonic() + 30.0
        while not condition():
            assert clock.monotonic() < deadline
            meanwhile()
            self.trainee.deliver(condition)

    def recover(self) -> None:
        """Trains on until the incident is resolved and everybody was told."""
        told = self.receiver.received
        self.until(
            lambda: {each.body["status"] for each in told} >= {"firing", "resolved"} and self._is_settled(),
            lambda: self.trainee.train(1) if self.trainee.step < 70 else clock.sleep(0.05),
        )

    def check(self) -> None:
        """Nothing accepted is missing, one rollback was done once, people heard of everything under one key each."""
        self.trainee.deliver()
        self.inspection.check_log(self.trainee)
        self.inspection.check_decisions(self.trainee)
        orders = self.orders()
        assert [each["id"] for each in orders if each["state"] == "succeeded"] == self.trainee.rolled_back
        assert len(self.trainee.rolled_back) == 1
        assert all(each["state"] == "succeeded" or each["reason"] for each in orders)
        keys = {each.body["dedup_key"]: each.key for each in self.receiver.received}
        assert len(set(keys.values())) == len(keys) == 2
        assert {each.key for each in self.receiver.received} == set(keys.values())

    def orders(self) -> list[dict[str, object]]:
        """What was ordered of the trainer, in order."""
        return [each for each in self.inspection.actions() if each["executor"] == "trainer_command"]

    def _is_settled(self) -> bool:
        return all(each["state"] not in ("planned", "claimed") for each in self.inspection.actions())
