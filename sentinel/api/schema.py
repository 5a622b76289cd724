"""/openapi.json: FastAPI describes the answers, and here is what it cannot see: bodies that the codec reads."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from fastapi import FastAPI
from pydantic import TypeAdapter

from sentinel.api import examples
from sentinel.api.documents import RollbackWish, Wish
from sentinel.api.problems import PROBLEM_TYPE
from sentinel.protocol.decoding import SPELLED
from sentinel.protocol.observations import SENDER_KINDS, ObservationBatch

_NUMBER: Final = [{"type": "number"}, {"enum": list(SPELLED)}]
_BODIES: Final = (ObservationBatch, Wish, RollbackWish)


def takes(body: type) -> dict[str, Any]:
    """Says of an endpoint that it takes ``body``, as ``openapi_extra``."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _reference(body)}}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole schema."""
    schema = deepcopy(app.openapi())  # it is kept there
    adapters = [(body.__name__, "validation", TypeAdapter(body)) for body in _BODIES]
    _, bodies = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    schemas: dict[str, Any] = schema["components"]["schemas"]
    schemas |= bodies["$defs"]
    for owner in SENDER_KINDS:
        described = schemas[owner.__name__]
        described["properties"] = {"kind": {"const": vars(owner)["kind"]}} | described["properties"]
        described["required"] = ["kind", *described.get("required", [])]
    observations = [_reference(owner) for owner in SENDER_KINDS]
    schemas["ObservationBatch"]["properties"]["observations"]["items"] = {"anyOf": observations}
    for wish in (Wish, RollbackWish):
        schemas[wish.__name__]["additionalProperties"] = False
    schema["components"]["schemas"] = _spelled(schemas)
    for path, verbs in schema["paths"].items():
        for verb, operation in verbs.items():
            _complete(operation, verb, path)
    return schema


def _complete(operation: dict[str, Any], verb: str, path: str) -> None:
    """Gives an operation its examples, and its errors the media type that they have."""
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if status != "503" and not status.startswith("2") and "application/json" in content:
            content[PROBLEM_TYPE] = content.pop("application/json") | {"example": examples.PROBLEM}
    answer = examples.ANSWERS[verb, path]
    media_type = "text/plain" if isinstance(answer, str) else "application/json"
    operation["responses"]["200"].setdefault("content", {}).setdefault(media_type, {})["example"] = answer
    if "requestBody" in operation:
        operation["requestBody"]["content"]["application/json"]["example"] = examples.REQUESTS[verb, path]
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            parameter["example"] = examples.PARAMETERS[parameter["name"]]


def _spelled(tree: Any) -> Any:
    """A number may be one that JSON has no word for: it is spelled then."""
    if isinstance(tree, dict):
        if tree.get("type") == "number":
            return {name: value for name, value in tree.items() if name != "type"} | {"anyOf": _NUMBER}
        return {name: _spelled(value) for name, value in tree.items()}
    return [_spelled(each) for each in tree] if isinstance(tree, list) else tree


def _reference(owner: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{owner.__name__}"}
