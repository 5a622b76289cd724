"""Hypothesis strategies for the protocol's types, made from their fields as the decoders are."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import AttemptId, CheckpointId, RunId, SenderId

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
_PLAIN: dict[object, st.SearchStrategy[Any]] = {
    float: st.floats(),
    int: st.integers(0, MAX_INTEGER),
    bool: st.booleans(),
    str: TEXT,
    **dict.fromkeys((RunId, AttemptId, SenderId, CheckpointId), NAMES),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Values that a field with this annotation may hold."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if hasattr(annotation, "__supertype__"):
        return values_of(annotation.__supertype__)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Mapping:
        return st.dictionaries(TEXT.filter(bool), values_of(arguments[1]), max_size=4)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if each is types.NoneType else values_of(each) for each in arguments])
    return instances_of(annotation)


def instances_of(owner: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of a protocol dataclass; ``given`` are strategies for fields that need one of their own."""
    hints = get_type_hints(owner)
    others = [field.name for field in fields(owner) if field.name not in given]
    return st.builds(owner, **{name: values_of(hints[name]) for name in others}, **given)
