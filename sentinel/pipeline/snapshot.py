"""A component's state as JSON and back.

Every stateful part of the pipeline keeps what it remembers in ``state``, a dataclass of plain values, so that one pair
of functions saves and restores them all.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from pydantic import TypeAdapter


class Stateful(Protocol):
    """Something that remembers in ``state``."""

    state: Any


def dump(component: Stateful) -> dict[str, Any]:
    """The component's state as a tree of dicts, lists, numbers and text."""
    return asdict(component.state)


def restore(component: Stateful, tree: Any) -> None:
    """Puts back what ``dump`` returned.

    Raises:
        ValueError: the tree is not a state of this component.
    """
    component.state = TypeAdapter(type(component.state)).validate_python(tree)
