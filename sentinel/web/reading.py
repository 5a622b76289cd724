"""What the pages tell, read from the store in one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from sentinel.checkpoints.retention import releasable
from sentinel.checkpoints.selection import Selection, select
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.errors import NotFound
from sentinel.protocol.codec import parse
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.store import action_outbox, decision_log, observation_log
from sentinel.store.series import Wanted
from sentinel.store.session import Connection
from sentinel.web.curves import TITLES, Curve, read_curve, spans

Document = dict[str, Any]

POINTS: Final = 240
"""Of a curve: a phone has about as many columns, and a wide screen shows each bucket's lowest and highest too."""
EVIDENCE_POINTS: Final = 1000
"""Of an incident's: each step by itself, unless it went on for long."""
RUNS_SHOWN: Final = 200
SHOWN: Final = 50
"""Rows of a table: the REST API has the rest."""
STEPS_BEFORE: Final = 64
STEPS_AFTER: Final = 32
"""Around an incident, as the REST API shows them."""
MOST_STEPS: Final = 2048
"""Of an incident that nobody settles."""
FARTHEST_CHECKPOINT: Final = 512
"""A checkpoint so many steps before the onset is drawn with it; an older one would press the fault into a corner."""
WORD_BEFORE_S: Final = 300.0
"""What processes said so long before an incident was raised may belong to it."""
WORDS_SHOWN: Final = 32


def overview(connection: Connection) -> Document:
    """Every run, and what is open."""
    unresolved = decision_log.open_incidents(connection)
    runs = decision_log.run_documents(connection)
    shown = [run | {"open": unresolved.get(RunId(run["run"]), [])} for run in runs[:RUNS_SHOWN]]
    return {"runs": shown, "more": len(runs) - len(shown), "open_total": sum(map(len, unresolved.values()))}


def run_document(connection: Connection, run: RunId) -> Document:
    """Where one run stands.

    Raises:
        NotFound: there is no such run.
    """
    found = decision_log.run_document(connection, run)
    if found is None:
        raise NotFound("run", run)
    return found


def incident_document(connection: Connection, incident: IncidentId) -> Document:
    """One incident.

    Raises:
        NotFound: there is no such incident.
    """
    found = decision_log.incident_document(connection, incident)
    if found is None:
        raise NotFound("incident", incident)
    return found


def run_story(connection: Connection, run: Document, *, newest_steps: int | None) -> Document:
    """All that the page of a run shows.

    Args:
        connection: to the store.
        run: its document.
        newest_steps: so many steps of the curves, the newest; None for all.
    """
    name = RunId(run["run"])
    first_step = 0 if newest_steps is None else max(0, run["step"] - newest_steps + 1)
    wanted = Wanted(run=name, name="", first_step=first_step, last_step=MAX_INTEGER, points=POINTS)
    curves = [read_curve(connection, replace(wanted, name=series)) for series in TITLES]
    incidents = decision_log.incident_documents(connection, run=name, limit=SHOWN)[::-1]
    decisions = decision_log.decision_documents(connection, run=name)
    findings = decision_log.finding_documents(connection, name)
    checkpoints = _checkpoints(connection, name)
    return {
        "run": run,
        **_drawing(
            curves,
            spans=spans(incidents, step=run["step"], acted=_acted(decisions)),
            checkpoints=[{"step": each["step"], "state": each["state"]} for each in _rows(checkpoints)[:SHOWN]],
            findings=sorted({each["onset_step"] for each in findings[-SHOWN:] if each["phase"] == "began"}),
        ),
        "incidents": incidents,
        "decisions": decisions[: -SHOWN - 1 : -1],
        "decisions_total": len(decisions),
        "findings": findings[: -SHOWN - 1 : -1],
        "findings_total": len(findings),
        "checkpoints": _rows(checkpoints)[:SHOWN],
        "deleted": sum(each.state == "deleted" for each in checkpoints),
        "selection": _selection(run, incidents, checkpoints),
        "attempts": _attempts(connection, name)[: -SHOWN - 1 : -1],
    }


def incident_story(connection: Connection, incident: Document) -> Document:
    """All that the page of an incident shows."""
    name = RunId(incident["run"])
    run = run_document(connection, name)
    decisions = decision_log.decision_documents(connection, incident=IncidentId(incident["id"]))
    target = next((each["target_step"] for each in reversed(decisions) if each.get("target_step") is not None), None)
    return {
        "incident": incident,
        "run": run,
        "decisions": decisions,
        "findings": _findings(connection, incident),
        "actions": _actions(connection, incident),
        "people": _people(connection, incident),
        "words_told": _words(connection, incident),
        **_drawing(_evidence(connection, incident, target), lines=_lines(incident, target)),
        "target_step": target,
    }


def _drawing(curves: Sequence[Curve], **marks: list[Any]) -> Document:
    """The curves that hold anything, and the same with the marks on them for the script."""
    drawn = [curve for curve in curves if curve.kept or curve.abandoned]
    return {"curves": drawn, "drawing": {"curves": [curve.tree() for curve in drawn], "marks": marks}}


