"""One way to look up a state change in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sentinel.domain.errors import IllegalTransition

State = TypeVar("State", bound=str)
Event = TypeVar("Event", bound=str)


def next_state(table: Mapping[tuple[State, Event], State], state: State, event: Event, thing: str) -> State:
    """The state after ``event``.

    Raises:
        IllegalTransition: the table has no row for it.
    """
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransition(thing, state, event) from None
