"""Actions from plan to result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, insert, or_, select, update

from sentinel.domain.actions import SETTLED, TRANSITIONS, Action, ActionChange, Executor
from sentinel.domain.transitions import next_state
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.ids import ActionId, IncidentId, RunId
from sentinel.store.tables import actions

RETRY_FIRST_S: Final = 5.0
RETRY_LONGEST_S: Final = 300.0


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
            "due_at": at,
            "planned_at": at,
            "changed_at": at,
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


def claim_due(connection: Connection, executor: Executor, *, at: float, limit: int = 20) -> list[tuple[Action, int]]:
    """Claims unsettled actions that are due; each with its number of tries, this one included.

    What nobody answers for is due again after a wait that doubles. What seems due later than after the longest wait was
    planned by a clock that has been set back since.
    """
    is_due = or_(actions.c.due_at <= at, actions.c.due_at > at + RETRY_LONGEST_S)
    query = (
        select(actions)
        .where(actions.c.executor == executor, actions.c.state.in_(("planned", "claimed")), is_due)
        .order_by(actions.c.due_at, actions.c.id)
        .limit(limit)
    )
    claimed = []
    for row in connection.execute(query).mappings().all():
        wait = min(RETRY_LONGEST_S, RETRY_FIRST_S * 2.0 ** row["tries"])
        values = {"state": "claimed", "tries": row["tries"] + 1, "due_at": at + wait, "changed_at": at}
        connection.execute(update(actions).where(actions.c.id == row["id"]).values(**values))
        claimed.append((_action(row), row["tries"] + 1))
    return claimed


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


def _action(row: RowMapping) -> Action:
    return Action(
        id=ActionId(row["id"]),
        incident=IncidentId(row["incident"]),
        executor=row["executor"],
        payload=parse(row["document"]),
    )
