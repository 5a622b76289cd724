from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.domain.actions import Action, ActionChange, ActionEvent
from sentinel.protocol.ids import ActionId, IncidentId
from sentinel.store import action_outbox, alert_claims
from sentinel.store.action_outbox import RETRY_LONGEST_S
from sentinel.store.session import Database, migrate, open_database
from tests.builders import RUN
from tests.daemons import database_url

pytestmark = pytest.mark.usefixtures("every_store")

INCIDENT = IncidentId("run-1.i5")
ALERT = Action(id=ActionId("run-1.a5.0"), incident=INCIDENT, executor="alert", payload={"status": "firing"})
ORDER = Action(id=ActionId("run-1.a5.1"), incident=INCIDENT, executor="trainer_command", payload={"kind": "roll_back"})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with one alert and one order, both planned at 100 s."""
    database = open_database(database_url(tmp_path))
    migrate(database)
    with database.transaction() as connection:
        action_outbox.plan(connection, RUN, [ALERT, ORDER], at=100.0)
    yield database
    database.close()


def claim(database: Database, at: float) -> list[tuple[Action, int]]:
    """Alerts that are due."""
    with database.transaction() as connection:
        return [(each.alerts[0], each.tries) for each in alert_claims.claim_due(connection, at=at)]


def change(database: Database, event: ActionEvent, reason: str = "") -> None:
    """What became of the alert."""
    with database.transaction() as connection:
        action_outbox.change(connection, [ActionChange(action=ALERT.id, event=event, reason=reason)], at=200.0)


def states(database: Database) -> dict[str, str]:
    """Executor to state."""
    with database.reading() as connection:
        return {each["executor"]: each["state"] for each in action_outbox.of_incident(connection, INCIDENT)}


def test_a_claim_takes_what_is_due_and_no_other_executors(database: Database) -> None:
    """An alert is claimed once it is due, whole, and the order is left to the reply that carries it."""
    assert claim(database, at=99.0) == []
    assert claim(database, at=100.0) == [(ALERT, 1)]
    assert states(database) == {"alert": "claimed", "trainer_command": "planned"}


def test_what_nobody_answers_for_is_due_again_after_waits_that_double(database: Database) -> None:
    """The waits after each claim are 5, 10, 20 ... seconds and at most five minutes."""
    at, waits = 100.0, []
    for tries in range(1, 10):
        assert claim(database, at) == [(ALERT, tries)]
        wait = next(wait for wait in range(1, 1000) if claim_would_find(database, at + wait))
        waits.append(float(wait))
        at += wait
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, RETRY_LONGEST_S, RETRY_LONGEST_S, RETRY_LONGEST_S]


def claim_would_find(database: Database, at: float) -> bool:
    """Whether the alert is due at ``at``; the claim is undone."""
    with database.engine.connect() as connection, connection.begin() as transaction:
        found = alert_claims.claim_due(connection, at=at)
        transaction.rollback()
    return bool(found)


@pytest.mark.parametrize(("event", "state"), [("succeed", "succeeded"), ("fail", "failed"), ("expire", "expired")])
def test_what_is_settled_stays_settled(database: Database, event: ActionEvent, state: str) -> None:
    """After an answer the action is never due again, and a second answer changes nothing."""
    claim(database, at=100.0)
    change(database, event, "once")
    change(database, "fail", "twice")
    assert states(database)["alert"] == state
    assert claim(database, at=10_000.0) == []
    with database.reading() as connection:
        (alert, _) = action_outbox.of_incident(connection, INCIDENT)
    assert (alert["reason"], alert["changed_at"], alert["tries"], alert["payload"]) == ("once", 200.0, 1, ALERT.payload)


def test_an_answer_for_an_action_that_nobody_planned_changes_nothing(database: Database) -> None:
    """A stray answer is no error and makes no row."""
    with database.transaction() as connection:
        action_outbox.change(connection, [ActionChange(action=ActionId("stray"), event="succeed")], at=1.0)
    assert states(database) == {"alert": "planned", "trainer_command": "planned"}


def test_orders_go_out_with_the_reply(database: Database) -> None:
    """The orders of a run, and of no other, are claimed when its reply carries them."""
    with database.transaction() as connection:
        action_outbox.claim_orders(connection, RUN, "trainer_command", at=101.0)
    assert states(database) == {"alert": "planned", "trainer_command": "claimed"}