def _acted(decisions: Sequence[Document]) -> dict[str, int]:
    """By incident, the step at which the last rollback for it was ordered."""
    return {each["incident"]: each["step"] for each in decisions if each["rung"] == "rollback" and each.get("action")}


def _lines(incident: Document, target: int | None) -> list[Document]:
    """Steps to be named on the evidence."""
    chosen = [] if target is None else [{"step": target, "label": "checkpoint"}]
    onset, found = incident["onset_step"], incident["detected_step"]
    if onset == found:
        return [*chosen, {"step": onset, "label": "onset, found"}]
    return [*chosen, {"step": onset, "label": "onset"}, {"step": found, "label": "found"}]


def _checkpoints(connection: Connection, run: RunId) -> list[Checkpoint]:
    known = {each.name for each in fields(Checkpoint)}
    documents = decision_log.checkpoint_documents(connection, run)
    return [Checkpoint(**{name: value for name, value in each.items() if name in known}) for each in documents]


def _rows(checkpoints: Sequence[Checkpoint]) -> list[Document]:
    """Those that still exist, newest first."""
    loose = set(releasable(checkpoints))
    return [
        {name: getattr(each, name) for name in ("id", "step", "segment", "state", "name", "size_bytes", "reason")}
        | {"pinned": each.id not in loose}
        for each in checkpoints
        if each.state != "deleted"
    ]


def _selection(run: Document, incidents: Sequence[Document], checkpoints: Sequence[Checkpoint]) -> Selection:
    """What a rollback would take now, for what is open or for a fault that began at this step."""
    began = [each["suspect_from"] for each in incidents if each["state"] != "resolved"]
    return select(checkpoints, min([*began, run["step"] + 1]))


def _attempts(connection: Connection, run: RunId) -> list[Document]:
    """The attempts of a run, oldest first."""
    attempts: dict[str, Document] = {}
    for stored in observation_log.of_kinds(connection, run, ["attempt_started", "attempt_ended"]):
        entry = stored.entry
        part = entry.observation.kind.removeprefix("attempt_")
        attempt = attempts.setdefault(entry.attempt, {"attempt": entry.attempt, "started": {}, "ended": {}})
        attempt |= {f"{part}_at": entry.received_at, part: parse(stored.payload)}
    return list(attempts.values())


def _findings(connection: Connection, incident: Document) -> list[Document]:
    """What was claimed of its symptoms from its beginning to its end."""
    end = incident["changed_sequence"] if incident["state"] == "resolved" else None
    found = decision_log.finding_documents(
        connection, RunId(incident["run"]), after=incident["opened_sequence"] - 1, until=end
    )
    return [each for each in found if each["symptom"] in incident["symptoms"]][:SHOWN]


def _actions(connection: Connection, incident: Document) -> list[Document]:
    """What was done, with the trainer's own account of it."""
    results = {
        told["command"]: told
        for told in (
            parse(stored.payload)
            for stored in observation_log.of_kinds(connection, RunId(incident["run"]), ["command_result"])
        )
    }
    actions = action_outbox.of_incident(connection, IncidentId(incident["id"]))
    return [each | {"result": results.get(each["id"], {})} for each in actions]


def _people(connection: Connection, incident: Document) -> list[Document]:
    """What people asked for, or noted, about the incident."""
    told = observation_log.of_kinds(connection, RunId(incident["run"]), ["operator_request"])
    requests = [parse(each.payload) | {"received_at": each.entry.received_at} for each in told]
    return [each for each in requests if each.get("incident") == incident["id"]]


def _words(connection: Connection, incident: Document) -> list[Document]:
    """What the processes said at the time: their last lines, and where their threads stood."""
    end = incident["changed_sequence"] if incident["state"] == "resolved" else MAX_INTEGER
    told = observation_log.of_kinds(connection, RunId(incident["run"]), ["crash", "stacks"])
    near = [
        parse(each.payload) | {"received_at": each.entry.received_at}
        for each in told
        if each.entry.received_at >= incident["detected_at"] - WORD_BEFORE_S and each.entry.sequence <= end
    ]
    return near[:WORDS_SHOWN]


def _evidence(connection: Connection, incident: Document, target: int | None) -> list[Curve]:
    """Loss and gradient norm of the steps around it, those given up by a rollback too."""
    onset, end = incident["onset_step"], incident.get("end_step")
    first = min(onset, onset if end is None else end)
    if target is not None and target >= onset - FARTHEST_CHECKPOINT:
        first = min(first, target)
    last = onset + MOST_STEPS if end is None else max(onset, incident["detected_step"], end)
    wanted = Wanted(
        run=RunId(incident["run"]),
        name="",
        first_step=max(0, first - STEPS_BEFORE),
        last_step=last + STEPS_AFTER,
        points=EVIDENCE_POINTS,
    )
    curves = [read_curve(connection, replace(wanted, name=name)) for name in ("loss", "grad_norm")]
    # What earlier incidents had given up would be taken for part of this one.
    return [
        replace(each, abandoned=[branch for branch in each.abandoned if branch[0].segment >= incident["segment"]])
        for each in curves
    ]
