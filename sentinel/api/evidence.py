"""What processes left behind: the end of their standard error, and where their threads stood."""

from __future__ import annotations

from typing import Any

from sentinel.domain.incidents import PROCESS
from sentinel.protocol.codec import parse
from sentinel.protocol.ids import RunId
from sentinel.store import observation_log
from sentinel.store.session import Connection


def of_processes(connection: Connection, incident: dict[str, Any]) -> dict[str, Any]:
    """``crashes`` and ``stacks`` told while an incident of the processes was open; nothing for any other."""
    if incident["subject"] != PROCESS:
        return {"crashes": [], "stacks": []}
    end = incident["changed_sequence"] if incident["state"] == "resolved" else None
    told = observation_log.of_kinds(connection, RunId(incident["run"]), ["crash", "stacks"])
    while_open = [
        {"sequence": each.entry.sequence, "attempt": each.entry.attempt, **parse(each.payload)}
        for each in told
        if each.entry.sequence >= incident["opened_sequence"] and (end is None or each.entry.sequence <= end)
    ]
    return {
        "crashes": [each for each in while_open if each["kind"] == "crash"],
        "stacks": [each for each in while_open if each["kind"] == "stacks"],
    }
