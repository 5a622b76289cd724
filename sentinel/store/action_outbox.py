"""Actions from plan to result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, insert, select, update

from sentinel.domain.actions import SETTLED, TRANSITIONS, Action, ActionChange, Executor
from sentinel.domain.transitions import next_state
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.ids import ActionId, IncidentId, RunId
from sentinel.store.tables import actions, incidents

RETRY_FIRST_S: Final = 5.0
RETRY_LONGEST_S: Final = 300.0
COMPANY_WAIT_S: Final = 10.0
"""So long an alert whose cause may be shared waits for others: detectors of hangs and lost nodes take minutes."""


def plan(connection: Connection, run: RunId, planned: Sequence[Action], *, at: float) -> None:
    """Writes actions in the transaction of the decision that wants them."""
    rows = [
        {
            "id": action.id,
            "run": run,
            "incident": action.incident,
            "executor": action.executor,
            "state": "planned",
            "reason": "",
            "tries": 0,
            "due_at": at + (COMPANY_WAIT_S if action.payload.get("shared_cause") else 0.0),
            "planned_at": at,
            "changed_at": at,
            "topic": action.payload.get("shared_cause", ""),
            "batch": "",
            "document": dumps(dict(action.payload)),
        }
        for action in planned
    ]
    if rows:
        connection.execute(insert(actions), rows)


def change(connection: Connection, changes: Sequence[ActionChange], *, at: float) -> None:
    """Takes what became of actions; an answer that comes twice changes nothing."""
    for each in changes:
        state = connection.execute(select(actions.c.state).where(actions.c.id == each.action)).scalar()
        if state is None or state in SETTLED:
            continue
        state = next_state(TRANSITIONS, state, each.event, f"action {each.action}")
        connection.execute(
            update(actions).where(actions.c.id == each.action).values(state=state, reason=each.reason, changed_at=at)
        )


def claim_orders(connection: Connection, run: RunId, executor: Executor, *, at: float) -> None:
    """Notes that the run's planned orders to its agent or launcher go out with the answer that follows."""
    connection.execute(
        update(actions)
        .where(actions.c.run == run, actions.c.executor == executor, actions.c.state == "planned")
        .values(state="claimed", tries=1, changed_at=at)
    )


def standing_alerts(connection: Connection) -> list[Action]:
    """What people were last told of each incident that is open, as far as it has been tried."""
    query = (
        select(actions)
        .join(incidents, incidents.c.id == actions.c.incident)
        .where(incidents.c.state != "resolved", actions.c.executor == "alert", actions.c.state != "planned")
        .order_by(actions.c.planned_at, actions.c.id)
    )
    newest = {row["incident"]: row for row in connection.execute(query).mappings()}
    return [action_of(row) for row in newest.values() if parse(row["document"])["status"] != "resolved"]


def of_incident(connection: Connection, incident: IncidentId) -> list[dict[str, Any]]:
    """The actions for an incident in the order of their plans."""
    query = select(actions).where(actions.c.incident == incident).order_by(actions.c.planned_at, actions.c.id)
    return [
        {
            "id": row["id"],
            "executor": row["executor"],
            "state": row["state"],
            "reason": row["reason"],
            "tries": row["tries"],
            "planned_at": row["planned_at"],
            "changed_at": row["changed_at"],
            "payload": parse(row["document"]),
        }
        for row in connection.execute(query).mappings()
    ]


def action_of(row: RowMapping) -> Action:
    """The action that a row holds."""
    return Action(
        id=ActionId(row["id"]),
        incident=IncidentId(row["incident"]),
        executor=row["executor"],
        payload=parse(row["document"]),
    )
