"""Decoders made from the annotations of dataclasses: the types are the schema, and an error names the path."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from sentinel.protocol.ids import NAME_RULE, AttemptId, CheckpointId, RunId, SenderId, is_name

MAX_INTEGER: Final = 2**63 - 1
"""The largest integer both databases hold in a column."""
MAX_TEXT: Final = 100_000
MAX_SERIES: Final = 16
"""Series of the user's own in one report."""
MAX_KEY: Final = 100
SPELLED: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Decoder = Callable[[object, str], Any]
Special = Mapping[Any, Decoder]


class DecodeError(ValueError):
    """Something in a message is not what the protocol says.

    Attributes:
        path: where, such as ``observations[3].loss``; empty for the whole message.
        problem: what is wrong and what was expected.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'message'}: {problem}")
        self.path = path
        self.problem = problem


def join(path: str, name: str) -> str:
    """The path of a field within ``path``."""
    return f"{path}.{name}" if path else name


def shown(value: object) -> str:
    """A value as an error message quotes it."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def decode_float(value: object, path: str) -> float:
    """A number, or a non-finite one as it is spelled."""
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value in SPELLED:
        return SPELLED[value]
    raise DecodeError(path, f"expected a number or one of {', '.join(map(repr, SPELLED))}, got {shown(value)}")


def decode_int(value: object, path: str) -> int:
    """An integer that a database column holds, 0 or more."""
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= MAX_INTEGER:
            return value
        raise DecodeError(path, f"expected an integer from 0 to {MAX_INTEGER}, got {shown(value)}")
    raise DecodeError(path, f"expected an integer, got {shown(value)}")


def decode_bool(value: object, path: str) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise DecodeError(path, f"expected true or false, got {shown(value)}")


def decode_text(value: object, path: str) -> str:
    """Text of bounded length that both databases and UTF-8 can hold."""
    if not isinstance(value, str):
        raise DecodeError(path, f"expected text, got {shown(value)}")
    if len(value) > MAX_TEXT:
        raise DecodeError(path, f"expected at most {MAX_TEXT} characters, got {len(value)}")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DecodeError(path, "expected Unicode text, got half of a surrogate pair")
    if "\0" in value:
        raise DecodeError(path, "expected text without a NUL character")
    return value


def decode_name(value: object, path: str) -> str:
    """A name by ``NAME_RULE``."""
    text = decode_text(value, path)
    if not is_name(text):
        raise DecodeError(path, f"expected {NAME_RULE}, got {shown(text)}")
    return text


def _optional(inner: Decoder) -> Decoder:
    return lambda value, path: None if value is None else inner(value, path)


def _literal(allowed: tuple[object, ...]) -> Decoder:
    def decode(value: object, path: str) -> object:
        if isinstance(value, str) and value in allowed:
            return value
        raise DecodeError(path, f"expected one of {', '.join(map(repr, allowed))}, got {shown(value)}")

    return decode


def _many(inner: Decoder) -> Decoder:
    def decode(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise DecodeError(path, f"expected a list, got {shown(value)}")
        return tuple(inner(item, f"{path}[{index}]") for index, item in enumerate(value))

    return decode


def _mapping(inner: Decoder) -> Decoder:
    def decode(value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DecodeError(path, f"expected an object, got {shown(value)}")
        if len(value) > MAX_SERIES:
            raise DecodeError(path, f"expected at most {MAX_SERIES} entries, got {len(value)}")
        return {_key(key, path): inner(item, join(path, key)) for key, item in value.items()}

    return decode


def _key(key: str, path: str) -> str:
    if not 0 < len(key) <= MAX_KEY:
        raise DecodeError(path, f"expected names of 1 to {MAX_KEY} characters, got {shown(key)}")
    return decode_text(key, path)


_PLAIN: Final[dict[object, Decoder]] = {
    float: decode_float,
    int: decode_int,
    bool: decode_bool,
    str: decode_text,
    **dict.fromkeys((RunId, AttemptId, SenderId, CheckpointId), decode_name),
}


def _decoder(annotation: Any, special: Special) -> Decoder:
    plain = special.get(annotation) or _PLAIN.get(annotation)
    if plain is not None:
        return plain
    if hasattr(annotation, "__supertype__"):
        return _decoder(annotation.__supertype__, special)
    if hasattr(annotation, "__dataclass_fields__"):
        return object_decoder(annotation, special)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        return _many(_decoder(arguments[0], special))
    if origin is Mapping:
        return _mapping(_decoder(arguments[1], special))
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not types.NoneType]
        literals = [value for argument in inner if get_origin(argument) is Literal for value in get_args(argument)]
        decoder = _literal(tuple(literals)) if literals else _decoder(inner[0], special)
        return _optional(decoder) if len(inner) < len(arguments) else decoder
    raise TypeError(f"the codec has no decoder for {annotation!r}")


def object_decoder(owner: type, special: Special = MappingProxyType({})) -> Decoder:
    """A decoder of a dataclass from a JSON object; unknown fields are ignored.

    Args:
        owner: the dataclass.
        special: decoders for annotations that are not plain, such as a union that is told apart by its kind.
    """
    hints = get_type_hints(owner)
    plan: list[tuple[str, Decoder, bool]] = []
    for field in fields(owner):
        required = field.default is MISSING and field.default_factory is MISSING
        plan.append((field.name, _decoder(hints[field.name], special), required))

    def decode(tree: object, path: str) -> Any:
        if not isinstance(tree, dict):
            raise DecodeError(path, f"expected an object, got {shown(tree)}")
        given: dict[str, Any] = {}
        for name, decoder, required in plan:
            if name in tree:
                given[name] = decoder(tree[name], f"{path}.{name}" if path else name)
            elif required:
                raise DecodeError(join(path, name), "is missing")
        return owner(**given)

    return decode
