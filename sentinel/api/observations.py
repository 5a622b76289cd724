"""Observations in, commands out: the one endpoint that agents talk to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from sentinel import clock
from sentinel.api.auth import Reporting
from sentinel.api.body import decoded, parse, read_bytes
from sentinel.api.schema import takes
from sentinel.api.services import Json, Provided
from sentinel.domain.errors import Forbidden
from sentinel.protocol import codec
from sentinel.protocol.commands import Reply
from sentinel.protocol.digest import HEADER, digest
from sentinel.protocol.observations import ObservationBatch

router = APIRouter(tags=["observations"])

LARGE_BYTES = 256 << 10
"""Decoding a body beyond this would keep other requests waiting for more than about 10 ms."""


@router.post("/v1/observations", response_model=Reply, openapi_extra=takes(ObservationBatch))
async def take(request: Request, services: Provided, caller: Reporting) -> Response:
    """Takes a batch; the answer comes when it is durable, and carries the commands for its sender."""
    body = await read_bytes(request)
    began = clock.monotonic()
    batch, payloads = await run_in_threadpool(_decode, body) if len(body) > LARGE_BYTES else _decode(body)
    if not caller.may_report(batch.run):
        raise Forbidden(f"the token {caller.name!r} is for runs {caller.runs!r}: it may not report on {batch.run!r}")
    taken = services.writer.ingest(batch, payloads, received_at=clock.now())
    reply = await asyncio.wrap_future(taken)
    link = f"{services.public_url}/incidents/"
    reply = replace(reply, notices=tuple(replace(each, link=link + each.incident) for each in reply.notices))
    services.metrics.ingest_seconds.observe(clock.monotonic() - began)
    answer = Json(reply)
    answer.headers[HEADER] = digest(bytes(answer.body))
    return answer


def _decode(body: bytes) -> tuple[ObservationBatch, list[str]]:
    """The batch, and each observation's text as it came but for the spelling: what is not known is kept too."""
    tree = parse(body)
    batch = decoded(codec.decode_batch, tree)
    return batch, [codec.dumps(each) for each in tree["observations"]]
