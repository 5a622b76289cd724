from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from types import ModuleType
from typing import get_args

import pytest

from sentinel.domain import actions, checkpoints, incidents
from sentinel.domain.actions import ActionEvent, ActionState
from sentinel.domain.checkpoints import CheckpointEvent, CheckpointState
from sentinel.domain.errors import IllegalTransition
from sentinel.domain.incidents import IncidentEvent, IncidentState
from sentinel.domain.transitions import next_state

Table = Mapping[tuple[str, str], str]
TABLES: dict[str, tuple[ModuleType, object, object, str]] = {
    "action": (actions, ActionState, ActionEvent, "planned"),
    "checkpoint": (checkpoints, CheckpointState, CheckpointEvent, "reported"),
    "incident": (incidents, IncidentState, IncidentEvent, "open"),
}
ARROW = re.compile(r"(?=\b(\w+) ─+(\w+)─+▶ (\w+))")

pytestmark = pytest.mark.parametrize("noun", TABLES)


def _table(noun: str) -> Table:
    table: Table = TABLES[noun][0].TRANSITIONS
    return table


def test_every_state_is_reached_and_every_event_used(noun: str) -> None:
    """From the first state all states can be reached, and no event is without a row."""
    _, states, events, first = TABLES[noun]
    reached, grown = {first}, True
    while grown:
        more = {after for (before, _), after in _table(noun).items() if before in reached}
        grown = not more <= reached
        reached |= more
    assert reached == set(get_args(states))
    assert {event for _, event in _table(noun)} == set(get_args(events))


def test_what_has_no_row_is_refused_with_the_story(noun: str) -> None:
    """A state change that the table does not have names the thing, its state and the event."""
    _, states, events, _ = TABLES[noun]
    for state, event in product(get_args(states), get_args(events)):
        if (state, event) in _table(noun):
            assert next_state(_table(noun), state, event, f"{noun} x1") == _table(noun)[state, event]
        else:
            with pytest.raises(IllegalTransition, match=f"{noun} x1 is '{state}' and the event '{event}' has no row"):
                next_state(_table(noun), state, event, f"{noun} x1")


def test_the_diagram_shows_the_table(noun: str) -> None:
    """Each arrow drawn in one line is a row of the table, and every state and event stands in the drawing."""
    drawing = TABLES[noun][0].__doc__ or ""
    table = _table(noun)
    arrows = ARROW.findall(drawing)
    assert arrows
    for before, event, after in arrows:
        sources = {state for state, _ in table} if before == "any" else {before}
        assert after in {table.get((source, event)) for source in sources}
    words = set(re.findall(r"\w+", drawing.replace("─", " ")))
    assert {word for (before, event), after in table.items() for word in (before, event, after)} <= words
