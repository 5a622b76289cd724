from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentinel.domain.actions import ActionChange
from sentinel.protocol.ids import ActionId, RunId
from sentinel.store import action_outbox, alert_claims
from sentinel.store.alert_claims import Claim
from sentinel.store.session import Database, migrate, open_database
from tests.alerts.alert import alert
from tests.daemons import database_url

pytestmark = pytest.mark.usefixtures("every_store")
TOPIC = "firing critical"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty outbox."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    yield database
    database.close()


def plan(database: Database, *names: str, at: float, **payload: Any) -> None:
    """Plans an alert for each run, with a cause that may be shared unless another is given."""
    with database.transaction() as connection:
        for name in names:
            action = alert(name, **{"shared_cause": TOPIC} | payload)
            action_outbox.plan(connection, RunId(name), [replace(action, id=ActionId(f"{name}.{at}"))], at=at)


def claim(database: Database, at: float) -> list[tuple[str, list[str], int]]:
    """What is claimed: the message's id, the runs in it, and which try it is."""
    with database.transaction() as connection:
        claims: list[Claim] = alert_claims.claim_due(connection, at=at)
    return [(each.id, [action.payload["run"] for action in each.alerts], each.tries) for each in claims]


def settle(database: Database, *actions: str) -> None:
    """They were sent."""
    with database.transaction() as connection:
        changes = [ActionChange(ActionId(each), "succeed") for each in actions]
        action_outbox.change(connection, changes, at=0.0)


def test_a_cause_that_many_runs_share_is_one_message(database: Database) -> None:
    """It goes out ten seconds after the first alert, with whatever is there then, be it due or not."""
    for number in range(100):
        plan(database, f"r{number:02}", at=100.0 + number / 20)
    assert claim(database, at=109.9) == []
    ((identity, runs, tries),) = claim(database, at=110.0)
    assert (identity, len(runs), tries) == ("r00.100.0", 100, 1)
    assert claim(database, at=110.0) == []


def test_stragglers_are_the_next_message(database: Database) -> None:
    """What comes within a minute of the first alert waits until the minute is over, and goes out together."""
    plan(database, "first", at=100.0)
    assert claim(database, at=110.0) == [("first.100.0", ["first"], 1)]
    settle(database, "first.100.0")
    plan(database, "second", at=111.0)
    plan(database, "third", at=140.0)
    for at in (121.0, 150.0, 159.9):
        assert claim(database, at=at) == []
    assert claim(database, at=160.0) == [("second.111.0", ["second", "third"], 1)]
    settle(database, "second.111.0", "third.140.0")
    plan(database, "later", at=300.0)
    assert claim(database, at=310.0) == [("later.300.0", ["later"], 1)]


def test_what_was_put_together_stays_together(database: Database) -> None:
    """A try that nobody answered for is repeated with the same members under the same id; nobody joins it late."""
    plan(database, "one", "two", at=100.0)
    assert claim(database, at=110.0) == [("one.100.0", ["one", "two"], 1)]
    plan(database, "three", at=111.0)
    assert claim(database, at=116.0) == [("one.100.0", ["one", "two"], 2)]
    settle(database, "one.100.0")
    assert claim(database, at=130.0) == [("one.100.0", ["two"], 3)]
    assert claim(database, at=161.0) == [("one.100.0", ["two"], 4), ("three.111.0", ["three"], 1)]


def test_a_runs_own_fault_waits_for_nobody(database: Database) -> None:
    """A NaN is told at once and alone, whatever else is planned; another status or severity is another message."""
    plan(database, "nan", "other", at=100.0, shared_cause="")
    plan(database, "hang", at=100.0)
    plan(database, "over", at=100.0, shared_cause="resolved critical")
    assert claim(database, at=100.0) == [("nan.100.0", ["nan"], 1), ("other.100.0", ["other"], 1)]
    settle(database, "nan.100.0", "other.100.0")
    assert [runs for _, runs, _ in claim(database, at=110.0)] == [["hang"], ["over"]]


def test_a_clock_that_was_set_back_keeps_no_alert(database: Database) -> None:
    """What was planned in the future of a clock that is right again is due."""
    plan(database, "first", at=10_000.0)
    assert claim(database, at=10_010.0)
    plan(database, "second", at=10_020.0)
    assert [runs for _, runs, _ in claim(database, at=100.0)] == [["first"], ["second"]]
