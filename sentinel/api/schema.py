"""/openapi.json: FastAPI describes the answers, and here is what it cannot see: bodies that the codec reads."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from fastapi import FastAPI
from pydantic import TypeAdapter

from sentinel.api.documents import RollbackWish, Wish
from sentinel.protocol.observations import SENDER_KINDS, ObservationBatch

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
    return schema


def _reference(owner: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{owner.__name__}"}
