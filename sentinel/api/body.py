"""The body of a request, as JSON and not beyond measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, HTTPException, Request

from sentinel.domain.errors import Conflict, InvalidInput
from sentinel.protocol import codec
from sentinel.protocol.digest import HEADER, digest

Decoded = TypeVar("Decoded")

LIMIT_BYTES: Final = 16 << 20
"""An agent's largest batch, 500 reports with 16 series of the user's own, is under 1 MiB."""
DRAINED_BYTES: Final = 4 * LIMIT_BYTES
"""So much is read and thrown away, because a sender that is cut off never sees the answer."""


async def read_bytes(request: Request) -> bytes:
    """The whole body.

    Raises:
        HTTPException: 413, it is too large; 415, it is not declared as JSON, as a page in somebody's browser could not
            do without asking; 503, it is not what was sent.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body must be JSON: send the header Content-Type: application/json")
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= LIMIT_BYTES:
            chunks.append(chunk)
        elif size > DRAINED_BYTES:
            break
    if size > LIMIT_BYTES:
        raise HTTPException(413, f"the body is larger than {LIMIT_BYTES} bytes: send it in smaller batches")
    body = b"".join(chunks)
    if request.headers.get(HEADER) not in (None, digest(body)):
        raise HTTPException(503, f"the body does not fit its {HEADER}: it was changed on its way, send it again")
    return body


async def read_json(request: Request) -> Any:
    """The body's JSON tree.

    Raises:
        HTTPException: as ``read_bytes`` and ``parse``.
    """
    return parse(await read_bytes(request))


def parse(body: bytes) -> Any:
    """The JSON tree.

    Raises:
        HTTPException: 400, it is not JSON.
    """
    try:
        return codec.parse(body)
    except codec.DecodeError as error:
        raise HTTPException(400, f"the body is not to be read: {error.problem}") from None


def decoded(decode: Callable[[object], Decoded], tree: object) -> Decoded:
    """What ``decode`` makes of the tree.

    Raises:
        InvalidInput: a field is missing or wrong; its path is the field's name.
        Conflict: the sender speaks another version of the protocol.
    """
    try:
        return decode(tree)
    except codec.VersionMismatch as error:
        raise Conflict(str(error)) from None
    except codec.DecodeError as error:
        raise InvalidInput(error.path or "body", error.problem) from None


Body = Annotated[Any, Depends(read_json)]
