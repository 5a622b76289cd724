"""Alerts that are due, those with a shared cause together: one switch that fails is one message and not a hundred.

The first of a topic waits ``COMPANY_WAIT_S`` and takes along whatever of its topic is there. Those that come later
within ``TOGETHER_S`` wait until that time is over, and are the next message. What was put together stays together in
every try, under the id of the first: a receiver that has the message already can drop it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, func, or_, select, update

from sentinel.domain.actions import Action
from sentinel.protocol.ids import ActionId
from sentinel.store.action_outbox import RETRY_FIRST_S, RETRY_LONGEST_S, action_of
from sentinel.store.tables import actions

TOGETHER_S: Final = 60.0
MOST_CLAIMS: Final = 20
LARGEST_GROUP: Final = 500
_UNSETTLED: Final = actions.c.state.in_(("planned", "claimed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Alerts that are sent as one message; mostly a single one."""

    id: ActionId
    """Of the message: the same in every try."""
    alerts: Sequence[Action]
    tries: int
    """This one included."""


def claim_due(connection: Connection, *, at: float, limit: int = MOST_CLAIMS) -> list[Claim]:
    """Claims unsettled alerts that are due.

    What nobody answers for is due again after a wait that doubles. What seems due later than after the longest wait was
    planned by a clock that has been set back since.
    """
    claims: list[Claim] = []
    claimed: set[str] = set()
    is_due = or_(actions.c.due_at <= at, actions.c.due_at > at + RETRY_LONGEST_S)
    due = select(actions).where(actions.c.executor == "alert", _UNSETTLED, is_due)
    for row in connection.execute(due.order_by(actions.c.due_at, actions.c.id).limit(LARGEST_GROUP)).mappings().all():
        if len(claims) >= limit:
            break
        if row["id"] in claimed:
            continue
        until = _busy_until(connection, row, at)
        if until is None:
            group = _group(connection, row)
            claims.append(_claim(connection, group, at=at))
            claimed |= {each["id"] for each in group}
        else:
            connection.execute(update(actions).where(actions.c.id == row["id"]).values(due_at=until))
    return claims


def _busy_until(connection: Connection, row: RowMapping, at: float) -> float | None:
    """Until when a new alert waits because a message about its topic went out a moment ago; None if it need not."""
    if not row["topic"] or row["batch"]:
        return None
    last = select(func.max(actions.c.planned_at)).where(
        actions.c.topic == row["topic"], actions.c.batch == actions.c.id
    )
    began_at = connection.execute(last).scalar()
    return began_at + TOGETHER_S if began_at is not None and 0.0 <= at - began_at < TOGETHER_S else None


def _group(connection: Connection, row: RowMapping) -> Sequence[RowMapping]:
    """The row with those that are sent with it, itself first."""
    if not row["topic"]:
        return [row]
    mates = select(actions).where(_UNSETTLED, actions.c.topic == row["topic"], actions.c.batch == row["batch"])
    mates = mates.where(actions.c.executor == "alert", actions.c.id != row["id"])
    found = connection.execute(mates.order_by(actions.c.planned_at, actions.c.id).limit(LARGEST_GROUP)).mappings()
    return [row, *found]


def _claim(connection: Connection, group: Sequence[RowMapping], *, at: float) -> Claim:
    first = group[0]
    wait = min(RETRY_LONGEST_S, RETRY_FIRST_S * 2.0 ** first["tries"])
    values = {
        "state": "claimed",
        "tries": first["tries"] + 1,
        "due_at": at + wait,
        "changed_at": at,
        "batch": first["batch"] or first["id"],
    }
    connection.execute(update(actions).where(actions.c.id.in_([each["id"] for each in group])).values(**values))
    return Claim(id=ActionId(values["batch"]), alerts=[action_of(each) for each in group], tries=first["tries"] + 1)
