from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sentinel.domain.incidents import Incident
from sentinel.engine.writer import Writer
from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import DecisionId, IncidentId, RunId
from sentinel.protocol.observations import Tick
from sentinel.store import decision_log
from sentinel.store.decision_log import IncidentFilter
from tests.builders import RUN, entry
from tests.daemons import Voice, writing

pytestmark = pytest.mark.usefixtures("every_store")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A running writer over an empty database."""
    with writing(tmp_path) as writer:
        yield writer


def test_a_run_keeps_its_beginning(writer: Writer) -> None:
    """The row of a run moves on with its log, but for the time at which it was first heard of."""
    voice = Voice(writer)
    voice.start()
    before = writer.write(lambda connection: decision_log.run_document(connection, RUN)).result()
    voice.train(3)
    after = writer.write(lambda connection: decision_log.run_document(connection, RUN)).result()
    assert before is not None
    assert after is not None
    assert (before["step"], after["step"], after["sequence"] - before["sequence"]) == (0, 3, 3)
    assert before["created_at"] == after["created_at"]
    assert writer.write(lambda connection: decision_log.run_document(connection, RunId("no"))).result() is None


def test_the_run_heard_of_last_comes_first(writer: Writer) -> None:
    """Runs are listed by their last word."""
    first, second = Voice(writer, "first"), Voice(writer, "second")
    first.start()
    second.start()
    first.train(1)
    runs = writer.write(decision_log.run_documents).result()
    assert [run["run"] for run in runs] == ["first", "second"]


def test_pages_of_incidents_meet_without_gap_or_repetition(writer: Writer) -> None:
    """Read in pages of two, newest first, the incidents of several runs are those of one long page."""
    for number in range(5):
        voice = Voice(writer, f"run-{number}")
        voice.ready_to_roll_back()
        voice.break_down()
    whole = writer.write(decision_log.incident_documents).result()
    assert len(whole) == 5
    assert [each["detected_at"] for each in whole] == sorted((each["detected_at"] for each in whole), reverse=True)
    paged, before = [], None
    while page := writer.write(
        lambda connection, before=before: decision_log.incident_documents(connection, before=before, limit=2)
    ).result():
        paged += page
        before = (page[-1]["detected_at"], page[-1]["id"])
    assert paged == whole


def test_incidents_are_found_by_run_and_state(writer: Writer) -> None:
    """One run's incidents, or those in one state, come without the others; the open ones are grouped by run."""
    for name in ("one", "two"):
        voice = Voice(writer, name)
        voice.ready_to_roll_back()
        voice.break_down()

    def found(**wanted: str) -> list[str]:
        return [
            each["run"]
            for each in writer.write(
                lambda connection: decision_log.incident_documents(connection, **wanted)  # type: ignore[arg-type]
            ).result()
        ]

    assert found(run="one") == ["one"]
    assert found(state="mitigating") == ["two", "one"]
    assert found(state="resolved") == []
    unresolved = writer.write(decision_log.open_incidents).result()
    assert {run: len(incidents) for run, incidents in unresolved.items()} == {"one": 1, "two": 1}


def incident(number: int, **given: Any) -> Incident:
    """One that was detected at ``number`` and points at a node of the rack."""
    symptom = given.pop("symptom", "nonfinite")
    return Incident(
        id=IncidentId(f"{RUN}.i{number}"),
        symptom=symptom,
        symptoms=given.pop("symptoms", (symptom,)),
        subject="run",
        verdict="undecided",
        segment=0,
        onset_step=number,
        suspect_from=number,
        detected_step=number,
        detected_at=float(number),
        opened_sequence=number,
        changed_sequence=number,
        reason="seen",
        **{"severity": "warning", "state": "open", "node": f"node-{number % 2}"} | given,
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"node": "node-1"}, [5, 3, 1]),
        ({"severity": "critical"}, [2]),
        ({"symptom": "hang"}, [4, 3]),
        ({"symptom": "han_"}, []),
        ({"first_at": 2.0, "until_at": 4.0}, [3, 2]),
        ({"symptom": "hang", "node": "node-1", "first_at": 3.0}, [3]),
        ({"node": "x" * 500}, [5]),
    ],
)
def test_incidents_are_found_by_all_that_is_given(writer: Writer, wanted: dict[str, Any], found: list[int]) -> None:
    """Severity, any of the symptoms, node and time are one condition together; a name beyond measure is cut off."""
    last = incident(5, node="x" * 300) if "x" in wanted.get("node", "") else incident(5)
    outcome = Outcome()
    outcome.incidents += [incident(1), incident(2, severity="critical"), incident(3, symptom="hang")]
    outcome.incidents += [incident(4, symptoms=("nonfinite", "hang")), last]
    told = entry(Tick(at=0.0, silent_s=5.0), 1)
    writer.write(lambda connection: decision_log.put_outcome(connection, told, outcome)).result()
    documents = writer.write(
        lambda connection: decision_log.incident_documents(connection, wanted=IncidentFilter(**wanted))
    ).result()
    assert [each["opened_sequence"] for each in documents] == found


def test_decisions_and_findings_are_read_from_any_place(writer: Writer) -> None:
    """A reader that names the last sequence it has seen gets what came after it, and nothing twice."""
    voice = Voice(writer)
    voice.ready_to_roll_back()
    (command,) = voice.break_down().commands
    voice.roll_back(command.id, 20)
    decisions = writer.write(lambda connection: decision_log.decision_documents(connection, run=RUN)).result()
    assert [each["change"] for each in decisions] == ["opened", "rolled back"]
    after = decisions[0]["sequence"]
    later = writer.write(lambda connection: decision_log.decision_documents(connection, run=RUN, after=after)).result()
    assert later == decisions[1:]
    one = writer.write(
        lambda connection: decision_log.decision_document(connection, DecisionId(decisions[0]["id"]))
    ).result()
    assert one == decisions[0]
    (finding,) = writer.write(lambda connection: decision_log.finding_documents(connection, RUN)).result()
    assert (finding["symptom"], finding["sequence"]) == ("nonfinite", decisions[0]["sequence"])
    assert writer.write(lambda connection: decision_log.finding_documents(connection, RUN, after=after)).result() == []


def test_checkpoints_show_their_newest_state(writer: Writer) -> None:
    """A checkpoint is one row that follows its state, the newest step first."""
    voice = Voice(writer)
    voice.ready_to_roll_back()
    voice.checkpoint("newer")
    found = writer.write(lambda connection: decision_log.checkpoint_documents(connection, RUN)).result()
    assert [(each["id"], each["step"], each["state"]) for each in found] == [
        ("newer", 80, "verified"),
        ("good", 20, "known_good"),
    ]


def test_what_does_not_exist_is_none(writer: Writer) -> None:
    """An unknown incident or decision has no document."""
    assert writer.write(lambda c: decision_log.incident_document(c, IncidentId("no"))).result() is None
    assert writer.write(lambda c: decision_log.decision_document(c, DecisionId("no"))).result() is None
