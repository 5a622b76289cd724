"""Protocol types to JSON and back; the only place where NaN and infinity are spelled.

JSON has no NaN. Here a float that is not finite is the string ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``, in both
directions and in the daemon's log, so that every text is JSON for any reader. The bare tokens that Python's ``json``
writes are read too. Decoders are built once from the dataclasses' annotations: the types are the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, get_args

from sentinel.protocol import commands, observations
from sentinel.protocol.decoding import DecodeError, Decoder, decode_float, decode_text, join, object_decoder, shown
from sentinel.protocol.observations import Observation, ObservationBatch, UnknownObservation
from sentinel.protocol.version import PROTOCOL_VERSION

__all__ = [
    "DecodeError",
    "VersionMismatch",
    "decode_batch",
    "decode_observation",
    "decode_reply",
    "dumps",
    "parse",
    "to_tree",
]

MAX_DEPTH: Final = 32
"""Nesting of a message. What is accepted must be readable again, whoever reads it and however deep in a call stack."""


class VersionMismatch(DecodeError):
    """The other side speaks another version of the protocol."""


def dumps(value: object) -> str:
    """Compact JSON text of a protocol object or of a tree of dicts and lists that ``to_tree`` or ``parse`` made."""
    tree = value if isinstance(value, dict | list) else to_tree(value)
    try:
        return json.dumps(tree, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_spelled(tree), separators=(",", ":"), allow_nan=False)


def to_tree(value: object) -> dict[str, Any]:
    """A protocol object as a dict for JSON, with its ``kind`` where it has one; fields that are None are left out.

    Floats that are not finite stay floats: ``dumps`` spells them.
    """
    if isinstance(value, UnknownObservation):
        return {"kind": value.named, "at": value.at}
    tree: dict[str, Any] = {}
    kind = getattr(value, "kind", None)
    if kind is not None:
        tree["kind"] = kind
    for name in _field_names(type(value)):
        item = getattr(value, name)
        if item is None:
            continue
        if isinstance(item, tuple):
            item = [to_tree(element) if hasattr(element, "__dataclass_fields__") else element for element in item]
        elif isinstance(item, Mapping):
            item = dict(item)
        tree[name] = item
    return tree


def parse(text: str | bytes) -> Any:
    """Parses JSON; bare ``NaN`` and ``Infinity`` become the strings that this protocol uses.

    Raises:
        DecodeError: it is not JSON, not UTF-8, or nested deeper than ``MAX_DEPTH``.
    """
    try:
        tree = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise DecodeError("", f"not JSON: {error}") from None
    if _is_deep(tree):
        raise DecodeError("", f"nested more than {MAX_DEPTH} deep")
    return tree


def decode_observation(tree: object, path: str = "") -> Observation:
    """One observation from its JSON tree. Unknown fields are ignored, an unknown kind is an ``UnknownObservation``.

    Raises:
        DecodeError: a field is missing or of the wrong type.
    """
    if not isinstance(tree, dict):
        raise DecodeError(path, f"expected an object, got {shown(tree)}")
    kind = tree.get("kind")
    decoder = _OBSERVATIONS.get(kind) if isinstance(kind, str) else None
    if decoder is not None:
        return decoder(tree, path)  # type: ignore[no-any-return]
    if not isinstance(kind, str):
        raise DecodeError(join(path, "kind"), f"expected the name of an observation kind, got {shown(kind)}")
    named = decode_text(kind, join(path, "kind"))[:128]
    at = tree.get("at")
    return UnknownObservation(at=decode_float(0.0 if at is None else at, join(path, "at")), named=named)


def decode_batch(tree: object) -> ObservationBatch:
    """A batch from its JSON tree.

    Raises:
        VersionMismatch: the sender speaks another version.
        DecodeError: a field is missing or of the wrong type, or a kind is the daemon's own.
    """
    if isinstance(tree, dict) and isinstance(tree.get("protocol"), int) and tree["protocol"] != PROTOCOL_VERSION:
        raise VersionMismatch(
            "protocol",
            f"the sender speaks version {tree['protocol']} and this daemon version {PROTOCOL_VERSION}: "
            f"install the same release of training-sentinel on both sides",
        )
    batch: ObservationBatch = _BATCH(tree, "")
    for index, observation in enumerate(batch.observations):
        if isinstance(observation, observations.DAEMON_KINDS):
            raise DecodeError(f"observations[{index}].kind", f"{observation.kind!r} is for the daemon itself")
    return batch


def decode_reply(tree: object) -> commands.Reply:
    """A daemon's reply from its JSON tree.

    Raises:
        DecodeError: it is not a reply.
    """
    reply: commands.Reply = _REPLY(tree, "")
    return reply


def _is_deep(tree: object) -> bool:
    level = [tree]
    for _ in range(MAX_DEPTH):
        inner = [each for each in level if isinstance(each, (dict, list))]
        level = [child for each in inner for child in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


def _spelled(tree: Any) -> Any:
    if isinstance(tree, float) and not math.isfinite(tree):
        return "NaN" if math.isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
    if isinstance(tree, dict):
        return {key: _spelled(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_spelled(value) for value in tree]
    return tree


def _field_names(owner: type) -> tuple[str, ...]:
    names = _FIELD_NAMES.get(owner)
    if names is None:
        names = _FIELD_NAMES[owner] = tuple(field.name for field in fields(owner))
    return names


def _command(tree: object, path: str) -> Any:
    kind = tree.get("kind") if isinstance(tree, dict) else None
    decoder = _COMMANDS.get(kind) if isinstance(kind, str) else None
    if decoder is None:
        raise DecodeError(join(path, "kind"), f"expected one of {', '.join(_COMMANDS)}, got {shown(kind)}")
    return decoder(tree, path)


def _by_kind(owners: Iterable[Any]) -> dict[str, Decoder]:
    return {owner.kind: object_decoder(owner) for owner in owners}


_FIELD_NAMES: Final[dict[type, tuple[str, ...]]] = {}
_OBSERVATIONS: Final = _by_kind((*observations.SENDER_KINDS, *observations.DAEMON_KINDS))
_COMMANDS: Final = _by_kind(get_args(commands.Command))
_BATCH: Final = object_decoder(ObservationBatch, {Observation: decode_observation})
_REPLY: Final = object_decoder(commands.Reply, {commands.Command: _command})
