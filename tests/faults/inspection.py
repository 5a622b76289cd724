"""What must hold in the database, whatever happened to daemon, network and trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import select

from sentinel.engine.replay import replay
from sentinel.protocol import codec
from sentinel.store import observation_log
from sentinel.store.session import Database, open_database
from sentinel.store.tables import actions, decisions
from tests.daemons import database_url
from tests.faults.trainee import Trainee


class Inspection:
    """Looks into the database of a test's folder.

    Args:
        folder: the test's.
    """

    def __init__(self, folder: Path) -> None:
        self._database: Database = open_database(database_url(folder))

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    def check_log(self, trainee: Trainee) -> None:
        """All that was told is there, once, in its order, under sequences without a gap; time never went back."""
        with self._database.reading() as connection:
            stored = list(observation_log.read(connection, trainee.run))
        assert [each.entry.sequence for each in stored] == list(range(1, len(stored) + 1))
        times = [each.entry.received_at for each in stored]
        assert times == sorted(times)
        kept: dict[Any, list[str]] = {}
        for each in stored:
            if each.entry.attempt:
                kept.setdefault(each.entry.attempt, []).append(codec.dumps(each.entry.observation))
        missing = 0
        for attempt, told in trainee.told.items():
            found = kept.pop(attempt, [])
            assert found == told[: len(found)]
            missing += len(told) - len(found)
        assert not kept
        assert missing == trainee.lost_in_death

    def check_decisions(self, trainee: Trainee) -> None:
        """What was decided follows from the log."""
        assert replay(self._database, trainee.run).difference is None

    def actions(self) -> list[dict[str, Any]]:
        """Every action of every run."""
        with self._database.reading() as connection:
            rows = connection.execute(select(actions).order_by(actions.c.planned_at, actions.c.id)).mappings().all()
        return [dict(row) for row in rows]

    def decisions(self) -> int:
        """How many there are."""
        with self._database.reading() as connection:
            return len(connection.execute(select(decisions.c.id)).all())
